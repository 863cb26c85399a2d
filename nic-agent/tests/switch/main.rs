//! Synopses in switches, and the agents' own captures, side by side on the same packets: the same metrics. Switches are
//! the interpreter of the compiled programs, at mirrors of the agents' interfaces; packets are real ones between two
//! network namespaces. Skipped with a message unless run as root.

mod between;
mod ends;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use equality::control::Switch;
use equality::frames::Captured;
use equality::interpreter::Machine;
use equality::programs::Subject;
use packets::ring::{Ring, RingSettings};
use packets::switch::programs;
use packets::{Frame, Source as _};
use serde_json::Value;
use support::network::{HERE, Network, THERE};
use support::wait::Wait;
use synopses::digest::DigestKey;

/// How each step is waited for, on a busy machine.
const WAIT: Wait = Wait::up_to(Duration::from_mins(1)).pausing(Duration::from_millis(20));
const PORT: u16 = 7_000;
/// By how much two rings may stamp one packet apart, in seconds: one after the other, with work in between.
const STAMPS_S: f64 = 5e-6;

/// A NIC agent whose log is kept. Dropping it kills the process.
struct Agent {
    process: Child,
    lines: Arc<Mutex<Vec<Value>>>,
}

impl Agent {
    fn start(network: &Network, space: &str, config: PathBuf) -> Self {
        // A process starts in the namespace of the thread that starts it.
        let mut process = network.run(space, move || {
            let mut program = Command::new(Path::new(env!("CARGO_BIN_EXE_uview-nic-agent")));
            program.arg("--config").arg(config).stderr(Stdio::piped()).stdin(Stdio::null()).spawn().expect("it starts")
        });
        let errors = process.stderr.take().expect("it is piped");
        let lines = Arc::new(Mutex::new(Vec::new()));
        let read = Arc::clone(&lines);
        thread::spawn(move || {
            for line in BufReader::new(errors).lines().map_while(Result::ok) {
                match serde_json::from_str(&line) {
                    Ok(value) => read.lock().expect("no thread panics with it").push(value),
                    Err(_) => println!("{line}"),
                }
            }
        });
        Self { process, lines }
    }

    fn lines(&self) -> Vec<Value> {
        self.lines.lock().expect("no thread panics with it").clone()
    }

    /// Waits until the log has what `is` looks for.
    #[track_caller]
    fn wait_for<T>(&self, what: &str, is: impl Fn(&[Value]) -> Option<T>) -> T {
        WAIT.until(what, || {
            let lines = self.lines();
            is(&lines).ok_or(lines)
        })
    }

    /// Waits for a warning about a stream.
    fn warned(&self, stream: &str) -> String {
        self.wait_for("a warning", |lines| {
            let line = lines.iter().rfind(|line| line["stream"] == stream && line["level"] == "WARN")?;
            Some(line["why"].as_str()?.to_owned())
        })
    }
}

/// The intervals of a stream.
fn intervals<'a>(lines: &'a [Value], stream: &str) -> impl Iterator<Item = &'a Value> {
    let service = format!("network.{stream}");
    lines.iter().filter(move |line| line["message"] == "an interval was measured" && line["service"] == *service)
}

/// The requests of all intervals of a stream.
fn requests(lines: &[Value], stream: &str) -> u64 {
    intervals(lines, stream).filter_map(|line| line["requests"].as_u64()).sum()
}

/// How often the agent began to read the switch for a stream.
fn begun(lines: &[Value], stream: &str) -> usize {
    let is = |line: &&Value| line["stream"] == stream && line["message"] == "reading the registers of a switch";
    lines.iter().filter(is).count()
}

impl Drop for Agent {
    fn drop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
    }
}

/// The switch: those frames of the direct link's end in `space` that it is to see go through the program as the agent's
/// own ring has them.
fn mirror(
    network: &Network,
    space: &str,
    switch: Arc<Switch>,
    sees: impl Fn(&Frame<'_>) -> bool + Send + 'static,
    stop: Arc<AtomicBool>,
) -> thread::JoinHandle<()> {
    let interface = format!("{space}2");
    network.thread(space, move || {
        let mut ring = Ring::open(&RingSettings { interface, ..RingSettings::default() }).expect("root may read it");
        while !stop.load(Ordering::Acquire) {
            let mut pass = |frame: &Frame<'_>| {
                if sees(frame) {
                    let captured = Captured { time_ns: frame.time_ns, bytes: frame.bytes.to_vec() };
                    switch.process(&captured).expect("a program that a switch can run");
                }
            };
            let _ = ring.read(&mut pass).expect("the interface stays");
        }
    })
}

fn machine(program: &str) -> Machine {
    let subject = Subject::of_name(program).expect("a program");
    Machine::new(subject.load().expect("a compiled program").into())
}

/// An address in a namespace at which a switch can be asked.
fn control(network: &Network, space: &str) -> TcpListener {
    let up = network.run(space, || Command::new("ip").args(["link", "set", "lo", "up"]).status());
    assert!(up.expect("there is ip").success());
    network.run(space, || TcpListener::bind("127.0.0.1:0")).expect("an address")
}

