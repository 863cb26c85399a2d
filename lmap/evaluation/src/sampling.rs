//! Dynamic sampling of rows: how many samples it would send, and how much accuracy is lost (μView, Sec. 4.8.4 and Fig.
//! 4.7). Pure.
//!
//! | figure | meaning |
//! | --- | --- |
//! | θ | threshold on the score, as a share of γ (the detector's threshold): rows above it are sent |
//! | δ | dead band: a column is sent when it has moved by more than δ of its deviations since the last sample |
//! | share | samples of the dense series, of all samples |
//! | loss | 1 − NCC at lag 0: \|1 − Σ x h / Σ x²\| of original x and held value h, mean over varying columns |
//!
//! The sampler is that of the host agent. The receiver holds the last sample, of the dense series or of the baseline.

use hooks::sampling::{ColumnId, Row, RuleError, Sampler, SamplingPolicy, SamplingRule, Series, WidthError};
use hooks::time::UnixNanos;
use thiserror::Error;

/// Factor between two thresholds of a curve.
const STEP: f64 = 1.15;
/// The first threshold, in units of γ or of deviations.
const FIRST: f64 = 0.02;
/// Number of steps: thresholds up to 70.
const STEPS: i32 = 59;
/// The smallest budget, as a share of all samples.
const MIN_BUDGET: f64 = 0.005;

/// Why a curve cannot be computed.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum SamplingError {
    /// There is not one score per row: a mistake of the caller.
    #[error("{rows} rows have {scores} scores")]
    Scores {
        /// Number of rows.
        rows: usize,
        /// Number of scores.
        scores: usize,
    },
    /// Rows differ in width: a mistake of the caller.
    #[error(transparent)]
    Width(#[from] WidthError),
    /// The baseline's interval is invalid.
    #[error(transparent)]
    Rule(#[from] RuleError),
}

/// Rows to sample, with their scores and labels.
#[derive(Clone, Copy, Debug)]
pub struct Sampling<'a> {
    /// Rows in order, of the same width; NaN is a missing value.
    pub rows: &'a [&'a [f64]],
    /// Each row's score as a share of γ; NaN while the detector learns. Rows before the first score do not count.
    pub shares: &'a [f64],
    /// Seconds between rows.
    pub interval: f64,
    /// Rows that are labelled anomalous, if there are labels.
    pub anomalous: Option<&'a [bool]>,
}

/// The method that selects rows or samples to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SamplingMethod {
    /// Sends the whole row if its score is above θ, as published.
    Score,
    /// Sends a column that has moved by more than δ of its deviations since it was sent.
    DeadBand,
    /// The host agent's default: either of both, each adjusted to half of a budget, plus the rows before a score rose
    /// and after it fell.
    Either,
}

impl SamplingMethod {
    /// All methods, in table order.
    pub const ALL: [Self; 3] = [Self::Score, Self::DeadBand, Self::Either];

    /// The name of the method.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Score => "score",
            Self::DeadBand => "dead band",
            Self::Either => "either",
        }
    }

    /// The thresholds of a curve: θ in units of γ or δ in deviations, growing by [`STEP`]; or budgets, from all samples
    /// down.
    fn thresholds(self) -> impl Iterator<Item = f64> {
        (0..=STEPS).map(move |step| match self {
            Self::Score | Self::DeadBand => FIRST * STEP.powi(step),
            Self::Either => MIN_BUDGET.powf(f64::from(step) / f64::from(STEPS)),
        })
    }

    fn rule(self, threshold: f64) -> SamplingRule {
        let bare = SamplingRule { budget: None, hold_rows: 0, pre_trigger_rows: 0, ..SamplingRule::default() };
        match self {
            Self::Score => SamplingRule { policy: SamplingPolicy::Score { theta: threshold }, ..bare },
            Self::DeadBand => SamplingRule { policy: SamplingPolicy::DeadBand { delta: threshold }, ..bare },
            Self::Either => SamplingRule { budget: Some(threshold), ..SamplingRule::default() },
        }
    }
}

