//! A relay between two interfaces that delays, loses and duplicates packets.

mod order;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use packets::ring::{Ring, RingSettings};
use packets::switch::markers;
use packets::{Progress, Source as _};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use crate::clock::Stopwatch;
use crate::network::{BETWEEN, Network, stay_on_one_core};
use order::OrderLog;
pub use order::SegmentOrder;

/// A ring large enough for packets that arrive while the reader is stalled: up to as many deadlines as it has blocks.
pub fn patient_ring(interface: &str) -> RingSettings {
    RingSettings { interface: interface.to_owned(), block_bytes: 1 << 14, blocks: 1024, ..RingSettings::default() }
}

/// The conditions on a link.
#[derive(Clone, Copy, Debug)]
pub struct LinkConditions {
    /// Minimal and maximal delay of an IP packet in milliseconds. Packets overtake each other, unless both
    /// are the same.
    pub delay_ms: (u64, u64),
    /// Share of lost packets, 0 to 1.
    pub loss: f64,
    /// Share of duplicated packets, 0 to 1.
    pub duplication: f64,
    /// Seed of the random decisions.
    pub seed: u64,
}

/// What happened to one packet.
#[derive(Clone, Copy, Debug)]
pub struct PacketOutcome {
    /// Its identity ([`name`]).
    pub name: Option<u64>,
    /// Its length in bytes.
    pub bytes: usize,
    /// Its delay in nanoseconds; `None` if it was lost.
    pub delay_ns: Option<u64>,
    /// Delay of a duplicate in nanoseconds; `None` without one.
    pub duplicate_delay_ns: Option<u64>,
}

/// What the relay did with the IP packets of one direction so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RelayCounts {
    /// Those that came.
    pub packets: u64,
    /// Those of them that were lost.
    pub lost: u64,
    /// How long the others were held, together, in nanoseconds.
    pub held_ns: u64,
}

/// The identity of an IPv4 packet wherever it is captured, read from its bytes independently of the tested code: the
/// number at the start of a test datagram; for a TCP segment its sequence number and the IP identification, which
/// differs for a retransmission.
pub fn name(frame: &[u8]) -> Option<u64> {
    const HEADERS: usize = 14 + 20;
    let four = |at: usize| Some(u64::from(u32::from_be_bytes(*frame.get(at..)?.first_chunk()?)));
    match (frame.get(12..15)?, frame.get(23)?) {
        ([8, 0, 0x45], 17) => four(HEADERS + 8),
        ([8, 0, 0x45], 6) => Some((four(18)? >> 16) << 32 | four(HEADERS + 4)?),
        _ => None,
    }
}

/// The relay, a thread of its own.
#[derive(Debug)]
pub struct Relay {
    stop: Arc<AtomicBool>,
    settled: Arc<AtomicUsize>,
    control: Arc<Mutex<Control>>,
    late: Arc<AtomicU64>,
    thread: thread::JoinHandle<Vec<PacketOutcome>>,
}

/// What the relay and its owner share.
#[derive(Debug)]
struct Control {
    conditions: LinkConditions,
    /// Only packets from this prefix (/24) have the conditions. Others are delayed by the minimum. `None`: all have
    /// them.
    only: Option<[u8; 3]>,
    order: OrderLog,
    /// By the namespace from which the packets come.
    counts: [RelayCounts; 2],
}

impl Control {
    /// Counts a packet from one side that is held for so long, or lost.
    fn count(&mut self, from: usize, held_ns: Option<u64>) {
        let counts = &mut self.counts[from];
        counts.packets += 1;
        counts.lost += u64::from(held_ns.is_none());
        counts.held_ns += held_ns.unwrap_or(0);
    }
}

fn locked(control: &Mutex<Control>) -> MutexGuard<'_, Control> {
    control.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A delayed frame: due time, number, index of the interface from which it came, bytes.
type DelayedFrame = Reverse<(Instant, u64, usize, Vec<u8>)>;

impl Relay {
    /// Starts it between the two spaces of `network`.
    pub fn start(network: &Network, conditions: LinkConditions) -> Self {
        Self::begin(network, conditions, false)
    }

