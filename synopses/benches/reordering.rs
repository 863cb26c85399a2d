//! Cost of a packet: samples of flows, heavy flows, and both, beside a hash table of all flows.
//! `cargo bench -p synopses --bench reordering`.

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use hashbrown::HashMap;
use synopses::digest::{Digest, DigestKey};
use synopses::reordering::{Control, Definition, Event, Prefix, Reordering, Segment, Settings, Split};

#[path = "../tests/rap/streams.rs"]
#[expect(dead_code, reason = "streams of the theorem are not timed")]
mod streams;

const PACKETS: usize = 1 << 21;

fn main() {
    divan::main();
}

/// Packets of 100,000 flows of Zipf's law, 32 flows of a prefix, one in a hundred out of order, 4 µs apart.
fn packets() -> Vec<Segment> {
    let key = DigestKey::new(1);
    let mut next = vec![0_u32; 100_000];
    let ranks = streams::zipf(100_000, 1.0, PACKETS, 1);
    let segment = |(number, Digest(rank)): (usize, Digest)| {
        let sequence = &mut next[rank as usize];
        *sequence += 1_000;
        let flow = key.digest(&rank.to_le_bytes());
        let early = if number % 100 == 0 { 1_500 } else { 0 };
        let prefix = Prefix(rank * 0x9e37_79b9 % 3_125);
        Segment { prefix, flow, sequence: *sequence + early, payload: 1_000, control: Control::None }
    };
    ranks.into_iter().enumerate().map(segment).collect()
}

fn reordering(bencher: Bencher<'_, '_>, split: Split, buckets: usize) {
    let packets = packets();
    let new = || Reordering::new(Settings { buckets, split, ..Settings::default() }).expect("possible");
    bencher.counter(ItemsCount::new(PACKETS)).with_inputs(new).bench_local_refs(|reordering| {
        let mut reports = 0;
        for (now, segment) in (0_u64..).zip(black_box(&packets)) {
            reports += u64::from(reordering.insert(segment, now << 12).is_some());
        }
        reports
    });
}

#[divan::bench(args = [256, 4_096], sample_count = 20, sample_size = 1)]
fn samples(bencher: Bencher<'_, '_>, buckets: usize) {
    reordering(bencher, Split::SamplingOnly, buckets);
}

#[divan::bench(args = [256, 4_096], sample_count = 20, sample_size = 1)]
fn heavy_flows(bencher: Bencher<'_, '_>, buckets: usize) {
    reordering(bencher, Split::HeavyOnly, buckets);
}

#[divan::bench(args = [256, 4_096], sample_count = 20, sample_size = 1)]
fn hybrid(bencher: Bencher<'_, '_>, buckets: usize) {
    reordering(bencher, Split::Hybrid(0.5), buckets);
}

/// The exact way: the state of each flow, and counts of it.
#[divan::bench(sample_count = 20, sample_size = 1)]
fn hash_table_of_all_flows(bencher: Bencher<'_, '_>) {
    let packets = packets();
    let new = || HashMap::<u64, (u32, u32, u32)>::with_capacity(100_000);
    bencher.counter(ItemsCount::new(PACKETS)).with_inputs(new).bench_local_refs(|flows| {
        for segment in black_box(&packets) {
            let first = (Definition::BelowPredecessor.first(segment), 0, 0);
            let (state, packets, events) = flows.entry(segment.flow.0).or_insert(first);
            *packets += 1;
            *events += u32::from(Definition::BelowPredecessor.advance(state, segment) == Event::OutOfOrder);
        }
        flows.len()
    });
}
