//! Dynamic sampling: metrics are sent while the score exceeds a threshold; otherwise the receiver holds the last value
//! (Sec. 4.8.4, Fig. 4.7).
//!
//! Data saved: the share of rows not sent. Loss: |1 − NCC| at lag 0, NCC being Σ x h / Σ x² of the original x and the
//! held h, mean over the metrics that vary in the test rows. The absolute value, as in [`crate::sampling`]: a held
//! value that is too high must not make up for another that is too low. The chapter's *corr* may also mean the
//! covariance, of series less the mean of x: this is the centred loss.

use lmap::SketchForm;

use super::sweep::PaperForm;
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
    /// Loss of accuracy, |1 − NCC|.
    pub loss: f64,
    /// The same with the mean of the original subtracted from both series.
    pub centred: f64,
}

/// Points at the thresholds .05, .1, … .95 of the norm of the relative residual, and at one of its square.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplingCurve {
    /// The points of the curve.
    pub points: Vec<SamplingPoint>,
    /// At threshold .5 of the squared norm, which is what the chapter's text calls the score.
    pub squared: SamplingPoint,
}

/// The curve of `unit`, by the paper's form with this sketch.
///
/// # Errors
///
/// [`TrainError`] if the unit cannot be trained on.
pub fn curve(unit: &Unit, sketch: SketchForm) -> Result<SamplingCurve, TrainError> {
    let whole = unit;
    let unit = unit.without_constants();
    let form = PaperForm { sketch, rank: RANK, sketch_rows: SKETCH_ROWS, percentile: PERCENTILE };
    let course = protocol::run(&mut Lmap::train(&unit, &form.settings())?, &unit);
    let scores: Vec<f64> = course.judged.iter().map(|judged| judged.score).collect();
    let width = whole.metrics.len();
    let train = whole.train.filled(None);
    let values = whole.test.filled(train.len().checked_sub(width).map(|start| &train[start..]));
    let at = |threshold: f64| sampled(&scores, &values, width, threshold);
    Ok(SamplingCurve { points: (1..20).map(|step| at(f64::from(step) / 20.0)).collect(), squared: at(0.5_f64.sqrt()) })
}

/// The threshold with the smallest `loss` that saves at least `share`; `None` if there is none.
#[must_use]
pub fn saving(curve: &[SamplingPoint], share: f64, loss: fn(&SamplingPoint) -> f64) -> Option<SamplingPoint> {
    let enough = curve.iter().filter(|sampled| sampled.saved >= share);
    enough.min_by(|a, b| loss(a).total_cmp(&loss(b))).copied()
}

/// The point at `threshold`: of `values`, rows of `width`, those that score more are sent, and the first row.
fn sampled(scores: &[f64], values: &[f64], width: usize, threshold: f64) -> SamplingPoint {
    let sent: Vec<bool> = scores.iter().enumerate().map(|(row, score)| row == 0 || *score > threshold).collect();
    let losses: Vec<[f64; 2]> = (0..width)
        .filter_map(|column| {
            let original: Vec<f64> = values.iter().skip(column).step_by(width).copied().collect();
            losses(&original, &sent)
        })
        .collect();
    let mean = |which: usize| losses.iter().map(|loss| loss[which]).sum::<f64>() / losses.len().max(1) as f64;
    let count = sent.iter().filter(|sent| **sent).count();
    SamplingPoint { threshold, saved: 1.0 - count as f64 / sent.len().max(1) as f64, loss: mean(0), centred: mean(1) }
}

/// The loss of one metric and its centred loss; `None` if the metric does not vary.
fn losses(original: &[f64], sent: &[bool]) -> Option<[f64; 2]> {
    let mut held = f64::NAN;
    let held = original.iter().zip(sent).map(|(value, sent)| {
        held = if *sent { *value } else { held };
        held
    });
    let held: Vec<f64> = held.collect();
    let mean = original.iter().sum::<f64>() / original.len().max(1) as f64;
    let loss = |level: f64| {
        let pairs = original.iter().zip(&held).map(|(x, h)| (x - level, h - level));
        let (along, own) = pairs.fold((0.0, 0.0), |(along, own), (x, h)| (along + x * h, own + x * x));
        (own > 0.0 && own.is_finite()).then(|| (1.0 - along / own).abs())
    };
    let varies = original.windows(2).any(|pair| pair[0] != pair[1]);
    if varies { Some([loss(0.0)?, loss(mean)?]) } else { None }
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

        // Held: 1, 1, 4, 4; Σ x h = 1 + 2 + 16 + 12, Σ x² = 30. Less 2.5: 2.25 + 0.75 + 2.25 + 0.75 of 5.
        assert_eq!(found.saved, 0.5);
        assert!((found.loss - 1.0 / 30.0).abs() < 1e-12, "{found:?}");
        assert!((found.centred - 0.2).abs() < 1e-12, "{found:?}");
        let all = sampled(&[0.0, 0.6, 0.9, 0.7], &values, 2, 0.5);
        assert_eq!((all.saved, all.loss, all.centred), (0.0, 0.0, 0.0));
    }

    #[test]
    fn errors_of_two_metrics_do_not_cancel() {
        // Held: 2, 2 for 2, 1, an NCC of 6/5; and 1, 1 for 1, 2, an NCC of 3/5.
        let found = sampled(&[0.0, 0.2], &[2.0, 1.0, 1.0, 2.0], 2, 0.5);

        assert!((found.loss - 0.3).abs() < 1e-12, "{found:?}");
    }

    #[test]
    fn the_cheapest_threshold_that_saves_enough_is_found() {
        let at = |threshold: f64, loss: f64| SamplingPoint { threshold, saved: threshold, loss, centred: loss };
        let curve = [at(0.2, 0.0), at(0.5, 0.03), at(0.8, 0.2)];

        assert_eq!(saving(&curve, 0.4, |point| point.loss), Some(curve[1]));
        assert_eq!(saving(&curve, 0.9, |point| point.loss), None);
        assert!((straightness(&curve) - 1.0).abs() < 1e-12);
    }
}
