//! The LMAP of this project, trained on all training rows at once; the paper's, on rows prepared as ours are.

use lmap::{Column, ColumnKind, Detector, Preparation, Reason, ScoreForm, Settings};

use super::peer::{prepare, prepared};
use super::{Candidate, RowScore, TrainError};
use crate::unit::Unit;

/// Decides which rows above γ are learnt. Fixed, so that evaluations are reproducible.
const SEED: u64 = 1;
/// Minimum and maximum rows of a fit (the bounds of [`Settings::warm_up_rows`]).
const MIN_ROWS: usize = 8;
const MAX_ROWS: usize = 100_000;

/// A detector that is fitted to the training rows, and learns every test row before the next.
#[derive(Debug)]
pub struct Lmap {
    detector: Detector,
    gamma: f64,
    reasons: Vec<Reason>,
}

impl Lmap {
    /// Fits once, to the training rows (the last 100,000 if there are more). The fit schedule in `settings` is ignored.
    ///
    /// # Errors
    ///
    /// [`TrainError`]: fewer than 8 rows, a setting out of range, or a fit that failed.
    pub fn train(unit: &Unit, settings: &Settings) -> Result<Self, TrainError> {
        let rows = unit.train.len().min(MAX_ROWS);
        if rows < MIN_ROWS {
            return Err(TrainError::Rows { found: rows, least: MIN_ROWS });
        }
        let settings = Settings {
            provisional_rows: None,
            warm_up_rows: rows,
            fit_again_rows: Vec::new(),
            settle_rows: 0,
            ..settings.clone()
        };
        let mut detector = Detector::new(unit.columns.clone(), settings, SEED)?;
        for (row, gap) in unit.train.iter().skip(unit.train.len() - rows) {
            let _ = judge(&mut detector, row, gap);
            learn(&mut detector);
        }
        let gamma = detector.gamma().ok_or(TrainError::NotFitted)?;
        Ok(Self { detector, gamma, reasons: Vec::new() })
    }

    /// The detector, for queries.
    #[must_use]
    pub fn detector(&self) -> &Detector {
        &self.detector
    }
}

fn judge(detector: &mut Detector, row: &[f64], gap: bool) -> RowScore {
    if gap {
        detector.gap();
    }
    let verdict = detector.score(row).expect("a unit's rows have one value per column");
    RowScore { score: verdict.score, own: verdict.raw, episode: Some(verdict.episode) }
}

/// Learns the last row; runs a job at once.
fn learn(detector: &mut Detector) {
    if let Some(job) = detector.learn() {
        let _ = detector.install(job.run()); // run in place: never stale; a refused fit leaves the detector without γ
    }
}

impl Candidate for Lmap {
    fn gamma(&self) -> f64 {
        self.gamma
    }

    fn step(&mut self, row: &[f64], gap: bool) -> RowScore {
        learn(&mut self.detector);
        judge(&mut self.detector, row, gap)
    }

    fn named(&mut self, top: usize) -> Vec<usize> {
        self.detector.explain(top, &mut self.reasons);
        self.reasons.iter().map(|reason| reason.column).collect()
    }
}

/// The paper's pipeline, absolute score, over rows that our preparation made.
#[derive(Debug)]
pub(super) struct PreparedPaper {
    preparation: Preparation,
    lmap: Lmap,
}

impl PreparedPaper {
    /// Prepares the training rows by `settings`, and fits the paper's pipeline to them.
    pub(super) fn train(unit: &Unit, settings: &Settings) -> Result<Self, TrainError> {
        let (preparation, train) = prepare(unit, settings);
        let column = Column { level: Some(false), ..Column::new(ColumnKind::Gauge, 0) };
        let unit = Unit { columns: vec![column; unit.columns.len()], train, ..unit.clone() };
        // The floor leaves rows as they are that have had it, and no training row is then as far out as the clip.
        let paper = Settings {
            deviation_floor: settings.deviation_floor,
            smoothing_span: settings.smoothing_span,
            ..Settings::paper(ScoreForm::PaperAbsolute)
        };
        Ok(Self { preparation, lmap: Lmap::train(&unit, &paper)? })
    }
}

impl Candidate for PreparedPaper {
    fn gamma(&self) -> f64 {
        self.lmap.gamma()
    }

    fn step(&mut self, row: &[f64], gap: bool) -> RowScore {
        self.lmap.step(&prepared(&mut self.preparation, row, gap), gap)
    }

    fn named(&mut self, top: usize) -> Vec<usize> {
        self.lmap.named(top)
    }
}
