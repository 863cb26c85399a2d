//! What one fit yields, and how it judges a row.

use crate::intake::Intake;
use crate::latch::Latches;
use crate::past::Past;
use crate::quantile::QUANTILES;
use crate::scorer::{Scorer, Split};
use crate::since::Since;
use crate::standard::{Role, Standard};

/// A constant that moves by more than this has moved,
const MOVED: f64 = 1e-9;
/// and by more than this share of what it was in training, five times the deviation up to which it is a constant.
const MOVED_SHARE: f64 = 2.5e-3;

/// A row is unusual so far on the way from the median of the training scores to γ. With many columns all scores are near each other, and ordinary
/// rows above any fixed share of γ: a run of unusual rows would never end, and name what happened hours ago as a beginning.
const UNUSUAL: f64 = 0.5;
/// Which of [`QUANTILES`] is the median.
const MEDIAN: usize = 5;

/// What moving constants count for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ConstantRule {
    /// Deviations per column, at the least.
    pub(crate) weight: f64,
    /// Share of γ² per column, if that is more.
    pub(crate) share: f64,
    /// At most so many count.
    pub(crate) counted: u32,
    /// Whether the way back to the value of training counts.
    pub(crate) returns: bool,
}

impl ConstantRule {
    /// What `moved` columns add to the square of a score that is judged by `gamma`.
    pub(crate) fn square(self, moved: u32, gamma: f64) -> f64 {
        (self.weight * self.weight).max(self.share * gamma * gamma) * f64::from(moved.min(self.counted))
    }
}

/// A column that was constant in training: its value, or for a level its increment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Constant {
    pub(crate) column: u32,
    home: Home,
    /// What it has to move by.
    least: f64,
    /// Whether it moved in the row judged last.
    moved: bool,
}

/// What a constant moves away from.
#[derive(Clone, Copy, Debug)]
enum Home {
    /// Where it was in training, if its way back does not count, and where it was when it moved last.
    Value { trained: f64, last: f64 },
    /// The increment of training of a level.
    Increment(f64),
}

impl Constant {
    /// Every column of `roles` that is constant.
    pub(crate) fn list(standard: &Standard, levels: &[u32], rule: ConstantRule) -> Vec<Self> {
        let columns = 0..standard.roles.len() as u32;
        let constants = columns.filter(|&column| standard.roles[column as usize] == Role::Constant);
        let constant = |column: u32| {
            let mean = standard.mean[column as usize];
            let home = match levels.binary_search(&column) {
                Ok(_) => Home::Increment(mean),
                Err(_) => Home::Value { trained: if rule.returns { f64::NAN } else { mean }, last: mean },
            };
            Self { column, home, least: MOVED.max(MOVED_SHARE * mean.abs()), moved: false }
        };
        constants.map(constant).collect()
    }

    /// Its way back to where it was in training is none: one burst of page faults would else count in two rows, and be an alarm.
    fn step(&mut self, intake: &Intake) -> bool {
        let value = intake.value(self.column as usize);
        let moved = match &mut self.home {
            Home::Value { trained, last } => {
                let moved = (value - *last).abs() > self.least;
                if moved {
                    *last = value;
                }
                let back = (value - *trained).abs() <= self.least;
                moved && !back
            }
            Home::Increment(increment) => (value - intake.before(self.column as usize) - *increment).abs() > self.least,
        };
        self.moved = moved && !intake.restarted();
        self.moved
    }
}

/// A fitted pipeline with the row that it judged last.
#[derive(Clone, Debug)]
pub(crate) struct Pipeline {
    pub(crate) standard: Standard,
    pub(crate) levels: Vec<u32>,
    pub(crate) constants: Vec<Constant>,
    pub(crate) constant_rule: ConstantRule,
    pub(crate) latches: Latches,
    pub(crate) scorer: Scorer,
    /// The rows learnt. Away while the decomposition of their sketch is out.
    pub(crate) past: Option<Past>,
    pub(crate) sketch_rows: usize,
    pub(crate) gamma: f64,
    /// What the alarm budget multiplies γ by.
    pub(crate) factor: f64,
    /// Rows in the averages.
    pub(crate) averaged: usize,
    /// Percentiles of the training scores, at [`QUANTILES`].
    pub(crate) quantiles: [f64; QUANTILES.len()],
    pub(crate) split: Split,
    pub(crate) since: Since,
    /// Constants that moved in the row judged last.
    pub(crate) moved: u32,
}

