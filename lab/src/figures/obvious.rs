//! The peer for cgroups: a process that reads their files with the obvious code.

use std::collections::HashMap;
use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ::sources::cgroup::files::FILES;
use ::sources::cgroup::hierarchies::{Controller, Hierarchy};
use anyhow::{Context as _, Result};
use support::clock::Stopwatch;

/// Time between two rounds, as the host agent's default.
const EVERY: Duration = Duration::from_secs(1);

/// The files that the host agent reads of the cgroup `name` with each sample: those of its hierarchies, the list of its
/// processes, and those of the network namespace of `process`, if it has one of its own.
pub fn files(hierarchies: &[Hierarchy], name: &str, process: Option<u32>) -> Vec<PathBuf> {
    let folder = |hierarchy: &Hierarchy| hierarchy.root.join(name);
    let is_in = |controller: Controller, file: &str| {
        let of_it = hierarchies.iter().filter(move |hierarchy| hierarchy.controller == controller);
        of_it.map(folder).find(|folder| folder.join(file).is_file())
    };
    // Version 2 has CPU time without its controller, too.
    let is_twice = is_in(Controller::Unified, "cpu.stat").is_some();
    let wanted = FILES.iter().filter(|file| !(is_twice && file.controller == Controller::Cpuacct));
    let mut found: Vec<PathBuf> =
        wanted.filter_map(|file| Some(is_in(file.controller, file.name)?.join(file.name))).collect();
    found
        .extend(hierarchies.iter().map(|hierarchy| folder(hierarchy).join("cgroup.procs")).find(|path| path.is_file()));
    if let Some(process) = process {
        found.extend(["dev", "snmp", "netstat"].map(|file| PathBuf::from(format!("/proc/{process}/net/{file}"))));
    }
    found
}

/// Reads the files that `list` names, a line of JSON, each second for ever: each is opened, read into a string, and
/// split into a map.
///
/// # Errors
///
/// A file cannot be read.
pub fn read(list: &Path) -> Result<()> {
    let paths: Vec<PathBuf> = serde_json::from_slice(&fs::read(list)?)?;
    let (clock, mut next) = (Stopwatch::start(), Duration::ZERO);
    loop {
        std::thread::sleep(next.saturating_sub(clock.elapsed()));
        for path in &paths {
            let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
            let values: HashMap<&str, &str> = text.lines().filter_map(|line| line.rsplit_once(' ')).collect();
            black_box(values);
        }
        next += EVERY;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_there_are_read_and_processor_time_of_version_1_only_without_that_of_version_2() {
        let folder = tempfile::tempdir().unwrap();
        let hierarchy = |controller, called: &str, files: &[&str]| {
            let root = folder.path().join(called);
            fs::create_dir_all(root.join("shop")).unwrap();
            for file in files {
                fs::write(root.join("shop").join(file), "1\n").unwrap();
            }
            Hierarchy { controller, root }
        };
        let cpuacct = hierarchy(Controller::Cpuacct, "cpuacct", &["cpuacct.usage_user", "cgroup.procs"]);
        let unified = hierarchy(Controller::Unified, "unified", &["cpu.stat", "cgroup.procs"]);
        let root = folder.path().to_owned();

        let of = |all: &[Hierarchy], process| files(all, "shop", process);

        let first = of(std::slice::from_ref(&cpuacct), None);
        assert_eq!(first, [root.join("cpuacct/shop/cpuacct.usage_user"), root.join("cpuacct/shop/cgroup.procs")]);
        let both = of(&[cpuacct, unified], Some(7));
        assert_eq!(both[..2], [root.join("unified/shop/cpu.stat"), root.join("cpuacct/shop/cgroup.procs")]);
        assert_eq!(both[2..], ["dev", "snmp", "netstat"].map(|file| PathBuf::from(format!("/proc/7/net/{file}"))));
    }
}
