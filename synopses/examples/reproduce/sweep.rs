//! Relative errors of LDA and FineComb over loss and displaced packets.

use std::sync::atomic::{AtomicU64, Ordering};

use synopses::finecomb::{Deviation, Estimate, Rule, Settings, Solver, sizing};

use crate::claim::{Verdict, judged_by_own_bar};
use crate::scale::Scale;
use crate::streams::{Delays, DisplacedPackets, Ends, Loss, Reading, SPACING_NS, Stream, Truth, play_each};

/// T, packets of an interval.
pub const PACKETS: u64 = 5_000_000;
/// S, buckets and stash entries of the receiver.
pub const MEMORY: f64 = 1_000.0;
/// β, lost packets as a share of all.
pub const LOSSES: [f64; 3] = [1e-4, 1e-3, 1e-2];
/// ρ, displaced packets as a share of all.
pub const SHARES: [f64; 7] = [4e-6, 4e-5, 2e-4, 5e-4, 1e-3, 2e-3, 4e-3];

/// Delays of 10 µs in the mean.
pub fn weibull() -> Delays {
    Delays::weibull(0.6, 6_647.0)
}

/// Mean relative errors over all runs.
#[derive(Clone, Copy, Default)]
pub struct Errors {
    pub mean: f64,
    pub deviation: f64,
    pub loss: f64,
    /// Of the loss from the numbers of all packets, sampled or not.
    pub in_all: f64,
    /// Packets in useful buckets.
    pub packets: f64,
}

