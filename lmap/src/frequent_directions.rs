//! Frequent Directions: a sketch of l rows that stands for all rows appended.
//!
//! # Source
//! E. Liberty 2013, "Simple and Deterministic Matrix Sketching"; M. Ghashami, E. Liberty, J. M. Phillips, D. P.
//! Woodruff 2016, "Frequent Directions: Simple and Deterministic Matrix Sketching". μView, Sec. 4.4.1, writes the
//! transpose.
//!
//! # Algorithm
//! Rows are appended until the sketch is full. Then it is decomposed, S = W Σ Vᵀ, and δ = σ_l² is subtracted from every
//! squared singular value: the new rows are √max(σᵢ² − δ, 0) vᵢᵀ, at most l − 1 of them.
//!
//! # Guarantee
//! For the matrix A of all rows appended, the sketch S, every unit vector u and every k < l:
//! 0 ≤ ‖A u‖² − ‖S u‖² ≤ Σδ ≤ ‖A − A_k‖_F² / (l − k), where Σδ is [`removed`](FrequentDirections::removed). Merging
//! preserves it.
//!
//! # Parameters
//! l rows; buffered (2l rows, decomposed when full) or row-wise (l rows, decomposed at every row).
//!
//! # Memory
//! 2l (buffered) or l (row-wise) rows of m values, padded to groups of eight.
//!
//! # Differences from the paper
//! Singular values are computed from the eigenvalues of the smaller Gram matrix, two to three times as fast as a thin
//! SVD. This squares the range: directions below 1e-6 of the largest singular value are dropped, so rows must be
//! clipped first.

use crate::aligned::Aligned;
use crate::basis::Basis;
use crate::eigen::{LeadingPairs, NotConverged, Symmetric, leading};
use crate::kernels::column_gram::ColumnGram;
use crate::kernels::gram::Gram;
use crate::kernels::rebuild::{Rebuild, Scale};
use crate::kernels::widest;
use crate::lanes::padded;
use crate::settings::SketchForm;
use thiserror::Error;

/// Eigenvalues below this share of the largest are rounding errors, and set to 0.
const NEGLIGIBLE: f64 = 1e-12;
/// A row that keeps less than this share of its square does not determine its direction: the rest is rounding error.
const NEAR_DELTA: f64 = 1e-6;
/// Values above this make squares overflow.
const LARGEST: f64 = 1e150;

/// Why a sketch cannot be created, or a row not appended.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum SketchError {
    /// Too few rows or columns.
    #[error("a sketch of {rows} rows and {columns} columns: at least 2 rows and 1 column are needed")]
    Shape {
        /// l: rows requested.
        rows: usize,
        /// m: columns requested.
        columns: usize,
    },
    /// The row, or the other sketch, has another number of columns.
    #[error("{found} columns, the sketch has {expected}")]
    Columns {
        /// Values in the row.
        found: usize,
        /// m: columns of the sketch.
        expected: usize,
    },
    /// A value is not finite, or above 1e150. Clip rows first.
    #[error("the value {value} of column {column} is not finite, or above 1e150")]
    Value {
        /// The column of the value.
        column: usize,
        /// The value found.
        value: f64,
    },
    /// The decomposition did not converge. The newest rows are dropped; the sketch stays usable.
    #[error("the decomposition of the sketch did not converge")]
    NotConverged,
}

impl From<NotConverged> for SketchError {
    fn from(_: NotConverged) -> Self {
        Self::NotConverged
    }
}

/// A sketch of all rows appended so far.
#[derive(Clone, Debug, PartialEq)]
pub struct FrequentDirections {
    form: SketchForm,
    columns: usize,
    width: usize,
    sketch_rows: usize,
    rows: Aligned,
    used: usize,
    /// The number of leading rows that are orthogonal to each other.
    orthogonal: usize,
    removed: f64,
}

/// The state of a sketch before a decomposition, to undo it.
#[derive(Clone, Debug)]
pub(crate) struct BeforeShrink {
    front: Vec<f64>,
    used: usize,
    orthogonal: usize,
    removed: f64,
}