/// One point of a curve. All but the threshold are shares.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SamplingPoint {
    /// θ, δ, or the budget.
    pub threshold: f64,
    /// Samples of the dense series, of all samples.
    pub share: f64,
    /// Loss of accuracy.
    pub loss: f64,
    /// Rows labelled anomalous of which most samples were sent, of all of them; NaN without labels.
    pub anomalous: f64,
}

/// The curve of `by`, thresholds from 0.02 to 70, budgets from 1 to 0.005. Cost: 60 times rows × columns.
///
/// # Errors
///
/// [`SamplingError`]: a mistake of the caller.
pub fn curve(sampling: &Sampling<'_>, by: SamplingMethod) -> Result<Vec<SamplingPoint>, SamplingError> {
    let (rows, scores) = (sampling.rows.len(), sampling.shares.len());
    if rows != scores {
        return Err(SamplingError::Scores { rows, scores });
    }
    by.thresholds().map(|threshold| sampled(sampling, by, threshold)).collect()
}

/// The point of `curve` that sends the most, but at most `share`; `None` if all send more.
#[must_use]
pub fn within(curve: &[SamplingPoint], share: f64) -> Option<SamplingPoint> {
    let fitting = curve.iter().filter(|point| point.share <= share);
    fitting.max_by(|a, b| a.share.total_cmp(&b.share).then(b.loss.total_cmp(&a.loss))).copied()
}

/// The point of `curve` that sends the least and loses at most `loss`; `None` if all lose more.
#[must_use]
pub fn losing(curve: &[SamplingPoint], loss: f64) -> Option<SamplingPoint> {
    curve.iter().filter(|point| point.loss <= loss).min_by(|a, b| a.share.total_cmp(&b.share)).copied()
}

fn sampled(sampling: &Sampling<'_>, by: SamplingMethod, threshold: f64) -> Result<SamplingPoint, SamplingError> {
    let Sampling { rows, shares, .. } = *sampling;
    let width = rows.first().map_or(0, |row| row.len());
    let sent = sent(sampling, by.rule(threshold))?;
    let first = shares.iter().position(|share| !share.is_nan()).unwrap_or(rows.len());
    let mut losses = Vec::new();
    for column in 0..width {
        losses.extend(loss(sampling, &sent, column, first));
    }
    let present = |row: usize| rows[row].iter().filter(|value| !value.is_nan()).count();
    let dense = |row: usize| sent[row].iter().filter(|how| **how == Some(Series::Dense)).count();
    let total: usize = (first..rows.len()).map(present).sum();
    let handed: usize = (first..rows.len()).map(dense).sum();
    let labelled: Vec<usize> = sampling.anomalous.map_or_else(Vec::new, |anomalous| {
        (first..rows.len()).filter(|row| anomalous.get(*row).copied().unwrap_or(false)).collect()
    });
    let caught = labelled.iter().filter(|row| dense(**row) * 2 > present(**row)).count();

    Ok(SamplingPoint {
        threshold,
        share: handed as f64 / total.max(1) as f64,
        loss: losses.iter().sum::<f64>() / losses.len().max(1) as f64,
        anomalous: caught as f64 / labelled.len() as f64,
    })
}

/// By row and column, the series in which it was sent; the dense one if in both.
fn sent(sampling: &Sampling<'_>, rule: SamplingRule) -> Result<Vec<Vec<Option<Series>>>, SamplingError> {
    let width = sampling.rows.first().map_or(0, |row| row.len());
    let mut sampler = Sampler::new(rule)?;
    let ids: Vec<ColumnId> = (0..width as u64).map(ColumnId).collect();
    sampler.set_columns(&ids, UnixNanos(0), |_| {});
    let step = ((sampling.interval * 1e3).round() as u64).max(1);
    let mut sent = vec![vec![None; width]; sampling.rows.len()];
    for (number, (values, share)) in (0_u64..).zip(sampling.rows.iter().zip(sampling.shares)) {
        let at = UnixNanos((number + 1) * step * 1_000_000);
        let row = Row { at, values, score: Some(*share).filter(|share| !share.is_nan()) };
        sampler.row(&row, |sample| {
            // Rows from before a trigger arrive later than they were taken.
            let row = (sample.at_ms / step).saturating_sub(1) as usize;
            if let Some(how) = sent.get_mut(row).and_then(|row| row.get_mut(sample.column.0 as usize)) {
                *how = if sample.series == Series::Dense { Some(Series::Dense) } else { how.or(Some(sample.series)) };
            }
        })?;
    }
    Ok(sent)
}

