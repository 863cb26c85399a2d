//! Relative errors of LDA and FineComb over loss and displaced packets.

use std::sync::atomic::{AtomicU64, Ordering};

use synopses::finecomb::{Deviation, Estimate, Rule, Settings, Solver, sizing};

use crate::streams::{Delays, DisplacedPackets, Ends, Loss, Reading, SPACING_NS, Stream, Truth, play};

/// T, packets of an interval.
pub const PACKETS: u64 = 5_000_000;
/// S, buckets and stash entries of the receiver.
pub const MEMORY: f64 = 1_000.0;
/// ρ, displaced packets as a share of all.
pub const SHARES: [f64; 7] = [4e-6, 4e-5, 2e-4, 5e-4, 1e-3, 2e-3, 4e-3];

/// Mean relative errors over all runs.
#[derive(Clone, Copy, Default)]
pub struct Errors {
    pub mean: f64,
    pub deviation: f64,
    pub loss: f64,
    /// Packets in useful buckets.
    pub packets: f64,
}

impl Errors {
    pub fn add(&mut self, found: &Estimate, truth: &Truth, runs: u64) {
        let off = |found: Option<f64>, truth: f64| found.map_or(1.0, |found| (found / truth - 1.0).abs()) / runs as f64;
        self.mean += off(found.mean_ns, truth.mean_ns);
        self.deviation += off(found.deviation_ns, truth.deviation_ns);
        self.loss += off(found.loss, truth.lost as f64 / (truth.lost + truth.arrived) as f64);
        self.packets += found.packets as f64 / runs as f64;
    }
}

/// Parameters of a point of a sweep: β and ρ.
#[derive(Clone, Copy)]
pub struct Point {
    pub loss: f64,
    pub share: f64,
    pub reading: Reading,
}

/// x, packets of each kind that is displaced.
pub fn displaced(packets: u64, share: f64) -> u64 {
    (share * packets as f64 / 4.0).round() as u64
}

/// FineComb with the best parameters, FineComb− and LDA in as much memory at both ends together.
pub fn settings(point: Point, memory: f64, packets: f64, seed: u64) -> [Settings; 3] {
    let Point { loss, share, .. } = point;
    let probability = sizing::best_probability(memory, packets, loss, share);
    let stash = (probability * share * packets / 4.0).round();
    let fine = Settings::one_bank((memory - 4.0 * stash).max(1.0) as usize, probability, stash as usize, seed);
    let without = sizing::best_probability_without_stash(memory, packets, loss, share);
    let minus = Settings::one_bank(memory as usize, without, 0, seed);
    // Two words instead of three for a bucket; half of what would spoil every bucket, as is recommended.
    let buckets = 1.5 * (fine.buckets as f64 + 2.0 * stash);
    let lda = Settings::one_bank(buckets as usize, (0.5 * buckets / (loss * packets + 1.0)).min(1.0), 0, seed);
    [fine, minus, lda]
}

/// FineComb whose buckets at both ends and stashes take `memory` together: 2 M + W. The best p is that of half the
/// memory and half of ρ.
pub fn of_both_ends(point: Point, memory: f64, packets: f64, seed: u64) -> Settings {
    let probability = sizing::best_probability(memory / 2.0, packets, point.loss, point.share / 2.0);
    let stash = (probability * point.share * packets / 4.0).round();
    Settings::one_bank(((memory - 4.0 * stash) / 2.0).max(1.0) as usize, probability, stash as usize, seed)
}

/// Results at one point of a sweep.
#[derive(Clone, Copy, Default)]
pub struct SweepPoint {
    pub fine: Errors,
    pub minus: Errors,
    pub lda: Errors,
    pub lda_plus: Errors,
    /// LDA with the loss from buckets with fewer received than sent packets.
    pub lda_buckets: Errors,
    /// Packets in useful buckets of FineComb that the formula expects.
    pub expected: f64,
}

