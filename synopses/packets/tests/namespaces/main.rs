//! Real packets of the kernel, between two network namespaces joined by a relay that delays, drops, duplicates and
//! reorders them, and logs the outcome of each. Needs root, and prints a message without it.

mod rings;

use std::collections::{BTreeSet, HashMap};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use packets::ring::{Ring, RingSettings};
use packets::{
    Delays, DelaysSettings, Filter, Frame, Link, Packet, Pair, Progress, Source as _, Tcp, Transport, View, identity,
    parse,
};
use support::network::{HERE, Network, THERE};
use support::relay::{self, LinkConditions, PacketOutcome, Relay};
use synopses::digest::{Digest, DigestKey};
use synopses::finecomb::{Deviation, FineComb, Interval, Rule, Settings as CombSettings, Solver};
use synopses::fridge::{Duplicates, HistogramShape, Settings};

/// Captured frames: timestamp and bytes.
type CapturedFrames = Vec<(u64, Vec<u8>)>;
/// Frames captured at both ends, and the relay's log.
type Observation = (CapturedFrames, CapturedFrames, Vec<PacketOutcome>);

/// Captures from an interface until `stop` is set and no frame arrives any more. Returns the frames, and the number
/// that the kernel dropped.
fn capture(
    network: &Network,
    space: &'static str,
    interface: &str,
    stop: &Arc<AtomicBool>,
) -> thread::JoinHandle<(CapturedFrames, u64)> {
    let settings = relay::patient_ring(interface);
    let (stop, started) = (Arc::clone(stop), std::sync::mpsc::channel());
    let thread = network.thread(space, move || {
        let mut ring = Ring::open(&settings).expect("root may read an interface");
        started.0.send(()).expect("the test waits for it");
        let mut frames = Vec::new();
        loop {
            let stopping = stop.load(Ordering::Acquire);
            let found = ring.read(&mut |frame| frames.push((frame.time_ns, frame.bytes.to_vec()))).expect("it is read");
            if stopping && found == Progress::Frames(0) {
                return (frames, ring.counts().dropped);
            }
        }
    });
    started.1.recv().expect("it starts");
    thread
}

fn packets(captured: &CapturedFrames) -> impl Iterator<Item = Packet<'_>> {
    captured.iter().filter_map(|(time_ns, bytes)| {
        parse(&Frame { bytes, length: bytes.len() as u32, time_ns: *time_ns, link: Link::Ethernet }, View::Outer).ok()
    })
}

/// Captures at both ends while `work` runs over a link. `work` returns whether all its packets arrived. If the machine
/// stalls so long that the kernel drops frames, the log is incomplete: then it repeats in another network, up to three
/// times.
fn observe(link: LinkConditions, work: impl Fn(&Network, &Relay) -> bool) -> Option<Observation> {
    let mut attempt = 1;
    loop {
        match observe_once(link, &work)? {
            Ok(observation) => return Some(observation),
            Err(why) => {
                println!("attempt {attempt} of 3: {why}");
                assert!(attempt < 3, "the log is never complete: {why}");
                attempt += 1;
            }
        }
    }
}

/// One attempt of [`observe`], or why its log is incomplete.
fn observe_once(link: LinkConditions, work: impl Fn(&Network, &Relay) -> bool) -> Option<Result<Observation, String>> {
    let network = Network::create()?;
    let relay = Relay::start(&network, link);
    let stop = Arc::new(AtomicBool::new(false));
    let (here, there) = (capture(&network, HERE, "here0", &stop), capture(&network, THERE, "there0", &stop));
    let complete = work(&network, &relay);
    stop.store(true, Ordering::Release);
    let ((here, dropped), (there, also_dropped)) =
        (here.join().expect("a test has what it needs"), there.join().expect("a test has what it needs"));
    let fates = relay.stop();
    if !complete || dropped + also_dropped > 0 {
        return Some(Err(format!(
            "of the frames captured {dropped} and {also_dropped} were dropped, all packets arrived: {complete}"
        )));
    }
    Some(Ok((here, there, fates)))
}

/// Opens `number` connections, some at a time, and exchanges a word over each. TCP retransmits what is lost, so that
/// all complete.
fn connect(network: &Network, number: usize) -> bool {
    let address = (Network::address(THERE), 7_777);
    let listener = network.run(THERE, move || TcpListener::bind(address).expect("the port is free"));
    thread::spawn(move || {
        for stream in listener.incoming().take(number) {
            let Ok(mut stream) = stream else { continue };
            thread::spawn(move || {
                let mut word = [0; 5];
                let _ = stream.read_exact(&mut word).and_then(|()| stream.write_all(&word));
            });
        }
    });
    let callers: Vec<_> = (0..20)
        .map(|_| {
            network.thread(HERE, move || {
                for _ in 0..number / 20 {
                    let mut stream = TcpStream::connect(address).expect("it is there");
                    stream.write_all(b"hello").expect("it is there");
                    stream.read_exact(&mut [0; 5]).expect("it answers");
                }
            })
        })
        .collect();
    for caller in callers {
        caller.join().expect("a test has what it needs");
    }
    true
}