impl Errors {
    pub fn add(&mut self, found: &Estimate, truth: &Truth, runs: u64) {
        let off = |found: Option<f64>, truth: f64| found.map_or(1.0, |found| (found / truth - 1.0).abs()) / runs as f64;
        let lost = truth.lost as f64 / (truth.lost + truth.arrived) as f64;
        self.mean += off(found.mean_ns, truth.mean_ns);
        self.deviation += off(found.deviation_ns, truth.deviation_ns);
        self.loss += off(found.loss, lost);
        self.in_all += off(found.loss_in_all, lost);
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

impl Point {
    /// x of each kind that is displaced.
    pub fn displaced(&self) -> DisplacedPackets {
        self.reading.of(displaced(PACKETS, self.share))
    }
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

/// Results at one point of a sweep.
#[derive(Clone, Copy)]
pub struct SweepPoint {
    pub point: Point,
    pub runs: u64,
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

/// The published stream at one ρ, in several readings.
pub struct Case<'a> {
    pub loss: Loss,
    pub share: f64,
    pub readings: &'a [Reading],
    pub delays: &'a Delays,
}

/// One interval after its packets have been played to all structures, for each of the readings.
pub struct PlayedInterval {
    ends: Vec<Vec<Ends>>,
    truth: Truth,
}

impl Case<'_> {
    /// Plays `runs` intervals to the structures of [`Settings`] for a seed.
    pub fn play(&self, runs: u64, settings: impl Fn(u64) -> Vec<Settings> + Sync) -> Vec<PlayedInterval> {
        let x = displaced(PACKETS, self.share);
        let displaced: Vec<DisplacedPackets> = self.readings.iter().map(|reading| reading.of(x)).collect();
        let draw = |_, random| self.delays.draw(random);
        each(runs, |seed| {
            let (loss, none) = (self.loss, Reading::Forward.of(0));
            let stream =
                Stream { packets: PACKETS, spacing_ns: SPACING_NS, loss, displaced: none, delays: &draw, seed };
            let (ends, truth) = play_each(&stream, &displaced, &settings(seed));
            PlayedInterval { ends, truth }
        })
    }
}

/// Errors of `rule` with structure `which` in the reading at `reading`.
pub fn errors(played: &[PlayedInterval], reading: usize, which: usize, rule: Rule, deviation: Deviation) -> Errors {
    let mut errors = Errors::default();
    for run in played {
        errors.add(&estimate(&run.ends[reading][which], rule, deviation), &run.truth, played.len() as u64);
    }
    errors
}

/// All structures on the same `runs` intervals, for each of the readings.
pub fn run(loss: f64, share: f64, readings: &[Reading], runs: u64) -> Vec<SweepPoint> {
    let delays = weibull();
    let case = Case { loss: Loss::Share(loss), share, readings, delays: &delays };
    let point = |reading: Reading| Point { loss, share, reading };
    let settings = |seed| settings(point(readings[0]), MEMORY, PACKETS as f64, seed);
    let played = case.play(runs, |seed| settings(seed).into());
    let of = |(at, reading): (usize, &Reading)| {
        let errors = |which: usize, rule: Rule| errors(&played, at, which, rule, Deviation::Fixed);
        SweepPoint {
            point: point(*reading),
            runs,
            fine: errors(0, Rule::FineComb),
            minus: errors(1, Rule::FineCombMinus),
            lda: errors(2, Rule::Lda),
            lda_plus: errors(2, Rule::LdaPlus),
            lda_buckets: errors(2, Rule::FineCombMinus),
            expected: expected(&settings(0)[0], point(*reading)),
        }
    };
    readings.iter().enumerate().map(of).collect()
}

/// Packets in useful buckets by the publication's formulas (2) and (4), with R = ρT for every reading, as it is there.
fn expected(fine: &Settings, Point { loss, share, .. }: Point) -> f64 {
    let (packets, bank) = (PACKETS as f64, fine.banks[0]);
    let spoiling = sizing::spoiling(bank.probability, packets, loss, share, 4.0 * bank.stash as f64);
    sizing::useful_packets(bank.probability, (1.0 - loss) * packets, fine.buckets, spoiling)
}

/// The points of one β in one reading.
pub type Sweep = [SweepPoint];

/// FineComb, FineComb− and LDA in all readings over all β and ρ: the runs that both tables share.
pub struct Sweeps(Vec<Vec<SweepPoint>>);

impl Sweeps {
    pub fn new(scale: Scale) -> Self {
        let along = |loss: f64| -> Vec<Vec<SweepPoint>> {
            // The errors of few lost packets vary most.
            let runs = if loss == LOSSES[0] { scale.many } else { scale.runs };
            let at = |share| run(loss, share, &Reading::ROWS, runs);
            let points: Vec<Vec<SweepPoint>> = scale.of(&SHARES).into_iter().map(at).collect();
            (0..Reading::ROWS.len()).map(|reading| points.iter().map(|readings| readings[reading]).collect()).collect()
        };
        Self(LOSSES.into_iter().flat_map(along).collect())
    }

    /// One of [`LOSSES`] in one of [`Reading::ROWS`].
    pub fn of(&self, loss: f64, reading: Reading) -> &Sweep {
        let wanted = |sweep: &&Vec<SweepPoint>| sweep[0].point.loss == loss && sweep[0].point.reading == reading;
        self.0.iter().find(wanted).expect("all of them were played")
    }
}

/// The points with ρ from `from` on.
pub fn from(sweep: &Sweep, from: f64) -> impl Iterator<Item = &SweepPoint> {
    sweep.iter().filter(move |found| found.point.share >= from)
}

/// The largest of a value over a sweep.
pub fn worst(sweep: &Sweep, of: impl Fn(&SweepPoint) -> f64) -> f64 {
    sweep.iter().map(of).fold(0.0, f64::max)
}

/// A value at each ρ.
pub fn along(sweep: &Sweep, of: impl Fn(&SweepPoint) -> f64) -> Vec<(f64, f64)> {
    sweep.iter().map(|found| (found.point.share, of(found))).collect()
}

/// The verdict where the publication prints a figure: met, or only our own bar is.
pub const fn graded(printed: bool, own: bool) -> Verdict {
    if printed { Verdict::Holds } else { judged_by_own_bar(own) }
}

/// A share as a percentage with two figures.
pub fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    if percent.abs() >= 10.0 { format!("{percent:.0} %") } else { format!("{percent:.2} %") }
}

/// Several percentages, each with its ρ.
pub fn list(values: impl IntoIterator<Item = (f64, f64)>) -> String {
    let each = values.into_iter().map(|(at, value)| format!("{} (ρ = {at:e})", percent(value)));
    each.collect::<Vec<_>>().join(", ")
}

/// Several whole numbers, each with its ρ.
pub fn whole(values: impl IntoIterator<Item = (f64, f64)>) -> String {
    let each = values.into_iter().map(|(at, value)| format!("{value:.0} (ρ = {at:e})"));
    each.collect::<Vec<_>>().join(", ")
}