/// The estimate by `rule` from both ends.
pub fn estimate(ends: &Ends, rule: Rule, deviation: Deviation) -> Estimate {
    ends.interval.estimate(&ends.sender, rule, Solver::Elimination, deviation).expect("one kind")
}

/// Runs with seeds from 0 on, in parallel on all processors. Results are in the order of seeds.
pub fn each<T: Send>(runs: u64, run: impl Fn(u64) -> T + Sync) -> Vec<T> {
    let next = AtomicU64::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= runs {
                return done;
            }
            done.push((seed, run(seed)));
        }
    };
    let mut all: Vec<(u64, T)> = std::thread::scope(|scope| {
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        let threads: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("a run ends")).collect()
    });
    all.sort_by_key(|(seed, _)| *seed);
    all.into_iter().map(|(_, result)| result).collect()
}

/// One interval after its packets have been played to all structures.
pub struct PlayedInterval {
    pub ends: Vec<Ends>,
    pub truth: Truth,
}

/// Errors of `rule` with the first structure of each run.
pub fn errors(seen: &[PlayedInterval], rule: Rule, deviation: Deviation) -> Errors {
    let mut errors = Errors::default();
    for run in seen {
        errors.add(&estimate(&run.ends[0], rule, deviation), &run.truth, seen.len() as u64);
    }
    errors
}

/// All structures on the same `runs` intervals.
pub fn run(point: Point, delays: &Delays, runs: u64) -> SweepPoint {
    let x = displaced(PACKETS, point.share);
    let seen = each(runs, |seed| {
        let draw = |_, random| delays.draw(random);
        let loss = Loss::Share(point.loss);
        let displaced = point.reading.of(x);
        let stream = Stream { packets: PACKETS, spacing_ns: SPACING_NS, loss, displaced, delays: &draw, seed };
        let (ends, truth) = play(&stream, &settings(point, MEMORY, PACKETS as f64, seed));
        PlayedInterval { ends, truth }
    });
    let mut found = SweepPoint::default();
    for PlayedInterval { ends, truth } in &seen {
        found.fine.add(&estimate(&ends[0], Rule::FineComb, Deviation::Fixed), truth, runs);
        found.minus.add(&estimate(&ends[1], Rule::FineCombMinus, Deviation::Fixed), truth, runs);
        found.lda.add(&estimate(&ends[2], Rule::Lda, Deviation::Fixed), truth, runs);
        found.lda_plus.add(&estimate(&ends[2], Rule::LdaPlus, Deviation::Fixed), truth, runs);
        found.lda_buckets.add(&estimate(&ends[2], Rule::FineCombMinus, Deviation::Fixed), truth, runs);
    }
    let fine = &settings(point, MEMORY, PACKETS as f64, 0)[0];
    found.expected = expected(fine, point);
    found
}

/// Packets in useful buckets by the publication's formula (2).
fn expected(fine: &Settings, point: Point) -> f64 {
    let packets = PACKETS as f64;
    let bank = fine.banks[0];
    let DisplacedPackets { pre_start, post_start, pre_end, post_end } =
        point.reading.of(displaced(PACKETS, point.share));
    let displaced = (pre_start + post_start + pre_end + post_end) as f64 / packets;
    let spoiling = sizing::spoiling(bank.probability, packets, point.loss, displaced, 4.0 * bank.stash as f64);
    sizing::useful_packets(bank.probability, (1.0 - point.loss) * packets, fine.buckets, spoiling)
}

/// A share as a percentage with two figures.
pub fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    if percent >= 10.0 { format!("{percent:.0} %") } else { format!("{percent:.2} %") }
}

/// Several percentages, each with its ρ.
pub fn list(values: impl IntoIterator<Item = (f64, f64)>) -> String {
    let each = values.into_iter().map(|(at, value)| format!("{} (ρ = {at:e})", percent(value)));
    each.collect::<Vec<_>>().join(", ")
}
