//! Cost of an update: RAP, Space-Saving, PRECISION and d-way RAP, beside the frequent-items sketch of Apache
//! DataSketches, a hash table that remembers every key, and the time to read the keys.
//! `cargo bench -p synopses --bench rap`.

use datasketches::frequencies::FrequentItemsSketch;
use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use hashbrown::HashMap;
use synopses::digest::{Digest, DigestKey};
use synopses::rap::{DWayRap, HeavyHitters, Precision, Rap, Settings, SpaceSaving, WaySettings};

#[path = "../tests/rap/streams.rs"]
#[expect(dead_code, reason = "streams of the theorem are not timed")]
mod streams;

const UPDATES: usize = 1 << 22;
/// m, number of entries.
const ENTRIES: usize = 1 << 10;

fn main() {
    divan::main();
}

/// Digests of keys of Zipf's law with skew 1.
fn keys() -> Vec<Digest> {
    let key = DigestKey::new(1);
    streams::zipf(100_000, 1.0, UPDATES, 1).iter().map(|rank| key.digest(&rank.0.to_le_bytes())).collect()
}

fn updates<T: HeavyHitters>(bencher: Bencher<'_, '_>, new: impl Fn() -> T) {
    let keys = keys();
    bencher.counter(ItemsCount::new(UPDATES)).with_inputs(new).bench_local_refs(|table| {
        for key in black_box(&keys) {
            table.insert(*key);
        }
        table.tally()
    });
}

#[divan::bench(sample_count = 20, sample_size = 1)]
fn rap(bencher: Bencher<'_, '_>) {
    updates(bencher, || Rap::new(Settings { entries: ENTRIES, ..Settings::default() }).expect("possible"));
}

#[divan::bench(sample_count = 20, sample_size = 1)]
fn space_saving(bencher: Bencher<'_, '_>) {
    updates(bencher, || SpaceSaving::new(ENTRIES, 1).expect("possible"));
}

#[divan::bench(sample_count = 20, sample_size = 1)]
fn precision(bencher: Bencher<'_, '_>) {
    let settings = WaySettings { ways: 2, rows: ENTRIES / 2, ..WaySettings::default() };
    updates(bencher, || Precision::new(settings).expect("possible"));
}

#[divan::bench(sample_count = 20, sample_size = 1)]
fn eight_way_rap(bencher: Bencher<'_, '_>) {
    let settings = WaySettings { ways: 8, rows: ENTRIES / 8, ..WaySettings::default() };
    updates(bencher, || DWayRap::new(settings).expect("possible"));
}

/// With a map of 2,048 words, 1,536 of which it fills: 1.5 times as many keys.
#[divan::bench(sample_count = 20, sample_size = 1)]
fn apache_frequent_items(bencher: Bencher<'_, '_>) {
    let keys = keys();
    let new = || FrequentItemsSketch::<u64>::new(2 * ENTRIES).expect("a power of two");
    bencher.counter(ItemsCount::new(UPDATES)).with_inputs(new).bench_local_refs(|sketch| {
        for key in black_box(&keys) {
            sketch.update(key.0);
        }
        sketch.total_weight()
    });
}

#[divan::bench(sample_count = 20, sample_size = 1)]
fn hash_table_of_all_keys(bencher: Bencher<'_, '_>) {
    let keys = keys();
    let new = || HashMap::<u64, u64>::with_capacity(100_000);
    bencher.counter(ItemsCount::new(UPDATES)).with_inputs(new).bench_local_refs(|table| {
        for key in black_box(&keys) {
            *table.entry(key.0).or_default() += 1;
        }
        table.len()
    });
}
