//! Standardises rows as in the reference protocol, for every detector but the LMAP.

use crate::unit::Unit;

/// Values are clamped to ± this, so that no square of a difference overflows, as in the LMAP.
const LARGEST: f64 = 1e150;

/// Means and deviations of training.
#[derive(Clone, Debug)]
pub(super) struct Standard {
    mean: Vec<f64>,
    deviation: Vec<f64>,
    /// The row before, to repeat where a value is missing.
    held: Vec<f64>,
}

impl Standard {
    /// Fits to the training rows of `unit`, and returns them standardised, one after the other. A metric that did not
    /// move is divided by 1, so that its first change is visible.
    pub(super) fn fit(unit: &Unit) -> (Self, Vec<f64>) {
        let m = unit.metrics.len();
        let mut rows = unit.train.filled(None);
        for value in &mut rows {
            *value = value.clamp(-LARGEST, LARGEST);
        }
        let n = (rows.len() / m) as f64;
        let (mut mean, mut deviation) = (vec![0.0; m], vec![0.0; m]);
        for row in rows.chunks_exact(m) {
            mean.iter_mut().zip(row).for_each(|(mean, value)| *mean += value / n);
        }
        for row in rows.chunks_exact(m) {
            let moments = deviation.iter_mut().zip(&mean).zip(row);
            moments.for_each(|((sum, mean), value)| *sum += (value - mean) * (value - mean) / n);
        }
        for (deviation, mean) in deviation.iter_mut().zip(&mean) {
            let root = deviation.sqrt();
            *deviation = if root > 1e-9 * mean.abs().max(1.0) { root } else { 1.0 };
        }
        let held = rows.chunks_exact(m).last().unwrap_or(&mean).to_vec();
        let standard = Self { mean, deviation, held };
        rows.chunks_exact_mut(m).for_each(|row| standard.apply(row));
        (standard, rows)
    }

    fn apply(&self, row: &mut [f64]) {
        for ((value, mean), deviation) in row.iter_mut().zip(&self.mean).zip(&self.deviation) {
            *value = (*value - mean) / deviation;
        }
    }

    /// Standardises the next test row.
    pub(super) fn row(&mut self, row: &[f64]) -> Vec<f64> {
        for (held, value) in self.held.iter_mut().zip(row) {
            *held = if value.is_nan() { *held } else { value.clamp(-LARGEST, LARGEST) };
        }
        let mut out = self.held.clone();
        self.apply(&mut out);
        out
    }
}
