//! Two agents, each in a network namespace, measure one-way delay and loss of real packets. A relay between them
//! delays, loses, duplicates and reorders packets. The relay's log of each packet is the ground truth for loss, and the
//! kernel's timestamps at both interfaces are the ground truth for delays. Skipped with a message unless run as root.
//!
//! `UVIEW_TWO_AGENTS_JSON` names a file for the figures of the test with TCP, which `cargo lab reproduce rda` judges.

mod agent;
mod figures;
mod fragments;
mod interface;
mod tls;
mod truth;

use std::io::Write as _;
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use agent::{Agent, IntervalRecord};
use support::network::{HERE, Network, THERE};
use support::relay::{LinkConditions, Relay};
use support::wait::Wait;
use truth::Watcher;

/// How tests wait for what takes a few intervals.
const WAIT: Wait = Wait::up_to(Duration::from_mins(1)).pausing(Duration::from_millis(20));

/// Length of an interval in milliseconds, as configured by default.
const LENGTH_MS: f64 = 1_000.0;
/// The agents' grace period in milliseconds: they wait so long for packets that are still in the kernel.
const GRACE_MS: f64 = 60.0;

/// Packets per second: enough that cells take fewer bytes than all packets.
const RATE: u32 = 4_000;

/// Sends numbered datagrams at a constant rate until `stop` is set.
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
                // A full queue is one of the reasons for packet loss.
                _ = socket.send_to(&payload, to);
                number += 1;
            }
            thread::sleep(Duration::from_millis(2));
        }
    })
}

/// The interfaces of the relay.
const INTERFACES: [&str; 2] = ["here0", "there0"];

/// The stream's memory. RDA has to store all packets of an interval, or it measures some of the flows only.
fn memory(synopsis: &str) -> &'static str {
    if synopsis == "rda" { ", memory_bytes: 67108864" } else { "" }
}

/// Starts the agent at the receiving end.
fn receiver(network: &Network, synopsis: &str, filter: &str, interface: &str) -> Agent {
    let (one_way, memory) = (format!("{{synopsis: {synopsis}}}"), memory(synopsis));
    let stream = format!("{{name: way, interface: {interface}, filter: {filter}, one_way: {one_way}{memory}}}");
    Agent::start(
        network,
        THERE,
        &format!("  peers: {{listen: '0.0.0.0:9705', insecure: true}}\n  streams: [{stream}]\n"),
    )
}

/// Starts the agents at both ends.
fn agents(network: &Network, synopsis: &str, filter: &str, interfaces: [&str; 2]) -> [Agent; 2] {
    let there = receiver(network, synopsis, filter, interfaces[1]);
    // Agents connect past the relay, whose interfaces accept no merged frames.
    let peer = format!("{}:9705", Network::direct_address(THERE));
    let (interface, one_way) = (interfaces[0], format!("{{synopsis: {synopsis}, peer: '{peer}'}}"));
    let memory = memory(synopsis);
    let stream = format!("{{name: way, interface: {interface}, filter: {filter}, one_way: {one_way}{memory}}}");
    let here = Agent::start(network, HERE, &format!("  peers: {{peers_insecure: true}}\n  streams: [{stream}]\n"));
    [here, there]
}

/// Traffic that runs until it is stopped.
#[derive(Clone, Copy, PartialEq)]
enum Traffic {
    /// Numbered datagrams at a constant rate.
    Udp,
    /// Bytes over five connections at full speed, each packet on its own.
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
                network.disable_segmentation_offload();
                stream(network, Network::address(THERE), 5, stop)
            }
        }
    }
}

/// Measures `intervals` intervals with traffic over `link`. Returns the records of both agents, and the ground truth.
fn measured(
    synopsis: &str,
    traffic: Traffic,
    link: LinkConditions,
    intervals: usize,
) -> Option<([Vec<IntervalRecord>; 2], truth::GroundTruth)> {
    measured_while(synopsis, traffic, link, intervals, |_| ())
}

