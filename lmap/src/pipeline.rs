//! A fitted pipeline, and how it scores a row.

use crate::constants::{Constant, ConstantRule};
use crate::expectation::Expectation;
use crate::groups::{Groups, MAX_GROUPS};
use crate::history::History;
use crate::intake::Intake;
use crate::kernels::averages::MoveMeans;
use crate::kernels::widest;
use crate::latch::Latches;
use crate::long_rows::LongRows;
use crate::onsets::Onsets;
use crate::pools::Pools;
use crate::quantile::QUANTILES;
use crate::scorer::{Projection, Scorer};
use crate::standard::{Role, Standard, standardise};

/// A row is unusual if its score is at least this far on the way from the median of the training scores to γ. A fixed
/// share of γ does not work: with many columns all scores are close to each other, ordinary rows would be unusual, and
/// a run of unusual rows would never end.
const UNUSUAL: f64 = 0.5;
/// How often columns whose growth says nothing yet are replaced by what the others let expect.
const ROUNDS: usize = 2;
/// Index of the median in [`QUANTILES`].
const MEDIAN: usize = 5;

/// A fitted pipeline, with the row that it scored last.
#[derive(Clone, Debug)]
pub(crate) struct Pipeline {
    pub(crate) standard: Standard,
    pub(crate) levels: Vec<u32>,
    pub(crate) constants: Vec<Constant>,
    pub(crate) constant_rule: ConstantRule,
    pub(crate) latches: Latches,
    pub(crate) pools: Pools,
    pub(crate) scorer: Scorer,
    /// The sketch of the rows learnt. `None` while a job decomposes it.
    pub(crate) history: Option<History>,
    /// Whether the sketch is another one than when it was last found not to be due.
    pub(crate) sketch_changed: bool,
    pub(crate) sketch_rows: usize,
    pub(crate) gamma: f64,
    /// The factor by which the alarm budget multiplies γ.
    pub(crate) factor: f64,
    /// Number of rows in means and variances.
    pub(crate) averaged: usize,
    /// Percentiles of the training scores, at [`QUANTILES`].
    pub(crate) quantiles: [f64; QUANTILES.len()],
    pub(crate) projection: Projection,
    pub(crate) onsets: Onsets,
    pub(crate) groups: Groups,
    pub(crate) long_rows: LongRows,
    /// Number of constants that moved in the row scored last.
    pub(crate) moved: u32,
}

/// The scores of one row, not smoothed. Finite and at least 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowScore {
    /// Including constants that moved.
    pub(crate) score: f64,
    /// Without constants: decides whether the row is learnt.
    pub(crate) gate: f64,
    /// The square of the score without longer rows.
    pub(crate) alone: f64,
}

impl Pipeline {
    /// Scores the newest row. O(m k). Never allocates. With columns whose source is gone, and `expectation` for them,
    /// it costs more: see there.
    pub(crate) fn judge(&mut self, intake: &Intake, expectation: Option<&mut Expectation>) -> RowScore {
        standardise(&self.standard, &self.levels, intake, &mut self.projection.z);
        self.latches.step(intake, &self.standard, &mut self.projection.z);
        let waits = self.pools.step(intake, &self.standard, &mut self.latches, &mut self.projection.z);
        let mut square = self.scorer.score(&mut self.projection);
        for _ in 0..if waits { ROUNDS } else { 0 } {
            for column in self.pools.waiting() {
                self.projection.z[column] -= f64::from(self.projection.residual[column]);
            }
            square = self.scorer.score(&mut self.projection);
        }
        let expectation = expectation.filter(|_| intake.has_forgotten() && self.scorer.is_scaled());
        if let Some(expectation) = expectation {
            square = expectation.fill(&self.scorer, &mut self.projection, intake);
        } else if intake.unknown().next().is_some() {
            // An unknown value is replaced by what the directions expect from the others, so that it has no residual.
            for column in intake.unknown() {
                self.projection.z[column] -= f64::from(self.projection.residual[column]);
            }
            let length = self.projection.length;
            square = self.scorer.score(&mut self.projection);
            self.projection.length *= length;
        }
        self.moved = self.constants.iter_mut().map(|constant| u32::from(constant.step(intake))).sum();
        // Bounded z, basis and variances keep squares finite; min() also turns a NaN into a finite score.
        let root = |square: f64| square.sqrt().min(f64::MAX);
        if intake.restarted() {
            self.long_rows.forget();
        }
        let long = self.long_rows.push(&self.projection.z);
        let (group, all) = (self.group_square(&self.projection), square + self.constant_square());
        let (alone, group) = (all.max(group), group.max(self.long_square(&long)));
        let raw = RowScore { score: root(all.max(group)), gate: root(square.max(group)), alone };
        let unusual = raw.score >= self.unusual();
        self.onsets.step(unusual, &self.scorer.deviations(&self.projection));
        if unusual && self.moved > 0 {
            for constant in self.constants.iter().filter(|constant| constant.moved) {
                self.onsets.begin(constant.column);
            }
        }
        raw
    }

