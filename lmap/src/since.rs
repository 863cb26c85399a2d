//! Since when a column stands out: an operator looks for what came first.
//!
//! Only rows that are unusual as a whole are looked at, and rows between them: a column that wanders off for a row on a quiet day is no
//! beginning. So a quiet row costs a comparison.

/// A column stands out from so many deviations on, of its own or of its residual.
const OUT: f64 = 3.0;
/// So many rows in sequence that are not unusual end a run.
const QUIET: u32 = 5;

/// The run of unusual rows that is on, if one is.
#[derive(Clone, Debug)]
pub(crate) struct Since {
    /// The row of the run with which each column first stood out, from 1; 0: it has not.
    first: Vec<u32>,
    /// Rows of the run so far; 0: none is on.
    rows: u32,
    quiet: u32,
}

impl Since {
    pub(crate) fn new(columns: usize) -> Self {
        Self { first: vec![0; columns], rows: 0, quiet: 0 }
    }

    /// The next row, unusual or not; `sizes` says how many deviations each column is off. Never allocates.
    pub(crate) fn step(&mut self, unusual: bool, sizes: impl Iterator<Item = f64>) {
        if !unusual {
            self.pass();
            return;
        }
        self.quiet = 0;
        self.rows = self.rows.saturating_add(1);
        for (first, size) in self.first.iter_mut().zip(sizes) {
            if *first == 0 && size >= OUT {
                *first = self.rows;
            }
        }
    }

    fn pass(&mut self) {
        if self.rows == 0 {
            return;
        }
        self.quiet += 1;
        self.rows = self.rows.saturating_add(1);
        if self.quiet == QUIET {
            self.first.fill(0);
            (self.rows, self.quiet) = (0, 0);
        }
    }

    /// Rows since `column` first stood out in this run; 0 for the newest row, or if it does not.
    pub(crate) fn rows(&self, column: usize) -> u32 {
        let first = self.first.get(column).copied().unwrap_or_default();
        if first == 0 { 0 } else { self.rows - first }
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of::<u32>() * self.first.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(since: &mut Since, unusual: bool, sizes: [f64; 2]) -> [u32; 2] {
        since.step(unusual, sizes.into_iter());
        [since.rows(0), since.rows(1)]
    }

    #[test]
    fn a_column_stands_out_since_it_first_did_in_this_run() {
        let mut since = Since::new(2);

        assert_eq!(step(&mut since, false, [9.0, 0.0]), [0, 0]);
        assert_eq!(step(&mut since, true, [3.0, 0.0]), [0, 0]);
        assert_eq!(step(&mut since, true, [5.0, 0.0]), [1, 0]);
        assert_eq!(step(&mut since, false, [0.0, 9.0]), [2, 0]);
        assert_eq!(step(&mut since, true, [1.0, 4.0]), [3, 0], "one row back to normal is no end");
        assert_eq!(step(&mut since, true, [4.0, 4.0]), [4, 1]);
    }

    #[test]
    fn five_quiet_rows_end_a_run() {
        let mut since = Since::new(2);
        step(&mut since, true, [9.0, 9.0]);
        for row in 1..=4 {
            assert_eq!(step(&mut since, false, [0.0, 0.0]), [row, row]);
        }

        assert_eq!(step(&mut since, false, [0.0, 0.0]), [0, 0]);
        assert_eq!(step(&mut since, true, [0.0, 9.0]), [0, 0]);
        assert_eq!(step(&mut since, true, [9.0, 9.0]), [0, 1]);
    }
}
