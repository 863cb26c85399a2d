//! The newest row and the one before, with missing values filled in.

use crate::aligned::Aligned;
use crate::counts::Counts;
use crate::kernels::prepare::AreBounded;
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

/// The current row and what is needed of the one before. A missing value repeats the one before; it is NaN if there was
/// none.
#[derive(Clone, Debug)]
pub(crate) struct Intake {
    current: Aligned,
    /// The row before, or its levels only: other values are of some earlier row then.
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

    /// Takes the next row. [`before`](Self::before) is right for `levels` only if these are given, and else for every
    /// column. With `levels`, the row takes the place of the one before: two rows that take turns need twice the room
    /// in caches, and only levels look back. Never allocates.
    pub(crate) fn take(&mut self, row: &[f64], levels: Option<&[u32]>, counts: &mut Counts) -> Result<(), RowError> {
        if row.len() != self.current.len() {
            return Err(RowError::Length { found: row.len(), expected: self.current.len() });
        }
        self.restarted = std::mem::take(&mut self.after_gap);
        counts.rows += 1;
        self.empty = false;
        self.unknown = 0;
        let is_whole = widest(AreBounded { values: row, limit: LARGEST });
        if let Some(levels) = levels {
            for &level in levels {
                self.previous[level as usize] = self.current[level as usize];
            }
        } else {
            std::mem::swap(&mut self.current, &mut self.previous);
            if !is_whole {
                self.current.copy_from_slice(&self.previous);
            }
        }
        if is_whole {
            self.current.copy_from_slice(row);
        } else {
            self.take_with_gaps(row, counts);
        }
        Ok(())
    }

    /// The slow path, for rows with a value that is missing or not finite: it stays as it was.
    fn take_with_gaps(&mut self, row: &[f64], counts: &mut Counts) {
        let (mut missing, mut infinite) = (0, 0);
        for (current, &value) in self.current.iter_mut().zip(row) {
            let there = value.is_finite();
            missing += u64::from(value.is_nan());
            infinite += u64::from(value.is_infinite());
            if there {
                *current = value.clamp(-LARGEST, LARGEST);
            }
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

    /// The value in the row before, of a column that was kept; the current value right after a gap, or if there was
    /// none.
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

        intake.take(&[1.0, f64::NAN], None, &mut counts).unwrap();
        intake.take(&[f64::INFINITY, 2.0], None, &mut counts).unwrap();

        assert_eq!(intake.row(), [1.0, 2.0]);
        assert_eq!((counts.missing, counts.infinite, counts.empty_rows), (1, 1, 0));
    }

    #[test]
    fn nothing_moves_across_a_gap() {
        let (mut intake, mut counts) = (Intake::new(1), Counts::default());
        intake.take(&[1.0], None, &mut counts).unwrap();
        intake.take(&[2.0], None, &mut counts).unwrap();
        assert_eq!(intake.value(0) - intake.before(0), 1.0);

        intake.gap();
        intake.take(&[9.0], None, &mut counts).unwrap();

        assert!(intake.restarted());
        assert_eq!(intake.value(0) - intake.before(0), 0.0);
    }

    /// What an intake answers after a row. Numbers are bits.
    #[derive(Debug, PartialEq)]
    struct Answers {
        values: Vec<u64>,
        level_before: u64,
        unknown: usize,
        is_empty: bool,
        counts: Counts,
    }

    /// What it answers after each of these rows of three columns, of which the second is a level. `in_place`: whether
    /// the row with this number takes the place of the one before. The last row but one follows a gap, and a column is
    /// forgotten before it.
    fn answers(in_place: impl Fn(usize) -> bool) -> Vec<Answers> {
        const LEVELS: &[u32] = &[1];
        let (nan, infinite) = (f64::NAN, f64::INFINITY);
        let rows = [[1.0, nan, 5.0], [nan, 10.0, 6.0], [2.0, 20.0, 7.0], [infinite, nan, 8.0], [nan; 3]];
        let rows = rows.into_iter().chain([[3.0, 30.0, nan], [4.0, 40.0, 2e150]]);
        let (mut intake, mut counts) = (Intake::new(3), Counts::default());
        let after_each = rows.enumerate().map(|(at, row)| {
            if at == 5 {
                intake.gap();
                intake.forget(2);
            }
            intake.take(&row, in_place(at).then_some(LEVELS), &mut counts).unwrap();
            Answers {
                values: intake.row().iter().map(|value| value.to_bits()).collect(),
                level_before: intake.before(1).to_bits(),
                unknown: intake.unknown().count(),
                is_empty: intake.is_empty(),
                counts,
            }
        });
        after_each.collect()
    }

    #[test]
    fn a_row_in_the_place_of_the_one_before_says_the_same_of_levels_and_of_gaps() {
        let by_turns = answers(|_| false);

        assert_eq!(by_turns[3].values, [2.0, 20.0, 8.0].map(f64::to_bits));
        assert_eq!([2, 3, 6].map(|at| f64::from_bits(by_turns[at].level_before)), [10.0, 20.0, 30.0]);
        assert_eq!((by_turns[4].is_empty, by_turns[5].unknown), (true, 1));
        assert_eq!(f64::from_bits(by_turns[6].values[2]), LARGEST);
        assert_eq!(answers(|_| true), by_turns);
        assert_eq!(answers(|at| at.is_multiple_of(2)), by_turns);
        assert_eq!(answers(|at| at > 2), by_turns);
    }
}
