//! A model as text and as JSON. Pure.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;

use lmap::{ColumnRole, ColumnSummary, ModelSummary, QUANTILES, ScoreForm, SketchForm};
use serde::Serialize;
use wire::quantity::number;

use crate::figures::{duration_ms, score};

/// The most metrics listed as text; JSON has all of them.
const LISTED: usize = 40;

/// A metric whose residual is below this share of its deviation counts as explained by the k directions.
const EXPLAINED_RESIDUAL: f64 = 0.05;

/// A model, and the known names of its metrics.
#[derive(Clone, Copy, Debug)]
pub struct ModelReport<'a> {
    /// The path of the model file.
    pub file: &'a Path,
    /// The content of the model.
    pub summary: &'a ModelSummary,
    /// Names of metrics by their fingerprints.
    pub names: &'a HashMap<u64, String>,
}

impl ModelReport<'_> {
    fn name(&self, column: &ColumnSummary) -> String {
        self.names.get(&column.fingerprint).cloned().unwrap_or_else(|| format!("#{:016x}", column.fingerprint))
    }

    fn count(&self, role: ColumnRole) -> usize {
        self.summary.columns.iter().filter(|column| column.role == role).count()
    }

    fn head(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let summary = self.summary;
        let (watched, constant) = (self.count(ColumnRole::Watched), self.count(ColumnRole::Constant));
        let unwatched = self.count(ColumnRole::Unwatched);
        let levels = summary.columns.iter().filter(|column| column.level).count();
        let every = summary.interval_ms.map_or_else(String::new, |ms| format!(", every {}", duration_ms(ms.into())));
        writeln!(
            f,
            "{}: a model of {} metrics, trained on {} rows{every}",
            self.file.display(),
            summary.columns.len(),
            summary.rows
        )?;
        writeln!(
            f,
            "  scores by {}; γ {} is the {} % percentile of the training scores",
            form(summary.score),
            score(summary.gamma),
            number(summary.percentile)
        )?;
        writeln!(
            f,
            "  k = {} directions of a sketch of l = {} rows ({})",
            summary.rank,
            summary.sketch_rows,
            sketch(summary.sketch)
        )?;
        writeln!(
            f,
            "  learns every {} row below γ, and each row above it with probability {}; smoothed over {} rows; values beyond {} deviations are damped",
            ordinal(summary.stride),
            number(summary.learning_rate),
            number(summary.smoothing_span),
            number(summary.clip)
        )?;
        writeln!(
            f,
            "  {watched} metrics vary, {constant} are constant, {unwatched} have no values; {levels} are scored by their increments"
        )?;
        write!(f, "  training scores:")?;
        for (percent, value) in QUANTILES.iter().zip(summary.quantiles) {
            if [50.0, 90.0, 99.0, 99.9, 100.0].contains(percent) {
                write!(f, "  {percent} % {}", score(value))?;
            }
        }
        writeln!(f)
    }

    fn columns(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = &self.summary.columns;
        let width = columns.iter().take(LISTED).map(|column| self.name(column).chars().count()).max().unwrap_or(0);
        writeln!(f, "\n  {:width$}  {:>11} {:>11}  role", "metric", "mean", "deviation")?;
        for column in columns.iter().take(LISTED) {
            let role = match column.role {
                ColumnRole::Constant => "constant: any move counts".to_owned(),
                ColumnRole::Unwatched => "no values".to_owned(),
                ColumnRole::Watched if column.residual < EXPLAINED_RESIDUAL => {
                    "explained by the k directions".to_owned()
                }
                ColumnRole::Watched => {
                    format!("{:.0} % of its deviation is outside of the k directions", 100.0 * column.residual)
                }
            };
            let level = if column.level { "; scored by its increment" } else { "" };
            writeln!(
                f,
                "  {:width$}  {:>11} {:>11}  {role}{level}",
                self.name(column),
                number(column.mean),
                number(column.deviation)
            )?;
        }
        if columns.len() > LISTED {
            writeln!(f, "  … and {} more; --json has all of them", columns.len() - LISTED)?;
        }
        if self.names.is_empty() {
            writeln!(f, "\n  a model has no names of metrics: pass --names FILE with a recording or CSV of them")?;
        }
        Ok(())
    }

    /// The model as JSON.
    #[must_use]
    pub fn view(&self) -> View {
        let summary = self.summary;
        let column = |column: &ColumnSummary| ColumnView {
            fingerprint: format!("{:016x}", column.fingerprint),
            name: self.names.get(&column.fingerprint).cloned(),
            role: match column.role {
                ColumnRole::Watched => "watched",
                ColumnRole::Constant => "constant",
                ColumnRole::Unwatched => "unwatched",
            },
            level: column.level,
            mean: column.mean,
            deviation: column.deviation,
            residual: column.residual,
        };
        View {
            file: self.file.display().to_string(),
            score: form(summary.score),
            gamma: summary.gamma,
            percentile: summary.percentile,
            rank: summary.rank,
            sketch_rows: summary.sketch_rows,
            sketch: sketch(summary.sketch),
            rows: summary.rows,
            interval_ms: summary.interval_ms,
            stride: summary.stride,
            learning_rate: summary.learning_rate,
            clip: summary.clip,
            smoothing_span: summary.smoothing_span,
            training_scores: QUANTILES.into_iter().zip(summary.quantiles).collect(),
            columns: summary.columns.iter().map(column).collect(),
        }
    }
}

impl fmt::Display for ModelReport<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.head(f)?;
        self.columns(f)
    }
}

/// What `--json` prints. Field names are part of the command's interface.
#[derive(Clone, Debug, Serialize)]
pub struct View {
    file: String,
    score: &'static str,
    gamma: f64,
    percentile: f64,
    rank: usize,
    sketch_rows: usize,
    sketch: &'static str,
    rows: usize,
    /// Null: the model does not say how far apart its rows were.
    interval_ms: Option<u32>,
    stride: u32,
    learning_rate: f64,
    clip: f64,
    smoothing_span: f64,
    /// Pairs of percentile and score.
    training_scores: Vec<(f64, f64)>,
    columns: Vec<ColumnView>,
}

#[derive(Clone, Debug, Serialize)]
struct ColumnView {
    fingerprint: String,
    name: Option<String>,
    role: &'static str,
    level: bool,
    mean: f64,
    deviation: f64,
    residual: f64,
}

fn form(form: ScoreForm) -> &'static str {
    match form {
        ScoreForm::Scaled => "scaled residuals and coordinates",
        ScoreForm::PaperAbsolute => "the paper's absolute form",
        ScoreForm::PaperRelative => "the paper's relative form",
    }
}

fn sketch(form: SketchForm) -> &'static str {
    match form {
        SketchForm::Buffered => "decomposed when it has 2l rows",
        SketchForm::RowWise => "decomposed at every row",
    }
}

fn ordinal(number: u32) -> String {
    match number {
        1 => "single".to_owned(),
        2 => "2nd".to_owned(),
        3 => "3rd".to_owned(),
        _ => format!("{number}th"),
    }
}