    /// The same on one core: frames that a thread sends from two cores wait in two queues of the kernel, and may
    /// overtake each other without the relay.
    pub fn start_in_order(network: &Network, conditions: LinkConditions) -> Self {
        Self::begin(network, conditions, true)
    }

    fn begin(network: &Network, conditions: LinkConditions, in_order: bool) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let settled = Arc::new(AtomicUsize::new(0));
        let (stopped, settled_count, started) = (Arc::clone(&stop), Arc::clone(&settled), std::sync::mpsc::channel());
        let (order, counts) = (OrderLog::default(), [RelayCounts::default(); 2]);
        let control = Arc::new(Mutex::new(Control { conditions, only: None, order, counts }));
        let (shared, late) = (Arc::clone(&control), Arc::new(AtomicU64::new(0)));
        let max_late = Arc::clone(&late);
        let thread = network.thread(BETWEEN, move || {
            if in_order {
                stay_on_one_core();
            }
            let ring = |interface: &str| {
                let deadline = Duration::from_millis(2);
                let settings =
                    RingSettings { incoming: true, wait: Duration::ZERO, deadline, ..patient_ring(interface) };
                Ring::open(&settings).expect("root may read an interface")
            };
            let rings = [ring("here1"), ring("there1")];
            started.0.send(()).expect("the starter waits for it");
            relay(rings, &shared, &stopped, &settled_count, &max_late)
        });
        started.1.recv().expect("it starts");
        Self { stop, settled, control, late, thread }
    }

    /// Changes the conditions. The seed stays the same.
    pub fn set_conditions(&self, conditions: LinkConditions) {
        locked(&self.control).conditions = conditions;
    }

    /// From now on, only packets from this prefix (/24) have the conditions, and others the minimum of the delay;
    /// `None`: all packets have them, as at the start.
    pub fn disturb_only(&self, prefix: Option<[u8; 3]>) {
        locked(&self.control).only = prefix;
    }

    /// The order in which TCP segments have left so far, by source prefix (/24).
    pub fn order(&self) -> BTreeMap<[u8; 3], SegmentOrder> {
        locked(&self.control).order.prefixes.clone()
    }

    /// What it did so far with packets from `HERE`, and from `THERE`.
    pub fn counts(&self) -> [RelayCounts; 2] {
        locked(&self.control).counts
    }

    /// The largest additional delay of a frame since the last call: on a busy machine the real delays are longer than
    /// the conditions say.
    pub fn late(&self) -> Duration {
        Duration::from_nanos(self.late.swap(0, Ordering::Relaxed))
    }

    /// Waits until so many IP packets were lost or sent. False if no further packet came for ten seconds.
    pub fn wait_for(&self, packets: usize) -> bool {
        let (mut settled, mut since) = (0, Stopwatch::start());
        while settled < packets {
            let now = self.settled.load(Ordering::Acquire);
            if now != settled {
                (settled, since) = (now, Stopwatch::start());
            } else if since.elapsed() > Duration::from_secs(10) {
                println!("{settled} of {packets} packets came through");
                return false;
            }
            thread::sleep(Duration::from_millis(1));
        }
        true
    }

    /// Ends the relay. Returns what happened to each IP packet.
    pub fn stop(self) -> Vec<PacketOutcome> {
        self.stop.store(true, Ordering::Release);
        self.thread.join().expect("it does not fail")
    }
}

