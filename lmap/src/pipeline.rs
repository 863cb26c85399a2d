//! What one fit yields, and how it judges a row.

use crate::frequent_directions::FrequentDirections;
use crate::intake::Intake;
use crate::quantile::QUANTILES;
use crate::scorer::{Scorer, Split};
use crate::standard::{Role, Standard};

/// A constant that moves by more than this has moved.
const MOVED: f64 = 1e-9;

/// What moving constants count for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ConstantRule {
    /// Deviations per column.
    pub(crate) weight: f64,
    /// At most so many count.
    pub(crate) counted: u32,
}

impl ConstantRule {
    /// What `moved` columns add to the square of a score.
    pub(crate) fn square(self, moved: u32) -> f64 {
        self.weight * self.weight * f64::from(moved.min(self.counted))
    }
}

/// A fitted pipeline with the row that it judged last.
#[derive(Clone, Debug)]
pub(crate) struct Pipeline {
    pub(crate) standard: Standard,
    pub(crate) levels: Vec<u32>,
    pub(crate) constants: Vec<u32>,
    pub(crate) constant_rule: ConstantRule,
    pub(crate) scorer: Scorer,
    /// Away while its decomposition is out.
    pub(crate) sketch: Option<FrequentDirections>,
    pub(crate) sketch_rows: usize,
    pub(crate) gamma: f64,
    /// Rows in the averages.
    pub(crate) averaged: usize,
    /// Percentiles of the training scores, at [`QUANTILES`].
    pub(crate) quantiles: [f64; QUANTILES.len()],
    pub(crate) split: Split,
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
        let square = self.scorer.score(&mut self.split);
        let moved = self.constants.iter().filter(|&&column| has_moved(intake, column)).count() as u32;
        self.moved = moved;
        // Bounded z, basis and variances keep squares finite; min() also turns a NaN that got past them into a score.
        let root = |square: f64| square.sqrt().min(f64::MAX);
        Raw { score: root(square + self.constant_rule.square(moved)), gate: root(square) }
    }

    /// Means and variances go on averaging over the row judged last, until `limit` rows are in them.
    pub(crate) fn grow(&mut self, limit: usize) {
        if self.averaged >= limit {
            return;
        }
        self.averaged += 1;
        let share = 1.0 / self.averaged as f64;
        let Standard { mean, inverse, .. } = &mut self.standard;
        for ((mean, inverse), z) in mean.iter_mut().zip(inverse.iter()).zip(&self.split.z) {
            if *inverse > 0.0 {
                *mean += share * z * self.split.length / inverse;
            }
        }
        self.scorer.average(&self.split, share);
    }

    /// The constants that moved in the row judged last.
    pub(crate) fn moved_constants<'a>(&'a self, intake: &'a Intake) -> impl Iterator<Item = usize> + 'a {
        self.constants.iter().filter(|&&column| has_moved(intake, column)).map(|&column| column as usize)
    }

    pub(crate) fn unwatched(&self) -> impl Iterator<Item = usize> {
        let roles = self.standard.roles.iter().enumerate();
        roles.filter(|(_, role)| **role == Role::Unwatched).map(|(column, _)| column)
    }

    pub(crate) fn bytes(&self) -> usize {
        let lists = size_of::<u32>() * (self.levels.len() + self.constants.len());
        let sketch = self.sketch.as_ref().map_or(0, FrequentDirections::bytes);
        self.standard.bytes() + lists + self.scorer.bytes() + sketch + self.split.bytes()
    }
}

fn has_moved(intake: &Intake, column: u32) -> bool {
    let column = column as usize;
    (intake.value(column) - intake.before(column)).abs() > MOVED
}
