//! What the other columns let expect of those whose source is gone.
//!
//! *Source*: the square of a score is a quadratic form zᵀA z. Its minimum over the unknown columns, with the others
//! fixed, is their conditional mean in the model of the score. It is found by conjugate gradients (M. R. Hestenes,
//! E. Stiefel, 1952).
//! *Guarantee*: ends after at most [`ROUNDS`] scores. The first call allocates, later ones do not unless the rank
//! grows.
//! *Memory*: 40 bytes per column, for a detector of which a column was gone.

use crate::intake::Intake;
use crate::scorer::{Projection, Scorer};

/// Most scores for one row. A basis of k directions needs about k of them.
const ROUNDS: usize = 24;
/// The gradient is at its end at this share of its length before.
const EXACT: f64 = 1e-6;

/// Buffers for the expected values of unknown columns.
#[derive(Clone, Debug)]
pub(crate) struct Expectation {
    /// The unknown columns; the buffers up to `pulls` have an entry for each.
    columns: Vec<usize>,
    values: Vec<f64>,
    /// What the gradient is below 0.
    rest: Vec<f64>,
    direction: Vec<f64>,
    pulls: Vec<f64>,
    /// The standardised row.
    row: Vec<f64>,
}

impl Expectation {
    /// Buffers for a detector of so many `columns`.
    pub(crate) fn new(columns: usize) -> Self {
        let buffer = || Vec::with_capacity(columns);
        Self {
            columns: Vec::with_capacity(columns),
            values: buffer(),
            rest: buffer(),
            direction: buffer(),
            pulls: Vec::new(),
            row: Vec::new(),
        }
    }

    /// Gives the unknown columns of `projection`, which was scored with zeros for them, their expected values. Returns
    /// the square of the score with these. O(k² m).
    pub(crate) fn fill(&mut self, scorer: &Scorer, projection: &mut Projection, intake: &Intake) -> f64 {
        let Self { columns, values, rest, direction, pulls, row } = self;
        columns.clear();
        columns.extend(intake.unknown());
        row.clear();
        row.extend_from_slice(&projection.z);
        pulls.resize(scorer.basis.rank(), 0.0);
        values.clear();
        values.resize(columns.len(), 0.0);
        scorer.pulls(projection, pulls);
        rest.clear();
        rest.extend(columns.iter().map(|&column| -scorer.sensitivity(projection, pulls, column)));
        direction.clone_from(rest);
        let square = |of: &[f64]| of.iter().map(|value| value * value).sum::<f64>();
        let first = square(rest);
        let mut length = first;
        for _ in 0..ROUNDS {
            projection.z.fill(0.0);
            for (&column, &value) in columns.iter().zip(&*direction) {
                projection.z[column] = value;
            }
            let curvature = scorer.score(projection);
            let step = length / curvature;
            if !(step.is_finite() && length > first * EXACT * EXACT) {
                break;
            }
            scorer.pulls(projection, pulls);
            for (at, &column) in columns.iter().enumerate() {
                values[at] += step * direction[at];
                rest[at] -= step * scorer.sensitivity(projection, pulls, column);
            }
            let before = core::mem::replace(&mut length, square(rest));
            let share = length / before;
            for (direction, rest) in direction.iter_mut().zip(&*rest) {
                *direction = rest + share * *direction;
            }
        }
        projection.z.copy_from_slice(row);
        for (&column, &value) in columns.iter().zip(&*values) {
            projection.z[column] = value;
        }
        scorer.score(projection)
    }

    pub(crate) fn bytes(&self) -> usize {
        let floats = 3 * self.values.capacity() + self.pulls.capacity() + self.row.capacity();
        size_of::<Self>() + size_of::<usize>() * self.columns.capacity() + size_of::<f64>() * floats
    }
}
