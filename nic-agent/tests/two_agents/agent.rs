//! A NIC agent as a process in a network namespace. Its measurements are in its log.

use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use support::http::exchange;
use support::network::{HERE, Network, THERE};

/// Timeout for requesting a page.
const PATIENCE: Duration = Duration::from_secs(2);

/// The log record of an interval.
#[derive(Clone, Debug)]
pub struct IntervalRecord {
    pub interval: u64,
    pub begins_ns: u64,
    /// Time from the end of the interval to the report.
    pub after_ns: u64,
    pub mean_ns: Option<f64>,
    pub deviation_ns: Option<f64>,
    pub sent: Option<u64>,
    pub lost: u64,
    /// All flags but `unsynchronised`.
    pub flags: String,
    /// Whether this machine's clock, which both agents use, is unsynchronised. That is no error here.
    pub unsynchronised: bool,
    pub clock_error_ns: Option<u64>,
}

/// A NIC agent. Dropping it kills the process.
pub struct Agent {
    process: Child,
    _folder: tempfile::TempDir,
    lines: Arc<Mutex<Vec<Value>>>,
}

impl Agent {
    /// Starts an agent with this configuration of `network`.
    pub fn start(network: &Network, space: &str, config: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("nic-agent.yaml");
        let socket = folder.path().join("services.sock");
        let text = format!(
            "transport: shm\nmetrics: {{listen: '0.0.0.0:0'}}\nlog: {{format: json, level: 'info,nic_agent=debug'}}\nnetwork:\n  services_socket: {}\n  memory_bytes: 67108864\n{config}",
            socket.display()
        );
        std::fs::write(&file, text).expect("it can be written");
        let binary = Path::new(env!("CARGO_BIN_EXE_uview-nic-agent"));
        let mut process = network.run(space, {
            let binary = binary.to_owned();
            // A process starts in the namespace of the thread that starts it.
            move || {
                Command::new(binary)
                    .arg("--config")
                    .arg(file)
                    .stderr(Stdio::piped())
                    .stdin(Stdio::null())
                    .spawn()
                    .expect("it starts")
            }
        });
        let errors = process.stderr.take().expect("it is piped");
        let lines = Arc::new(Mutex::new(Vec::new()));
        let read_lines = Arc::clone(&lines);
        thread::spawn(move || {
            for line in BufReader::new(errors).lines().map_while(Result::ok) {
                match serde_json::from_str(&line) {
                    Ok(value) => read_lines.lock().expect("no thread panics with it").push(value),
                    Err(_) => println!("{line}"),
                }
            }
        });
        Self { process, _folder: folder, lines }
    }

    /// Stops the process for `time`, then continues it.
    pub fn stall(&self, time: Duration) {
        let pid = Pid::from_child(&self.process);
        kill_process(pid, Signal::STOP).expect("it runs");
        thread::sleep(time);
        kill_process(pid, Signal::CONT).expect("it was there");
    }

    /// The records of all intervals so far.
    pub fn intervals(&self) -> Vec<IntervalRecord> {
        let lines = self.lines.lock().expect("no thread panics with it");
        lines.iter().filter_map(interval_record).collect()
    }

    /// All log records with this message so far.
    pub fn records(&self, message: &str) -> Vec<Value> {
        let lines = self.lines.lock().expect("no thread panics with it");
        lines.iter().filter(|line| line["message"] == message).cloned().collect()
    }

    /// The agent's metrics page, requested from the other namespace than `space`, since the agent's own has no
    /// loopback; `None` before the agent listens.
    pub fn page(&self, network: &Network, space: &'static str) -> Option<String> {
        let lines = self.lines.lock().expect("no thread panics with it");
        let runs = lines.iter().find(|line| line["message"] == "NIC agent started")?;
        let (_, port) = runs["metrics"].as_str()?.rsplit_once(':')?;
        let address = SocketAddr::from((Network::direct_address(space), port.parse().ok()?));
        drop(lines);
        network.run(if space == HERE { THERE } else { HERE }, move || {
            let stream = TcpStream::connect_timeout(&address, PATIENCE).ok()?;
            stream.set_read_timeout(Some(PATIENCE)).ok()?;
            exchange(stream, "GET /metrics", "", &[]).ok()?.text().ok()
        })
    }

    /// Stops the process, or continues it.
    pub fn hold(&self, held: bool) {
        let signal = if held { Signal::STOP } else { Signal::CONT };
        let process = Pid::from_child(&self.process);
        kill_process(process, signal).expect("it is there");
    }

    /// All warnings so far.
    pub fn warnings(&self) -> Vec<String> {
        let lines = self.lines.lock().expect("no thread panics with it");
        let warns = |line: &&Value| line["level"] == "WARN" || line["level"] == "ERROR";
        lines.iter().filter(warns).map(ToString::to_string).collect()
    }
}

fn interval_record(fields: &Value) -> Option<IntervalRecord> {
    if fields["message"] != "an interval was compared" {
        return None;
    }
    let flags = fields["flags"].as_str()?;
    Some(IntervalRecord {
        interval: fields["interval"].as_u64()?,
        begins_ns: fields["begins_ns"].as_u64()?,
        after_ns: fields["after_ns"].as_u64()?,
        mean_ns: fields["mean_ns"].as_f64(),
        deviation_ns: fields["deviation_ns"].as_f64(),
        sent: fields["sent"].as_u64(),
        lost: fields["lost"].as_u64()?,
        flags: flags.replace("unsynchronised", "").trim().to_owned(),
        unsynchronised: flags.contains("unsynchronised"),
        clock_error_ns: fields["clock_error_ns"].as_u64(),
    })
}

impl Drop for Agent {
    fn drop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
        for warning in self.warnings() {
            println!("warned: {warning}");
        }
    }
}
