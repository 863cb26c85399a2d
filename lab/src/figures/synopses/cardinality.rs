//! Distinct items in a window that slides: the cost of an item and of an estimate.

use std::hint::black_box;

use anyhow::{Result, anyhow, ensure};
use datasketches::hll::{HllSketch, HllType};
use synopses::cardinality::{Cardinality, Correction, Hash, Settings, StHll, StHllSettings, TsPcsa, TsPcsaSettings};
use synopses::digest::{Digest, DigestKey};

use super::super::figure::{Figure, Goal};
use super::super::pair::measure;

/// The logarithm of the number of registers, 1,024.
const LOG_REGISTERS: u8 = 10;
/// One item per microsecond: a window has 65,536, which is 64 for each register.
const STEP_NS: u64 = 1_000;
const IN_WINDOW: u64 = 1 << 16;
const WINDOW_NS: u64 = STEP_NS * IN_WINDOW;
/// Items of a turn, all different.
const ITEMS: u64 = 1 << 19;
/// Queries of a turn.
const QUERIES: u64 = 2_000;
/// By how much a count may be off, as a share: six standard errors.
const MAX_ERROR: f64 = 0.2;
const MAX_RATIO: f64 = 1.5;
const MAX_NS: f64 = 2_000.0;

const COMMON: Settings =
    Settings { registers: 1 << LOG_REGISTERS, window_ns: WINDOW_NS, start_ns: 0, hash: Hash::Seeded(1) };

/// The cost of an item for ST-HLL+.
pub fn st_hll_add(name: &str) -> Result<Figure> {
    add(name, st_hll(Correction::Likelihood)?)
}

/// The cost of an item for TS-PCSA+.
pub fn ts_pcsa_add(name: &str) -> Result<Figure> {
    add(name, ts_pcsa()?)
}

/// The cost of an estimate of ST-HLL+ by maximum likelihood, the default.
pub fn st_hll_query(name: &str) -> Result<Figure> {
    query(name, st_hll(Correction::Likelihood)?)
}

/// The cost of an estimate of ST-HLL+ as it was published.
pub fn st_hll_query_published(name: &str) -> Result<Figure> {
    query(name, st_hll(Correction::Published)?)
}

/// The cost of an estimate of TS-PCSA+.
pub fn ts_pcsa_query(name: &str) -> Result<Figure> {
    query(name, ts_pcsa()?)
}

fn st_hll(correction: Correction) -> Result<StHll> {
    Ok(StHll::new(StHllSettings { correction, ..StHllSettings::plus(COMMON) })?)
}

fn ts_pcsa() -> Result<TsPcsa> {
    Ok(TsPcsa::new(TsPcsaSettings::plus(COMMON))?)
}

fn items() -> Vec<Digest> {
    let key = DigestKey::new(1);
    (0..ITEMS).map(|number| key.digest(&number.to_le_bytes())).collect()
}

/// The peer: a HyperLogLog with as many registers of a byte, which forgets nothing.
fn plain() -> Result<HllSketch> {
    HllSketch::new(LOG_REGISTERS, HllType::Hll8).map_err(|error| anyhow!("the peer refuses: {error}"))
}

/// The cost of an item, against a plain HyperLogLog.
fn add<T: Cardinality>(name: &str, mut synopsis: T) -> Result<Figure> {
    let (items, mut now_ns, mut theirs) = (items(), 0, plain());
    let measured = measure(
        ITEMS,
        |_| {
            for item in black_box(&items) {
                now_ns += STEP_NS;
                synopsis.insert(*item, now_ns);
            }
        },
        |_| {
            theirs = plain();
            if let Ok(sketch) = &mut theirs {
                for item in black_box(&items) {
                    sketch.update(item.0);
                }
            }
        },
    );
    let theirs = theirs?;
    let counts = (synopsis.estimate(now_ns, WINDOW_NS)?.count, theirs.estimate());
    is_right(counts.0, IN_WINDOW)?;
    is_right(counts.1, ITEMS)?;
    let peer = "the crate datasketches: HllSketch::update with as many registers, which forgets nothing";
    let mut figure = Figure::new(name, "ns", peer, measured, Goal::AtMost(MAX_RATIO));
    figure.note = format!(
        "{} registers, {} KiB against {}; 64 items of a window for each register, all different; what expires is among the cost",
        COMMON.registers,
        synopsis.memory_bytes().div_ceil(1024),
        theirs.estimated_size().div_ceil(1024)
    );
    Ok(figure)
}

/// The cost of an estimate, each after one more item.
fn query<T: Cardinality>(name: &str, mut synopsis: T) -> Result<Figure> {
    let (items, mut now_ns, mut theirs) = (items(), 0, plain()?);
    for item in &items {
        now_ns += STEP_NS;
        synopsis.insert(*item, now_ns);
        theirs.update(item.0);
    }
    is_right(synopsis.estimate(now_ns, WINDOW_NS)?.count, IN_WINDOW)?;
    let (mut next, mut same) = (items.iter().cycle(), items.iter().cycle());
    let measured = measure(
        QUERIES,
        |queries| {
            for item in next.by_ref().take(queries as usize) {
                now_ns += STEP_NS;
                synopsis.insert(*item, now_ns);
                _ = black_box(black_box(&synopsis).estimate(now_ns, WINDOW_NS));
            }
        },
        |queries| {
            for item in same.by_ref().take(queries as usize) {
                theirs.update(item.0);
                _ = black_box(black_box(&theirs).estimate());
            }
        },
    );
    is_right(synopsis.estimate(now_ns, WINDOW_NS)?.count, IN_WINDOW)?;
    let peer = "the crate datasketches: HllSketch::update and estimate, which is kept up to date by each update, and has no window";
    let met = measured.ours < MAX_NS;
    let note = format!(
        "{} registers, one more item before each query; nothing is kept between queries, since registers age all the time",
        COMMON.registers
    );
    Ok(Figure::new(name, "ns per query", peer, measured, Goal::Stated).judged("< 2 µs", met, note))
}

fn is_right(count: f64, expected: u64) -> Result<()> {
    ensure!((count / expected as f64 - 1.0).abs() < MAX_ERROR, "{count:.0} items counted of {expected}");
    Ok(())
}
