//! A host agent and a NIC agent in the servers' namespace, and what they say of the stream.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use support::clock::Stopwatch;
use support::network::{Network, THERE};
use support::wait::Wait;

const PROGRAM: &str = env!("CARGO_BIN_EXE_uview");
/// How each step is waited for. An LMAP arms itself after 120 rows, a minute on an idle machine.
const WAIT: Wait = Wait::up_to(Duration::from_mins(4)).pausing(Duration::from_millis(100));
/// Length of a row: long enough that a stall of the machine leaves none without each client.
const ROW_MS: u32 = 500;

/// The running agents, and how to ask them.
pub struct Agents {
    folder: tempfile::TempDir,
    processes: Vec<Child>,
}

impl Drop for Agents {
    fn drop(&mut self) {
        for process in &mut self.processes {
            _ = process.kill();
            _ = process.wait();
        }
    }
}

/// What is printed when something does not come.
impl fmt::Debug for Agents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.summary())
    }
}

impl Agents {
    /// Starts both, with a stream of what goes to the servers.
    pub fn start(network: &Network) -> Self {
        let mut agents = Self { folder: tempfile::tempdir().unwrap(), processes: Vec::new() };
        let run = agents.runtime_dir();
        let run = run.display();
        let any = "{listen: '127.0.0.1:0'}";
        let host = format!("runtime_dir: {run}\nlmap: {{interval_ms: {ROW_MS}}}\ntransport: shm\nmetrics: {any}\n");
        let stream = format!(
            "{{name: shop, interface: there0, filter: tcp and dst net 10.78.0.0/15, interval_ms: {ROW_MS}, \
             synopses: {{reordering: {{}}, heavy_hitters: {{}}, cardinality: {{}}}}}}"
        );
        let nic = format!(
            "control: {{address: 'unix:{run}/control.sock'}}\ntransport: shm\nregions_socket: {run}/regions.sock\nmetrics: {any}\nnetwork:\n  \
             services_socket: {run}/services.sock\n  streams: [{stream}]\n"
        );
        for (command, config) in [("host-agent", host), ("nic-agent", nic)] {
            let child = start(network, agents.folder.path(), command, &config);
            agents.processes.push(child);
        }
        agents
    }

    fn runtime_dir(&self) -> PathBuf {
        self.folder.path().join("run")
    }

    fn uview(&self, arguments: &[&str]) -> Vec<u8> {
        let mut command = Command::new(PROGRAM);
        let output = command.args(arguments).env("UVIEW_RUNTIME_DIR", self.runtime_dir()).output();
        output.unwrap().stdout
    }

    /// The LMAP of the stream.
    fn lmap(&self) -> Option<Value> {
        let status: Value = serde_json::from_slice(&self.uview(&["status", "--json"])).ok()?;
        status["lmaps"].as_array()?.iter().find(|lmap| lmap["service"] == "network.shop").cloned()
    }

    /// A number of the LMAP.
    fn number(&self, name: &str) -> Option<u64> {
        self.lmap()?[name].as_u64()
    }

    /// How many alarms there were.
    #[track_caller]
    pub fn alarms(&self) -> u64 {
        WAIT.until("the number of alarms", || self.number("alarms"))
    }

    /// What both say.
    pub fn summary(&self) -> String {
        let mut summary = String::from_utf8_lossy(&self.uview(&["status"])).into_owned();
        for name in ["host-agent", "nic-agent"] {
            let log = std::fs::read_to_string(self.folder.path().join(format!("{name}.log"))).unwrap_or_default();
            let lines = log.lines().filter(|line| line.contains("WARN") || line.contains("ERROR")).take(5);
            summary.extend(lines.map(|line| format!("{name}: {line}\n")));
        }
        summary
    }

    /// Waits for a state of the LMAP, and prints how long that took.
    #[track_caller]
    pub fn wait_for(&self, what: &str, is: impl Fn(&Value) -> bool) {
        let clock = Stopwatch::start();
        WAIT.until(what, || match self.lmap() {
            Some(lmap) if is(&lmap) => Ok(()),
            last => Err((last, self)),
        });
        println!("{what}: after {:.1} s\n{}", clock.elapsed().as_secs_f64(), self.summary());
    }

    /// Waits until the LMAP has judged so many rows more.
    #[track_caller]
    pub fn wait_for_rows(&self, rows: u64) {
        let before = WAIT.until("the number of rows", || self.number("samples"));
        WAIT.until("rows", || self.number("samples").filter(|now| *now >= before + rows));
    }
}

fn start(network: &Network, folder: &Path, command: &str, config: &str) -> Child {
    let file = folder.join(format!("{command}.yaml"));
    std::fs::write(&file, config).unwrap();
    let log = std::fs::File::create(folder.join(format!("{command}.log"))).unwrap();
    let command = command.to_owned();
    // A process starts in the namespace of the thread that starts it.
    network.run(THERE, move || {
        let mut program = Command::new(PROGRAM);
        program.arg(command).arg("--config").arg(file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        program.spawn().unwrap()
    })
}
