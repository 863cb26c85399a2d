//! The processes of a measurement: switches and agents, each in its namespace.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use support::clock::Stopwatch;
use support::network::{HERE, Network, THERE};
use support::workspace;

use super::figures;
use super::setting::{INTERVAL_MS, Measure, PORT, STREAMS};
use crate::clients::shop::Process;

/// Where a switch can be asked, in its namespace.
const CONTROL: &str = "127.0.0.1:9090";
/// The port of [`CONTROL`].
const CONTROL_PORT: &str = "9090";
/// Where the agent at the receiving end listens.
const PEER_PORT: u16 = 9_705;
/// Limit for a process to be ready.
const START: Duration = Duration::from_mins(1);
/// Between two looks whether it is.
const PAUSE: Duration = Duration::from_millis(50);

/// What runs the programs of the switches.
#[derive(Clone, Debug)]
pub enum SwitchProgram {
    /// The program `simple_switch`.
    Reference(PathBuf),
    /// The interpreter's program, `equality`.
    Interpreter(PathBuf),
}

/// The programs that are run.
#[derive(Clone, Debug)]
pub struct TestedPrograms {
    pub uview: PathBuf,
    pub switch: SwitchProgram,
}

/// All processes of a measurement. They are killed when this is dropped.
#[derive(Debug)]
pub struct Processes {
    uview: PathBuf,
    runtime_dir: PathBuf,
    /// That of the agent whose figures are compared.
    log: PathBuf,
    /// That of the agent at the other end, if there is one.
    peer_log: Option<PathBuf>,
    running: Vec<(&'static str, Process)>,
}

/// The folder of a program's sources, and of what it was compiled to.
fn sources(program: &str) -> PathBuf {
    workspace().join("p4").join(program)
}

fn read(log: &Path) -> Result<String> {
    fs::read_to_string(log).with_context(|| log.display().to_string())
}

impl Processes {
    /// Starts switches, then agents. Logs and configurations are in `folder`.
    ///
    /// # Errors
    ///
    /// A process does not start, or is not ready in time.
    pub fn start(network: &Network, measure: Measure, programs: &TestedPrograms, folder: &Path) -> Result<Self> {
        let runtime_dir = folder.join("run");
        let log = folder.join("here.log");
        let peer_log = (measure == Measure::OneWay).then(|| folder.join("there.log"));
        let mut all = Self { uview: programs.uview.clone(), runtime_dir, log, peer_log, running: Vec::new() };
        for space in [HERE, THERE] {
            network.set_up_loopback(space);
        }
        for (space, program) in measure.programs() {
            let command = switch(&programs.switch, space, program);
            all.add(network, space, ("switch", command), &folder.join(format!("{program}.log")))?;
            all.until_asked(network, space).with_context(|| format!("the switch with {program}"))?;
        }
        let run = all.runtime_dir.clone();
        all.add_agent(network, (HERE, "host-agent"), "host", &host(&run), folder)?;
        all.until("the host agent", || run.join("control.sock").exists())?;
        if measure == Measure::OneWay {
            all.add_agent(network, (THERE, "nic-agent"), "there", &receiver(&run), folder)?;
        }
        all.add_agent(network, (HERE, "nic-agent"), "here", &sender(measure, &run), folder)?;
        Ok(all)
    }

    /// The log of the agent whose figures are compared.
    ///
    /// # Errors
    ///
    /// It cannot be read.
    pub fn log(&self) -> Result<String> {
        read(&self.log)
    }

    /// By how much times of two switches may be apart at most, as their agents say, in milliseconds; 0 if times of
    /// switches are not compared.
    ///
    /// # Errors
    ///
    /// A log cannot be read.
    pub fn clock_error_ms(&self) -> Result<f64> {
        let mut error_ms = 0.0;
        for log in [&self.log].into_iter().chain(&self.peer_log) {
            error_ms += figures::clock_error_ms(&read(log)?);
        }
        Ok(error_ms)
    }

    /// What the host agent says of all LMAPs; null if it says nothing.
    pub fn status(&self) -> Value {
        let mut command = Command::new(&self.uview);
        let output = command.args(["status", "--json"]).env("UVIEW_RUNTIME_DIR", &self.runtime_dir).output();
        output.ok().and_then(|output| serde_json::from_slice(&output.stdout).ok()).unwrap_or_default()
    }

    /// Checks that all run.
    ///
    /// # Errors
    ///
    /// One has ended.
    pub fn check(&mut self) -> Result<()> {
        let ended = self.running.iter_mut().find_map(|(name, process)| (!process.runs()).then_some(*name));
        ensure!(ended.is_none(), "a process has ended: {}", ended.unwrap_or_default());
        Ok(())
    }

