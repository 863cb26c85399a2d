//! The ground truth of each packet: loss by the relay's log, and delay by the kernel's timestamps at both interfaces.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use packets::ring::Ring;
use packets::{Frame, Progress, Source as _, View, parse};

use support::network::Network;
use support::relay::{self, PacketOutcome};

/// Length of an interval, as configured.
const LENGTH_NS: u64 = 1_000_000_000;

/// Captures the packets of the stream: their names in the relay's log, and their timestamps.
pub struct Watcher(thread::JoinHandle<Vec<(u64, u64)>>);

impl Watcher {
    /// Captures packets to `port`.
    pub fn start(network: &Network, space: &'static str, interface: &str, port: u16, stop: &Arc<AtomicBool>) -> Self {
        let settings = relay::patient_ring(interface);
        let (stop, started) = (Arc::clone(stop), std::sync::mpsc::channel());
        let thread = network.thread(space, move || {
            let mut ring = Ring::open(&settings).expect("root may read an interface");
            started.0.send(()).expect("the test waits for it");
            let mut found = Vec::new();
            loop {
                let stopping = stop.load(Ordering::Acquire);
                let progress = ring.read(&mut |frame| found.extend(of_stream(frame, port))).expect("it is read");
                if stopping && progress == Progress::Frames(0) {
                    assert_eq!(ring.counts().dropped, 0, "the truth is whole");
                    return found;
                }
            }
        });
        started.1.recv().expect("it starts");
        Self(thread)
    }

    pub fn captured(self) -> Vec<(u64, u64)> {
        self.0.join().expect("it does not fail")
    }
}

fn of_stream(frame: &Frame<'_>, port: u16) -> Option<(u64, u64)> {
    let packet = parse(frame, View::Outer).ok()?;
    let name = relay::name(frame.bytes).filter(|_| packet.destination.port == port)?;
    Some((name, packet.time_ns))
}

/// The ground truth of one interval.
#[derive(Clone, Copy, Debug, Default)]
pub struct Interval {
    pub sent: u64,
    /// Their bytes, with the frames' headers.
    pub bytes: u64,
    /// Lost packets, by the relay's log.
    pub lost: u64,
    /// Sent packets that the relay duplicated.
    pub twice: u64,
    /// Reordered packets: a packet that was sent later arrived earlier.
    pub overtaken: u64,
    pub mean_ns: f64,
    pub deviation_ns: f64,
}

/// The fate of one packet.
#[derive(Clone, Copy)]
struct Packet {
    fate: Option<PacketOutcome>,
    arrived_ns: Option<u64>,
}

/// All packets, by the time at which they were sent.
pub struct GroundTruth(BTreeMap<(u64, u64), Packet>);

impl GroundTruth {
    /// Combines the captures of both ends with the relay's log.
    pub fn new(sent: &[(u64, u64)], received: &[(u64, u64)], fates: &[PacketOutcome]) -> Self {
        let mut arrived = HashMap::new();
        // Of duplicates, the first one counts.
        for (name, at) in received {
            arrived.entry(*name).or_insert(*at);
        }
        let fates: HashMap<u64, PacketOutcome> = fates.iter().filter_map(|fate| Some((fate.name?, *fate))).collect();
        let packet = |name: &u64| Packet { fate: fates.get(name).copied(), arrived_ns: arrived.get(name).copied() };
        Self(sent.iter().map(|(name, at)| ((*at, *name), packet(name))).collect())
    }

    /// The ground truth of the interval that begins at `begins_ns`. `None`, with a message, if the relay did not see
    /// all sent packets, or not all that it forwarded arrived: a machine that stalls drops packets in the kernel, too.
    pub fn of(&self, begins_ns: u64) -> Option<Interval> {
        let range = (begins_ns, 0)..(begins_ns + LENGTH_NS, 0);
        let (mut delays, mut found) = (Vec::new(), Interval::default());
        let mut latest = 0;
        for ((sent_ns, name), packet) in self.0.range(range) {
            let Some(fate) = packet.fate.filter(|fate| fate.delay_ns.is_some() == packet.arrived_ns.is_some()) else {
                println!("what became of packet {name} is not known: {:?}, {:?}", packet.fate, packet.arrived_ns);
                return None;
            };
            found.sent += 1;
            found.bytes += fate.bytes as u64;
            found.lost += u64::from(fate.delay_ns.is_none());
            found.twice += u64::from(fate.duplicate_delay_ns.is_some());
            let Some(arrived_ns) = packet.arrived_ns else { continue };
            found.overtaken += u64::from(arrived_ns < latest);
            latest = latest.max(arrived_ns);
            delays.push(arrived_ns.wrapping_sub(*sent_ns).cast_signed() as f64);
        }
        if delays.is_empty() {
            return None;
        }
        found.mean_ns = delays.iter().sum::<f64>() / delays.len() as f64;
        let squares = delays.iter().map(|delay| (delay - found.mean_ns).powi(2)).sum::<f64>();
        found.deviation_ns = (squares / delays.len() as f64).sqrt();
        Some(found)
    }
}
