//! Heavy hitters: the cost of an update of RAP, and which keys it finds, beside a peer with as much memory.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::hint::black_box;

use anyhow::{Context as _, Result, anyhow, bail};
use datasketches::frequencies::{ErrorType, FrequentItemsSketch};
use synopses::digest::Digest;
use synopses::rap::{HeavyHitters, Rap, Settings, SpaceSaving};

use super::super::figure::{Figure, Goal};
use super::super::pair::{measure, per_second};
use super::keys::{KEYS, digest, zipf, zipf_digests};

/// m, number of entries.
const ENTRIES: usize = 1 << 10;
const UPDATES: u64 = 1 << 21;
/// How many of the most frequent keys are looked for.
const TOP: usize = ENTRIES / 4;
const MIN: f64 = 20e6;

/// The cost of an update, against frequent items of Apache DataSketches with as much memory.
pub fn rap(name: &str) -> Result<Figure> {
    let keys = zipf_digests(UPDATES);
    let mut ours = filled(new()?, &keys);
    let size = size_of_peer(&keys, ours.memory_bytes())?;
    let (mut theirs, mut failed) = (peer(size)?, None);
    let measured = measure(
        UPDATES,
        |_| {
            ours.reset();
            for key in black_box(&keys) {
                ours.insert(*key);
            }
        },
        |_| match peer(size) {
            Ok(mut sketch) => {
                update(&mut sketch, black_box(&keys));
                theirs = sketch;
            }
            Err(error) => failed = Some(error),
        },
    );
    failed.map_or(Ok(()), Err)?;
    let truth = most_frequent();
    let of = |keys: Vec<u64>| keys.iter().filter(|key| truth.contains(*key)).count() as f64 / TOP as f64;
    // The peer's sizes are powers of two: recall is that of a table that takes no more than it does.
    let equal = of_bytes(theirs.estimated_size())?;
    let entries = equal.settings().entries;
    let recalls = (
        of(top(&filled(equal, &keys))),
        of(top_of_peer(&theirs)),
        of(top(&filled(SpaceSaving::new(entries, 1)?, &keys))),
    );
    let kibs = (ours.memory_bytes().div_ceil(1024), theirs.estimated_size().div_ceil(1024));
    let reached = per_second(measured.ours);
    let met = reached >= MIN && measured.ratio < 1.0 && recalls.0 >= recalls.1;
    let peer = "the crate datasketches: FrequentItemsSketch (counters as Space-Saving has, purged in batches) with as much memory";
    let note = format!(
        "{:.1} M updates/s on one core; {ENTRIES} entries in {} KiB, the peer {} in {}; {UPDATES} updates of {KEYS} keys by Zipf's law with \
         skew 1; recall of the {TOP} most frequent with {entries} entries, which take no more than the peer, {:.3}, the peer's {:.3}, Space-Saving's \
         with as many {:.3}",
        reached / 1e6,
        kibs.0,
        theirs.maximum_map_capacity(),
        kibs.1,
        recalls.0,
        recalls.1,
        recalls.2
    );
    Ok(Figure::new(name, "ns", peer, measured, Goal::Stated).judged(
        "≥ 20 M updates/s, and ahead of the peer in time and recall",
        met,
        note,
    ))
}

fn new() -> Result<Rap> {
    Ok(Rap::new(Settings { entries: ENTRIES, seed: 1, ..Settings::default() })?)
}

/// The largest table that takes no more than so many bytes.
fn of_bytes(bytes: usize) -> Result<Rap> {
    for entries in (1..=ENTRIES).rev() {
        let table = Rap::new(Settings { entries, seed: 1, ..Settings::default() })?;
        if table.memory_bytes() <= bytes {
            return Ok(table);
        }
    }
    bail!("the peer takes less than a table of one entry")
}

fn filled<T: HeavyHitters>(mut table: T, keys: &[Digest]) -> T {
    for key in keys {
        table.insert(*key);
    }
    table
}

fn peer(size: usize) -> Result<FrequentItemsSketch<u64>> {
    FrequentItemsSketch::new(size).map_err(|error| anyhow!("the peer refuses: {error}"))
}

fn update(sketch: &mut FrequentItemsSketch<u64>, keys: &[Digest]) {
    for key in keys {
        sketch.update(key.0);
    }
}

/// The largest size of the peer that takes no more than so many bytes after these keys.
fn size_of_peer(keys: &[Digest], bytes: usize) -> Result<usize> {
    let mut found = None;
    for size in (6..20).map(|log| 1 << log) {
        let mut sketch = peer(size)?;
        update(&mut sketch, keys);
        if sketch.estimated_size() > bytes {
            break;
        }
        found = Some(size);
    }
    found.context("the peer has no size that is as small")
}

/// The digests of the keys that were most frequent.
fn most_frequent() -> HashSet<u64> {
    let mut counts: Vec<(u64, u32)> = (0..KEYS).map(|rank| (0, rank)).collect();
    for rank in zipf(UPDATES) {
        counts[rank as usize].0 += 1;
    }
    counts.sort_unstable_by_key(|count| Reverse(*count));
    counts.iter().take(TOP).map(|(_, rank)| digest(*rank).0).collect()
}

fn top<T: HeavyHitters>(table: &T) -> Vec<u64> {
    table.top(TOP).iter().map(|hitter| hitter.digest.0).collect()
}

fn top_of_peer(sketch: &FrequentItemsSketch<u64>) -> Vec<u64> {
    let mut rows = sketch.frequent_items(ErrorType::NoFalseNegatives);
    rows.sort_by_key(|row| Reverse(row.estimate()));
    rows.iter().take(TOP).map(|row| *row.item()).collect()
}
