//! How many packets FineComb's formula (2) expects in useful buckets, what combs find, and what a second calculation
//! finds.

use synopses::finecomb::{Deviation, Rule, Settings, sizing};

use crate::claim::{Claim, judged, refuted};
use crate::finecomb::weibull;
use crate::occupancy::Bins;
use crate::streams::{Loss, Reading, SPACING_NS, Stream, play};
use crate::sweep::{MEMORY, PACKETS, Point, displaced, each, estimate, percent, settings};

/// The standard error of a mean, as a share of it, below which no more is run.
const EXACT: f64 = 0.005;
/// Runs, at the most.
const MAX_RUNS: u64 = 600;
/// Runs side by side.
const BATCH: u64 = 20;

/// Packets in useful buckets at one point, as shares of what the formula says.
struct FormulaComparison {
    point: Point,
    found: f64,
    /// Standard error of it.
    error: f64,
    second: f64,
}

/// FineComb whose stashes overflow seldom, as this library sizes them.
fn roomy(point: Point) -> Settings {
    let packets = PACKETS as f64;
    let probability = sizing::best_probability(MEMORY, packets, point.loss, point.share);
    let stash = sizing::stash(probability, displaced(PACKETS, point.share) as f64);
    Settings::one_bank(MEMORY as usize - 4 * stash, probability, stash, 0)
}

fn beside(point: Point, settings: &Settings) -> FormulaComparison {
    let (packets, bank) = (PACKETS as f64, settings.banks[0]);
    let spoiling = sizing::spoiling(bank.probability, packets, point.loss, point.share, 4.0 * bank.stash as f64);
    let expected = sizing::useful_packets(bank.probability, (1.0 - point.loss) * packets, settings.buckets, spoiling);
    let displaced = point.reading.of(displaced(PACKETS, point.share));
    let (delays, mut found) = (weibull(), Vec::new());
    let draw = |_, random| delays.draw(random);
    let error = loop {
        let from = found.len() as u64;
        found.extend(each(BATCH, |run| {
            let seed = from + run;
            let loss = Loss::Share(point.loss);
            let stream = Stream { packets: PACKETS, spacing_ns: SPACING_NS, loss, displaced, delays: &draw, seed };
            let (ends, _) = play(&stream, &[Settings { seed, ..settings.clone() }]);
            estimate(&ends[0], Rule::FineComb, Deviation::PerBucket).packets as f64 / expected
        }));
        let error = standard_error(&found);
        if error < EXACT || found.len() as u64 >= MAX_RUNS {
            break error;
        }
    };
    let second =
        Bins::of(settings, (point.loss * packets).round() as u64, displaced).expected(4_000).packets / expected;
    FormulaComparison { point, found: mean(&found), error, second }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn standard_error(values: &[f64]) -> f64 {
    let (count, mean) = (values.len() as f64, mean(values));
    (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0) / count).sqrt()
}

/// Both rows take minutes: for the kept tables only.
pub fn claims() -> Vec<Claim> {
    let point = |loss, share| Point { loss, share, reading: Reading::All };
    let points = [1e-4, 1e-3, 1e-2].into_iter().flat_map(|loss| [4e-6, 5e-4, 4e-3].map(|share| point(loss, share)));
    let roomy: Vec<FormulaComparison> = points.map(|point| beside(point, &roomy(point))).collect();
    let off = |beside: &&FormulaComparison| (beside.found - 1.0).abs();
    let worst = roomy.iter().max_by(|one, other| off(one).total_cmp(&off(other))).expect("points");
    let published = [5e-4, 1e-3, 4e-3].map(|share| {
        let point = point(1e-4, share);
        beside(point, &settings(point, MEMORY, PACKETS as f64, 0)[0])
    });
    let overflowing = published.iter().map(|beside| {
        format!("{} and {} (ρ = {:.0e})", percent(1.0 - beside.found), percent(1.0 - beside.second), beside.point.share)
    });
    // Four standard errors, and what the second calculation leaves to chance.
    let same = |beside: &FormulaComparison| (beside.found - beside.second).abs() <= 4.0 * beside.error + 0.005;
    let agreed = roomy.iter().chain(&published).all(same);
    vec![
        Claim {
            id: "F4",
            text: "formula (2) and what is found, over all β and ρ",
            published: "differ by a few hundreds",
            ours: format!(
                "with stashes two deviations above their mean, as this library sizes them: by {} at most (β = {:.0e}, ρ = {:.0e}; standard \
                 error {}). A difference of a few hundreds of three million could not be seen: the mean of ten runs varies by some ten thousands",
                percent((worst.found - 1.0).abs()),
                worst.point.loss,
                worst.point.share,
                percent(worst.error)
            ),
            tolerance: "2 %",
            verdict: judged((worst.found - 1.0).abs() <= 0.02),
        },
        Claim {
            id: "F4b",
            text: "the same with stashes of the mean size W = pR, β = 10⁻⁴",
            published: "the same: the curves cannot be told apart, the formula is slightly lower",
            ours: format!(
                "fewer than the formula by, combs and second calculation (only the spoiling packets, thrown into bins): {}. The number of \
                 sampled displaced packets is binomial, so that a stash of its mean overflows in half of all cases, which the formula leaves out",
                overflowing.collect::<Vec<_>>().join(", ")
            ),
            tolerance: "refuted if both calculations find more than 2 % fewer, the same within four standard errors, here and in F4",
            verdict: refuted(agreed && published.iter().all(|beside| beside.found < 0.98 && beside.second < 0.98)),
        },
    ]
}