#[expect(clippy::disallowed_methods, reason = "a relay holds packets for as long as the clock says")]
fn relay(
    mut rings: [Ring; 2],
    control: &Mutex<Control>,
    stop: &AtomicBool,
    settled: &AtomicUsize,
    late: &AtomicU64,
) -> Vec<PacketOutcome> {
    let was_late = |by: Duration| late.fetch_max(by.as_nanos() as u64, Ordering::Relaxed);
    let mut random = ChaCha8Rng::seed_from_u64(locked(control).conditions.seed);
    let (mut queued, mut outcomes, mut number): (BinaryHeap<DelayedFrame>, _, _) = (BinaryHeap::new(), Vec::new(), 0);
    while !stop.load(Ordering::Acquire) {
        let mut idle = true;
        let (disturbed, only) = {
            let control = locked(control);
            (control.conditions, control.only)
        };
        let least = disturbed.delay_ms.0;
        let calm = LinkConditions { delay_ms: (least, least), loss: 0.0, duplication: 0.0, ..disturbed };
        for (from, ring) in rings.iter_mut().enumerate() {
            let found = ring.read(&mut |frame| {
                let now = Instant::now();
                let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                was_late(since_epoch.saturating_sub(Duration::from_nanos(frame.time_ns)));
                let mut bytes = frame.bytes.to_vec();
                // ARP is passed at once, and what begins an interval in switches keeps its place among the packets.
                let kind = bytes.get(12..14);
                if kind != Some(&[8, 0]) {
                    let is_marker = kind == Some(&markers::KIND[..]);
                    let held = Duration::from_millis(if is_marker { least } else { 0 });
                    queued.push(Reverse((now + held, number, from, bytes)));
                    return;
                }
                finish(&mut bytes);
                // The first three bytes of the source address.
                let is_disturbed = only.is_none_or(|prefix| bytes.get(26..29) == Some(&prefix[..]));
                let conditions = if is_disturbed { disturbed } else { calm };
                let lost = random.random::<f64>() < conditions.loss;
                let copies = 1 + usize::from(random.random::<f64>() < conditions.duplication);
                let (least, most) = (conditions.delay_ms.0 * 1_000, conditions.delay_ms.1 * 1_000);
                // Duplicates have delays of their own, and may overtake each other, too.
                let held = [(); 2].map(|()| random.random_range(least..=most) * 1_000);
                let sent = &held[..if lost { 0 } else { copies }];
                let (name, bytes_sent) = (name(&bytes), bytes.len());
                let [delay_ns, duplicate_delay_ns] = [sent.first(), sent.get(1)].map(Option::<&u64>::copied);
                outcomes.push(PacketOutcome { name, bytes: bytes_sent, delay_ns, duplicate_delay_ns });
                locked(control).count(from, delay_ns);
                for held in sent {
                    number += 1;
                    queued.push(Reverse((now + Duration::from_nanos(*held), number, from, bytes.clone())));
                }
            });
            idle &= found.expect("it is read") == Progress::Frames(0);
        }
        while queued.peek().is_some_and(|Reverse((until, ..))| *until <= Instant::now()) {
            let Some(Reverse((until, _, from, bytes))) = queued.pop() else { break };
            was_late(until.elapsed());
            locked(control).order.sent(&bytes);
            rings[1 - from].send(&bytes).expect("the other side takes it");
        }
        // An underestimate: queued frames include duplicates and frames other than IP.
        settled.store(outcomes.len().saturating_sub(queued.len()), Ordering::Release);
        if idle {
            thread::sleep(Duration::from_micros(100));
        }
    }
    outcomes
}

/// Computes the checksum that the kernel leaves to the network card.
fn finish(frame: &mut [u8]) {
    use etherparse::{Ipv4HeaderSlice, TcpHeaderSlice, UdpHeaderSlice, ip_number};

    let ip = Ipv4HeaderSlice::from_slice(&frame[14..]).expect("the kernel sends good headers");
    let (begins, ends) = (14 + ip.slice().len(), 14 + usize::from(ip.total_len()));
    let segment = &frame[begins..ends];
    let (at, checksum) = match ip.protocol() {
        ip_number::TCP => {
            let header = TcpHeaderSlice::from_slice(segment).expect("the kernel sends good headers");
            let payload = &segment[header.slice().len()..];
            (16, header.calc_checksum_ipv4(&ip, payload).expect("it is short"))
        }
        ip_number::UDP => {
            let header = UdpHeaderSlice::from_slice(segment).expect("the kernel sends good headers").to_header();
            (6, header.calc_checksum_ipv4(&ip.to_header(), &segment[8..]).expect("it is short"))
        }
        _ => return,
    };
    frame[begins + at..begins + at + 2].copy_from_slice(&checksum.to_be_bytes());
}
