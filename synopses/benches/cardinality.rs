//! Cost of an item and of an estimate: synopses of sliding windows beside the plain HLL of Apache DataSketches, which
//! forgets nothing, and a hash table of all items. `cargo bench -p synopses --bench cardinality`.

use datasketches::hll::{HllSketch, HllType};
use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use hashbrown::HashSet;
use synopses::cardinality::{
    Cardinality, Correction, Hll, Pcsa, Settings, SlidingHll, StHll, StHllSettings, TsPcsa, TsPcsaSettings,
};
use synopses::digest::{Digest, DigestKey};

const ITEMS: u64 = 1 << 20;
/// One item per microsecond; a window has 65,536 of them, 64 per register.
const STEP_NS: u64 = 1_000;
const COMMON: Settings = Settings {
    registers: 1 << 10,
    window_ns: STEP_NS << 16,
    start_ns: 0,
    hash: synopses::cardinality::Hash::Seeded(1),
};

fn main() {
    divan::main();
}

/// Items of which each comes four times, in the order of digests.
fn items() -> Vec<Digest> {
    let key = DigestKey::new(1);
    (0..ITEMS).map(|number| key.digest(&(number / 4).to_le_bytes())).collect()
}

fn inserted<T: Cardinality>(mut synopsis: T, items: &[Digest]) -> T {
    for (item, at) in items.iter().zip((0..).step_by(STEP_NS as usize)) {
        synopsis.insert(*item, at);
    }
    synopsis
}

fn insertions<T: Cardinality>(bencher: Bencher<'_, '_>, new: impl Fn() -> T) {
    let items = items();
    bencher
        .counter(ItemsCount::new(ITEMS as usize))
        .with_inputs(new)
        .bench_local_values(|synopsis| inserted(synopsis, black_box(&items)).tally());
}

fn estimates<T: Cardinality>(bencher: Bencher<'_, '_>, new: impl Fn() -> T) {
    let synopsis = inserted(new(), &items());
    let now = ITEMS * STEP_NS;
    bencher.bench_local(|| black_box(&synopsis).estimate(now, COMMON.window_ns));
}

fn stamps() -> TsPcsa {
    TsPcsa::new(TsPcsaSettings::plus(COMMON)).expect("possible")
}

fn staggered(correction: Correction) -> StHll {
    StHll::new(StHllSettings { correction, ..StHllSettings::plus(COMMON) }).expect("possible")
}

#[divan::bench(sample_count = 20, sample_size = 1)]
fn insert_apache_hll(bencher: Bencher<'_, '_>) {
    let items = items();
    let new = || HllSketch::new(10, HllType::Hll8).expect("possible");
    bencher.counter(ItemsCount::new(ITEMS as usize)).with_inputs(new).bench_local_refs(|sketch| {
        for item in black_box(&items) {
            sketch.update(item.0);
        }
        sketch.is_empty()
    });
}

#[divan::bench(sample_count = 20, sample_size = 1)]
fn insert_hll(bencher: Bencher<'_, '_>) {
    insertions(bencher, || Hll::new(COMMON).expect("possible"));
}

#[divan::bench(sample_count = 20, sample_size = 1)]
fn insert_pcsa(bencher: Bencher<'_, '_>) {
    insertions(bencher, || Pcsa::new(COMMON).expect("possible"));
}

#[divan::bench(sample_count = 20, sample_size = 1)]
fn insert_st_hll(bencher: Bencher<'_, '_>) {
    insertions(bencher, || staggered(Correction::Likelihood));
}

#[divan::bench(sample_count = 20, sample_size = 1)]
fn insert_sliding_hll(bencher: Bencher<'_, '_>) {
    insertions(bencher, || SlidingHll::new(COMMON).expect("possible"));
}

#[divan::bench(sample_count = 20, sample_size = 1)]
fn insert_ts_pcsa(bencher: Bencher<'_, '_>) {
    insertions(bencher, stamps);
}

#[divan::bench(sample_count = 20, sample_size = 1)]
fn insert_hash_table(bencher: Bencher<'_, '_>) {
    let items = items();
    let new = || HashSet::<u64>::with_capacity(ITEMS as usize);
    bencher.counter(ItemsCount::new(ITEMS as usize)).with_inputs(new).bench_local_refs(|table| {
        for item in black_box(&items) {
            table.insert(item.0);
        }
        table.len()
    });
}

#[divan::bench]
fn estimate_hll(bencher: Bencher<'_, '_>) {
    estimates(bencher, || Hll::new(COMMON).expect("possible"));
}

#[divan::bench]
fn estimate_st_hll_published(bencher: Bencher<'_, '_>) {
    estimates(bencher, || staggered(Correction::Published));
}

#[divan::bench]
fn estimate_st_hll_likelihood(bencher: Bencher<'_, '_>) {
    estimates(bencher, || staggered(Correction::Likelihood));
}

#[divan::bench]
fn estimate_sliding_hll(bencher: Bencher<'_, '_>) {
    estimates(bencher, || SlidingHll::new(COMMON).expect("possible"));
}

#[divan::bench]
fn estimate_ts_pcsa(bencher: Bencher<'_, '_>) {
    estimates(bencher, stamps);
}
