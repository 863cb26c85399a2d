//! A way between two interfaces on which things happen.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use packets::ring::{Ring, RingSettings};
use packets::{Progress, Source as _};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use super::network::{BETWEEN, Network};

/// A ring with room for what comes while nobody reads it for some time: as many deadlines as it has blocks.
pub fn patient_ring(interface: &str) -> RingSettings {
    RingSettings { interface: interface.to_owned(), block_bytes: 1 << 14, blocks: 1024, ..RingSettings::default() }
}

/// What happens on the way.
#[derive(Clone, Copy, Debug)]
pub struct Road {
    /// Each IP packet is held for so many milliseconds: at least, at most. They overtake each other.
    pub delay_ms: (u64, u64),
    /// The share that is lost.
    pub loss: f64,
    /// The share that arrives twice.
    pub twice: f64,
    /// What decides.
    pub seed: u64,
}

/// What became of one packet.
#[derive(Clone, Copy, Debug)]
pub struct Fate {
    /// Which one.
    pub name: Option<u64>,
    /// Its length.
    pub bytes: usize,
    /// How long it was held, in nanoseconds; `None` if it was lost.
    pub held_ns: Option<u64>,
    /// How long a second copy of it was held.
    pub again_ns: Option<u64>,
}

/// What an IPv4 packet is known by wherever it is captured, read from its bytes and not by what is tested: the number that a datagram of ours begins
/// with; of a TCP segment its sequence number, and the identification of the packet, which is another one where it is sent again.
pub fn name(frame: &[u8]) -> Option<u64> {
    const HEADERS: usize = 14 + 20;
    let four = |at: usize| Some(u64::from(u32::from_be_bytes(*frame.get(at..)?.first_chunk()?)));
    match (frame.get(12..15)?, frame.get(23)?) {
        ([8, 0, 0x45], 17) => four(HEADERS + 8),
        ([8, 0, 0x45], 6) => Some((four(18)? >> 16) << 32 | four(HEADERS + 4)?),
        _ => None,
    }
}

/// A thread that passes frames on.
pub struct Relay {
    stop: Arc<AtomicBool>,
    settled: Arc<AtomicUsize>,
    road: Arc<Mutex<Road>>,
    late: Arc<AtomicU64>,
    thread: thread::JoinHandle<Vec<Fate>>,
}

/// A frame that waits: until when, its number, and the way it goes.
type Waiting = Reverse<(Instant, u64, usize, Vec<u8>)>;

impl Relay {
    /// Starts it between the two spaces of `network`.
    pub fn start(network: &Network, road: Road) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let settled = Arc::new(AtomicUsize::new(0));
        let (stopped, said, started) = (Arc::clone(&stop), Arc::clone(&settled), std::sync::mpsc::channel());
        let road = Arc::new(Mutex::new(road));
        let (taken, late) = (Arc::clone(&road), Arc::new(AtomicU64::new(0)));
        let told = Arc::clone(&late);
        let thread = network.thread(BETWEEN, move || {
            let ring = |interface: &str| {
                let deadline = Duration::from_millis(2);
                let settings =
                    RingSettings { incoming: true, wait: Duration::ZERO, deadline, ..patient_ring(interface) };
                Ring::open(&settings).expect("root may read an interface")
            };
            let rings = [ring("here1"), ring("there1")];
            started.0.send(()).expect("somebody waits for it");
            relay(rings, &taken, &stopped, &said, &told)
        });
        started.1.recv().expect("it starts");
        Self { stop, settled, road, late, thread }
    }

    /// Other things happen from now on, decided by the seed that it began with.
    pub fn turn(&self, into: Road) {
        *self.road.lock().unwrap_or_else(PoisonError::into_inner) = into;
    }

    /// How much longer than it was to be a frame was held at the most, since this was asked last: on a machine that is busy the road is not what it is said to be.
    pub fn late(&self) -> Duration {
        Duration::from_nanos(self.late.swap(0, Ordering::Relaxed))
    }

    /// Waits until so many IP packets were lost or sent on. False if no further one has come for ten seconds.
    #[expect(clippy::disallowed_methods, reason = "tests wait for conditions with a limit")]
    pub fn wait_for(&self, packets: usize) -> bool {
        let (mut settled, mut since) = (0, Instant::now());
        while settled < packets {
            let now = self.settled.load(Ordering::Acquire);
            if now != settled {
                (settled, since) = (now, Instant::now());
            } else if since.elapsed() > Duration::from_secs(10) {
                println!("{settled} of {packets} packets came through");
                return false;
            }
            thread::sleep(Duration::from_millis(1));
        }
        true
    }

    /// Ends it, and says what became of all IP packets.
    pub fn stop(self) -> Vec<Fate> {
        self.stop.store(true, Ordering::Release);
        self.thread.join().expect("it does not fail")
    }
}

#[expect(clippy::disallowed_methods, reason = "a relay holds packets for as long as the clock says")]
fn relay(
    mut rings: [Ring; 2],
    road: &Mutex<Road>,
    stop: &AtomicBool,
    settled: &AtomicUsize,
    late: &AtomicU64,
) -> Vec<Fate> {
    let was_late = |by: Duration| late.fetch_max(by.as_nanos() as u64, Ordering::Relaxed);
    let now = || *road.lock().unwrap_or_else(PoisonError::into_inner);
    let mut random = ChaCha8Rng::seed_from_u64(now().seed);
    let (mut waiting, mut fates, mut number): (BinaryHeap<Waiting>, _, _) = (BinaryHeap::new(), Vec::new(), 0);
    while !stop.load(Ordering::Acquire) {
        let (mut idle, road) = (true, now());
        for (from, ring) in rings.iter_mut().enumerate() {
            let found = ring.read(&mut |frame| {
                let now = Instant::now();
                let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                was_late(since_epoch.saturating_sub(Duration::from_nanos(frame.time_ns)));
                let mut bytes = frame.bytes.to_vec();
                // Whoever asks for an Ethernet address is answered at once.
                if bytes.get(12..14) != Some(&[8, 0]) {
                    waiting.push(Reverse((now, number, from, bytes)));
                    return;
                }
                finish(&mut bytes);
                let lost = random.random::<f64>() < road.loss;
                let copies = 1 + usize::from(random.random::<f64>() < road.twice);
                let (least, most) = (road.delay_ms.0 * 1_000, road.delay_ms.1 * 1_000);
                // Copies take their own time, and may overtake each other, too.
                let held = [(); 2].map(|()| random.random_range(least..most) * 1_000);
                let sent = &held[..if lost { 0 } else { copies }];
                let (name, bytes_sent) = (name(&bytes), bytes.len());
                let [held_ns, again_ns] = [sent.first(), sent.get(1)].map(Option::<&u64>::copied);
                fates.push(Fate { name, bytes: bytes_sent, held_ns, again_ns });
                for held in sent {
                    number += 1;
                    waiting.push(Reverse((now + Duration::from_nanos(*held), number, from, bytes.clone())));
                }
            });
            idle &= found.expect("it is read") == Progress::Frames(0);
        }
        while waiting.peek().is_some_and(|Reverse((until, ..))| *until <= Instant::now()) {
            let Some(Reverse((until, _, from, bytes))) = waiting.pop() else { break };
            was_late(until.elapsed());
            rings[1 - from].send(&bytes).expect("the other side takes it");
        }
        // Less by whatever else still waits: copies, and what is no IP.
        settled.store(fates.len().saturating_sub(waiting.len()), Ordering::Release);
        if idle {
            thread::sleep(Duration::from_micros(100));
        }
    }
    fates
}

/// Computes the checksum that the kernel left to a card.
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
