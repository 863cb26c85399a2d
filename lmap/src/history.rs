//! The history of learnt rows (sketch and counts), and the variances of these rows under a new basis.
//!
//! A new basis needs its own variances: those of the old directions say nothing about the new ones. Where the spectrum
//! is flat, the basis turns at every decomposition, and rows scored with the V and T of the basis before raised
//! hundreds of alarms.
//!
//! # Source
//! Tᵢ = ‖S uᵢ‖² / n, Vⱼ = (Σ zⱼ² − Σᵢ Uⱼᵢ² ‖S uᵢ‖²) / n over the n rows learnt, where S is the sketch before δ is
//! subtracted. Σ zⱼ² is exact: the squares that the sketch forgets are counted per column. They are shared out by how
//! much of a column lies in the basis: Σⱼ Uⱼᵢ² of them belong to Tᵢ, the rest to Vⱼ. Counted as residual alone, they
//! left T too small where many directions have no load: with 60 metrics that follow two loads, one row in twenty was
//! over γ after 18,000 rows.
//!
//! # Guarantee
//! V and T are at least 0, and Σ V + Σ T is the mean ‖z‖² of the rows learnt, since the uᵢ are singular vectors of S,
//! and AᵀA − SᵀS is positive semidefinite (Ghashami, Liberty, Phillips, Woodruff 2016).

use crate::aligned::Aligned;
use crate::basis::Basis;
use crate::frequent_directions::{FrequentDirections, SketchError};
use crate::guard::{Block, Limit};
use crate::kernels::squares::{AddSquares, SubtractDirection};
use crate::kernels::widest;
use crate::lanes::{dot, padded};

/// The rows learnt so far: a sketch of them, and per column the squares that the sketch has forgotten.
#[derive(Clone, Debug)]
pub(crate) struct History {
    sketch: FrequentDirections,
    /// Rows of the sketch at its creation or last decomposition; later ones are new.
    known: usize,
    /// n: the number of rows learnt.
    rows: f64,
    /// Per column, the sum of squares that the sketch has forgotten. Padded.
    forgotten: Aligned,
    /// When it is decomposed although it is not full; `None`: never.
    stagger: Option<Stagger>,
}

/// Early decompositions, so that the detectors of a node do not all decompose at the same row.
#[derive(Clone, Copy, Debug)]
struct Stagger {
    /// Rows learnt since the stagger was set.
    learnt: usize,
    /// Numbers of learnt rows after which the sketch is decomposed.
    at: [usize; 2],
}

/// Variances under a basis.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Variances {
    /// V: the variance of each column's residual, padded.
    pub(crate) residual: Aligned,
    /// T: the variance along each direction.
    pub(crate) inside: Vec<f64>,
}

impl History {
    /// A history of exactly the padded `rows`, which were appended to `sketch`.
    pub(crate) fn of(sketch: FrequentDirections, rows: &[f64]) -> Self {
        let width = padded(sketch.columns());
        let all = squares(rows.chunks_exact(width), width);
        Self::restored(sketch, (rows.len() / width) as f64, &all)
    }

    /// A history of `rows` rows that `sketch` stands for; per column their squares add up to `squares`.
    pub(crate) fn restored(sketch: FrequentDirections, rows: f64, squares: &[f64]) -> Self {
        let mut forgotten = Aligned::zeros(padded(sketch.columns()));
        let kept = self::squares(sketch.padded_rows(), forgotten.len());
        for (forgotten, (all, kept)) in forgotten.iter_mut().zip(squares.iter().zip(kept.iter())) {
            *forgotten = (all - kept).max(0.0);
        }
        Self { known: sketch.used(), sketch, rows, forgotten, stagger: None }
    }

    pub(crate) fn sketch(&self) -> &FrequentDirections {
        &self.sketch
    }

    /// Schedules a decomposition after `rows` more rows, 1 to l + 1. If the sketch would be full before, it schedules
    /// another one earlier, so that sketches with different `rows` are not full at the same time.
    pub(crate) fn decompose_after(&mut self, rows: usize) {
        let before = 1 + rows.saturating_sub(1) % self.sketch.room().max(1);
        self.stagger = Some(Stagger { learnt: 0, at: [before, rows] });
    }

    /// Whether a decomposition is due.
    pub(crate) fn due(&self) -> bool {
        let stagger = self.stagger.is_some_and(|stagger| stagger.at.contains(&stagger.learnt));
        self.sketch.due() || (stagger && self.sketch.used() > self.known)
    }

    /// Learns a padded row; `false` if the sketch is full. Never decomposes, never allocates.
    pub(crate) fn push(&mut self, row: &[f64]) -> bool {
        let room = !self.sketch.is_full();
        if room {
            self.sketch.push(row);
            self.rows += 1.0;
            self.stagger = self.stagger.map(|stagger| Stagger { learnt: stagger.learnt.saturating_add(1), ..stagger });
        }
        room
    }

    /// Like [`shrink`](Self::shrink), but if the rows learnt since the last decomposition would raise a variance faster
    /// than `limit` allows, they get a smaller weight.
    pub(crate) fn shrink_within(&mut self, rank: usize, limit: Limit) -> Result<(Basis, Variances), SketchError> {
        let (before, known, forgotten) = (self.sketch.before_shrink(), self.known, self.forgotten.clone());
        let (basis, found) = self.shrink(rank)?;
        let (fresh, rows) = (self.sketch.rows_before(&before, known), self.rows);
        let sketch_rows = self.sketch.sketch_rows();
        let weight = limit.weight(&Block { fresh, rows, sketch_rows, basis: &basis, found: &found });
        if weight >= 1.0 {
            return Ok((basis, found));
        }
        self.sketch.undo_shrink(&before);
        (self.known, self.forgotten) = (known, forgotten);
        self.sketch.weigh_from(self.known, weight);
        self.rows -= (1.0 - weight) * (self.sketch.used() - self.known) as f64;
        self.shrink(rank)
    }

