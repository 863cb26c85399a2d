//! A summary of a model, for people.

use super::Model;
use crate::quantile::QUANTILES;
use crate::settings::{ScoreForm, SketchForm};
use crate::standard::Role;

/// The role of a column in a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ColumnRole {
    /// Standardised, scored, learnt.
    Watched,
    /// Did not move in training: any move counts, however far.
    Constant,
    /// Had no values in training.
    Unwatched,
}

/// One column of a model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ColumnSummary {
    /// Identifies the column, see [`Column::fingerprint`](crate::Column::fingerprint).
    pub fingerprint: u64,
    /// Whether it is scored.
    pub role: ColumnRole,
    /// Whether it is judged by its increments.
    pub level: bool,
    /// Mean in training, in the column's unit; of its increments if it is a level.
    pub mean: f64,
    /// σ in training, likewise; 0 unless the column is watched.
    pub deviation: f64,
    /// Deviation of the residual, in units of σ: near 0 for a column that the k directions explain, alone or with
    /// others.
    pub residual: f64,
}

/// A model in numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelSummary {
    /// How scores are computed.
    pub score: ScoreForm,
    /// How often the sketch is decomposed.
    pub sketch: SketchForm,
    /// γ: the threshold of scores.
    pub gamma: f64,
    /// q: the percentile of training scores for γ.
    pub percentile: f64,
    /// k: directions of the basis.
    pub rank: usize,
    /// l: rows of the sketch.
    pub sketch_rows: usize,
    /// Number of rows in means and variances.
    pub rows: usize,
    /// Milliseconds between them, as far as the model says so.
    pub interval_ms: Option<u32>,
    /// Every n-th row is learnt.
    pub stride: u32,
    /// η: probability that a row above γ is learnt.
    pub learning_rate: f64,
    /// Soft clip: standardised values grow like a logarithm beyond this.
    pub clip: f64,
    /// Span of the smoothing, in rows.
    pub smoothing_span: f64,
    /// Scores of the training rows at [`QUANTILES`].
    pub quantiles: [f64; QUANTILES.len()],
    /// The columns, in the order of training.
    pub columns: Vec<ColumnSummary>,
}

impl Model {
    /// Summarises the model. O(m).
    #[must_use]
    pub fn summary(&self) -> ModelSummary {
        let column = |column: &super::ModelColumn| ColumnSummary {
            fingerprint: column.fingerprint,
            role: match column.role {
                Role::Watched => ColumnRole::Watched,
                Role::Constant => ColumnRole::Constant,
                Role::Unwatched => ColumnRole::Unwatched,
            },
            level: column.level,
            mean: column.mean,
            deviation: if column.inverse > 0.0 { 1.0 / column.inverse } else { 0.0 },
            residual: column.variance.sqrt(),
        };
        ModelSummary {
            score: self.rule.score,
            sketch: self.rule.sketch,
            gamma: self.gamma,
            percentile: self.rule.percentile,
            rank: self.rank,
            sketch_rows: self.sketch_rows,
            rows: self.averaged,
            interval_ms: self.interval_ms(),
            stride: self.rule.stride,
            learning_rate: self.rule.learning_rate,
            clip: self.rule.clip,
            smoothing_span: self.rule.smoothing_span,
            quantiles: self.quantiles,
            columns: self.columns.iter().map(column).collect(),
        }
    }
}