/// Delays from the last copy of each SYN to the first SYN+ACK after it, as a fridge with overwriting estimates them.
fn handshakes(captured: &CapturedFrames) -> Vec<u64> {
    let mut waiting = HashMap::new();
    let mut found = Vec::new();
    for packet in packets(captured) {
        let Transport::Tcp(tcp) = packet.transport else { continue };
        if tcp.has(Tcp::SYN | Tcp::ACK) {
            let sent_ns = waiting.remove(&(packet.destination, packet.source, tcp.acknowledgement));
            found.extend(sent_ns.map(|sent_ns| packet.time_ns - sent_ns));
        } else if tcp.has(Tcp::SYN) {
            waiting.insert((packet.source, packet.destination, tcp.sequence.wrapping_add(1)), packet.time_ns);
        }
    }
    found.sort_unstable();
    found
}

#[test]
fn a_fridge_of_real_handshakes_says_what_the_same_time_stamps_say_and_what_the_relay_did() {
    let link = LinkConditions { delay_ms: (5, 25), loss: 0.02, duplication: 0.01, seed: 1 };
    let Some((here, _, fates)) = observe(link, |network, _| connect(network, 400)) else {
        return;
    };
    let truth = handshakes(&here);
    assert!(truth.len() >= 400, "{}", truth.len());

    // To the nanosecond where there is a slot for each; within its own confidence where there are 12 in use at a time
    // and 8 slots.
    let delays = |slots, tick_shift| {
        let fridge = Settings { slots, tick_shift, duplicates: Duplicates::Overwrite, seed: 4, ..Settings::default() };
        let histogram = HistogramShape { tick_shift, fineness: 5 };
        let settings = DelaysSettings {
            pair: Pair::Handshake,
            filter: Filter::default(),
            fridge,
            histogram,
            tuned: false,
            secret: 9,
        };
        let mut delays = Delays::new(settings).expect("possible");
        let mut found: Vec<u64> = packets(&here).filter_map(|packet| Some(delays.insert(&packet)?.delay_ns)).collect();
        found.sort_unstable();
        (delays, found)
    };
    assert_eq!(delays(1 << 20, 0).1, truth);
    let (small, found) = delays(16, 10);
    let median = small.estimate().quantiles.expect("samples")[0];
    let exact = truth[truth.len() / 2] as f64;
    println!("{} of {} handshakes seen by 16 slots: median {median:?}, truth {exact}", found.len(), truth.len());
    assert!(found.len() < truth.len());
    assert!(0.9 * median.low_ns <= exact && exact <= 1.1 * median.high_ns, "{median:?}, {exact}");

    // Both ways through the relay took 10 to 50 ms, and the machine's own time; less only where a SYN was sent again
    // and its first copy answered.
    let held: Vec<u64> = fates.iter().filter_map(|fate| fate.delay_ns).collect();
    let mean_held = held.iter().sum::<u64>() as f64 / held.len() as f64;
    let mean =
        truth.iter().filter(|delay| **delay < 500_000_000).map(|delay| *delay as f64).sum::<f64>() / truth.len() as f64;
    println!("mean handshake {mean:.0} ns, twice the relay's mean {:.0} ns", 2.0 * mean_held);
    assert!(mean > 2.0 * mean_held * 0.9 && truth[truth.len() / 10] >= 10_000_000, "{mean} {mean_held}");
}

/// Sends numbered datagrams, all in about a second, and waits until none is on the way; whether the relay has seen them
/// all.
fn datagrams(network: &Network, relay: &Relay, number: u32) -> bool {
    let (from, to) = ((Network::address(HERE), 5_000), (Network::address(THERE), 6_000));
    let sink = network.run(THERE, move || UdpSocket::bind(to).expect("the port is free"));
    network.run(HERE, move || {
        let socket = UdpSocket::bind(from).expect("the port is free");
        for number in 0..number {
            socket.send_to(&[number.to_be_bytes().as_slice(), &[7; 60]].concat(), to).expect("there is a way");
            if number % 10 == 9 {
                thread::sleep(Duration::from_millis(1));
            }
        }
    });
    let whole = relay.wait_for(number as usize);
    drop(sink);
    whole
}