/// The same, with `happens` called while the agents measure.
fn measured_while(
    synopsis: &str,
    traffic: Traffic,
    link: LinkConditions,
    intervals: usize,
    happens: impl FnOnce([&Agent; 2]),
) -> Option<([Vec<IntervalRecord>; 2], truth::GroundTruth)> {
    let network = Network::create()?;
    network.connect_directly();
    let relay = Relay::start(&network, link);
    let stop = Arc::new(AtomicBool::new(false));
    let watchers = [(HERE, "here0"), (THERE, "there0")]
        .map(|(space, interface)| Watcher::start(&network, space, interface, traffic.port(), &stop));
    let sending = traffic.start(&network, &stop);
    let [here, there] = agents(&network, synopsis, &traffic.filter(), INTERFACES);
    let wait = Wait::up_to(Duration::from_secs(60 + 3 * intervals as u64)).pausing(Duration::from_millis(20));
    wait.until("a report", || [&here, &there].iter().all(|agent| !agent.intervals().is_empty()));
    happens([&here, &there]);
    wait.until("reports", || [&here, &there].iter().all(|agent| agent.intervals().len() > intervals));
    let records = [here.intervals(), there.intervals()];
    stop.store(true, Ordering::Release);
    drop((here, there));
    for sending in sending {
        sending.join().expect("it sends");
    }
    let [sent, received] = watchers.map(Watcher::captured);
    let fates = relay.stop();
    Some((records, truth::GroundTruth::new(&sent, &received, &fates)))
}

/// Intervals without a flag, compared with the ground truth.
#[derive(Debug, Default)]
struct Comparison {
    /// Time from the end of the next interval's grace period, when reports become final, to the report, in
    /// milliseconds.
    pipeline_ms: Vec<f64>,
    means: Vec<f64>,
    deviations: Vec<f64>,
    lost: u64,
    twice: u64,
    overtaken: u64,
    sent: u64,
    bytes: u64,
    mean_ns: Vec<f64>,
}