impl FrequentDirections {
    /// An empty sketch of `sketch_rows` (l) rows and `columns` (m) columns.
    ///
    /// # Errors
    ///
    /// [`SketchError::Shape`] unless 1 < l and 0 < m.
    pub fn new(columns: usize, sketch_rows: usize, form: SketchForm) -> Result<Self, SketchError> {
        if !(1 < sketch_rows && 0 < columns) {
            return Err(SketchError::Shape { rows: sketch_rows, columns });
        }
        let width = padded(columns);
        let rows = Aligned::zeros(capacity(sketch_rows, form) * width);
        Ok(Self { form, columns, width, sketch_rows, rows, used: 0, orthogonal: 0, removed: 0.0 })
    }

    /// Appends a row of m values, and decomposes if the [`SketchForm`] requires it.
    ///
    /// # Errors
    ///
    /// [`SketchError::Columns`], [`SketchError::Value`]: the row is not appended. [`SketchError::NotConverged`].
    pub fn append(&mut self, row: &[f64]) -> Result<(), SketchError> {
        if row.len() != self.columns {
            return Err(SketchError::Columns { found: row.len(), expected: self.columns });
        }
        if let Some((column, &value)) = row.iter().enumerate().find(|(_, value)| !is_bounded(**value)) {
            return Err(SketchError::Value { column, value });
        }
        let start = self.used * self.width;
        self.rows[start..start + self.columns].copy_from_slice(row);
        self.rows[start + self.columns..start + self.width].fill(0.0);
        self.used += 1;
        if self.due() { self.shrink(0).map(drop) } else { Ok(()) }
    }

    /// Merges `other` into this sketch. The guarantee holds for the rows of both, with the sum of both Σδ and of what
    /// the merge removes.
    ///
    /// # Errors
    ///
    /// [`SketchError::Columns`] unless both have as many columns, [`SketchError::NotConverged`].
    pub fn merge(&mut self, other: &Self) -> Result<(), SketchError> {
        if other.columns != self.columns {
            return Err(SketchError::Columns { found: other.columns, expected: self.columns });
        }
        self.removed += other.removed;
        other.rows().try_for_each(|row| self.append(row))
    }

    /// Σδ: by how much ‖A u‖² may exceed ‖S u‖² for a unit vector u. At least 0, never falls.
    #[must_use]
    pub fn removed(&self) -> f64 {
        self.removed
    }

    /// The rows of the sketch S, m values each.
    pub fn rows(&self) -> impl Iterator<Item = &[f64]> {
        self.rows[..self.used * self.width].chunks_exact(self.width).map(|row| &row[..self.columns])
    }

    /// The rows of the sketch, padded.
    pub(crate) fn padded_rows(&self) -> impl Iterator<Item = &[f64]> {
        self.rows[..self.used * self.width].chunks_exact(self.width)
    }

    /// l: rows of the sketch.
    #[must_use]
    pub fn sketch_rows(&self) -> usize {
        self.sketch_rows
    }

    /// m: columns of the sketch.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Buffered or row-wise.
    #[must_use]
    pub fn form(&self) -> SketchForm {
        self.form
    }

    /// Appends a padded row of finite values, unless the sketch is full. Returns whether a decomposition is due. Never
    /// decomposes, never allocates.
    pub(crate) fn push(&mut self, row: &[f64]) -> bool {
        let start = self.used * self.width;
        if let Some(room) = self.rows.get_mut(start..start + self.width) {
            room.copy_from_slice(row);
            self.used += 1;
        }
        self.due()
    }

    /// The number of rows in use.
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// The number of free rows.
    pub(crate) fn room(&self) -> usize {
        capacity(self.sketch_rows, self.form) - self.used
    }

