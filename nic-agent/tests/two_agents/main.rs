//! Two agents, each in a network namespace of its own, measure the one-way delay and loss of real packets together. A relay between them delays, loses, doubles
//! and overtakes. Its log of each packet's fate is the truth about loss, the same kernel's time stamps at both interfaces that about delays. Runs where root is,
//! and says so where it is not.

#[path = "../../../packets/tests/namespaces/network.rs"]
mod network;
#[path = "../../../packets/tests/namespaces/relay.rs"]
#[expect(dead_code, reason = "shared with the tests of captures")]
mod relay;

mod agent;
mod interface;
mod tls;
mod truth;

use std::io::Write as _;
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use agent::{Agent, Told};
use network::{HERE, Network, THERE};
use relay::{Relay, Road};
use truth::Watcher;

/// Packets in a second: enough that cells are fewer bytes than all packets.
const RATE: u32 = 4_000;

/// Sends numbered datagrams evenly until told to stop.
fn datagrams(network: &Network, stop: &Arc<AtomicBool>) -> thread::JoinHandle<()> {
    let (from, to) = ((Network::address(HERE), 5_000), (Network::address(THERE), 6_000));
    let sink = network.run(THERE, move || UdpSocket::bind(to).expect("the port is free"));
    let stop = Arc::clone(stop);
    network.thread(HERE, move || {
        let _sink = sink;
        let socket = UdpSocket::bind(from).expect("the port is free");
        let mut number = 0_u32;
        while !stop.load(Ordering::Acquire) {
            for _ in 0..RATE / 500 {
                let payload = [number.to_be_bytes().as_slice(), &[7; 60]].concat();
                // A queue that is full for a moment is one of the things that happen to packets.
                _ = socket.send_to(&payload, to);
                number += 1;
            }
            thread::sleep(Duration::from_millis(2));
        }
    })
}

/// On which the relay is.
const INTERFACES: [&str; 2] = ["here0", "there0"];

/// The receiver's agent.
fn receiver(network: &Network, synopsis: &str, filter: &str, interface: &str) -> Agent {
    let stream = format!("{{name: way, interface: {interface}, filter: {filter}, compared: {{synopsis: {synopsis}}}}}");
    Agent::start(network, THERE, &format!("  peers: {{listen: '0.0.0.0:9705'}}\n  streams: [{stream}]\n"))
}

/// The sender's agent and the receiver's.
fn agents(network: &Network, synopsis: &str, filter: &str, interfaces: [&str; 2]) -> [Agent; 2] {
    let there = receiver(network, synopsis, filter, interfaces[1]);
    // Not over the relay: its interfaces take no frames that the kernel put together.
    let peer = format!("{}:9705", Network::direct_address(THERE));
    let (interface, compared) = (interfaces[0], format!("{{synopsis: {synopsis}, peer: '{peer}'}}"));
    let stream = format!("{{name: way, interface: {interface}, filter: {filter}, compared: {compared}}}");
    let here = Agent::start(network, HERE, &format!("  streams: [{stream}]\n"));
    [here, there]
}

