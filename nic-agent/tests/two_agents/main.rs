//! Two agents, each in a network namespace of its own, measure the one-way delay and loss of real packets together. A relay between them delays, loses and overtakes;
//! what it did, and what was captured at both interfaces with the same kernel's time stamps, is the truth. Runs where root is, and says so where it is not.

#[path = "../../../packets/tests/namespaces/network.rs"]
mod network;
#[path = "../../../packets/tests/namespaces/relay.rs"]
#[expect(dead_code, reason = "shared with the tests of captures")]
mod relay;

mod agent;
mod tls;
mod truth;

use std::io::Write as _;
use std::net::{TcpListener, TcpStream, UdpSocket};
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
fn datagrams(network: &Network, stop: &Arc<AtomicBool>) -> thread::JoinHandle<u32> {
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
        number
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

/// What both agents told of `intervals` intervals with traffic over `road`, and the truth.
fn measured(synopsis: &str, road: Road, intervals: usize) -> Option<([Vec<Told>; 2], truth::Truth)> {
    let network = Network::make()?;
    network.join();
    let relay = Relay::start(&network, road);
    let stop = Arc::new(AtomicBool::new(false));
    let watchers = [(HERE, "here0"), (THERE, "there0")]
        .map(|(space, interface)| Watcher::start(&network, space, interface, &stop));
    let sending = datagrams(&network, &stop);
    let [here, there] = agents(&network, synopsis, "udp and dst port 6000", INTERFACES);
    let limit = Duration::from_secs(60 + 3 * intervals as u64);
    wait_for("reports", limit, || [&here, &there].iter().all(|agent| agent.told().len() > intervals));
    let told = [here.told(), there.told()];
    stop.store(true, Ordering::Release);
    drop((here, there));
    sending.join().expect("it sends");
    let [sent, received] = watchers.map(Watcher::captured);
    drop(relay.stop());
    Some((told, truth::Truth::new(&sent, &received)))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

#[test]
fn rda_of_two_agents_says_mean_and_loss_of_real_packets() {
    let road = Road { delay_ms: (1, 9), loss: 0.01, twice: 0.0, seed: 5 };
    let Some((told, truth)) = measured("rda", road, 12) else { return };

    for (end, told) in ["sender", "receiver"].iter().zip(&told) {
        let (mut means, mut deviations, mut exact, mut judged) = (Vec::new(), Vec::new(), 0, 0);
        for report in told {
            let (Some(mean), Some(found)) = (report.mean_ns, truth.of(report.begins_ns)) else { continue };
            if !report.flags.is_empty() {
                println!("{end}: interval {} is flagged: {}", report.interval, report.flags);
                continue;
            }
            judged += 1;
            means.push((mean / found.mean_ns - 1.0).abs());
            deviations.push((report.deviation_ns.expect("with the mean") / found.deviation_ns - 1.0).abs());
            assert_eq!((report.sent, report.lost), (Some(found.sent), found.lost), "interval {}", report.interval);
            exact += 1;
        }
        let (mean, deviation) = (median(means.clone()), median(deviations));
        println!(
            "{end}: {judged} of {} intervals without a flag: median error of the mean {mean:.1e}, of the deviation {deviation:.3}, loss exact in {exact}",
            told.len()
        );
        assert!(judged >= 6, "{judged} of {} intervals", told.len());
        assert!(mean <= 1e-6 && deviation <= 0.1, "{means:?}");
    }
}

#[test]
fn finecomb_of_two_agents_says_the_mean_of_real_packets() {
    let road = Road { delay_ms: (1, 5), loss: 0.002, twice: 0.0, seed: 6 };
    let Some((told, truth)) = measured("finecomb", road, 8) else { return };

    let mut off = Vec::new();
    for report in told.iter().flatten().filter(|report| report.flags.is_empty()) {
        let (Some(mean), Some(found)) = (report.mean_ns, truth.of(report.begins_ns)) else { continue };
        off.push((mean / found.mean_ns - 1.0).abs());
    }
    println!("{} intervals: median error of the mean {:.1e}", off.len(), median(off.clone()));
    assert!(off.len() >= 6 && median(off) < 0.02);
}

/// Bytes over TCP from here to there on the way without a relay, as fast as they go, until told to stop.
fn stream(network: &Network, stop: &Arc<AtomicBool>) -> thread::JoinHandle<()> {
    let to = (Network::direct_address(THERE), 7_000);
    let listener = network.run(THERE, move || TcpListener::bind(to).expect("the port is free"));
    thread::spawn(move || {
        let Ok((mut stream, _)) = listener.accept() else { return };
        _ = std::io::copy(&mut stream, &mut std::io::sink());
    });
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
}

#[test]
fn with_offloads_on_both_agents_warn_and_say_no_figure() {
    let Some(network) = Network::make() else { return };
    network.join();
    let stop = Arc::new(AtomicBool::new(false));
    let sending = stream(&network, &stop);
    let filter = "tcp and dst port 7000";
    let [here, there] = agents(&network, "rda", filter, ["here2", "there2"]);
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
    sending.join().expect("it sends");
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