    /// The rows from `first` on as they were `before` the last [`shrink`](Self::shrink), padded: those that it has
    /// overwritten, and those that it has discarded but left in memory. Nothing must have changed the sketch since.
    pub(crate) fn rows_before<'a>(&'a self, before: &'a BeforeShrink, first: usize) -> [&'a [f64]; 2] {
        let (start, end, front) = (first * self.width, before.used * self.width, before.front.len());
        [&before.front[start.min(front)..], &self.rows[start.max(front)..end.max(front)]]
    }

    /// Scales the squares of the rows from `first` on, which are not orthogonal yet, by `weight`.
    pub(crate) fn weigh_from(&mut self, first: usize, weight: f64) {
        let range = first * self.width..self.used * self.width;
        widest(Scale { values: &mut self.rows[range], factor: weight.sqrt() });
    }

    /// Whether a decomposition is due.
    pub(crate) fn due(&self) -> bool {
        match self.form {
            SketchForm::Buffered => self.is_full(),
            SketchForm::RowWise => self.used > self.orthogonal || self.is_full(),
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.used == capacity(self.sketch_rows, self.form)
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of::<f64>() * self.rows.len()
    }

    /// Subtracts δ = σ_l² from every squared singular value, so that at most l − 1 rows remain, and returns the first
    /// `rank` directions. O(n² m + n³) for n rows.
    pub(crate) fn shrink(&mut self, rank: usize) -> Result<Basis, SketchError> {
        let keep = self.kept();
        let found = match self.decompose(self.sketch_rows, keep.max(rank)) {
            Ok(found) => found,
            Err(error) => {
                self.used = self.orthogonal;
                return Err(error.into());
            }
        };
        let delta = found.values.get(self.sketch_rows - 1).copied().unwrap_or(0.0);
        let lengths: Vec<f64> = found.values.iter().map(|value| (value - delta).max(0.0).sqrt()).collect();
        // Directions are rows divided by their lengths, unless a length is close to 0.
        let apart =
            (0..rank.min(found.values.len())).any(|at| lengths[at] * lengths[at] < NEAR_DELTA * found.values[at]);
        let basis = if apart || rank > keep { Some(self.clone().directions(&found, rank)) } else { None };
        self.mix(&found, &lengths, keep);
        self.used = keep;
        self.orthogonal = keep;
        self.removed += delta;
        Ok(basis.unwrap_or_else(|| self.divided(&lengths, rank)))
    }

    /// Saves the rows that a [`shrink`](Self::shrink) overwrites; the others stay in memory.
    pub(crate) fn before_shrink(&self) -> BeforeShrink {
        let Self { used, orthogonal, removed, .. } = *self;
        BeforeShrink { front: self.rows[..self.kept() * self.width].to_vec(), used, orthogonal, removed }
    }

    /// Undoes the only [`shrink`](Self::shrink) since `before` was saved.
    pub(crate) fn undo_shrink(&mut self, before: &BeforeShrink) {
        self.rows[..before.front.len()].copy_from_slice(&before.front);
        (self.used, self.orthogonal, self.removed) = (before.used, before.orthogonal, before.removed);
    }

    /// The number of rows after a [`shrink`](Self::shrink).
    fn kept(&self) -> usize {
        (self.sketch_rows - 1).min(self.used).min(self.columns)
    }

    /// The first `rank` directions of the sketch. The sketch does not change.
    pub(crate) fn basis(&self, rank: usize) -> Result<Basis, SketchError> {
        let found = self.decompose(rank, rank)?;
        Ok(self.clone().directions(&found, rank))
    }

    /// Restores a sketch from its rows of m values.
    pub(crate) fn restore(mut self, rows: &[f64], removed: f64) -> Self {
        for row in rows.chunks_exact(self.columns) {
            let start = self.used * self.width;
            self.rows[start..start + self.columns].copy_from_slice(row);
            self.used += 1;
        }
        self.removed = removed;
        if self.form == SketchForm::RowWise {
            self.orthogonal = self.used;
        }
        self
    }

    /// Up to `values` squared singular values, descending and 0 where negligible, and up to `vectors` singular vectors:
    /// left ones, or right ones if there are fewer columns than rows.
    fn decompose(&self, values: usize, vectors: usize) -> Result<LeadingPairs, NotConverged> {
        if self.used == 0 {
            return Ok(LeadingPairs { values: Vec::new(), vectors: Aligned::zeros(0), lanes: 0 });
        }
        let gram = if self.by_columns() { self.column_gram() } else { self.row_gram() };
        let mut found = leading(gram, values, vectors)?;
        let cut = NEGLIGIBLE * found.values[0];
        found.values.iter_mut().filter(|value| **value <= cut).for_each(|value| *value = 0.0);
        Ok(found)
    }

    fn by_columns(&self) -> bool {
        self.columns <= self.used
    }

    /// The first `count` rows become right singular vectors times `lengths`.
    fn mix(&mut self, found: &LeadingPairs, lengths: &[f64], count: usize) {
        let count = count.min(found.values.len());
        if self.by_columns() {
            // Column after column: a row at a time would read a value of each line of the vectors, and all of these for
            // each row.
            for (column, values) in found.vectors.chunks_exact(found.lanes).enumerate() {
                for (at, (length, value)) in lengths.iter().zip(values).take(count).enumerate() {
                    self.rows[at * self.width + column] = length * value;
                }
            }
            return;
        }
        let mut mix = found.vectors.clone();
        let mut factors = vec![0.0; found.lanes];
        for (factor, (value, length)) in factors.iter_mut().zip(found.values.iter().zip(lengths)).take(count) {
            *factor = if *value > 0.0 { length / value.sqrt() } else { 0.0 };
        }
        for row in mix.chunks_exact_mut(found.lanes.max(1)) {
            row.iter_mut().zip(&factors).for_each(|(value, factor)| *value *= factor);
        }
        widest(Rebuild {
            rows: &mut self.rows[..self.used * self.width],
            width: self.width,
            mix: &mix,
            stride: found.lanes,
            count,
            scratch: &mut Aligned::zeros(Rebuild::scratch(self.used)),
        });
    }

    /// The first `rank` directions, from a copy of the rows; zeros where there is none.
    fn directions(mut self, found: &LeadingPairs, rank: usize) -> Basis {
        let count = found.values.iter().take_while(|value| **value > 0.0).count().min(rank);
        self.mix(found, &vec![1.0; count], count);
        let mut out = Aligned::zeros(rank * self.width);
        out[..count * self.width].copy_from_slice(&self.rows[..count * self.width]);
        Basis::new(out, rank, self.columns)
    }

    /// The first `rank` rows divided by their lengths.
    fn divided(&self, lengths: &[f64], rank: usize) -> Basis {
        let mut out = Aligned::from(&self.rows[..rank * self.width]);
        let inverse = lengths.iter().map(|length| if *length > 0.0 { 1.0 / length } else { 0.0 });
        for (row, factor) in out.chunks_exact_mut(self.width).zip(inverse.chain(std::iter::repeat(0.0))) {
            widest(Scale { values: row, factor });
        }
        Basis::new(out, rank, self.columns)
    }

    /// B Bᵀ, n × n. The rows left by the decomposition before are orthogonal, their products known to be 0.
    fn row_gram(&self) -> Symmetric {
        let mut gram = Symmetric::new(self.used);
        let stride = gram.stride();
        let rows = &self.rows[..self.used * self.width];
        widest(Gram { rows, width: self.width, known: self.orthogonal, out: gram.values_mut(), stride });
        gram
    }

    /// Bᵀ B, m × m.
    fn column_gram(&self) -> Symmetric {
        let mut gram = Symmetric::new(self.columns);
        let rows = &self.rows[..self.used * self.width];
        widest(ColumnGram { rows, width: self.width, out: gram.values_mut() });
        gram
    }
}