    /// Decomposes the sketch. Returns its first `rank` directions, and the variances of the rows learnt under them.
    pub(crate) fn shrink(&mut self, rank: usize) -> Result<(Basis, Variances), SketchError> {
        let (before, rows) = (self.kept(), self.sketch.used());
        let removed = self.sketch.removed();
        let basis = match self.sketch.shrink(rank) {
            Ok(basis) => basis,
            Err(error) => {
                // The sketch of a model may stand for fewer rows than it holds.
                self.rows = (self.rows - (rows - self.sketch.used()) as f64).max(0.0);
                return Err(error);
            }
        };
        self.known = self.sketch.used();
        let delta = self.sketch.removed() - removed;
        let variances = self.variances(&basis, &before, delta);
        let after = self.kept();
        for (forgotten, (before, after)) in self.forgotten.iter_mut().zip(before.iter().zip(after.iter())) {
            *forgotten += (before - after).max(0.0);
        }
        Ok((basis, variances))
    }

    /// Variances after a decomposition: the sketch's rows are its directions, with δ subtracted from each squared
    /// length. `before` holds the columns' squares before that.
    fn variances(&self, basis: &Basis, before: &Aligned, delta: f64) -> Variances {
        let mut residual = before.clone();
        let mut outside = Aligned::zeros(before.len());
        outside.fill(1.0);
        let mut rows = self.sketch.padded_rows();
        let inside = (0..basis.rank()).map(|index| {
            let direction = basis.direction(index);
            let left = rows.next().map_or(0.0, |row| dot(row, row));
            let along = (left + delta) * dot(direction, direction);
            let (residual, outside) = (&mut residual, &mut outside);
            let forgotten =
                widest(SubtractDirection { direction, along, forgotten: &self.forgotten, residual, outside });
            (along + forgotten) / self.rows
        });
        let inside = inside.collect();
        for (residual, (forgotten, outside)) in residual.iter_mut().zip(self.forgotten.iter().zip(outside.iter())) {
            *residual = (residual.max(0.0) + forgotten * outside.max(0.0)) / self.rows;
        }
        Variances { residual, inside }
    }

    /// Per column, the sum of squares of the sketch's rows.
    fn kept(&self) -> Aligned {
        squares(self.sketch.padded_rows(), padded(self.sketch.columns()))
    }

    pub(crate) fn bytes(&self) -> usize {
        self.sketch.bytes() + size_of::<f64>() * self.forgotten.len()
    }
}

/// Per column, the sum of squares of padded rows.
fn squares<'a>(rows: impl Iterator<Item = &'a [f64]>, width: usize) -> Aligned {
    let mut sums = Aligned::zeros(width);
    for row in rows {
        widest(AddSquares { row, sums: &mut sums });
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use crate::settings::SketchForm;

    /// `count` rows of `columns` columns, the first ones larger than the others.
    fn rows(count: usize, columns: usize) -> Vec<Vec<f64>> {
        let mut random = Random::new(3);
        let mut value = |column: usize| (random.unit() - 0.5) * 12_f64.sqrt() / (1.0 + column as f64 / 4.0);
        let mut row = || (0..padded(columns)).map(|at| if at < columns { value(at) } else { 0.0 }).collect();
        (0..count).map(|_| row()).collect()
    }

    fn fed(rows: &[Vec<f64>], columns: usize, sketch_rows: usize, rank: usize) -> (Basis, Variances) {
        let mut history =
            History::of(FrequentDirections::new(columns, sketch_rows, SketchForm::Buffered).unwrap(), &[]);
        for row in rows {
            if !history.push(row) {
                history.shrink(rank).unwrap();
                history.push(row);
            }
        }
        history.shrink(rank).unwrap()
    }

    #[test]
    fn where_the_sketch_forgets_nothing_the_variances_are_those_of_the_rows() {
        let rows = rows(500, 9);

        let (basis, found) = fed(&rows, 9, 25, 4);

        let coordinate = |row: &[f64], index: usize| dot(row, basis.direction(index));
        for (index, inside) in found.inside.iter().enumerate() {
            let mean = rows.iter().map(|row| coordinate(row, index).powi(2)).sum::<f64>() / 500.0;
            assert!((inside - mean).abs() <= 1e-10 * mean, "T of {index}: {inside}, expected {mean}");
        }
        for column in 0..9 {
            let made = |row: &[f64]| (0..4).map(|i| coordinate(row, i) * basis.direction(i)[column]).sum::<f64>();
            let mean = rows.iter().map(|row| (row[column] - made(row)).powi(2)).sum::<f64>() / 500.0;
            let found = found.residual[column];
            assert!((found - mean).abs() <= 1e-10, "V of {column}: {found}, expected {mean}");
        }
    }

    #[test]
    fn what_the_sketch_forgets_is_residual() {
        let rows = rows(3_000, 40);

        let (_, found) = fed(&rows, 40, 12, 6);

        let all: f64 = rows.iter().flatten().map(|value| value * value).sum::<f64>() / 3_000.0;
        let sum: f64 = found.residual.iter().chain(&found.inside).sum();
        assert!((sum - all).abs() <= 1e-9 * all, "{sum}, expected {all}");
        assert!(found.residual.iter().all(|value| *value >= 0.0));
        for (column, found) in found.residual[..40].iter().enumerate().skip(10) {
            let whole = (1.0 + column as f64 / 4.0).powi(-2); // six directions hold next to nothing of these
            assert!((found - whole).abs() < 0.1 * whole, "V of {column}: {found}, expected {whole}");
        }
    }
}
