//! The newest row and the one before, with missing values filled in.

use crate::aligned::Aligned;
use crate::counts::Counts;
use crate::kernels::prepare::CopyBounded;
use crate::kernels::widest;
use thiserror::Error;

/// Values are clamped to ± this, so that no square of a difference overflows.
const LARGEST: f64 = 1e150;

/// Why a row was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RowError {
    /// The row has another number of values than the detector has columns.
    #[error("the row has {found} values, {expected} are expected")]
    Length {
        /// Values in the row.
        found: usize,
        /// Columns of the detector.
        expected: usize,
    },
}

/// The current row and the one before. A missing value repeats the one before; it is NaN if there was none.
#[derive(Clone, Debug)]
pub(crate) struct Intake {
    current: Aligned,
    previous: Aligned,
    /// The current row is the first, or follows a gap: nothing has moved.
    restarted: bool,
    /// The next row is the first after a gap.
    after_gap: bool,
    empty: bool,
    /// Number of columns without any value so far.
    unknown: usize,
    /// How many values were forgotten so far.
    forgotten: u64,
}

impl Intake {
    pub(crate) fn new(columns: usize) -> Self {
        let mut nothing = Aligned::zeros(columns);
        nothing.fill(f64::NAN);
        Self {
            current: nothing.clone(),
            previous: nothing,
            restarted: true,
            after_gap: true,
            empty: true,
            unknown: columns,
            forgotten: 0,
        }
    }

    /// Takes the next row. Never allocates.
    pub(crate) fn take(&mut self, row: &[f64], counts: &mut Counts) -> Result<(), RowError> {
        if row.len() != self.current.len() {
            return Err(RowError::Length { found: row.len(), expected: self.current.len() });
        }
        std::mem::swap(&mut self.current, &mut self.previous);
        self.restarted = std::mem::take(&mut self.after_gap);
        counts.rows += 1;
        self.empty = false;
        self.unknown = 0;
        if !widest(CopyBounded { values: row, out: &mut self.current, limit: LARGEST }) {
            self.take_with_gaps(row, counts);
        }
        Ok(())
    }

    /// The slow path, for rows with a value that is missing or not finite.
    fn take_with_gaps(&mut self, row: &[f64], counts: &mut Counts) {
        let (mut missing, mut infinite) = (0, 0);
        for ((current, &previous), &value) in self.current.iter_mut().zip(self.previous.iter()).zip(row) {
            let there = value.is_finite();
            missing += u64::from(value.is_nan());
            infinite += u64::from(value.is_infinite());
            *current = if there { value.clamp(-LARGEST, LARGEST) } else { previous };
            self.unknown += usize::from(current.is_nan());
        }
        counts.missing += missing;
        counts.infinite += infinite;
        self.empty = missing + infinite == row.len() as u64;
        counts.empty_rows += u64::from(self.empty);
    }

    /// Forgets the value of a column: without a new one it is unknown.
    pub(crate) fn forget(&mut self, column: usize) {
        if let Some(value) = self.current.get_mut(column) {
            *value = f64::NAN;
            self.forgotten += 1;
        }
    }

    /// Whether the current row may have a column that was forgotten.
    pub(crate) fn has_forgotten(&self) -> bool {
        self.forgotten > 0 && self.unknown > 0
    }

    /// Announces that the next row does not follow the current one.
    pub(crate) fn gap(&mut self) {
        self.after_gap = true;
    }

    pub(crate) fn row(&self) -> &[f64] {
        &self.current
    }

    #[inline]
    pub(crate) fn value(&self, column: usize) -> f64 {
        self.current[column]
    }

    /// The value in the row before; the current value right after a gap, or if there was none.
    #[inline]
    pub(crate) fn before(&self, column: usize) -> f64 {
        let before = self.previous[column];
        if self.restarted || before.is_nan() { self.current[column] } else { before }
    }

    /// The columns without any value so far.
    pub(crate) fn unknown(&self) -> impl Iterator<Item = usize> {
        let columns = if self.unknown > 0 { &*self.current } else { &[] };
        columns.iter().enumerate().filter(|(_, value)| value.is_nan()).map(|(column, _)| column)
    }

    /// Whether every value of the current row was missing.
    pub(crate) fn is_empty(&self) -> bool {
        self.empty
    }

    /// Whether the current row is the first after a gap.
    #[inline]
    pub(crate) fn restarted(&self) -> bool {
        self.restarted
    }

    pub(crate) fn bytes(&self) -> usize {
        2 * size_of::<f64>() * self.current.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_value_repeats_the_one_before() {
        let (mut intake, mut counts) = (Intake::new(2), Counts::default());

        intake.take(&[1.0, f64::NAN], &mut counts).unwrap();
        intake.take(&[f64::INFINITY, 2.0], &mut counts).unwrap();

        assert_eq!(intake.row(), [1.0, 2.0]);
        assert_eq!((counts.missing, counts.infinite, counts.empty_rows), (1, 1, 0));
    }

    #[test]
    fn nothing_moves_across_a_gap() {
        let (mut intake, mut counts) = (Intake::new(1), Counts::default());
        intake.take(&[1.0], &mut counts).unwrap();
        intake.take(&[2.0], &mut counts).unwrap();
        assert_eq!(intake.value(0) - intake.before(0), 1.0);

        intake.gap();
        intake.take(&[9.0], &mut counts).unwrap();

        assert!(intake.restarted());
        assert_eq!(intake.value(0) - intake.before(0), 0.0);
    }
}