/// Opens connections one after the other.
fn connect(network: &Network, connections: u64) {
    network.run(HERE, move || {
        for _ in 0..connections {
            drop(TcpStream::connect((Network::direct_address(THERE), PORT)).expect("somebody listens"));
        }
    });
}

/// Two streams of the switch, the second one with another secret, and one of the interface.
fn config(folder: &Path, control: &str) -> PathBuf {
    let kept = Subject::of_name("fridge").expect("a program").folder().join("constants.p4");
    let other = folder.join("other.p4");
    let constants = programs::fridge(equality::fridge::settings(), &DigestKey::new(5)).expect("a fridge");
    fs::write(&other, constants.text("Another secret.")).expect("it can be written");
    let stream = |name: &str, source: &str| format!("    - {{name: {name}, {source}, pair: handshake}}\n");
    let switch = |file: &Path| format!("switch: {{control: '{control}', constants: {}}}", file.display());
    let text = format!(
        "transport: shm\nmetrics: {{listen: '127.0.0.1:0'}}\nlog: {{format: json, level: 'info,nic_agent=debug'}}\n\
         network:\n  services_socket: {}\n  streams:\n{}{}{}",
        folder.join("services.sock").display(),
        stream("host", "interface: there2"),
        stream("switch", &switch(&kept)),
        stream("other", &switch(&other)),
    );
    let file = folder.join("nic-agent.yaml");
    fs::write(&file, text).expect("it can be written");
    file
}

#[test]
fn a_fridge_in_a_switch_has_the_metrics_of_the_host() {
    let Some(network) = Network::create() else { return };
    network.connect_directly();
    let control = control(&network, THERE);
    let to = (Network::direct_address(THERE), PORT);
    let listener = network.run(THERE, move || TcpListener::bind(to)).expect("an address");
    thread::spawn(move || listener.incoming().map_while(Result::ok).for_each(drop));
    let switch = Arc::new(Switch::start(machine("fridge"), control).expect("a thread"));
    let stop = Arc::new(AtomicBool::new(false));
    let mirror = mirror(&network, THERE, Arc::clone(&switch), |_| true, Arc::clone(&stop));
    let folder = tempfile::tempdir().expect("a folder");
    let agent = Agent::start(&network, THERE, config(folder.path(), &switch.address().to_string()));
    agent.wait_for("both are measured", |lines| {
        let both = ["host", "switch"].iter().all(|stream| intervals(lines, stream).next().is_some());
        both.then_some(())
    });

    // A burst that the end of an interval cuts in two is sent again, with another number.
    let (mut sent, mut pairs) = (0, 0);
    for connections in 200..230 {
        connect(&network, connections);
        sent += connections;
        let all = |lines: &[Value]| ["host", "switch"].map(|stream| requests(lines, stream));
        let [host, other] =
            agent.wait_for("all requests", |lines| Some(all(lines)).filter(|all| all.iter().min() >= Some(&sent)));
        assert_eq!(host, other, "requests of all intervals");
        pairs += u32::from(compare(&agent.lines(), connections));
        if pairs == 2 {
            break;
        }
    }
    assert_eq!(pairs, 2, "no burst was whole in an interval of both");

    let why = agent.warned("other");
    assert!(why.contains("checksum 0x") && why.contains("fridge with the agent's constants has 0x"), "{why}");

    // A switch that starts again begins anew, and no interval has what was before.
    switch.start_again();
    agent.wait_for("it begins anew", |lines| (begun(lines, "switch") == 2).then_some(()));
    connect(&network, 77);
    agent.wait_for("requests after that", |lines| (requests(lines, "switch") >= sent + 77).then_some(()));
    let most = agent.lines();
    let most = intervals(&most, "switch").filter_map(|line| line["requests"].as_u64()).max();
    assert!(most.is_some_and(|most| most < 300), "{most:?}");

    // The agent goes on without it, and says so.
    stop.store(true, Ordering::Release);
    mirror.join().expect("it does not fail");
    drop(switch);
    let why = agent.warned("switch");
    assert!(why.contains("switch"), "{why}");
}

/// Compares the intervals that have exactly so many requests; `false` if there is none on either side.
fn compare(lines: &[Value], connections: u64) -> bool {
    let of = |stream| intervals(lines, stream).find(|line| line["requests"].as_u64() == Some(connections));
    let (Some(host), Some(switch)) = (of("host"), of("switch")) else { return false };
    println!("host {host}\nswitch {switch}");
    assert_eq!(host["packets"], switch["packets"]);
    let number = |of: &Value, name: &str| of[name].as_f64().expect("a figure that is trusted");
    let (first, second) = (number(host, "p50_s"), number(switch, "p50_s"));
    // The switch samples three of four requests, and a bucket is 12 % wide.
    let allowed = first.max(second) / 4.0 + STAMPS_S;
    assert!((first - second).abs() <= allowed, "medians of {first} s and {second} s differ by more than {allowed} s");
    // Shares of the requests that each has sampled.
    for share in ["unanswered", "repeated"] {
        let (switch, host) = (number(switch, share), number(host, share));
        assert!((switch - host).abs() < 0.15, "{share}: {switch} and {host}");
    }
    true
}