#[expect(clippy::disallowed_methods, reason = "tests wait for conditions with a limit")]
fn wait_for(what: &str, limit: Duration, mut is_so: impl FnMut() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < limit, "no {what} within {limit:?}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Packets that are sent until they are told to stop.
#[derive(Clone, Copy, PartialEq)]
enum Traffic {
    /// Numbered datagrams, evenly.
    Udp,
    /// Bytes over five connections, as fast as they go, each packet on its own.
    Tcp,
}

impl Traffic {
    const fn port(self) -> u16 {
        match self {
            Self::Udp => 6_000,
            Self::Tcp => 7_000,
        }
    }

    fn filter(self) -> String {
        format!("{} and dst port {}", if self == Self::Udp { "udp" } else { "tcp" }, self.port())
    }

    fn start(self, network: &Network, stop: &Arc<AtomicBool>) -> Vec<thread::JoinHandle<()>> {
        match self {
            Self::Udp => vec![datagrams(network, stop)],
            Self::Tcp => {
                network.each_segment_alone();
                stream(network, Network::address(THERE), 5, stop)
            }
        }
    }
}

/// What both agents told of `intervals` intervals with traffic over `road`, and the truth.
fn measured(synopsis: &str, traffic: Traffic, road: Road, intervals: usize) -> Option<([Vec<Told>; 2], truth::Truth)> {
    measured_while(synopsis, traffic, road, intervals, |_| ())
}

/// The same, while something happens to the agents.
fn measured_while(
    synopsis: &str,
    traffic: Traffic,
    road: Road,
    intervals: usize,
    happens: impl FnOnce([&Agent; 2]),
) -> Option<([Vec<Told>; 2], truth::Truth)> {
    let network = Network::make()?;
    network.join();
    let relay = Relay::start(&network, road);
    let stop = Arc::new(AtomicBool::new(false));
    let watchers = [(HERE, "here0"), (THERE, "there0")]
        .map(|(space, interface)| Watcher::start(&network, space, interface, traffic.port(), &stop));
    let sending = traffic.start(&network, &stop);
    let [here, there] = agents(&network, synopsis, &traffic.filter(), INTERFACES);
    let limit = Duration::from_secs(60 + 3 * intervals as u64);
    wait_for("a report", limit, || [&here, &there].iter().all(|agent| !agent.told().is_empty()));
    happens([&here, &there]);
    wait_for("reports", limit, || [&here, &there].iter().all(|agent| agent.told().len() > intervals));
    let told = [here.told(), there.told()];
    stop.store(true, Ordering::Release);
    drop((here, there));
    for sending in sending {
        sending.join().expect("it sends");
    }
    let [sent, received] = watchers.map(Watcher::captured);
    let fates = relay.stop();
    Some((told, truth::Truth::new(&sent, &received, &fates)))
}

/// What a test has seen of intervals that were told without a flag.
#[derive(Debug, Default)]
struct Judged {
    /// From the end of the grace of the next interval, which has the last word about packets, to the result, in milliseconds.
    pipeline_ms: Vec<f64>,
    means: Vec<f64>,
    deviations: Vec<f64>,
    lost: u64,
    twice: u64,
    overtaken: u64,
}

/// Every interval that an agent told without a flag beside the truth: packets and losses are exactly those of the relay's log.
fn judged(end: &str, told: &[Told], truth: &truth::Truth) -> Judged {
    let mut judged = Judged::default();
    for report in told {
        if !report.flags.is_empty() {
            println!("{end}: interval {} is flagged: {}", report.interval, report.flags);
            continue;
        }
        let (Some(mean), Some(found)) = (report.mean_ns, truth.of(report.begins_ns)) else { continue };
        assert_eq!((report.sent, report.lost), (Some(found.sent), found.lost), "{end}: {report:?}, {found:?}");
        // Of the one clock of this machine somebody knows how far off it is, or it is said that nobody does.
        assert_eq!(report.clock_error_ns.is_none(), report.unsynchronised, "{report:?}");
        judged.pipeline_ms.push(report.after_ns as f64 / 1e6 - 1_000.0 - 60.0);
        judged.means.push((mean / found.mean_ns - 1.0).abs());
        judged.deviations.push((report.deviation_ns.expect("with the mean") / found.deviation_ns - 1.0).abs());
        judged.lost += found.lost;
        judged.twice += found.twice;
        judged.overtaken += found.overtaken;
    }
    judged
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

/// RDA of both ends beside the truth, over `road`.
fn rda_is_exact(traffic: Traffic, road: Road) {
    let Some((told, truth)) = measured("rda", traffic, road, 12) else { return };

    for (end, told) in ["sender", "receiver"].iter().zip(&told) {
        let Judged { pipeline_ms, means, deviations, lost, twice, overtaken } = judged(end, told, &truth);
        let intervals = means.len();
        assert!(intervals >= 6, "{intervals} of {} intervals", told.len());
        let (mean, deviation) = (median(means.clone()), median(deviations));
        println!(
            "{end}: {intervals} of {} intervals without a flag: median error of the mean {mean:.1e}, of the deviation {deviation:.3}; lost exactly \
             those {lost} that the relay lost, of those sent on {twice} came twice and {overtaken} were overtaken; {:.1} ms from the grace's end to the result",
            told.len(),
            median(pipeline_ms.clone()),
        );
        assert!(mean <= 1e-6 && deviation <= 0.1, "{means:?}");
        assert!(lost > 0 && overtaken > 0 && (twice > 0) == (road.twice > 0.0), "the road did what it was to do");
    }
}

#[test]
fn rda_of_two_agents_says_mean_and_loss_of_real_datagrams_as_the_relay_logged_them() {
    rda_is_exact(Traffic::Udp, Road { delay_ms: (1, 9), loss: 0.01, twice: 0.0, seed: 5 });
}

#[test]
fn rda_of_two_agents_is_as_exact_where_packets_come_twice() {
    rda_is_exact(Traffic::Udp, Road { delay_ms: (1, 9), loss: 0.01, twice: 0.02, seed: 8 });
}

#[test]
fn rda_of_two_agents_is_as_exact_about_real_tcp() {
    rda_is_exact(Traffic::Tcp, Road { delay_ms: (1, 4), loss: 0.005, twice: 0.002, seed: 9 });
}

#[test]
fn an_agent_that_does_not_get_to_run_for_a_while_counts_each_packet_in_its_own_interval() {
    let road = Road { delay_ms: (1, 4), loss: 0.01, twice: 0.0, seed: 10 };
    let stall = |agents: [&Agent; 2]| {
        // Longer than the grace, and shorter than the ring has blocks for.
        for agent in agents.into_iter().cycle().take(24) {
            agent.stall(Duration::from_millis(130));
        }
    };
    let Some((told, truth)) = measured_while("rda", Traffic::Udp, road, 12, stall) else { return };

    for (end, told) in ["sender", "receiver"].iter().zip(&told) {
        assert!(judged(end, told, &truth).means.len() >= 6, "of {} intervals", told.len());
        assert!(told.iter().all(|report| !report.flags.contains("missed")), "{end}: {told:?}");
    }
}

#[test]
fn finecomb_of_two_agents_says_the_mean_of_real_packets() {
    let road = Road { delay_ms: (1, 5), loss: 0.002, twice: 0.0, seed: 6 };
    let Some((told, truth)) = measured("finecomb", Traffic::Udp, road, 8) else { return };

    let mut off = Vec::new();
    for report in told.iter().flatten().filter(|report| report.flags.is_empty()) {
        let (Some(mean), Some(found)) = (report.mean_ns, truth.of(report.begins_ns)) else { continue };
        off.push((mean / found.mean_ns - 1.0).abs());
    }
    println!("{} intervals: median error of the mean {:.1e}", off.len(), median(off.clone()));
    assert!(off.len() >= 6 && median(off) < 0.02);
}

/// Bytes over TCP from here to there, over so many connections, as fast as they go with pauses between, until told to stop.
fn stream(
    network: &Network,
    there: Ipv4Addr,
    connections: usize,
    stop: &Arc<AtomicBool>,
) -> Vec<thread::JoinHandle<()>> {
    let to = (there, Traffic::Tcp.port());
    let listener = network.run(THERE, move || TcpListener::bind(to).expect("the port is free"));
    thread::spawn(move || {
        for stream in listener.incoming().take(connections) {
            let Ok(mut stream) = stream else { continue };
            thread::spawn(move || std::io::copy(&mut stream, &mut std::io::sink()));
        }
    });
    let one = |_| {
        let stop = Arc::clone(stop);
        network.thread(HERE, move || {
            let mut stream = TcpStream::connect(to).expect("there is a way");
            while !stop.load(Ordering::Acquire) {
                if stream.write_all(&vec![7; 1 << 16]).is_err() {
                    return;
                }
                thread::sleep(Duration::from_millis(5));
            }
        })
    };
    (0..connections).map(one).collect()
}

#[test]
fn with_offloads_on_both_agents_warn_and_say_no_figure() {
    let Some(network) = Network::make() else { return };
    network.join();
    let stop = Arc::new(AtomicBool::new(false));
    let sending = stream(&network, Network::direct_address(THERE), 1, &stop);
    let [here, there] = agents(&network, "rda", &Traffic::Tcp.filter(), ["here2", "there2"]);
    wait_for("reports", Duration::from_mins(1), || [&here, &there].iter().all(|agent| agent.told().len() > 4));

    for agent in [&here, &there] {
        for report in agent.told().iter().filter(|report| report.sent > Some(0)) {
            assert!(report.flags.contains("oversized"), "{report:?}");
        }
        let warned = |warning: &String| warning.contains("TSO, GSO, GRO") && warning.contains("ethtool -K");
        assert_eq!(agent.warnings().iter().filter(|warning| warned(warning)).count(), 1, "{:?}", agent.warnings());
    }
    stop.store(true, Ordering::Release);
    drop((here, there));
    for sending in sending {
        sending.join().expect("it sends");
    }
}

#[test]
fn a_receiver_that_is_killed_is_said_and_one_that_comes_back_is_measured_with() {
    let Some(network) = Network::make() else { return };
    network.join();
    let stop = Arc::new(AtomicBool::new(false));
    let relay = Relay::start(&network, Road { delay_ms: (1, 2), loss: 0.0, twice: 0.0, seed: 7 });
    let sending = datagrams(&network, &stop);
    let filter = "udp and dst port 6000";
    let [here, there] = agents(&network, "rda", filter, INTERFACES);
    let limit = Duration::from_mins(1);
    wait_for("a figure", limit, || here.told().iter().any(|report| report.flags.is_empty()));
    drop(there);
    wait_for("a flag", limit, || here.told().iter().any(|report| report.flags.contains("no_peer_data")));
    let flagged = here.told().len();
    let again = receiver(&network, "rda", filter, INTERFACES[1]);
    wait_for("another figure", limit, || here.told().iter().skip(flagged).any(|report| report.flags.is_empty()));
    wait_for("a figure at the other end", limit, || again.told().iter().any(|report| report.flags.is_empty()));

    let told = here.told();
    assert!(told.iter().filter(|report| report.flags.contains("no_peer_data")).all(|report| report.mean_ns.is_none()));
    stop.store(true, Ordering::Release);
    drop((here, again));
    sending.join().expect("it sends");
    drop(relay.stop());
}
