//! The agents of the test: a host agent and a NIC agent in one namespace, a NIC agent in the other; and their output.

use std::fmt::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

use super::traffic::{TCP, UDP};
use support::network::{HERE, Network, THERE};

const PROGRAM: &str = env!("CARGO_BIN_EXE_uview");

/// The running agents. They are killed when this is dropped.
pub struct Agents<'a> {
    network: &'a Network,
    runtime_dir: PathBuf,
    _processes: Vec<Process>,
    _folder: tempfile::TempDir,
}

struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

impl Process {
    /// Starts `uview COMMAND` in a namespace with this configuration. Its log goes to a file beside the configuration.
    fn start(network: &Network, space: &str, (folder, name): (&Path, &str), command: &str, config: &str) -> Self {
        let file = folder.join(format!("{name}.yaml"));
        std::fs::write(&file, config).unwrap();
        let log = std::fs::File::create(folder.join(format!("{name}.log"))).unwrap();
        let command = command.to_owned();
        // A process starts in the namespace of the thread that starts it.
        let child = network.run(space, move || {
            let mut program = Command::new(PROGRAM);
            program.arg(command).arg("--config").arg(file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
            program.spawn().unwrap()
        });
        Self(child)
    }
}

/// What is printed when something does not come: the summary, and the last row of each stream.
impl fmt::Debug for Agents<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.summary())?;
        self.recordings().iter().try_for_each(|recording| writeln!(f, "{}", last_row(recording)))
    }
}

/// The columns of the last row of a recording.
pub fn last_row(recording: &recording::Recording) -> String {
    let row = recording.rows().last().unwrap_or_default();
    let mut text = format!("{}: {} rows", recording.service, recording.rows().len());
    for (column, value) in recording.columns.iter().zip(row) {
        _ = write!(text, "\n  {} ({}) {value} {}", column.title, column.group, column.unit);
    }
    text
}

impl<'a> Agents<'a> {
    /// Starts the agents. Both NIC agents measure the stream `link`; the one in `HERE` also measures `tcp`.
    pub fn start(network: &'a Network) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        let runtime_dir = at.join("run");
        let run = runtime_dir.display();
        for space in [HERE, THERE] {
            network.set_up_loopback(space);
        }
        let any = "{listen: '127.0.0.1:0'}";
        let host = format!(
            "runtime_dir: {run}\nlmap: {{interval_ms: 100}}\ntransport: shm\n\
             services: {{heartbeat_ms: 1000}}\nmetrics: {any}\n"
        );
        let filter = format!("udp and dst port {UDP}");
        let receiver = format!(
            "transport: shm\nmetrics: {any}\nnetwork:\n  services_socket: {run}/nowhere.sock\n  peers: {{listen: '0.0.0.0:9705', insecure: true}}\n  streams:\n    \
             - {{name: link, interface: there0, filter: {filter}, interval_ms: 100, one_way: {{synopsis: rda}}}}\n"
        );
        let peer = format!("{}:9705", Network::direct_address(THERE));
        let sender = format!(
            "control: {{address: 'unix:{run}/control.sock'}}\ntransport: shm\nregions_socket: {run}/regions.sock\nmetrics: {any}\nnetwork:\n  \
             services_socket: {run}/services.sock\n  peers: {{peers_insecure: true}}\n  streams:\n    \
             - {{name: link, interface: here0, filter: {filter}, interval_ms: 100, one_way: {{synopsis: rda, peer: '{peer}'}}}}\n    \
             - {{name: tcp, interface: here0, filter: port {TCP}, interval_ms: 200, pair: data}}\n"
        );
        let processes = vec![
            Process::start(network, HERE, (at, "host"), "host-agent", &host),
            Process::start(network, THERE, (at, "there"), "nic-agent", &receiver),
            Process::start(network, HERE, (at, "here"), "nic-agent", &sender),
        ];
        Self { network, runtime_dir, _processes: processes, _folder: folder }
    }

    fn uview(&self, arguments: &[&str]) -> Output {
        let (runtime_dir, arguments) =
            (self.runtime_dir.clone(), arguments.iter().map(|&a| a.to_owned()).collect::<Vec<_>>());
        self.network.run(HERE, move || {
            Command::new(PROGRAM).args(arguments).env("UVIEW_RUNTIME_DIR", runtime_dir).output().unwrap()
        })
    }

    /// The output of `uview status --json`; null while there is no host agent.
    pub fn status(&self) -> Value {
        serde_json::from_slice(&self.uview(&["status", "--json"]).stdout).unwrap_or_default()
    }

    /// The output of `uview status`, and the last warnings in the logs of the agents.
    pub fn summary(&self) -> String {
        let status = self.uview(&["status"]);
        let mut summary = String::from_utf8_lossy(&status.stdout).into_owned();
        summary.push_str(&String::from_utf8_lossy(&status.stderr));
        let folder = self.runtime_dir.parent().unwrap();
        for name in ["host", "here", "there"] {
            let log = std::fs::read_to_string(folder.join(format!("{name}.log"))).unwrap_or_default();
            let lines: Vec<_> = log.lines().filter(|line| line.contains("WARN") || line.contains("ERROR")).collect();
            let last = lines.len().saturating_sub(5);
            summary.extend(lines[last..].iter().map(|line| format!("{name}: {line}\n")));
        }
        summary
    }

    /// Records the rows of all streams for some seconds.
    pub fn recordings(&self) -> Vec<recording::Recording> {
        let folder = self.runtime_dir.join("rows");
        let out = self.uview(&["record", "--out", folder.to_str().unwrap(), "--for-s", "5"]);
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let files = std::fs::read_dir(folder).unwrap().map(|file| std::fs::read(file.unwrap().path()).unwrap());
        files.map(|bytes| recording::decode(&bytes).unwrap()).collect()
    }
}
