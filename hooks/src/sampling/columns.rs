//! What was last sent of each column, and how much it usually moves.

/// Weight of a row in a column's mean and deviation, after the first hundred rows.
const WEIGHT: f64 = 0.01;

/// State of one column.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    /// The value that was sent densely last; NaN if none was.
    sent: f64,
    mean: f64,
    variance: f64,
    rows: u32,
    /// Whether the receiver has a baseline series of it, which has to be ended some day.
    pub(super) in_baseline: bool,
}

impl Column {
    pub(super) const NEW: Self = Self { sent: f64::NAN, mean: 0.0, variance: 0.0, rows: 0, in_baseline: false };

    pub(super) const fn in_dense(&self) -> bool {
        !self.sent.is_nan()
    }

    /// Whether `value` is more than `delta` standard deviations from the value that was sent last. A column that never
    /// moved has no deviation: then every change counts.
    pub(super) fn moved(&self, value: f64, delta: f64) -> bool {
        if self.sent.is_nan() {
            return true;
        }
        let within = (value - self.sent).abs() <= delta * self.variance.sqrt();
        // Equal infinities differ by NaN.
        value != self.sent && !within
    }

    pub(super) const fn send(&mut self, value: f64) {
        self.sent = value;
    }

    /// Learns a value with exponential forgetting (West 1979). Values that are not finite are ignored.
    pub(super) fn learn(&mut self, value: f64) {
        if !value.is_finite() {
            return;
        }
        self.rows = self.rows.saturating_add(1);
        let weight = WEIGHT.max(1.0 / f64::from(self.rows));
        let difference = value - self.mean;
        self.mean += weight * difference;
        let variance = (1.0 - weight) * (self.variance + weight * difference * difference);
        self.variance = if variance.is_finite() { variance } else { self.variance };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_has_moved_when_it_is_some_deviations_away() {
        let mut column = Column::NEW;
        (0..1_000).for_each(|n| column.learn(f64::from(n % 2) * 2.0));
        assert!(column.moved(1.0, 1.0));

        column.send(1.0);

        // The deviation is 1.
        assert!(!column.moved(1.9, 1.0));
        assert!(column.moved(2.1, 1.0));
        assert!(!column.moved(2.1, 2.0));
        assert!(column.moved(f64::INFINITY, 2.0));
    }

    #[test]
    fn a_column_that_stood_still_has_moved_when_it_moves_at_all() {
        let mut column = Column::NEW;
        (0..100).for_each(|_| column.learn(5.0));
        column.send(5.0);

        assert!(!column.moved(5.0, 3.0));
        assert!(column.moved(5.000_001, 3.0));
    }
}
