//! A container that nobody changed: a cgroup of this system, watched by both agents.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use serde_json::Value;
use sources::cgroup::hierarchies::hierarchies;
use support::harness::not_run;

use crate::watch::Program;
use crate::{ANY, Agent, WAIT, addresses};

/// A cgroup in all hierarchies of this system.
struct Container {
    name: String,
    folders: Vec<PathBuf>,
}

impl Container {
    fn create() -> Self {
        let name = format!("uview-container-{}", std::process::id());
        let found = hierarchies(&fs::read("/proc/self/mountinfo").unwrap());
        let folders = found.into_iter().map(|found| found.root.join(&name)).filter(|path| fs::create_dir(path).is_ok());
        Self { folders: folders.collect(), name }
    }

    fn add(&self, program: &Child) {
        for folder in &self.folders {
            fs::write(folder.join("cgroup.procs"), program.id().to_string()).unwrap();
        }
    }

    /// Limits its CPU time to a tenth of a core. False if the system has no such limit here.
    fn throttle(&self) -> bool {
        let write = |(name, text): (&str, &str)| {
            let files = self.folders.iter().map(|folder| folder.join(name)).filter(|file| file.exists());
            files.map(|file| fs::write(file, text).is_ok()).next().unwrap_or(false)
        };
        [("cpu.cfs_quota_us", "10000"), ("cpu.max", "10000 100000")].into_iter().any(write)
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        for folder in &self.folders {
            WAIT.until("the cgroup can be removed", || fs::remove_dir(folder).ok().or_else(|| gone(folder)));
        }
    }
}

/// Version 1 may have two controllers in one folder.
fn gone(folder: &Path) -> Option<()> {
    (!folder.exists()).then_some(())
}

/// Throttled processes wait, which the kernel counts as pressure, too: on an idle machine that may stand out more, and
/// nothing else may.
fn names_throttling(lmap: &Value) -> bool {
    let metrics = lmap["reasons"].as_array().unwrap().iter().map(|reason| reason["metric"].as_str().unwrap());
    let metrics: Vec<_> = metrics.take(2).collect();
    let is_throttling = |metric: &str| metric.starts_with("container.cpu.throttled");
    let first = metrics.first().is_some_and(|metric| is_throttling(metric) || *metric == "container.cpu.pressure");
    lmap["alarm"] == true && first && metrics.iter().any(|metric| is_throttling(metric))
}

#[test]
fn the_lmap_of_a_container_that_is_throttled_names_the_throttling() {
    let container = Container::create();
    if container.folders.is_empty() {
        return not_run("a container that is watched: this user may create no cgroup");
    }
    let busy = "while :; do i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done; sleep 0.02; done";
    let program = Program::start(Command::new("sh").args(["-c", busy]));
    container.add(&program.0);
    let directory = tempfile::tempdir().unwrap();
    let run = directory.path().join("run");
    let start = |name: &str, text: String| {
        let config = directory.path().join(format!("{name}.yaml"));
        fs::write(&config, text).unwrap();
        Agent::start(name, &config)
    };
    let sources = format!(
        "{{cgroups: [{{pattern: '{}*', service: shop}}], cgroup_interval_ms: 100, cgroup_scan_ms: 1000}}",
        container.name
    );
    let host =
        format!("runtime_dir: {}\nmetrics: {ANY}\nlmap: {{interval_ms: 100}}\nsources: {sources}\n", run.display());
    let host = start("host-agent", host);
    let ready = addresses(&run);
    let (control, regions) = (ready["control"].as_str().unwrap(), ready["regions"].as_str().unwrap());
    let nic =
        start("nic-agent", format!("control: {{address: '{control}'}}\nregions_socket: {regions}\nmetrics: {ANY}\n"));
    let shop = || {
        let mut status = Command::new(env!("CARGO_BIN_EXE_uview"));
        let output = status.args(["status", "--json"]).env("UVIEW_RUNTIME_DIR", &run).output().unwrap();
        let lmaps = serde_json::from_slice::<Value>(&output.stdout).ok()?["lmaps"].take();
        lmaps.as_array()?.iter().find(|lmap| lmap["service"] == "shop").cloned()
    };
    WAIT.until("the LMAP is armed", || shop().filter(|lmap| lmap["state"] == "armed"));

    if container.throttle() {
        WAIT.until("an alarm that names throttling", || shop().filter(names_throttling));
    } else {
        not_run("throttling: this system has no limit of CPU time here");
    }
    drop(program);
    drop(container);

    WAIT.until("the service is gone with its cgroup", || shop().is_none().then_some(()));
    assert_eq!(nic.end(), Some(0));
    assert_eq!(host.end(), Some(0));
}
