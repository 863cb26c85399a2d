//! Packets out of order: the cost of a packet.

use std::hint::black_box;

use anyhow::{Result, ensure};
use hashbrown::HashMap;
use synopses::reordering::{Control, Definition, Event, Prefix, Reordering, Segment, Settings, Split};

use super::super::figure::{Figure, Goal};
use super::super::pair::{measure, per_second};
use super::keys::{KEYS, digests, zipf};

const PACKETS: u64 = 1 << 21;
/// Logarithm of the nanoseconds between two packets.
const STEP: u32 = 12;
const BUCKETS: usize = 4_096;
/// Prefixes of the flows, of 32 each.
const PREFIXES: u64 = 3_125;
const MIN: f64 = 40e6;

/// Packets of flows by Zipf's law, one in a hundred out of order.
fn packets() -> Vec<Segment> {
    let (digests, mut next) = (digests(), vec![0_u32; KEYS as usize]);
    let segment = |(number, rank): (u64, u32)| {
        let sequence = &mut next[rank as usize];
        *sequence += 1_000;
        let early = if number % 100 == 0 { 1_500 } else { 0 };
        Segment {
            prefix: Prefix(u64::from(rank) * 0x9e37_79b9 % PREFIXES),
            flow: digests[rank as usize],
            sequence: *sequence + early,
            payload: 1_000,
            control: Control::None,
        }
    };
    (0..).zip(zipf(PACKETS)).map(segment).collect()
}

/// The array of samples, against a table of all flows, which finds each packet out of order.
pub fn samples(name: &str) -> Result<Figure> {
    let packets = packets();
    let settings = Settings { buckets: BUCKETS, split: Split::SamplingOnly, seed: 1, ..Settings::default() };
    let (mut ours, mut reported, mut now_ns) = (Reordering::new(settings)?, 0, 0_u64);
    let (mut flows, mut events) = (HashMap::with_capacity(KEYS as usize), 0_u64);
    let measured = measure(
        PACKETS,
        |_| {
            for segment in black_box(&packets) {
                now_ns += 1 << STEP;
                reported += u64::from(ours.insert(segment, now_ns).is_some());
            }
        },
        |_| {
            flows.clear();
            for segment in black_box(&packets) {
                let first = Definition::BelowPredecessor.first(segment);
                let state = flows.entry(segment.flow.0).or_insert(first);
                events += u64::from(Definition::BelowPredecessor.advance(state, segment) == Event::OutOfOrder);
            }
        },
    );
    ensure!(reported > 0 && events > 0, "{reported} reports, {events} packets out of order");
    let counters = ours.counters();
    let reached = per_second(measured.ours);
    let peer = "a table of all flows (the crate hashbrown) with the last sequence number of each";
    let note = format!(
        "{:.1} M packets/s on one core; {BUCKETS} buckets in {} KiB, {:.1} % of packets checked; {KEYS} flows of {PREFIXES} prefixes by Zipf's law \
         with skew 1, which take {} KiB of the table at least",
        reached / 1e6,
        ours.memory_bytes() / 1024,
        100.0 * counters.monitored as f64 / counters.segments.max(1) as f64,
        flows.capacity() * size_of::<(u64, u32)>() / 1024
    );
    let figure = Figure::new(name, "ns per packet", peer, measured, Goal::Stated);
    Ok(figure.judged("≥ 40 M packets/s", reached >= MIN, note))
}