/// The scores of one row, not smoothed. Finite and at least 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Raw {
    /// With moving constants.
    pub(crate) score: f64,
    /// Without: what decides whether the row is learnt.
    pub(crate) gate: f64,
}

impl Pipeline {
    /// Judges the newest row. O(m k). Never allocates.
    pub(crate) fn judge(&mut self, intake: &Intake) -> Raw {
        self.standard.row(intake.row(), &mut self.split.z);
        for &level in &self.levels {
            let column = level as usize;
            let increment = intake.value(column) - intake.before(column);
            self.split.z[column] = self.standard.one(column, increment);
        }
        self.latches.step(intake, &self.standard, &mut self.split.z);
        let mut square = self.scorer.score(&mut self.split);
        if intake.unknown().next().is_some() {
            // What is not known does not contradict the rest: it is taken for what the directions make of the others.
            for column in intake.unknown() {
                self.split.z[column] -= f64::from(self.split.residual[column]);
            }
            let length = self.split.length;
            square = self.scorer.score(&mut self.split);
            self.split.length *= length;
        }
        self.moved = self.constants.iter_mut().map(|constant| u32::from(constant.step(intake))).sum();
        // Bounded z, basis and variances keep squares finite; min() also turns a NaN that got past them into a score.
        let root = |square: f64| square.sqrt().min(f64::MAX);
        let raw = Raw { score: root(square + self.constant_square()), gate: root(square) };
        let unusual = raw.score >= self.unusual();
        self.since.step(unusual, &self.scorer.deviations(&self.split));
        if unusual && self.moved > 0 {
            for constant in self.constants.iter().filter(|constant| constant.moved) {
                self.since.begin(constant.column);
            }
        }
        raw
    }

    /// Means and variances go on averaging over the row judged last, until `limit` rows are in them.
    pub(crate) fn grow(&mut self, limit: usize) {
        if self.averaged >= limit {
            return;
        }
        self.averaged += 1;
        let share = 1.0 / self.averaged as f64;
        let Standard { mean, inverse, .. } = &mut self.standard;
        for ((mean, inverse), z) in mean.iter_mut().zip(inverse.iter()).zip(self.split.z.iter()) {
            if *inverse > 0.0 {
                *mean += share * z * self.split.length / inverse;
            }
        }
        self.scorer.average(&self.split, share);
    }

    /// What moving constants add to the square of the score.
    pub(crate) fn constant_square(&self) -> f64 {
        self.constant_rule.square(self.moved, self.gamma_in_force())
    }

    /// The score from which on a row is unusual, at most γ.
    fn unusual(&self) -> f64 {
        let (gamma, usual) = (self.gamma_in_force(), self.quantiles[MEDIAN]);
        gamma.min(usual + UNUSUAL * (gamma - usual))
    }

    /// γ as the alarm budget has moved it.
    pub(crate) fn gamma_in_force(&self) -> f64 {
        self.gamma * self.factor
    }

    /// The constants that moved in the row judged last.
    pub(crate) fn moved_constants(&self) -> impl Iterator<Item = usize> {
        self.constants.iter().filter(|constant| constant.moved).map(|constant| constant.column as usize)
    }

    pub(crate) fn unwatched(&self) -> impl Iterator<Item = usize> {
        let roles = self.standard.roles.iter().enumerate();
        roles.filter(|(_, role)| **role == Role::Unwatched).map(|(column, _)| column)
    }

    pub(crate) fn bytes(&self) -> usize {
        let lists = size_of::<u32>() * self.levels.len() + size_of::<Constant>() * self.constants.len();
        let past = self.past.as_ref().map_or(0, Past::bytes);
        self.standard.bytes()
            + lists
            + self.latches.bytes()
            + self.scorer.bytes()
            + past
            + self.split.bytes()
            + self.since.bytes()
    }
}
