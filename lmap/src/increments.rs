//! Converts cumulative counters to increments per interval.

use crate::intake::RowError;

/// A cumulative value: it grows until its source restarts.
pub trait Cumulative: Copy {
    /// The increment since `before`; `None` if it is unknown, because of a reset or a value that is not a number.
    fn increment(self, before: Self) -> Option<f64>;
    /// Whether there is a value at all.
    fn present(self) -> bool;
}

impl Cumulative for u64 {
    fn increment(self, before: Self) -> Option<f64> {
        self.checked_sub(before).map(|added| added as f64) // in integers first: exact beyond 2^53
    }

    fn present(self) -> bool {
        true
    }
}

impl Cumulative for f64 {
    fn increment(self, before: Self) -> Option<f64> {
        let added = self - before;
        (added.is_finite() && added >= 0.0).then_some(added)
    }

    fn present(self) -> bool {
        self.is_finite()
    }
}

/// Converts the cumulative columns of one source (one replica) to increments. Use one per replica: the sum of
/// cumulative values over replicas falls when a replica stops; the sum of increments does not.
///
/// A reset, a gap, a missing value and the first row yield NaN, which a detector treats as missing: the interval is
/// skipped, so a restart does not look like a fault.
#[derive(Clone, Debug)]
pub struct Increments<T = u64> {
    before: Vec<Option<T>>,
    resets: u64,
}

impl<T: Cumulative> Increments<T> {
    /// For rows of `columns` cumulative values.
    #[must_use]
    pub fn new(columns: usize) -> Self {
        Self { before: vec![None; columns], resets: 0 }
    }

    /// Writes the increments since the row before into `out`. Never allocates.
    ///
    /// # Errors
    ///
    /// [`RowError::Length`] unless `raw` and `out` have as many values as there are columns; nothing is changed then.
    pub fn step(&mut self, raw: &[T], out: &mut [f64]) -> Result<(), RowError> {
        for found in [raw.len(), out.len()] {
            if found != self.before.len() {
                return Err(RowError::Length { found, expected: self.before.len() });
            }
        }
        for ((before, &now), out) in self.before.iter_mut().zip(raw).zip(out) {
            let increment = before.filter(|_| now.present()).map(|before| now.increment(before));
            self.resets += u64::from(increment == Some(None));
            *out = increment.flatten().unwrap_or(f64::NAN);
            *before = now.present().then_some(now);
        }
        Ok(())
    }

    /// Announces a gap: the next row yields no increments.
    pub fn gap(&mut self) {
        self.before.fill(None);
    }

    /// The number of counter resets: values below the one before.
    #[must_use]
    pub fn resets(&self) -> u64 {
        self.resets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step<T: Cumulative>(increments: &mut Increments<T>, raw: T) -> f64 {
        let mut out = [0.0];
        increments.step(&[raw], &mut out).unwrap();
        out[0]
    }

    #[test]
    fn the_first_row_a_reset_and_a_gap_yield_no_increment() {
        let mut counter = Increments::new(1);

        assert!(step(&mut counter, 10_u64).is_nan());
        assert_eq!(step(&mut counter, 15), 5.0);
        assert!(step(&mut counter, 3).is_nan());
        assert_eq!(step(&mut counter, 4), 1.0);
        counter.gap();
        assert!(step(&mut counter, 9).is_nan());
        assert_eq!(counter.resets(), 1);
    }

    #[test]
    fn large_counters_keep_every_unit() {
        let mut counter = Increments::new(1);

        assert!(step(&mut counter, u64::MAX - 1).is_nan());
        assert_eq!(step(&mut counter, u64::MAX), 1.0);
    }

    #[test]
    fn a_missing_value_hides_the_increment_after_it_too() {
        let mut counter = Increments::new(1);

        let seen: Vec<f64> = [1.0, f64::NAN, 5.0, 6.0].iter().map(|&raw| step(&mut counter, raw)).collect();

        assert!(seen[..3].iter().all(|x| x.is_nan()));
        assert_eq!(seen[3], 1.0);
        assert_eq!(counter.resets(), 0);
    }

    #[test]
    fn a_row_of_another_length_is_refused_and_changes_nothing() {
        let mut counter = Increments::new(1);
        assert!(step(&mut counter, 1_u64).is_nan());

        let error = counter.step(&[1, 2], &mut [0.0, 0.0]).unwrap_err();

        assert_eq!(error, RowError::Length { found: 2, expected: 1 });
        assert_eq!(step(&mut counter, 3), 2.0);
    }
}
