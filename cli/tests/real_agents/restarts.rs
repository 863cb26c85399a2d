//! NIC agents that end, are killed, and come: what their detectors have learnt goes on.

use std::path::Path;
use std::process::{Command, Output};
use std::time::SystemTime;

use rustix::process::{Pid, Signal, kill_process};

use crate::operator_calls::{Operators, RunningService};
use crate::{ANY, Agent, HEARTBEAT_MS, WAIT, addresses};

/// Rows that a detector needs before it is armed, unless it goes on with a model.
pub(crate) const WARM_UP: u64 = 120;

/// A host agent, and where NIC agents find it.
pub(crate) struct Host {
    agent: Agent,
    directory: tempfile::TempDir,
    pub(crate) operators: Operators,
    pub(crate) services: std::path::PathBuf,
    nic: String,
}

impl Host {
    /// One that wants models each second.
    fn start() -> Self {
        Self::with("models_every_s: 1")
    }

    /// Runs `uview ARGUMENTS` against this host agent. Returns the exit code, and what was printed.
    pub(crate) fn uview(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_uview"));
        let Output { status, stdout, stderr } =
            command.args(arguments).env("UVIEW_RUNTIME_DIR", self.runtime_dir()).output().unwrap();
        (status.code(), String::from_utf8([stdout, stderr].concat()).unwrap())
    }

    /// One with more settings of LMAPs.
    pub(crate) fn with(lmap: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let runtime_dir = directory.path().join("run");
        let config = directory.path().join("host.yaml");
        let text = format!(
            "runtime_dir: {}\nlmap: {{interval_ms: 20, models_dir: {}, {lmap}}}\nprocess_metrics: {{enabled: false}}\n\
             services: {{heartbeat_ms: {HEARTBEAT_MS}}}\nmetrics: {ANY}\n",
            runtime_dir.display(),
            directory.path().join("models").display()
        );
        std::fs::write(&config, text).unwrap();
        let agent = Agent::start("host-agent", &config);
        let ready = addresses(&runtime_dir);
        let address = |name: &str| ready[name].as_str().unwrap().to_owned();
        let (control, regions) = (address("control"), address("regions"));
        Self {
            agent,
            operators: Operators::connect(&address("operators")),
            services: runtime_dir.join("services.sock"),
            nic: format!("control: {{address: '{control}'}}\nregions_socket: {regions}\nmetrics: {ANY}\n"),
            directory,
        }
    }

    /// Starts the host agent again, after it has ended.
    pub(crate) fn restart(&mut self) {
        self.agent = Agent::start("host-agent", &self.directory.path().join("host.yaml"));
        let ready = addresses(&self.directory.path().join("run"));
        let address = ready["operators"].as_str().unwrap();
        self.operators = WAIT.until("the host agent is back", || Operators::try_connect(address));
    }

    /// Ends the host agent by SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.agent.kill();
    }

    pub(crate) fn runtime_dir(&self) -> std::path::PathBuf {
        self.directory.path().join("run")
    }

    /// Folder of what workers have learnt.
    pub(crate) fn models(&self) -> std::path::PathBuf {
        self.directory.path().join("models")
    }

    /// When a model was last written.
    fn written(&self) -> Option<SystemTime> {
        let files = std::fs::read_dir(self.models()).unwrap();
        files.filter_map(|file| file.ok()?.metadata().ok()?.modified().ok()).max()
    }

    pub(crate) fn nic_agent(&self, worker: u32) -> Agent {
        let config = self.directory.path().join(format!("nic-{worker}.yaml"));
        std::fs::write(&config, format!("worker: {worker}\n{}", self.nic)).unwrap();
        Agent::start("nic-agent", Path::new(&config))
    }
}

#[test]
fn a_nic_agent_that_restarts_or_is_killed_goes_on_with_what_was_learnt() {
    let mut host = Host::start();
    let nic = host.nic_agent(0);
    let _service = RunningService::start("shop", &host.services);
    let before = host.operators.armed("shop");

    assert_eq!(nic.end(), Some(0));
    let nic = host.nic_agent(0);
    // A detector without a model needs more rows than this one has ever had.
    let after = host.operators.when("shop", "judged again", |lmap| lmap.judges() && lmap.samples < before.samples);
    assert!(after.samples < WARM_UP, "after a restart: {before:?} {after:?}");

    let grown = host.operators.when("shop", "a model was handed over", |lmap| lmap.samples > 2 * WARM_UP);
    drop(nic); // SIGKILL
    let _nic = host.nic_agent(0);
    let after = host.operators.when("shop", "judged again", |lmap| lmap.judges() && lmap.samples < grown.samples);
    assert!(after.samples < WARM_UP, "after a kill: {grown:?} {after:?}");
}

#[test]
fn both_agents_that_restart_in_good_order_go_on_with_what_was_learnt() {
    // They have to hand it over when they end.
    let mut host = Host::with("models_every_s: 300");
    let nic = host.nic_agent(0);
    let _service = RunningService::start("shop", &host.services);
    host.operators.armed("shop");

    for agent in [&host.agent, &nic] {
        kill_process(Pid::from_child(&agent.0), Signal::TERM).unwrap();
    }
    let mut both = (&mut host.agent, nic);
    WAIT.until("both have ended", || (both.0.has_ended() && both.1.has_ended()).then_some(()));
    host.restart();
    let _nic = host.nic_agent(0);

    let after = host.operators.when("shop", "judged again", |lmap| lmap.judges() && lmap.samples > 0);
    assert!(after.samples < WARM_UP, "{after:?}");
}

#[test]
fn both_agents_that_are_killed_go_on_with_what_was_handed_over() {
    let mut host = Host::start();
    let nic = host.nic_agent(0);
    let _service = RunningService::start("shop", &host.services);
    // One that was written earlier may be provisional.
    host.operators.when("shop", "it has learnt", |lmap| lmap.judges() && lmap.samples > 2 * WARM_UP);
    let before = host.written();
    WAIT.until("its model is written", || host.written().filter(|written| Some(*written) > before));

    host.agent.kill();
    drop(nic); // SIGKILL
    host.restart();
    let _nic = host.nic_agent(0);

    let after = host.operators.when("shop", "judged again", |lmap| lmap.judges() && lmap.samples > 0);
    assert!(after.samples < WARM_UP, "{after:?}");
}

#[test]
fn a_nic_agent_that_joins_takes_its_share_and_gives_it_back_when_it_ends() {
    let mut host = Host::start();
    let _first = host.nic_agent(0);
    let _services = ["cart", "store"].map(|name| RunningService::start(name, &host.services));
    for service in ["cart", "store"] {
        host.operators.armed(service);
    }

    let second = host.nic_agent(1);
    let moved = WAIT.until("a service has moved", || {
        host.operators.placed().into_iter().find(|(_, worker)| *worker == 1).map(|(service, _)| service)
    });
    let after = host.operators.when(&moved, "judged by the second worker", |lmap| lmap.judges() && lmap.samples > 0);
    assert!(after.samples < WARM_UP, "{after:?}");

    assert_eq!(second.end(), Some(0));
    assert_eq!(host.operators.placed()[&moved], 0, "it moved before the agent ended");
    host.operators.when(&moved, "judged by the first one", |lmap| lmap.judges() && lmap.samples > 0);
}
