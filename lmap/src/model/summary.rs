//! What a model holds, for people.

use super::Model;
use crate::quantile::QUANTILES;
use crate::settings::{ScoreForm, SketchForm};
use crate::standard::Role;

/// What a model makes of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ColumnRole {
    /// Standardised, scored, learnt.
    Watched,
    /// It stood still in training: that it moves counts, not how far.
    Constant,
    /// It was never there in training.
    Unwatched,
}

/// One column of a model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ColumnSummary {
    /// What the column is known by, see [`Column::fingerprint`](crate::Column::fingerprint).
    pub fingerprint: u64,
    /// What is made of it.
    pub role: ColumnRole,
    /// It is judged by its increments.
    pub level: bool,
    /// Of training, in the column's unit; of its increments if it is a level.
    pub mean: f64,
    /// σ of training, likewise; 0 unless the column is watched.
    pub deviation: f64,
    /// Deviation of what lies outside of the basis, in units of σ: near 0 for a column that the k directions hold, on its own or with others.
    pub residual: f64,
}

/// A model in numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelSummary {
    /// How a score is formed.
    pub score: ScoreForm,
    /// How often the sketch decomposes.
    pub sketch: SketchForm,
    /// γ.
    pub gamma: f64,
    /// q, of γ.
    pub percentile: f64,
    /// k.
    pub rank: usize,
    /// l.
    pub sketch_rows: usize,
    /// Rows in the averages.
    pub rows: usize,
    /// Every so manieth row is learnt.
    pub stride: u32,
    /// η.
    pub learning_rate: f64,
    /// Standardised values grow like a logarithm beyond this.
    pub clip: f64,
    /// Span of the smoothing, in rows.
    pub smoothing_span: f64,
    /// Scores of the training rows at [`QUANTILES`].
    pub quantiles: [f64; QUANTILES.len()],
    /// In the order of training.
    pub columns: Vec<ColumnSummary>,
}

impl Model {
    /// The model in numbers. O(m).
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
            stride: self.rule.stride,
            learning_rate: self.rule.learning_rate,
            clip: self.rule.clip,
            smoothing_span: self.rule.smoothing_span,
            quantiles: self.quantiles,
            columns: self.columns.iter().map(column).collect(),
        }
    }
}