    /// Goes on where `before`, which judged until now, was with pools that both watch.
    pub(crate) fn go_on_from(&mut self, before: &Self) {
        self.pools.go_on_from(&before.pools, &mut self.latches, &before.latches);
    }

    /// Updates means and variances with the row scored last, until `limit` rows are in them.
    pub(crate) fn grow(&mut self, limit: usize) {
        if self.averaged >= limit {
            return;
        }
        self.averaged += 1;
        let share = 1.0 / self.averaged as f64;
        let Standard { mean, inverse, .. } = &mut self.standard;
        let Projection { z, length, .. } = &self.projection;
        widest(MoveMeans { mean, inverse, z, length: *length, share });
        self.scorer.average(&self.projection, share);
    }

    /// The square that moving constants add to the square of the score.
    pub(crate) fn constant_square(&self) -> f64 {
        self.constant_rule.square(self.moved, self.gamma_in_force())
    }

    /// What the largest group of columns counts for, as the square of a score: γ², without the factor of the budget, if
    /// it is at its limit. 0 without limits.
    pub(crate) fn group_square(&self, projection: &Projection) -> f64 {
        self.groups.largest(&projection.z) * self.gamma * self.gamma
    }

    /// What `squares` of groups over longer rows count for, likewise.
    pub(crate) fn long_square(&self, squares: &[f64; MAX_GROUPS]) -> f64 {
        self.long_rows.largest(squares) * self.gamma * self.gamma
    }

    /// The score from which on a row is unusual, at most γ.
    fn unusual(&self) -> f64 {
        let (gamma, usual) = (self.gamma_in_force(), self.quantiles[MEDIAN]);
        gamma.min(usual + UNUSUAL * (gamma - usual))
    }

    /// γ times the factor of the alarm budget.
    pub(crate) fn gamma_in_force(&self) -> f64 {
        self.gamma * self.factor
    }

    /// The constants that moved in the row scored last.
    pub(crate) fn moved_constants(&self) -> impl Iterator<Item = usize> {
        self.constants.iter().filter(|constant| constant.moved).map(|constant| constant.column as usize)
    }

    /// Whether an indicator moved in the row scored last.
    pub(crate) fn is_indicated(&self) -> bool {
        self.moved > 0 && self.constants.iter().any(|constant| constant.moved && constant.indicator)
    }

    pub(crate) fn unwatched(&self) -> impl Iterator<Item = usize> {
        let roles = self.standard.roles.iter().enumerate();
        roles.filter(|(_, role)| **role == Role::Unwatched).map(|(column, _)| column)
    }

    pub(crate) fn bytes(&self) -> usize {
        let lists = size_of::<u32>() * self.levels.len() + size_of::<Constant>() * self.constants.len();
        let history = self.history.as_ref().map_or(0, History::bytes);
        self.standard.bytes()
            + lists
            + self.latches.bytes()
            + self.pools.bytes()
            + self.scorer.bytes()
            + history
            + self.projection.bytes()
            + self.onsets.bytes()
            + self.groups.bytes()
            + self.long_rows.bytes()
    }
}