/// Rows that a sketch of l = `sketch_rows` has room for.
pub(crate) fn capacity(sketch_rows: usize, form: SketchForm) -> usize {
    match form {
        SketchForm::Buffered => 2 * sketch_rows,
        SketchForm::RowWise => sketch_rows,
    }
}

fn is_bounded(value: f64) -> bool {
    value.abs() <= LARGEST
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lanes::padded_row;
    use crate::random::Random;

    /// By columns and by rows, with fewer rows than it keeps and with more, and new ones among those that are
    /// overwritten.
    #[test]
    fn what_a_decomposition_overwrites_can_be_put_back_and_the_rows_before_it_are_still_there() {
        for (columns, used) in [(3, 8), (9, 3), (9, 10), (40, 4), (40, 7), (40, 10)] {
            let mut random = Random::new(columns as u64);
            let mut sketch = FrequentDirections::new(columns, 5, SketchForm::Buffered).unwrap();
            for _ in 0..used {
                let row: Vec<f64> = (0..columns).map(|_| random.unit() - 0.5).collect();
                let _ = sketch.push(&padded_row(&row));
            }
            let whole = sketch.clone();

            let before = sketch.before_shrink();
            sketch.shrink(2).unwrap();

            assert_ne!(sketch, whole, "{columns} {used}");
            for first in 0..=used {
                let rows = sketch.rows_before(&before, first).concat();
                assert_eq!(rows, whole.rows[first * whole.width..used * whole.width], "{columns} {used} {first}");
            }
            sketch.undo_shrink(&before);
            assert_eq!(sketch, whole, "{columns} {used}");
        }
    }
}
