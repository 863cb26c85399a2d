//! Both agents as subcommands: they connect, `status` shows them, and SIGTERM leaves no file behind.
#![expect(clippy::unwrap_used, reason = "what a test prepares has to work, or the test fails")]

mod aggregation;
mod cgroups;
mod drains;
mod hooks;
mod hostile_text;
mod incidents;
mod insecure;
mod intervals;
mod kills;
mod live_page;
mod metrics;
mod models;
mod monitoring;
mod operator_calls;
mod otlp_metrics;
mod over_several;
mod packets;
mod profiles;
mod prometheus;
mod recorded_requests;
mod restarts;
mod sampling;
mod tls;
mod unprivileged;
mod viewer_commands;
mod watch;
mod watch_preload;

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use support::wait::Wait;
use support::webdriver;

/// How tests wait for a condition: five minutes, for busy machines.
const WAIT: Wait = Wait::up_to(Duration::from_mins(5)).pausing(Duration::from_millis(50));

/// A configuration section that listens on any free port.
const ANY: &str = "{listen: 127.0.0.1:0}";

/// How often heartbeats change where a test is not about silence. Three that are missed are an alarm: by default after
/// 300 ms, which a busy machine may take from a test's own threads.
const HEARTBEAT_MS: u32 = 1_000;

/// An agent that is killed at the end of its test.
struct Agent(Child);

impl Agent {
    fn start(name: &str, config: &Path) -> Self {
        Self(Command::new(env!("CARGO_BIN_EXE_uview")).arg(name).arg("--config").arg(config).spawn().unwrap())
    }

    /// Sends SIGTERM and returns the exit code.
    fn end(mut self) -> Option<i32> {
        kill_process(Pid::from_child(&self.0), Signal::TERM).unwrap();
        self.0.wait().unwrap().code()
    }
}

impl Agent {
    /// Ends it by SIGKILL.
    fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }

    fn has_ended(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A free port on an address that no other test uses, so that no other test takes it in the meantime.
fn free_port() -> SocketAddr {
    TcpListener::bind("127.0.0.9:0").unwrap().local_addr().unwrap()
}

/// The content of host-agent.json, once the host agent is ready.
fn addresses(runtime_dir: &Path) -> serde_json::Value {
    WAIT.until("the host agent is ready", || {
        let bytes = std::fs::read(runtime_dir.join("host-agent.json")).ok()?;
        serde_json::from_slice(&bytes).ok()
    })
}

/// What `uview ARGUMENTS --json` prints.
fn ask(runtime_dir: &Path, arguments: &[&str]) -> Option<serde_json::Value> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uview"));
    let output = command.args(arguments).arg("--json").env("UVIEW_RUNTIME_DIR", runtime_dir).output().unwrap();
    serde_json::from_slice(&output.stdout).ok()
}

/// The LMAP of `service`.
fn lmap(runtime_dir: &Path, service: &str) -> Option<serde_json::Value> {
    let status = ask(runtime_dir, &["status"])?;
    status["lmaps"].as_array()?.iter().find(|lmap| lmap["service"] == service).cloned()
}

/// The LMAP of `service`, if it is in alarm and its reasons name `metric`.
fn alarm(runtime_dir: &Path, service: &str, metric: &str) -> Option<serde_json::Value> {
    let lmap = lmap(runtime_dir, service)?;
    let named = lmap["reasons"].as_array()?.iter().any(|reason| reason["metric"] == metric);
    (lmap["alarm"] == true && named).then_some(lmap)
}

fn status(runtime_dir: &Path) -> Option<i32> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uview"));
    command.args(["status", "--json"]).env("UVIEW_RUNTIME_DIR", runtime_dir).output().unwrap().status.code()
}

/// What a tool prints on stderr if nothing names an agent.
fn stderr_without_directory(tool: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uview"));
    String::from_utf8(command.arg(tool).env_remove("UVIEW_RUNTIME_DIR").output().unwrap().stderr).unwrap()
}

#[test]
fn the_agents_find_each_other_status_finds_them_and_sigterm_leaves_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    let runtime_dir = directory.path().join("run");
    let (host_config, nic_config) = (directory.path().join("host.yaml"), directory.path().join("nic.yaml"));
    let text = format!("runtime_dir: {}\nmetrics: {ANY}\n", runtime_dir.display());
    std::fs::write(&host_config, text).unwrap();

    let host = Agent::start("host-agent", &host_config);
    let ready = addresses(&runtime_dir);
    assert_eq!(status(&runtime_dir), Some(2), "no worker is connected: that is a problem");
    for tool in ["status", "receipt", "paths"] {
        // Other tests run agents meanwhile. Then the tool lists them all, this one among them, and guesses none.
        let text = stderr_without_directory(tool);
        assert!(text.contains(runtime_dir.to_str().unwrap()), "{tool}: {text}");
    }

    let (control, regions) = (ready["control"].as_str().unwrap(), ready["regions"].as_str().unwrap());
    let text = format!("control: {{address: '{control}'}}\nregions_socket: {regions}\nmetrics: {ANY}\n");
    std::fs::write(&nic_config, text).unwrap();
    let nic = Agent::start("nic-agent", &nic_config);
    WAIT.until("the worker is connected", || (status(&runtime_dir) == Some(0)).then_some(()));

    assert_eq!(nic.end(), Some(0));
    assert_eq!(host.end(), Some(0));
    assert!(!runtime_dir.exists(), "{:?}", std::fs::read_dir(&runtime_dir).map(Iterator::collect::<Vec<_>>));
    assert_eq!(status(&runtime_dir), Some(4));
}
