//! The claims on FineComb's loss with one bank (figures 4c and 6a).

use plotters::chart::SeriesLabelPosition;

use crate::claim::{Claim, judged_by_own_bar, refuted};
use crate::occupancy::Bins;
use crate::plot::{Axis, Figure, Line};
use crate::streams::{Loss, Reading, rows};
use crate::sweep::{LOSSES, MEMORY, PACKETS, Point, Sweep, SweepPoint, Sweeps, along, from, list, percent, settings};

/// Runs of the second calculation.
const RUNS: u64 = 4_000;

/// What a stash is good for.
fn stash(id: &'static str, reading: Reading, sweep: &Sweep) -> Claim {
    let ratio = |found: &SweepPoint| found.minus.loss / found.fine.loss;
    let worse: Vec<(f64, f64)> = from(sweep, 5e-4).map(|found| (found.point.share, ratio(found))).collect();
    let each = worse.iter().map(|(share, ratio)| format!("{ratio:.1} (ρ = {share:e})"));
    let last = sweep[sweep.len() - 1];
    Claim {
        id,
        text: "loss without a stash is much worse, and the more so the more are displaced; β = 10⁻⁴",
        published: "figure 4c, no figures",
        ours: format!(
            "{}: times worse {}; without a stash off by {} at ρ = {:e}, and by {} as a sum of all counts",
            reading.name(),
            each.collect::<Vec<_>>().join(", "),
            percent(last.minus.loss),
            last.point.share,
            percent(last.minus.in_all)
        ),
        tolerance: "at least 5 times from ρ = 5·10⁻⁴ on",
        verdict: judged_by_own_bar(worse.iter().all(|(_, ratio)| *ratio >= 5.0)),
    }
}

/// The largest error of FineComb's loss up to ρ = 10⁻³.
fn mild(sweep: &Sweep) -> f64 {
    sweep.iter().filter(|found| found.point.share <= 1e-3).map(|found| found.fine.loss).fold(0.0, f64::max)
}

fn rare(id: &'static str, readings: &[Reading], sweeps: &Sweeps) -> Claim {
    let told = readings.iter().map(|reading| {
        format!("{}: {}", reading.name(), list(along(sweeps.of(LOSSES[0], *reading), |found| found.fine.loss)))
    });
    let most = readings.iter().map(|reading| mild(sweeps.of(LOSSES[0], *reading))).fold(0.0, f64::max);
    Claim {
        id,
        text: "error of FineComb's loss, β = 10⁻⁴",
        published: "usually 10 to 30 %",
        ours: told.collect::<Vec<_>>().join("; "),
        tolerance: "at most 30 % up to ρ = 10⁻³ in each",
        verdict: judged_by_own_bar(most <= 0.30),
    }
}

/// The error of the loss by [`Bins`].
fn by_bins(point: Point) -> f64 {
    let [fine, ..] = settings(point, MEMORY, PACKETS as f64, 0);
    Bins::of(&fine, Loss::Share(point.loss), point.displaced()).error_of_loss(RUNS).value
}

/// Errors of one reading over ρ: of combs, and by the second calculation.
struct BothErrors {
    reading: Reading,
    points: Vec<(f64, [f64; 2])>,
}

impl BothErrors {
    fn new(reading: Reading, sweep: &Sweep) -> Self {
        let both = |found: &SweepPoint| (found.point.share, [found.fine.loss, by_bins(found.point)]);
        Self { reading, points: sweep.iter().map(both).collect() }
    }

    /// At how many ρ an error, 0 of combs and 1 of bins, is from 10 to 30 %.
    fn within(&self, which: usize) -> usize {
        self.points.iter().filter(|(_, errors)| (0.10..=0.30).contains(&errors[which])).count()
    }

    /// Whether both are small at the least ρ, large at the largest, the same there, and seldom from 10 to 30 %.
    fn refutes(&self) -> bool {
        let ([first, last], half) = ([self.points[0].1, self.points[self.points.len() - 1].1], self.points.len() / 2);
        first.iter().all(|error| *error < 0.05)
            && last.iter().all(|error| *error > 0.5)
            && (last[0] / last[1] - 1.0).abs() < 0.25
            && (0..2).all(|which| self.within(which) <= half)
    }

    fn told(&self) -> String {
        let bins = list(self.points.iter().map(|(share, errors)| (*share, errors[1])));
        let (all, within) = (self.points.len(), self.within(0).max(self.within(1)));
        format!("{}: {bins}, {within} of {all} from 10 to 30 %", self.reading.name())
    }
}

fn whatever(sweeps: &Sweeps) -> Claim {
    let both = Reading::ROWS.map(|reading| BothErrors::new(reading, sweeps.of(LOSSES[0], reading)));
    let told: Vec<String> = both.iter().map(BothErrors::told).collect();
    Claim {
        id: "F13c",
        text: "the same, whatever ρ is",
        published: "usually within 10 to 30 % irrespective of ρ",
        ours: format!(
            "by a second calculation, {}. A lost packet makes its bucket useless, and displaced ones in it are then counted with it: few of them \
             cannot make 10 %, many make more than 30 %, in every reading",
            told.join("; ")
        ),
        tolerance: "refuted if in each reading both calculations find less than 5 % at the least ρ, more than 50 % at the largest, within a \
                    quarter of each other there, and 10 to 30 % at half of the ρ at most",
        verdict: refuted(both.iter().all(BothErrors::refutes)),
    }
}

fn figure(sweeps: &Sweeps) -> Figure {
    let line = |reading: Reading| Line {
        name: reading.name(),
        points: along(sweeps.of(LOSSES[0], reading), |found| found.fine.loss),
    };
    Figure {
        file: "finecomb-loss.svg",
        caption: "Relative error of FineComb's loss in four readings, β = 10⁻⁴",
        x: Axis { title: "ρ, displaced packets as a share of all", logarithmic: true, least: 4e-6, most: 4e-3 },
        y: Axis { title: "error of the loss", logarithmic: true, least: 1e-3, most: 1e1 },
        legend: SeriesLabelPosition::UpperLeft,
        lines: Reading::ROWS.map(line).into(),
    }
}

pub fn claims(sweeps: &Sweeps) -> (Vec<Claim>, Figure) {
    let [forward, backward, chained, all] = Reading::ROWS;
    let mut claims: Vec<Claim> =
        rows!("F8").map(|(id, reading)| stash(id, reading, sweeps.of(LOSSES[0], reading))).collect();
    claims.extend([
        rare("F13", &[forward, backward], sweeps),
        rare("F13-forward", &[forward], sweeps),
        rare("F13-backward", &[backward], sweeps),
        rare("F13-chained", &[chained], sweeps),
        rare("F13-all", &[all], sweeps),
        whatever(sweeps),
    ]);
    (claims, figure(sweeps))
}
