//! Reads the processes of this machine, and what may be read of one.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;

use sources::selection::{Candidate, Selector};

/// What cannot be read of a process for lack of rights: metrics that are missing therefore, in the order of the field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnreadableMetrics(pub Vec<&'static str>);

/// The processes of this machine that this user may see, with what `selector` asks of them. One that ends meanwhile is
/// left out.
///
/// # Errors
///
/// The error of the operating system if /proc cannot be listed.
pub fn candidates(selector: &Selector) -> io::Result<Vec<Candidate>> {
    let pid = |entry: io::Result<fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
    let pids = fs::read_dir("/proc")?.filter_map(pid);
    Ok(pids.filter_map(|pid: u32| candidate(pid, selector)).collect())
}

/// Process `pid` with what `selector` asks of it. `None` if it has ended.
pub fn candidate(pid: u32, selector: &Selector) -> Option<Candidate> {
    let read = |file: &str| fs::read(format!("/proc/{pid}/{file}")).ok();
    let mut candidate = Candidate::from_stat(&read("stat")?)?;
    if selector.needs_commands() {
        let line = read("cmdline")?;
        let words = line.split(|byte| *byte == 0).filter(|word| !word.is_empty());
        candidate.command = words.map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    }
    if selector.needs_cgroups() {
        candidate.cgroup = String::from_utf8_lossy(&read("cgroup")?).into_owned();
    }
    Some(candidate)
}

/// What this user may not read of process `pid`.
#[must_use]
pub fn denied(pid: u32) -> UnreadableMetrics {
    let is_denied = |result: io::Result<()>| result.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied);
    let mut denied = UnreadableMetrics::default();
    if is_denied(fs::File::open(format!("/proc/{pid}/io")).map(drop)) {
        denied.0.extend(["process.disk.io", "process.io.bytes", "process.io.operations"]);
    }
    if is_denied(fs::read_dir(format!("/proc/{pid}/fd")).map(drop)) {
        denied.0.extend(["process.open_file_descriptor.count", "process.network.*"]);
    }
    denied
}

/// Adds the inodes of the sockets that process `pid` has open. `None` if they cannot be read, or there are more than
/// `most`. Counts the descriptors that it looked at in `links`.
pub fn add_sockets(pid: u32, most: usize, inodes: &mut BTreeSet<u64>, links: &mut u64) -> Option<()> {
    for entry in fs::read_dir(format!("/proc/{pid}/fd")).ok()? {
        *links += 1;
        // A descriptor may be closed meanwhile.
        let Some(link) = entry.ok().and_then(|entry| fs::read_link(entry.path()).ok()) else { continue };
        inodes.extend(sources::sockets::inode(link.as_os_str().as_bytes()));
        (inodes.len() <= most).then_some(())?;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_a_candidate_with_its_command_line_and_its_parent() {
        let own = std::process::id();
        let found = candidates(&Selector::Name("any".to_owned())).unwrap();

        let me = found.iter().find(|candidate| candidate.pid == own).unwrap();

        assert!(me.command.first().is_some_and(|program| program.contains("host_agent")), "{me:?}");
        assert!(me.cgroup.is_empty() && me.started > 0 && me.parent > 0, "{me:?}");
        let found = candidates(&Selector::Unit("any".to_owned())).unwrap();
        assert!(found.iter().any(|candidate| candidate.pid == own && candidate.cgroup.contains(":/")));
    }

    #[test]
    fn nothing_of_ones_own_process_is_denied() {
        assert_eq!(denied(std::process::id()), UnreadableMetrics::default());
    }
}
