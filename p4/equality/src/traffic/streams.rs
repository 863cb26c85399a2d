//! Streams of data between few ends: segments that are late, come again, jump by just as much as a window, and
//! connections that begin anew, of flows of which several share a prefix.

use rand::RngExt as _;

use super::{ACK, Connection, FIN, SYN, Segment, Traffic};
use crate::frames::Captured;

/// Flows that there are, and prefixes that they share.
const FLOWS: usize = 48;
const PREFIXES: usize = 12;
/// Aborts a connection.
const RST: u8 = 0x04;
/// The largest window of TCP.
const WINDOW: u32 = 1 << 30;

/// Streams without an end.
#[derive(Clone, Debug)]
pub struct Streams {
    traffic: Traffic,
    flows: Vec<Connection>,
}

impl Streams {
    /// Streams that a seed determines.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut traffic = Traffic::new(seed, 0.0);
        let flows = (0..FLOWS).map(|number| flow(&mut traffic, number)).collect();
        Self { traffic, flows }
    }

    /// The same that begin at another time.
    #[must_use]
    pub fn beginning_at(self, time_ns: u64) -> Self {
        Self { traffic: self.traffic.beginning_at(time_ns), ..self }
    }

    fn pass_time(&mut self) -> u64 {
        let random = &mut self.traffic.random;
        // Now and then silence that ends what a record, a window or half a clock can remember.
        self.traffic.time_ns += match random.random_range(0..1_000) {
            0 => 1 << 41,
            1..10 => 20_000_000,
            _ => random.random_range(0..30_000),
        };
        let back = if random.random_bool(0.01) { random.random_range(0..1_000_000) } else { 0 };
        self.traffic.time_ns.saturating_sub(back)
    }

    fn segment(&mut self) -> Vec<u8> {
        let random = &mut self.traffic.random;
        // Flows with small numbers have more of the packets.
        let number = random.random_range(0..FLOWS).min(random.random_range(0..FLOWS));
        let flow = &mut self.flows[number];
        let (kind, step) = (random.random_range(0..100), random.random_range(1..1_500));
        let (flags, sequence) = match kind {
            0..3 => {
                flow.sequence = random.random();
                (SYN, flow.sequence)
            }
            3..5 => (RST, flow.sequence),
            // Late, or once more.
            5..20 => (ACK, flow.sequence.wrapping_sub(random.random_range(0..3_000))),
            20..24 => {
                // At the edge of what is a jump, in either direction.
                let far = WINDOW + random.random_range(0..4) - 2;
                let far = if random.random() { far } else { far.wrapping_neg() };
                flow.sequence = flow.sequence.wrapping_add(far);
                (ACK, flow.sequence)
            }
            24..27 => (FIN | ACK, flow.sequence),
            _ => {
                flow.sequence = flow.sequence.wrapping_add(step);
                (ACK, flow.sequence)
            }
        };
        flow.identification = random.random();
        let (connection, numbers) = (*flow, [sequence, random.random()]);
        let udp = kind == 99;
        self.traffic.frame(&Segment { connection: &connection, from_server: false, flags, numbers, udp })
    }
}

/// A flow of one of few prefixes.
fn flow(traffic: &mut Traffic, number: usize) -> Connection {
    let random = &mut traffic.random;
    let mut connection = super::connection(random);
    let prefix = (number % PREFIXES) as u8;
    connection.v6 = prefix % 4 == 3;
    connection.ends[0][..6].copy_from_slice(&[0x20, 1, 0xd, 0xb8, 0, prefix]);
    connection.ends[0][12..15].copy_from_slice(&[10, 0, prefix]);
    // Most begin just below the end of all sequence numbers.
    if random.random_bool(0.7) {
        connection.sequence = u32::MAX - random.random_range(0..20_000);
    }
    connection
}

impl Iterator for Streams {
    type Item = Captured;

    fn next(&mut self) -> Option<Captured> {
        let time_ns = self.pass_time();
        let is_sync = self.traffic.random.random_range(0..150) == 0;
        let bytes = if is_sync { self.traffic.sync() } else { self.segment() };
        Some(Captured { time_ns, bytes })
    }
}
