//! The scores of a run over time: by the NIC agent during the run, and by the paper's form afterwards.

use std::collections::BTreeMap;

use demo::autoscale::AutoscaleRecord;
use evaluation::reproduction::sweep::PaperForm;
use lmap::{Column, ColumnKind, Detector, DetectorError, Episode, Reason, Settings, SketchForm};

/// The chapter's k, l and q.
const FORM: PaperForm = PaperForm { sketch: SketchForm::RowWise, rank: 12, sketch_rows: 50, percentile: 99.9 };
/// The number of metrics that the chapter names for a score.
const TOP: usize = 3;
/// Metrics are named for scores of at least this share of γ: what is lower is no spike.
pub const MIN_SPIKE: f64 = 0.5;

/// Scores over time, as multiples of γ, and when alarms were on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timeline {
    /// Pairs of time in seconds and score / γ.
    pub ratios: Vec<(f64, f64)>,
    /// Begin and end of each alarm by our episode rule, in seconds.
    pub alarms: Vec<(f64, f64)>,
    /// The named metrics with their times: by the agent the first of each verdict that it reported, by the paper's form
    /// the first three of each row from [`MIN_SPIKE`] on.
    pub named: Vec<(f64, String)>,
}

impl Timeline {
    fn within(&self, from: f64, to: f64) -> impl Iterator<Item = f64> {
        self.ratios.iter().filter(move |(at, _)| *at >= from && *at < to).map(|(_, ratio)| *ratio)
    }

    /// The highest score / γ within these seconds; 0 without rows.
    #[must_use]
    pub fn highest(&self, from: f64, to: f64) -> f64 {
        self.within(from, to).fold(0.0, f64::max)
    }

    /// The mean score / γ within these seconds; 0 without rows.
    #[must_use]
    pub fn mean(&self, from: f64, to: f64) -> f64 {
        let (sum, count) = self.within(from, to).fold((0.0, 0), |(sum, count), ratio| (sum + ratio, count + 1));
        sum / f64::from(count.max(1))
    }

    /// Whether an alarm by our episode rule was on within these seconds.
    #[must_use]
    pub fn alarm_within(&self, from: f64, to: f64) -> bool {
        self.alarms.iter().any(|(began, ended)| *began < to && *ended >= from)
    }

    /// The metric that was named most often within these seconds; `None` if none was.
    #[must_use]
    pub fn most_named(&self, from: f64, to: f64) -> Option<&str> {
        let mut counts = BTreeMap::new();
        for (_, name) in self.named.iter().filter(|(at, _)| *at >= from && *at < to) {
            *counts.entry(name.as_str()).or_insert(0_u32) += 1;
        }
        counts.into_iter().max_by_key(|(_, count)| *count).map(|(name, _)| name)
    }
}

/// The scores and alarms of the NIC agent during the run.
#[must_use]
pub fn live(run: &AutoscaleRecord) -> Timeline {
    let end = run.rows.last().map_or(0.0, |row| row.at_s);
    let judged = run.rows.iter().filter(|row| row.gamma > 0.0);
    let named = run.named.iter().chain(run.alarms.iter().flat_map(|alarm| &alarm.named));
    Timeline {
        ratios: judged.map(|row| (row.at_s, row.score / row.gamma)).collect(),
        alarms: run.alarms.iter().map(|alarm| (alarm.began_s, alarm.ended_s.unwrap_or(end))).collect(),
        named: named.map(|(at, name, _)| (*at, name.clone())).collect(),
    }
}

/// The scores of the paper's form on the same rows, trained on the stationary ones.
///
/// # Errors
///
/// [`DetectorError`] if there are no rows to train on.
pub fn paper(run: &AutoscaleRecord) -> Result<Timeline, DetectorError> {
    let still = run.rows.iter().take_while(|row| row.at_s < run.grows_from_s).count();
    let columns = moving(run, still);
    let specs = columns.iter().map(|column| Column::new(ColumnKind::Gauge, *column as u64)).collect();
    let settings =
        Settings { provisional_rows: None, warm_up_rows: still.max(8), fit_again_rows: Vec::new(), ..FORM.settings() };
    let mut detector = Detector::new(specs, settings, 1)?;
    let (mut timeline, mut reasons) = (Timeline::default(), Vec::new());
    for row in &run.rows {
        let values: Vec<f64> =
            columns.iter().map(|column| row.values.get(*column).copied().unwrap_or(f64::NAN)).collect();
        let Ok(verdict) = detector.score(&values) else { continue };
        if let Some(gamma) = verdict.gamma {
            let ratio = verdict.score / gamma;
            timeline.ratios.push((row.at_s, ratio));
            detector.explain(if ratio < MIN_SPIKE { 0 } else { TOP }, &mut reasons);
            let named = |reason: &Reason| Some((row.at_s, run.columns.get(*columns.get(reason.column)?)?.clone()));
            timeline.named.extend(reasons.iter().filter_map(named));
        }
        match verdict.episode {
            Episode::Began => timeline.alarms.push((row.at_s, row.at_s)),
            Episode::On | Episode::Ended => {
                if let Some(alarm) = timeline.alarms.last_mut() {
                    alarm.1 = row.at_s;
                }
            }
            Episode::Quiet => {}
        }
        if let Some(job) = detector.learn() {
            let _ = detector.install(job.run()); // run in place: never stale
        }
    }
    Ok(timeline)
}

/// The columns that move in the first `still` rows.
fn moving(run: &AutoscaleRecord, still: usize) -> Vec<usize> {
    let moves = |column: &usize| {
        let mut values = run.rows.iter().take(still).filter_map(|row| row.values.get(*column));
        let first = values.next();
        values.any(|value| Some(value) != first && !value.is_nan())
    };
    (0..run.columns.len()).filter(moves).collect()
}
