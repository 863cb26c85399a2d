//! NIC agents that end, are killed, and come: what their detectors have learnt goes on.

use std::path::Path;

use crate::operator_calls::{Operators, RunningService, is_armed};
use crate::{ANY, Agent, addresses, eventually};

/// Rows that a detector needs before it is armed, unless it goes on with a model.
const WARM_UP: u64 = 120;

/// A host agent that wants models each second, and where NIC agents find it.
struct Host {
    _agent: Agent,
    directory: tempfile::TempDir,
    operators: Operators,
    services: std::path::PathBuf,
    nic: String,
}

impl Host {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let runtime_dir = directory.path().join("run");
        let config = directory.path().join("host.yaml");
        let text = format!(
            "runtime_dir: {}\nlmap: {{interval_ms: 20, models_every_s: 1}}\nprocess_metrics: {{enabled: false}}\nmetrics: {ANY}\n",
            runtime_dir.display()
        );
        std::fs::write(&config, text).unwrap();
        let agent = Agent::start("host-agent", &config);
        let ready = addresses(&runtime_dir);
        let address = |name: &str| ready[name].as_str().unwrap().to_owned();
        let (control, regions) = (address("control"), address("regions"));
        Self {
            _agent: agent,
            operators: Operators::connect(&address("operators")),
            services: runtime_dir.join("services.sock"),
            nic: format!("control: {{address: '{control}'}}\nregions_socket: {regions}\nmetrics: {ANY}\n"),
            directory,
        }
    }

    fn nic_agent(&self, worker: u32) -> Agent {
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
    let after = host.operators.when("shop", "judged again", |lmap| is_armed(lmap) && lmap.samples < before.samples);
    assert!(after.samples < WARM_UP, "after a restart: {before:?} {after:?}");

    let grown = host.operators.when("shop", "a model was handed over", |lmap| lmap.samples > 2 * WARM_UP);
    drop(nic); // SIGKILL
    let _nic = host.nic_agent(0);
    let after = host.operators.when("shop", "judged again", |lmap| is_armed(lmap) && lmap.samples < grown.samples);
    assert!(after.samples < WARM_UP, "after a kill: {grown:?} {after:?}");
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
    let moved = eventually("a service has moved", || {
        host.operators.placed().into_iter().find(|(_, worker)| *worker == 1).map(|(service, _)| service)
    });
    let after = host.operators.when(&moved, "judged by the second worker", |lmap| is_armed(lmap) && lmap.samples > 0);
    assert!(after.samples < WARM_UP, "{after:?}");

    assert_eq!(second.end(), Some(0));
    assert_eq!(host.operators.placed()[&moved], 0, "it moved before the agent ended");
    host.operators.when(&moved, "judged by the first one", |lmap| is_armed(lmap) && lmap.samples > 0);
}