/// Compares every interval without a flag with the ground truth: packets and losses have to be exactly those of the
/// relay's log.
fn compare(end: &str, records: &[IntervalRecord], truth: &truth::GroundTruth) -> Comparison {
    let mut compare = Comparison::default();
    for report in records {
        if !report.flags.is_empty() {
            println!("{end}: interval {} is flagged: {}", report.interval, report.flags);
            continue;
        }
        let (Some(mean), Some(found)) = (report.mean_ns, truth.of(report.begins_ns)) else { continue };
        assert_eq!((report.sent, report.lost), (Some(found.sent), found.lost), "{end}: {report:?}, {found:?}");
        // The error of this machine's clock is known, or the clock is unsynchronised.
        assert_eq!(report.clock_error_ns.is_none(), report.unsynchronised, "{report:?}");
        compare.pipeline_ms.push(report.after_ns as f64 / 1e6 - LENGTH_MS - GRACE_MS);
        compare.means.push((mean / found.mean_ns - 1.0).abs());
        compare.deviations.push((report.deviation_ns.expect("with the mean") / found.deviation_ns - 1.0).abs());
        compare.lost += found.lost;
        compare.twice += found.twice;
        compare.overtaken += found.overtaken;
        compare.sent += found.sent;
        compare.bytes += found.bytes;
        compare.mean_ns.push(found.mean_ns);
    }
    compare
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Compares RDA at both ends with the ground truth, over `link`.
fn rda_is_exact(traffic: Traffic, link: LinkConditions) {
    let Some((records, truth)) = measured("rda", traffic, link, 12) else { return };

    for (end, records) in ["sender", "receiver"].iter().zip(&records) {
        let compared = compare(end, records, &truth);
        let Comparison { lost, twice, overtaken, .. } = compared;
        let intervals = compared.means.len();
        assert!(intervals >= 6, "{intervals} of {} intervals", records.len());
        let (mean, deviation) = (median(&compared.means), median(&compared.deviations));
        println!(
            "{end}: {intervals} of {} intervals without a flag: median error of the mean {mean:.1e}, of the deviation {deviation:.3}; lost exactly \
             those {lost} that the relay lost, of those sent on {twice} came twice and {overtaken} were overtaken; {:.1} ms from the grace's end to the result",
            records.len(),
            median(&compared.pipeline_ms),
        );
        // The sender has the result; the receiver is told it with its next request.
        if traffic == Traffic::Tcp && *end == "sender" {
            figures::write(&compared, records.len(), &link);
        }
        assert!(mean <= 1e-6 && deviation <= 0.1, "{:?}", compared.means);
        assert!(
            lost > 0 && overtaken > 0 && (twice > 0) == (link.duplication > 0.0),
            "the link lost, duplicated and reordered packets as configured"
        );
    }
}

#[test]
fn rda_of_two_agents_says_mean_and_loss_of_real_datagrams_as_the_relay_logged_them() {
    rda_is_exact(Traffic::Udp, LinkConditions { delay_ms: (1, 9), loss: 0.01, duplication: 0.0, seed: 5 });
}

#[test]
fn rda_of_two_agents_is_as_exact_where_packets_come_twice() {
    rda_is_exact(Traffic::Udp, LinkConditions { delay_ms: (1, 9), loss: 0.01, duplication: 0.02, seed: 8 });
}

#[test]
fn rda_of_two_agents_is_as_exact_about_real_tcp() {
    rda_is_exact(Traffic::Tcp, LinkConditions { delay_ms: (1, 4), loss: 0.005, duplication: 0.002, seed: 9 });
}

#[test]
fn an_agent_that_does_not_get_to_run_for_a_while_counts_each_packet_in_its_own_interval() {
    let link = LinkConditions { delay_ms: (1, 4), loss: 0.01, duplication: 0.0, seed: 10 };
    let stall = |agents: [&Agent; 2]| {
        // Longer than the grace period, and shorter than the ring can buffer.
        for agent in agents.into_iter().cycle().take(24) {
            agent.stall(Duration::from_millis(130));
        }
    };
    let Some((records, truth)) = measured_while("rda", Traffic::Udp, link, 12, stall) else { return };

    for (end, records) in ["sender", "receiver"].iter().zip(&records) {
        assert!(compare(end, records, &truth).means.len() >= 6, "of {} intervals", records.len());
        assert!(records.iter().all(|report| !report.flags.contains("missed")), "{end}: {records:?}");
    }
}

#[test]
fn finecomb_of_two_agents_says_the_mean_of_real_packets() {
    let link = LinkConditions { delay_ms: (1, 5), loss: 0.002, duplication: 0.0, seed: 6 };
    let Some((records, truth)) = measured("finecomb", Traffic::Udp, link, 8) else { return };

    let mut off = Vec::new();
    for report in records.iter().flatten().filter(|report| report.flags.is_empty()) {
        let (Some(mean), Some(found)) = (report.mean_ns, truth.of(report.begins_ns)) else { continue };
        off.push((mean / found.mean_ns - 1.0).abs());
    }
    println!("{} intervals: median error of the mean {:.1e}", off.len(), median(&off));
    assert!(off.len() >= 6 && median(&off) < 0.02);
}

/// Sends bytes over TCP, over several connections at full speed with pauses, until `stop` is set.
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
            let mut stream = TcpStream::connect(to).expect("there is a route");
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
    let Some(network) = Network::create() else { return };
    network.connect_directly();
    let stop = Arc::new(AtomicBool::new(false));
    let sending = stream(&network, Network::direct_address(THERE), 1, &stop);
    let [here, there] = agents(&network, "rda", &Traffic::Tcp.filter(), ["here2", "there2"]);
    WAIT.until("reports", || [&here, &there].iter().all(|agent| agent.intervals().len() > 4));

    for agent in [&here, &there] {
        for report in agent.intervals().iter().filter(|report| report.sent > Some(0)) {
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
    let Some(network) = Network::create() else { return };
    network.connect_directly();
    let stop = Arc::new(AtomicBool::new(false));
    let relay = Relay::start(&network, LinkConditions { delay_ms: (1, 2), loss: 0.0, duplication: 0.0, seed: 7 });
    let sending = datagrams(&network, &stop);
    let filter = "udp and dst port 6000";
    let [here, there] = agents(&network, "rda", filter, INTERFACES);
    WAIT.until("a figure", || here.intervals().iter().any(|report| report.flags.is_empty()));
    drop(there);
    WAIT.until("a flag", || here.intervals().iter().any(|report| report.flags.contains("no_peer_data")));
    let flagged = here.intervals().len();
    let again = receiver(&network, "rda", filter, INTERFACES[1]);
    WAIT.until("another figure", || here.intervals().iter().skip(flagged).any(|report| report.flags.is_empty()));
    WAIT.until("a figure at the other end", || again.intervals().iter().any(|report| report.flags.is_empty()));

    let records = here.intervals();
    assert!(
        records.iter().filter(|report| report.flags.contains("no_peer_data")).all(|report| report.mean_ns.is_none())
    );
    stop.store(true, Ordering::Release);
    drop((here, again));
    sending.join().expect("it sends");
    drop(relay.stop());
}
