//! The two ends of a one-way measurement in two switches, whose times began at different moments.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use equality::control::Switch;
use equality::programs::Subject;
use packets::switch::markers;
use packets::{Filter, Frame, View, parse};
use serde_json::Value;
use support::network::{HERE, Network, THERE};

use crate::{Agent, control, machine, mirror};

/// The packets of the streams.
const FILTER: &str = "udp and dst port 6001";
const PORT: u16 = 6_001;
/// Where the agent at the receiving end listens.
const PEER: u16 = 9_705;
/// When the times of the two switches began, in nanoseconds since 1970.
const BEGAN: [u64; 2] = [1_600_000_000_000_000_000, 1_500_000_000_123_456_000];
/// By how much two means may differ: rings stamp a packet one after the other.
const STAMPS_NS: f64 = 10_000.0;

/// A switch at a mirror of one end of the link. It sees the packets of one direction, and markers.
struct Mirrored {
    switch: Arc<Switch>,
    thread: JoinHandle<()>,
    stop: Arc<AtomicBool>,
}

impl Mirrored {
    fn start(network: &Network, (space, program): (&str, &str), began_ns: u64) -> Self {
        let listener = control(network, space);
        let switch = Arc::new(Switch::start_at(machine(program), listener, began_ns).expect("a thread"));
        let filter: Filter = FILTER.parse().expect("a filter");
        let sees = move |frame: &Frame<'_>| {
            let is_marker = frame.bytes.get(12..14) == Some(&markers::KIND[..]);
            is_marker || parse(frame, View::Outer).is_ok_and(|packet| filter.matches(&packet))
        };
        let stop = Arc::new(AtomicBool::new(false));
        let thread = mirror(network, space, Arc::clone(&switch), sees, Arc::clone(&stop));
        Self { switch, thread, stop }
    }

    fn end(self) {
        self.stop.store(true, Ordering::Release);
        self.thread.join().expect("it does not fail");
    }
}

/// Starts an agent with a stream of its interface, and one of its switch.
fn start(network: &Network, space: &str, switch: &Switch, (program, more): (&str, &str)) -> (Agent, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let constants = Subject::of_name(program).expect("a program").folder().join("constants.p4");
    let sends = space == HERE;
    let address = Network::direct_address(THERE);
    let (peers, peer) = if sends {
        ("peers_insecure: true".to_owned(), format!(", peer: '{address}:{PEER}'"))
    } else {
        (format!("listen: '{address}:{PEER}', insecure: true"), String::new())
    };
    let one_way = format!("one_way: {{synopsis: finecomb{peer}}}");
    let (socket, control) = (folder.path().join("services.sock"), switch.address());
    let text = format!(
        "transport: shm\nmetrics: {{listen: '127.0.0.1:0'}}\nlog: {{format: json, level: 'info,nic_agent=debug'}}\n\
         network:\n  services_socket: {}\n  peers: {{{peers}}}\n  streams:\n    \
         - {{name: host, interface: {space}2, filter: {FILTER}, {one_way}}}\n    \
         - {{name: switch, switch: {{control: '{control}', constants: {}{more}}}, {one_way}}}\n",
        socket.display(),
        constants.display(),
    );
    let file = folder.path().join("nic-agent.yaml");
    std::fs::write(&file, text).expect("it can be written");
    (Agent::start(network, space, file), folder)
}

/// The compared intervals of a stream.
fn reports<'a>(lines: &'a [Value], stream: &'static str) -> impl Iterator<Item = &'a Value> {
    lines.iter().filter(move |line| line["message"] == "an interval was compared" && line["stream"] == stream)
}

/// Sends so many datagrams, one right after the other.
fn burst(network: &Network, datagrams: u64) {
    network.run(HERE, move || {
        let socket = UdpSocket::bind((Network::direct_address(HERE), 0)).expect("a port");
        for number in 0..datagrams {
            let payload = [&number.to_be_bytes()[..], &[7; 60]].concat();
            socket.send_to(&payload, (Network::direct_address(THERE), PORT)).expect("the link takes it");
        }
    });
}

/// Compares the intervals in which exactly so many packets were sent; `false` if there is none of one of the streams.
fn compare(lines: &[Value], datagrams: u64) -> bool {
    let is = |line: &&Value| line["sent"].as_u64() == Some(datagrams) && line["received"].is_u64();
    let of = |stream| reports(lines, stream).find(is);
    let (Some(host), Some(switch)) = (of("host"), of("switch")) else { return false };
    println!("host {host}\nswitch {switch}");
    for line in [host, switch] {
        assert_eq!((line["received"].as_u64(), line["lost"].as_u64()), (Some(datagrams), Some(0)), "{line}");
    }
    let mean = |line: &Value| line["mean_ns"].as_f64().expect("packets came");
    let (host, switch) = (mean(host), mean(switch));
    // The switch samples six of ten packets.
    let allowed = host.max(switch) / 2.0 + STAMPS_NS;
    assert!((host - switch).abs() <= allowed, "means of {host} ns and {switch} ns differ by more than {allowed} ns");
    true
}

#[test]
fn two_switches_have_the_delay_and_the_loss_of_two_interfaces() {
    let Some(network) = Network::create() else { return };
    network.connect_directly();
    let first = Mirrored::start(&network, (HERE, "finecomb-sender"), BEGAN[0]);
    let second = Mirrored::start(&network, (THERE, "finecomb-receiver"), BEGAN[1]);
    let to = (Network::direct_address(THERE), PORT);
    let _sink = network.run(THERE, move || UdpSocket::bind(to)).expect("the port is free");
    let (receiver, _theirs) = start(&network, THERE, &second.switch, ("finecomb-receiver", ""));
    let markers = format!(", marker_interface: {HERE}2");
    let (sender, _ours) = start(&network, HERE, &first.switch, ("finecomb-sender", &markers));
    for agent in [&sender, &receiver] {
        agent.wait_for("both are measured", |lines| {
            let is_known = |line: &Value| line["sent"].is_u64() && line["received"].is_u64();
            let both = ["host", "switch"].into_iter().all(|stream| reports(lines, stream).any(is_known));
            both.then_some(())
        });
    }

    // A burst that the end of an interval cuts in two is sent again, with another number.
    let mut pairs = 0;
    for datagrams in 200..230 {
        let counts = |lines: &[Value]| ["host", "switch"].map(|stream| reports(lines, stream).count());
        let before = [&sender, &receiver].map(|agent| counts(&agent.lines()));
        burst(&network, datagrams);
        for (agent, before) in [&sender, &receiver].into_iter().zip(before) {
            agent.wait_for("the intervals after a burst", |lines| {
                let all = counts(lines).into_iter().zip(before).all(|(now, before)| now >= before + 4);
                all.then_some(())
            });
        }
        let found = [&sender, &receiver].map(|agent| compare(&agent.lines(), datagrams));
        pairs += u32::from(found == [true; 2]);
        if pairs == 2 {
            break;
        }
    }
    assert_eq!(pairs, 2, "no burst was whole in an interval of both");

    // Without its switch, the receiving end has nothing to compare, and both say so.
    second.end();
    let flagged = |agent: &Agent, flag: &str| {
        agent.wait_for(flag, |lines| {
            let is = |line: &Value| line["flags"].as_str().is_some_and(|flags| flags.contains(flag));
            reports(lines, "switch").last().is_some_and(is).then_some(())
        });
    };
    flagged(&receiver, "missed");
    flagged(&sender, "no_peer_data");
    assert!(receiver.warned("switch").contains("switch"));
    first.end();
}
