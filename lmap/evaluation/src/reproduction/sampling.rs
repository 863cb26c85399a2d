//! Dynamic sampling: metrics are sent while the score exceeds a threshold; otherwise the receiver holds the last value
//! (Sec. 4.8.4, Fig. 4.7).
//!
//! Data saved: the share of rows not sent. Loss: 1 − NCC at lag 0, Σ x h / Σ x² of the original x and the held h, mean
//! over the metrics that vary in the test rows.

use super::sweep::settings;
use crate::candidate::{Lmap, TrainError};
use crate::protocol;
use crate::unit::Unit;

/// k and l of the paper, and q of γ, which only decides which rows are learnt.
const RANK: usize = 15;
const SKETCH_ROWS: usize = 25;
const PERCENTILE: f64 = 99.0;

/// One point of the curve. All shares.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SamplingPoint {
    /// The threshold on the relative score.
    pub threshold: f64,
    /// Share of rows not sent.
    pub saved: f64,
    /// Loss of accuracy, 1 − NCC.
    pub loss: f64,
}

/// The curve of thresholds .05, .1, … .95.
///
/// # Errors
///
/// [`TrainError`] if the unit cannot be trained on.
pub fn curve(unit: &Unit) -> Result<Vec<SamplingPoint>, TrainError> {
    let whole = unit;
    let unit = unit.without_constants();
    let course = protocol::run(&mut Lmap::train(&unit, &settings(RANK, SKETCH_ROWS, PERCENTILE))?, &unit);
    let scores: Vec<f64> = course.judged.iter().map(|judged| judged.score).collect();
    let width = whole.metrics.len();
    let train = whole.train.filled(None);
    let values = whole.test.filled(train.len().checked_sub(width).map(|start| &train[start..]));
    Ok((1..20).map(|step| sampled(&scores, &values, width, f64::from(step) / 20.0)).collect())
}

/// The threshold with the smallest loss that saves at least `share`; `None` if there is none.
#[must_use]
pub fn saving(curve: &[SamplingPoint], share: f64) -> Option<SamplingPoint> {
    let enough = curve.iter().filter(|sampled| sampled.saved >= share);
    enough.min_by(|a, b| a.loss.total_cmp(&b.loss)).copied()
}

/// The point at `threshold`: of `values`, rows of `width`, those that score more are sent, and the first row.
fn sampled(scores: &[f64], values: &[f64], width: usize, threshold: f64) -> SamplingPoint {
    let sent: Vec<bool> = scores.iter().enumerate().map(|(row, score)| row == 0 || *score > threshold).collect();
    let mut losses = Vec::new();
    for column in 0..width {
        let original = values.iter().skip(column).step_by(width);
        let (mut held, mut along, mut own, mut varies) = (f64::NAN, 0.0, 0.0, false);
        let mut before: Option<f64> = None;
        for (value, sent) in original.zip(&sent) {
            held = if *sent { *value } else { held };
            varies |= before.replace(*value).is_some_and(|before| before != *value);
            along += value * held;
            own += value * value;
        }
        if varies && own > 0.0 && own.is_finite() {
            losses.push(1.0 - along / own);
        }
    }
    let count = sent.iter().filter(|sent| **sent).count();
    SamplingPoint {
        threshold,
        saved: 1.0 - count as f64 / sent.len().max(1) as f64,
        loss: losses.iter().sum::<f64>() / losses.len().max(1) as f64,
    }
}

/// How well a straight line describes what is saved over the thresholds: R².
#[must_use]
pub fn straightness(curve: &[SamplingPoint]) -> f64 {
    let n = curve.len().max(1) as f64;
    let mean = |figure: fn(&SamplingPoint) -> f64| curve.iter().map(figure).sum::<f64>() / n;
    let (x, y) = (mean(|s| s.threshold), mean(|s| s.saved));
    let sum = |figure: &dyn Fn(&SamplingPoint) -> f64| curve.iter().map(figure).sum::<f64>();
    let both = sum(&|s| (s.threshold - x) * (s.saved - y));
    let (own, other) = (sum(&|s| (s.threshold - x).powi(2)), sum(&|s| (s.saved - y).powi(2)));
    if own * other > 0.0 { both * both / (own * other) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_sent_above_the_threshold_and_held_below() {
        // Two metrics; the second stands still and says nothing.
        let values = [1.0, 5.0, 2.0, 5.0, 4.0, 5.0, 3.0, 5.0];

        let found = sampled(&[0.0, 0.3, 0.9, 0.2], &values, 2, 0.5);

        // Held: 1, 1, 4, 4; Σ x h = 1 + 2 + 16 + 12, Σ x² = 30.
        assert_eq!(found.saved, 0.5);
        assert!((found.loss - (1.0 - 31.0 / 30.0)).abs() < 1e-12, "{found:?}");
        assert_eq!(
            sampled(&[0.0, 0.6, 0.9, 0.7], &values, 2, 0.5),
            SamplingPoint { threshold: 0.5, saved: 0.0, loss: 0.0 }
        );
    }

    #[test]
    fn the_cheapest_threshold_that_saves_enough_is_found() {
        let at = |threshold: f64, loss: f64| SamplingPoint { threshold, saved: threshold, loss };
        let curve = [at(0.2, 0.0), at(0.5, 0.03), at(0.8, 0.2)];

        assert_eq!(saving(&curve, 0.4), Some(curve[1]));
        assert_eq!(saving(&curve, 0.9), None);
        assert!((straightness(&curve) - 1.0).abs() < 1e-12);
    }
}
