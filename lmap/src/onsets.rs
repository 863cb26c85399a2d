//! Onsets: since when each column stands out. Operators look for what came first.
//!
//! Only runs of rows that are unusual as a whole count: a column that deviates for one row on a quiet day is no onset.
//! So a quiet row costs one comparison.

use crate::aligned::Narrow;
use crate::kernels::onsets::MarkOnsets;
use crate::kernels::widest;
use crate::lanes::padded_narrow;

/// A column stands out at this many deviations, its own or its residual's.
const OUT: f64 = 3.0;
/// Consecutive rows that are not unusual and end a run.
const QUIET: u32 = 5;

/// How far a row's columns deviate, padded.
pub(crate) struct Deviations<'a> {
    /// Their own deviations, divided by `length`.
    pub(crate) z: &'a [f64],
    pub(crate) length: f64,
    pub(crate) residual: &'a [f32],
    /// 1 / the residual's variance.
    pub(crate) weight: &'a [f32],
}

/// The current run of unusual rows, if there is one.
#[derive(Clone, Debug)]
pub(crate) struct Onsets {
    /// The row of the run at which each column first stood out, from 1; 0: it has not. Padded. Floats, for
    /// vectorisation: exact up to row 16,777,216.
    first: Narrow,
    /// Rows of the run so far; 0: no run.
    rows: u32,
    quiet: u32,
}

impl Onsets {
    pub(crate) fn new(columns: usize) -> Self {
        Self { first: Narrow::zeros(padded_narrow(columns)), rows: 0, quiet: 0 }
    }

    /// Processes the next row, unusual or not. Never allocates.
    pub(crate) fn step(&mut self, unusual: bool, row: &Deviations<'_>) {
        if !unusual {
            self.pass();
            return;
        }
        self.quiet = 0;
        self.rows = self.rows.saturating_add(1);
        widest(MarkOnsets {
            z: row.z,
            residual: row.residual,
            weight: row.weight,
            out: OUT / row.length,
            out_square: OUT * OUT,
            row: self.rows as f32,
            first: &mut self.first,
        });
    }

    /// Marks `column` as standing out in the newest row, which is unusual, whatever its deviation.
    pub(crate) fn begin(&mut self, column: u32) {
        let first = &mut self.first[column as usize];
        if *first == 0.0 {
            *first = self.rows as f32;
        }
    }

    fn pass(&mut self) {
        if self.rows == 0 {
            return;
        }
        self.quiet += 1;
        self.rows = self.rows.saturating_add(1);
        if self.quiet == QUIET {
            self.first.fill(0.0);
            (self.rows, self.quiet) = (0, 0);
        }
    }

    /// Rows since `column` first stood out in this run; 0 if that is the newest row, or if it does not stand out.
    pub(crate) fn rows(&self, column: usize) -> u32 {
        let first = self.first.get(column).copied().unwrap_or_default() as u32;
        if first == 0 { 0 } else { self.rows.saturating_sub(first) }
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of::<f32>() * self.first.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lanes::padded_row;

    fn step(since: &mut Onsets, unusual: bool, sizes: [f64; 2]) -> [u32; 2] {
        let (nothing, z) = ([0.0; 16], padded_row(&sizes));
        since.step(unusual, &Deviations { z: &z, length: 1.0, residual: &nothing, weight: &nothing });
        [since.rows(0), since.rows(1)]
    }

    #[test]
    fn a_column_stands_out_since_it_first_did_in_this_run() {
        let mut since = Onsets::new(2);

        assert_eq!(step(&mut since, false, [9.0, 0.0]), [0, 0]);
        assert_eq!(step(&mut since, true, [3.0, 0.0]), [0, 0]);
        assert_eq!(step(&mut since, true, [5.0, 0.0]), [1, 0]);
        assert_eq!(step(&mut since, false, [0.0, 9.0]), [2, 0]);
        assert_eq!(step(&mut since, true, [1.0, 4.0]), [3, 0], "one row back to normal is no end");
        assert_eq!(step(&mut since, true, [4.0, 4.0]), [4, 1]);
    }

    #[test]
    fn a_residual_a_divided_row_and_a_column_that_is_named_stand_out_as_well() {
        let mut since = Onsets::new(3);
        let narrow = |first: f32, second: f32| [[first, second].as_slice(), &[0.0; 14]].concat();
        let (z, residual, weight) = (padded_row(&[1.5, 1.4]), narrow(0.0, -0.5), narrow(1.0, 36.0));
        let row = |length| Deviations { z: &z, length, residual: &residual, weight: &weight };

        since.step(true, &row(1.0));
        since.step(true, &row(2.0));
        since.begin(2);
        since.begin(1);
        since.step(true, &row(1.0));

        assert_eq!([0, 1, 2].map(|column| since.rows(column)), [1, 2, 1]);
    }

    #[test]
    fn five_quiet_rows_end_a_run() {
        let mut since = Onsets::new(2);
        step(&mut since, true, [9.0, 9.0]);
        for row in 1..=4 {
            assert_eq!(step(&mut since, false, [0.0, 0.0]), [row, row]);
        }

        assert_eq!(step(&mut since, false, [0.0, 0.0]), [0, 0]);
        assert_eq!(step(&mut since, true, [0.0, 9.0]), [0, 0]);
        assert_eq!(step(&mut since, true, [9.0, 9.0]), [0, 1]);
    }
}
