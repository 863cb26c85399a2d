//! What a packet costs at either end, beside a bare hash table that remembers it, and what an interval costs.
//! `cargo bench -p synopses --bench rda`.

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use hashbrown::HashMap;
use synopses::digest::{Digest, DigestKey};
use synopses::rda::{Cache, Capture, Deviation, Difference, Ids, Peeling, Rda, Reconciliation, Settings, XorCounters};

const PACKETS: u64 = 1 << 20;

fn main() {
    divan::main();
}

fn digests(packets: u64) -> Vec<Digest> {
    let key = DigestKey::new(1);
    (0..packets).map(|number| key.digest(&number.to_le_bytes())).collect()
}

/// Late binding: into the cache of the packet's interval. The goal is 100 ns.
#[divan::bench(sample_count = 20, sample_size = 1)]
fn capture(bencher: Bencher<'_, '_>) {
    let digests = digests(PACKETS);
    let empty = || Capture::new(0, 1 << 40, 1, PACKETS as usize, Ids::Checked8).expect("possible");
    bencher.counter(ItemsCount::new(PACKETS)).with_inputs(empty).bench_local_refs(|capture| {
        for (now, digest) in (0..).zip(black_box(&digests)) {
            capture.insert(*digest, now);
        }
        capture.outside()
    });
}

/// The same ids and times in a hash table that need not grow.
#[divan::bench(sample_count = 20, sample_size = 1)]
fn bare_hash_table(bencher: Bencher<'_, '_>) {
    let digests = digests(PACKETS);
    let empty = || HashMap::<u64, u64>::with_capacity(PACKETS as usize);
    bencher.counter(ItemsCount::new(PACKETS)).with_inputs(empty).bench_local_refs(|table| {
        for (now, digest) in (0_u64..).zip(black_box(&digests)) {
            table.entry(digest.0).or_insert(now);
        }
        table.len()
    });
}

/// Without a cache: into two or three cells of 20,000 at once.
#[divan::bench(args = [2, 3], sample_count = 20, sample_size = 1)]
fn cells(bencher: Bencher<'_, '_>, banks: usize) {
    let digests = digests(PACKETS);
    let settings = Settings { banks, cells: 20_000 / banks, ..Settings::default() };
    bencher.counter(ItemsCount::new(PACKETS)).with_inputs(|| Rda::new(&settings).expect("possible")).bench_local_refs(
        |rda| {
            for (now, digest) in (0..).zip(black_box(&digests)) {
                rda.insert(*digest, now);
            }
            rda.packets()
        },
    );
}

/// Both ends of an interval of 100,000 packets; a quarter as many differ as there are cells.
fn ends(settings: &Settings) -> (Cache, Cache) {
    let (differing, digests) = (settings.all_cells() as u64 / 8, digests(100_000));
    let cache = || Cache::new(digests.len(), settings.ids).expect("possible");
    let (mut sender, mut receiver) = (cache(), cache());
    for (number, digest) in (0_u64..).zip(&digests) {
        if number >= differing {
            sender.insert(*digest, 1_000 * number);
        }
        if number < digests.len() as u64 - differing {
            receiver.insert(*digest, 1_000 * number + 50);
        }
    }
    (sender, receiver)
}

fn settings(cells: usize) -> Settings {
    Settings { ids: Ids::Checked8, ..Settings::paper(cells / 2, 1) }
}

/// Cells of 100,000 packets, once per interval and end.
#[divan::bench(args = [20_000])]
fn aggregate(bencher: Bencher<'_, '_>, cells: usize) {
    let (sender, _) = ends(&settings(cells));
    bencher.bench_local(|| sender.aggregate(&settings(cells)));
}

/// What the number of cells follows, once per interval and end.
#[divan::bench]
fn count_differences(bencher: Bencher<'_, '_>) {
    let (sender, _) = ends(&settings(20_000));
    bencher.bench_local(|| XorCounters::of(&sender, 1));
}

/// What is missing where. Together with the estimate, the goal is 3 ms for 20,000 cells.
#[divan::bench(args = [5_000, 20_000, 80_000])]
fn decode(bencher: Bencher<'_, '_>, cells: usize) {
    let (sender, receiver) = ends(&settings(cells));
    let [sender, receiver] = [sender, receiver].map(|cache| cache.aggregate(&settings(cells)).expect("possible"));
    bencher.bench_local(|| Difference::between(&sender, &receiver, Peeling::UndoAndBan));
}

/// Mean and deviation once everything is known.
#[divan::bench(args = [5_000, 20_000, 80_000])]
fn estimate(bencher: Bencher<'_, '_>, cells: usize) {
    let (sender, receiver) = ends(&settings(cells));
    let theirs = receiver.aggregate(&settings(cells)).expect("possible");
    let mut exchange = Reconciliation::new(sender, theirs).expect("same ids");
    let answers: Vec<_> = exchange.missing().into_iter().map(|id| (id, receiver.time_of(id))).collect();
    exchange.add_times(&answers).expect("what was asked");
    bencher.bench_local(|| exchange.estimate(Deviation::PerBucket));
}