/// The loss of one column from row `first` on; `None` if it does not vary there.
fn loss(sampling: &Sampling<'_>, sent: &[Vec<Option<Series>>], column: usize, first: usize) -> Option<f64> {
    let (mut held, mut along, mut own) = (f64::NAN, 0.0, 0.0);
    let (mut before, mut varies) = (f64::NAN, false);
    for (number, (row, sent)) in sampling.rows.iter().zip(sent).enumerate() {
        let value = row[column];
        if value.is_nan() {
            continue;
        }
        // The first value is always known: the baseline has it.
        if sent[column].is_some() || held.is_nan() {
            held = value;
        }
        if number >= first {
            varies |= !before.is_nan() && before != value;
            before = value;
            along += value * held;
            own += value * value;
        }
    }
    (varies && own > 0.0 && own.is_finite()).then(|| (1.0 - along / own).abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(values: &[f64]) -> Vec<&[f64]> {
        values.chunks_exact(2).collect()
    }

    #[test]
    fn a_row_above_the_threshold_is_sent_and_others_are_what_was_sent_before() {
        let values = [1.0, 5.0, 1.0, 5.0, 2.0, 5.0, 4.0, 5.0, 3.0, 5.0];
        let shares = [f64::NAN, 0.5, 0.3, 0.9, 0.2];
        let anomalous = [false, false, false, true, true];
        let sampling = Sampling { rows: &rows(&values), shares: &shares, interval: 1.0, anomalous: Some(&anomalous) };

        let found = sampled(&sampling, SamplingMethod::Score, 0.6).unwrap();

        // One row of four is sent. Held from the second row on: 1, 1, 4, 4; Σ x h = 1 + 2 + 16 + 12, Σ x² = 30.
        assert_eq!((found.share, found.anomalous), (0.25, 0.5));
        assert!((found.loss - 1.0 / 30.0).abs() < 1e-12, "{found:?}");
        let all = sampled(&sampling, SamplingMethod::Score, 0.1).unwrap();
        assert_eq!((all.share, all.loss), (1.0, 0.0));
    }

    #[test]
    fn a_curve_falls_from_everything_to_what_the_baseline_has() {
        let values: Vec<f64> = (0..400).map(|n| f64::from(n % 7) + f64::from(n % 3)).collect();
        let shares: Vec<f64> = (0..200).map(|n| f64::from(n % 10) / 5.0 + 0.03).collect();
        let sampling = Sampling { rows: &rows(&values), shares: &shares, interval: 1.0, anomalous: None };

        for by in SamplingMethod::ALL {
            let curve = curve(&sampling, by).unwrap();

            // A budget takes its time to be used up.
            let (most, least) = if by == SamplingMethod::Either { (0.7, 0.05) } else { (0.9, 0.01) };
            assert!(curve[0].share > most && curve[0].loss < least, "{by:?}: {:?}", curve[0]);
            // The first samples of a column are sent whatever δ is: nothing is known of its deviation.
            assert!(curve.last().unwrap().share <= 0.01, "{by:?}");
            let falls = curve.windows(2).all(|pair| pair[1].share <= pair[0].share);
            // A dead band that is a little wider may send at a worse moment.
            assert!(falls || by != SamplingMethod::Score, "{by:?}");
            assert!(curve.iter().all(|point| point.anomalous.is_nan()));
            let half = within(&curve, 0.5).unwrap();
            assert!(half.share <= 0.5);
            assert!(curve.iter().all(|point| point.share > 0.5 || point.share <= half.share));
            let close = losing(&curve, least).unwrap();
            assert!(close.loss <= least && curve.iter().all(|p| p.loss > least || p.share >= close.share));
        }
    }

    #[test]
    fn a_score_is_wanted_for_each_row() {
        let sampling = Sampling { rows: &rows(&[1.0, 2.0]), shares: &[], interval: 1.0, anomalous: None };

        assert_eq!(curve(&sampling, SamplingMethod::Score), Err(SamplingError::Scores { rows: 1, scores: 0 }));
    }
}