    fn add(
        &mut self,
        network: &Network,
        space: &str,
        (name, mut command): (&'static str, Command),
        log: &Path,
    ) -> Result<()> {
        let log = log.to_owned();
        // A process starts in the namespace of the thread that starts it.
        let process = network.run(space, move || Process::start(&mut command, &log))?;
        self.running.push((name, process));
        Ok(())
    }

    fn add_agent(
        &mut self,
        network: &Network,
        (space, subcommand): (&str, &'static str),
        name: &str,
        config: &Value,
        folder: &Path,
    ) -> Result<()> {
        let file = folder.join(format!("{name}.yaml"));
        // JSON is YAML.
        fs::write(&file, config.to_string())?;
        let mut command = Command::new(&self.uview);
        command.arg(subcommand).arg("--config").arg(file);
        self.add(network, space, (subcommand, command), &folder.join(format!("{name}.log")))
    }

    /// Waits until the switch of a namespace can be asked.
    fn until_asked(&mut self, network: &Network, space: &str) -> Result<()> {
        self.until("its control interface", || network.run(space, || TcpStream::connect(CONTROL).is_ok()))
    }

    fn until(&mut self, what: &str, is: impl Fn() -> bool) -> Result<()> {
        let clock = Stopwatch::start();
        while !is() {
            self.check()?;
            ensure!(clock.elapsed() < START, "{what} is not there within {} s", START.as_secs());
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }
}

/// The command that runs a program between the ports of the switch before a namespace.
fn switch(switch: &SwitchProgram, space: &str, program: &str) -> Command {
    let [near, far] = Network::switch_ports(space);
    match switch {
        SwitchProgram::Reference(path) => {
            let mut command = Command::new(path);
            // Switches of one machine differ in their numbers.
            let number = if space == HERE { "1" } else { "2" };
            command.args(["--interface", &format!("0@{near}"), "--interface", &format!("1@{far}")]);
            command.args(["--thrift-port", CONTROL_PORT, "--device-id", number, "--log-level", "off"]);
            command.arg(sources(program).join(program).with_extension("json"));
            command
        }
        SwitchProgram::Interpreter(path) => {
            let mut command = Command::new(path);
            command.args(["switch", program, "--interface", &near, "--with", &far, "--listen", CONTROL]);
            command
        }
    }
}

fn host(run: &Path) -> Value {
    json!({
        "runtime_dir": run,
        "lmap": {"interval_ms": INTERVAL_MS},
        "transport": "shm",
        "metrics": {"listen": "127.0.0.1:0"},
    })
}

/// The stream of a host's own interface, and that of its switch.
fn streams(measure: Measure, space: &str, program: &str) -> [Value; 2] {
    let constants = sources(program).join("constants.p4");
    let filter = match measure {
        Measure::Handshake | Measure::Reordering => format!("port {PORT}"),
        Measure::OneWay => format!("tcp and dst port {PORT}"),
    };
    let mut host = json!({"interface": format!("{space}0"), "filter": filter});
    let mut switch = json!({"switch": {"control": CONTROL, "constants": constants}});
    match measure {
        Measure::Handshake => (host["pair"], switch["pair"]) = (json!("handshake"), json!("handshake")),
        Measure::OneWay => {
            let mut one_way = json!({"synopsis": "finecomb"});
            if space == HERE {
                one_way["peer"] = json!(format!("{}:{PEER_PORT}", Network::direct_address(THERE)));
                switch["switch"]["marker_interface"] = json!(format!("{HERE}0"));
            }
            (host["one_way"], switch["one_way"]) = (one_way.clone(), one_way);
        }
        Measure::Reordering => {
            let synopses = json!({"reordering": {}});
            (host["synopses"], switch["synopses"]) = (synopses.clone(), synopses);
        }
    }
    for (stream, name) in [&mut host, &mut switch].into_iter().zip(STREAMS) {
        stream["name"] = json!(name);
        stream["interval_ms"] = json!(INTERVAL_MS);
    }
    [host, switch]
}

/// The agent whose streams have LMAPs: with one-way streams the sending end.
fn sender(measure: Measure, run: &Path) -> Value {
    let program = measure.programs().first().map_or("", |(_, program)| *program);
    let mut config = json!({
        "control": {"address": format!("unix:{}", run.join("control.sock").display())},
        "regions_socket": run.join("regions.sock"),
        "transport": "shm",
        "metrics": {"listen": "127.0.0.1:0"},
        "log": {"format": "json", "level": "info,nic_agent=debug"},
        "network": {
            "services_socket": run.join("services.sock"),
            "streams": streams(measure, HERE, program),
        },
    });
    if measure == Measure::OneWay {
        config["network"]["peers"] = json!({"peers_insecure": true});
    }
    config
}

/// The agent of the receiving end, without a host agent.
fn receiver(run: &Path) -> Value {
    let listen = format!("{}:{PEER_PORT}", Network::direct_address(THERE));
    json!({
        "transport": "shm",
        "metrics": {"listen": "127.0.0.1:0"},
        "log": {"format": "json", "level": "info,nic_agent=debug"},
        "network": {
            "services_socket": run.join("nowhere.sock"),
            "peers": {"listen": listen, "insecure": true},
            "streams": streams(Measure::OneWay, THERE, "finecomb-receiver"),
        },
    })
}