#[test]
fn finecomb_of_real_datagrams_says_their_loss_exactly_and_their_mean_delay() {
    const DATAGRAMS: u32 = 5_000;
    let link = LinkConditions { delay_ms: (1, 9), loss: 0.01, duplication: 0.0, seed: 2 };
    let Some((here, there, fates)) = observe(link, |network, relay| datagrams(network, relay, DATAGRAMS)) else {
        return;
    };
    let (key, filter) = (DigestKey::new(11), "udp and dst port 6000".parse::<Filter>().expect("a filter"));
    let names = |captured: &CapturedFrames| -> Vec<(Digest, u64)> {
        let of_stream = packets(captured).filter(|packet| filter.matches(packet));
        of_stream.map(|packet| (identity::digest(&packet, &key), packet.time_ns)).collect()
    };
    let (sent, received) = (names(&here), names(&there));
    let settings = CombSettings::one_bank(2_000, 1.0, 0, 3);
    let comb = |packets: &[(Digest, u64)]| {
        let mut comb = FineComb::new(&settings).expect("possible");
        for (digest, time_ns) in packets {
            comb.insert(*digest, *time_ns);
        }
        comb
    };

    let interval = Interval::without_stash(comb(&received));
    let found =
        interval.estimate(&comb(&sent), Rule::FineComb, Solver::Elimination, Deviation::PerBucket).expect("one kind");

    let lost = fates.iter().filter(|fate| fate.bytes >= 100 && fate.delay_ns.is_none()).count();
    let at: HashMap<Digest, u64> = sent.iter().copied().collect();
    assert_eq!((sent.len(), at.len(), lost), (DATAGRAMS as usize, DATAGRAMS as usize, sent.len() - received.len()));
    assert!(lost > 10, "{lost}");
    // Each of them, and not only as many.
    let arrived: BTreeSet<u64> = there.iter().filter_map(|(_, bytes)| relay::name(bytes)).collect();
    for fate in fates.iter().filter(|fate| fate.bytes >= 100) {
        let name = fate.name.expect("a datagram has a number");
        assert_eq!((arrived.contains(&name), fate.duplicate_delay_ns), (fate.delay_ns.is_some(), None), "{fate:?}");
    }
    assert_eq!(found.loss_in_all, Some(lost as f64 / f64::from(DATAGRAMS)));
    let delays: Vec<f64> = received.iter().map(|(digest, time_ns)| (time_ns - at[digest]) as f64).collect();
    let truth = delays.iter().sum::<f64>() / delays.len() as f64;
    let mean = found.mean_ns.expect("buckets without a loss");
    println!(
        "mean {mean:.0} ns of {} packets, truth {truth:.0} ns of {}; {:?}",
        found.packets,
        delays.len(),
        found.health
    );
    // It is about the packets whose buckets had no loss, which are drawn by chance: the mean of the others, which it
    // lacks, is off by some deviations at most. So on a machine that stalls, too, where a few delays are a thousand
    // times longer.
    let deviation = (delays.iter().map(|delay| (delay - truth).powi(2)).sum::<f64>() / delays.len() as f64).sqrt();
    let lacking = (delays.len() as f64 - found.packets as f64).max(1.0);
    let bound = 10.0 * deviation * lacking.sqrt() / delays.len() as f64;
    assert!(lacking < delays.len() as f64 / 5.0 && (mean - truth).abs() < bound, "{mean}, {truth} ± {bound}");
    let overtaken = received.iter().zip(&sent).filter(|(received, sent)| received.0 != sent.0).count();
    assert!(overtaken > 0, "the relay lets packets overtake each other");
}

#[test]
fn rings_of_a_group_share_the_packets_of_an_interface_by_flow() {
    let Some(network) = Network::create() else { return };
    let relay = Relay::start(&network, LinkConditions { delay_ms: (0, 1), loss: 0.0, duplication: 0.0, seed: 3 });
    let stop = Arc::new(AtomicBool::new(false));
    let rings: Vec<_> = (0..2)
        .map(|_| {
            let (stop, started) = (Arc::clone(&stop), std::sync::mpsc::channel());
            let ring = network.thread(HERE, move || {
                let settings = RingSettings { group: Some(77), ..relay::patient_ring("here0") };
                let mut ring = Ring::open(&settings).expect("root may read an interface");
                started.0.send(()).expect("the test waits for it");
                let mut ports = Vec::new();
                while ring
                    .read(&mut |frame| {
                        let packet = parse(frame, View::Outer);
                        ports.extend(packet.ok().map(|packet| packet.source.port.max(packet.destination.port)));
                    })
                    .expect("it is read")
                    != Progress::Frames(0)
                    || !stop.load(Ordering::Acquire)
                {}
                ports
            });
            started.1.recv().expect("it starts");
            ring
        })
        .collect();
    connect(&network, 60);
    stop.store(true, Ordering::Release);
    let ports: Vec<Vec<u16>> = rings.into_iter().map(|ring| ring.join().expect("a test has what it needs")).collect();
    drop(relay.stop());

    let [one, other] = [&ports[0], &ports[1]]
        .map(|ports| ports.iter().copied().filter(|port| *port != 7_777).collect::<BTreeSet<_>>());
    assert!(one.is_disjoint(&other), "both directions of a connection come to one ring");
    assert!(!one.is_empty() && !other.is_empty() && one.len() + other.len() >= 60, "{} and {}", one.len(), other.len());
    assert_eq!(Network::address(HERE), Ipv4Addr::new(10, 77, 0, 1));
    network.disable_segmentation_offload();
    network.connect_directly();
    let bound = network.run(THERE, || UdpSocket::bind((Network::direct_address(THERE), 0)).is_ok());
    assert!(bound, "the other way is there, too");
}
