//! What passed both interfaces, by the same kernel's time stamps.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use packets::ring::Ring;
use packets::{Frame, Progress, Source as _, Transport, View, parse};

use super::network::Network;
use super::relay;

/// Of an interval, as configured.
const LENGTH_NS: u64 = 1_000_000_000;

/// Numbers of datagrams and when they passed.
pub struct Watcher(thread::JoinHandle<Vec<(u32, u64)>>);

impl Watcher {
    pub fn start(network: &Network, space: &'static str, interface: &str, stop: &Arc<AtomicBool>) -> Self {
        let settings = relay::patient_ring(interface);
        let (stop, started) = (Arc::clone(stop), std::sync::mpsc::channel());
        let thread = network.thread(space, move || {
            let mut ring = Ring::open(&settings).expect("root may read an interface");
            started.0.send(()).expect("somebody waits for it");
            let mut found = Vec::new();
            loop {
                let stopping = stop.load(Ordering::Acquire);
                let progress = ring.read(&mut |frame| found.extend(number(frame))).expect("it is read");
                if stopping && progress == Progress::Frames(0) {
                    assert_eq!(ring.counts().dropped, 0, "the truth is whole");
                    return found;
                }
            }
        });
        started.1.recv().expect("it starts");
        Self(thread)
    }

    pub fn captured(self) -> Vec<(u32, u64)> {
        self.0.join().expect("it does not fail")
    }
}

/// The number of a datagram of ours.
fn number(frame: &Frame<'_>) -> Option<(u32, u64)> {
    let packet = parse(frame, View::Outer).ok()?;
    let Transport::Udp(udp) = packet.transport else { return None };
    let number = udp.payload.first_chunk().filter(|_| packet.destination.port == 6_000)?;
    Some((u32::from_be_bytes(*number), packet.time_ns))
}

/// One interval.
#[derive(Clone, Copy, Debug)]
pub struct Interval {
    pub sent: u64,
    pub lost: u64,
    pub mean_ns: f64,
    pub deviation_ns: f64,
}

/// All packets, by when they were sent.
pub struct Truth {
    /// When sent, and the delay of those that arrived.
    packets: BTreeMap<(u64, u32), Option<f64>>,
}

impl Truth {
    pub fn new(sent: &[(u32, u64)], received: &[(u32, u64)]) -> Self {
        let arrived: HashMap<u32, u64> = received.iter().copied().collect();
        let delay = |number: u32, at: u64| arrived.get(&number).map(|arrived| arrived.wrapping_sub(at) as i64 as f64);
        Self { packets: sent.iter().map(|(number, at)| ((*at, *number), delay(*number, *at))).collect() }
    }

    /// Of the interval that begins then; `None` if nothing was sent in it.
    pub fn of(&self, begins_ns: u64) -> Option<Interval> {
        let range = (begins_ns, 0)..(begins_ns + LENGTH_NS, 0);
        let all: Vec<Option<f64>> = self.packets.range(range).map(|(_, delay)| *delay).collect();
        let delays: Vec<f64> = all.iter().flatten().copied().collect();
        if delays.is_empty() {
            return None;
        }
        let mean_ns = delays.iter().sum::<f64>() / delays.len() as f64;
        let squares = delays.iter().map(|delay| (delay - mean_ns).powi(2)).sum::<f64>();
        Some(Interval {
            sent: all.len() as u64,
            lost: (all.len() - delays.len()) as u64,
            mean_ns,
            deviation_ns: (squares / delays.len() as f64).sqrt(),
        })
    }
}
