//! The model file: a fitted pipeline as bytes.
//!
//! Layout, little-endian: magic (8 bytes), version (u32), length of the payload (u32), CRC-32 of the payload (u32),
//! payload. A file with another version, length or checksum is rejected. Sizes are checked before anything is
//! allocated. Every number must be finite and in the range that a fit can produce, so no file can make a score
//! infinite.

mod codec;
mod merge;
mod summary;

pub use merge::MergeError;
pub(crate) use merge::{Moments, Term};
pub use summary::{ColumnRole, ColumnSummary, ModelSummary};

use crate::aligned::Aligned;
use crate::basis::Basis;
use crate::column::{Column, ColumnKind};
use crate::constants::{Constant, ConstantRule};
use crate::estimates::estimates;
use crate::frequent_directions::FrequentDirections;
use crate::groups::Groups;
use crate::history::History;
use crate::lanes::padded_row;
use crate::latch::Latches;
use crate::long_rows::LongRows;
use crate::onsets::Onsets;
use crate::pipeline::Pipeline;
use crate::pools::Pools;
use crate::quantile::QUANTILES;
use crate::scorer::{MIN_VARIANCE, Projection, Scorer};
use crate::settings::{ScoreForm, Settings, SketchForm};
use crate::standard::{Role, Standard};
use crate::verdict::DetectorError;
use thiserror::Error;

/// Why bytes are not a valid model, or a model does not fit the columns.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The bytes do not begin as a model.
    #[error("not a model file")]
    Magic,
    /// Written by another release. Train again, or use that release.
    #[error("the model is of version {found}, this release reads version {expected}")]
    Version {
        /// The version in the file.
        found: u32,
        /// The version that this release reads.
        expected: u32,
    },
    /// The file is too short or too long.
    #[error("the model has {found} bytes, {expected} are expected")]
    Length {
        /// Length found, in bytes.
        found: usize,
        /// Length expected, in bytes.
        expected: usize,
    },
    /// The file is damaged.
    #[error("the model's checksum is {found:08x}, {expected:08x} is expected")]
    Checksum {
        /// Computed from the bytes.
        found: u32,
        /// Stored in the file.
        expected: u32,
    },
    /// A number is outside the range that a fit can produce.
    #[error("the model's field {field} is {found}, which no fit produces")]
    Value {
        /// The name of the field.
        field: &'static str,
        /// The value found.
        found: f64,
    },
    /// None of the columns is in the model: it is probably of another service.
    #[error("none of {columns} columns is among the {known} of the model")]
    Columns {
        /// Columns of the caller.
        columns: usize,
        /// Columns of the model.
        known: usize,
    },
    /// The caller's columns or settings are invalid.
    #[error("the model cannot be used")]
    Detector(#[from] DetectorError),
}

/// One column of a model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ModelColumn {
    pub(crate) fingerprint: u64,
    pub(crate) role: Role,
    pub(crate) level: bool,
    pub(crate) mean: f64,
    /// 1 / σ; 0 for a column that is not watched.
    pub(crate) inverse: f64,
    /// V: variance of the residual.
    pub(crate) variance: f64,
    /// The limit of its group; 0: it is not judged.
    pub(crate) limit: f64,
    /// The limit of its group over longer rows; 0: it is not averaged, or its group not judged.
    pub(crate) long_limit: f64,
}

/// The settings that define scores. They override those of a detector that loads the model.
#[derive(Clone, Copy, Debug, PartialEq)]
struct ModelRule {
    score: ScoreForm,
    sketch: SketchForm,
    clip: f64,
    residual_floor: f64,
    constants: ConstantRule,
    smoothing_span: f64,
    percentile: f64,
    stride: u32,
    learning_rate: f64,
    /// Rows that are averaged into a longer one; `None`: no column has a limit for these.
    long_rows: Option<u16>,
}

/// A fitted pipeline, independent of a detector: write it to a file, read it, start detectors from it.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    rule: ModelRule,
    /// Milliseconds between the rows that were learnt; 0: nobody said.
    interval_ms: u32,
    columns: Vec<ModelColumn>,
    gamma: f64,
    averaged: usize,
    quantiles: [f64; QUANTILES.len()],
    rank: usize,
    sketch_rows: usize,
    removed: f64,
    /// T, per direction.
    inside_variance: Vec<f64>,
    /// The basis: k rows of m values.
    basis: Vec<f64>,
    /// The rows of the sketch, m values each.
    sketch: Vec<f64>,
}

impl Model {
    /// Encodes the model: about 8 (2l + k + 6) m bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        codec::encode(self)
    }

    /// Decodes a model written by [`encode`](Self::encode).
    ///
    /// # Errors
    ///
    /// [`ModelError`] for any bytes that `encode` does not produce.
    pub fn decode(bytes: &[u8]) -> Result<Self, ModelError> {
        codec::decode(bytes)
    }

    /// Memory that the model takes, in bytes: about as many as [`encode`](Self::encode) gives.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let numbers = self.inside_variance.len() + self.basis.len() + self.sketch.len();
        size_of::<Self>() + self.columns.len() * size_of::<ModelColumn>() + numbers * size_of::<f64>()
    }

    /// γ: the threshold of scores.
    #[must_use]
    pub fn gamma(&self) -> f64 {
        self.gamma
    }

    /// Rank k of the basis and rows l of the sketch.
    #[must_use]
    pub fn shape(&self) -> (usize, usize) {
        (self.rank, self.sketch_rows)
    }

    /// The columns' fingerprints, in the order of training.
    pub fn fingerprints(&self) -> impl Iterator<Item = u64> {
        self.columns.iter().map(|column| column.fingerprint)
    }

    /// Percentiles of the training scores, at [`QUANTILES`]: γ of one machine may not fit another.
    #[must_use]
    pub fn training_quantiles(&self) -> [f64; QUANTILES.len()] {
        self.quantiles
    }

    /// The number of columns of the model that are not among `columns`. They count as always missing.
    #[must_use]
    pub fn absent(&self, columns: &[Column]) -> usize {
        self.columns.len() - matches(&self.columns, columns).iter().flatten().count()
    }

    /// Rows that make a longer one, for whose groups of columns the model has limits; `None`: it has none. See
    /// [`Settings::long_rows`].
    #[must_use]
    pub fn long_rows(&self) -> Option<usize> {
        self.rule.long_rows.map(usize::from)
    }

    /// Milliseconds between the rows that were learnt; `None`: whoever made the model did not say. It is no part of
    /// scores: a model of rows at another interval would judge, and wrongly.
    #[must_use]
    pub fn interval_ms(&self) -> Option<u32> {
        (self.interval_ms > 0).then_some(self.interval_ms)
    }

    /// The same model, which says that there was a row every `interval` seconds, to the millisecond. Below half a
    /// millisecond and above four and a half hours it says nothing.
    #[must_use]
    pub fn of_rows_every(self, interval: f64) -> Self {
        let millis = (interval * 1000.0).round();
        let interval_ms = if (1.0..=f64::from(codec::MAX_INTERVAL_MS)).contains(&millis) { millis as u32 } else { 0 };
        Self { interval_ms, ..self }
    }

    /// How scores are computed.
    #[must_use]
    pub fn form(&self) -> ScoreForm {
        self.rule.score
    }

    /// For each column of `other` its index in this model.
    pub(crate) fn places_of(&self, other: &Self) -> Vec<Option<usize>> {
        let columns: Vec<Column> = other.fingerprints().map(|name| Column::new(ColumnKind::Gauge, name)).collect();
        matches(&self.columns, &columns)
    }

    pub(crate) fn column(&self, index: usize) -> &ModelColumn {
        &self.columns[index]
    }

    /// The model of a pipeline; `None` while a job decomposes the sketch.
    pub(crate) fn of(pipeline: &Pipeline, columns: &[Column], settings: &Settings) -> Option<Self> {
        let sketch = pipeline.history.as_ref()?.sketch();
        let (standard, scorer, m) = (&pipeline.standard, &pipeline.scorer, columns.len());
        let column = |(index, column): (usize, &Column)| ModelColumn {
            fingerprint: column.fingerprint,
            role: standard.roles[index],
            level: pipeline.levels.binary_search(&(index as u32)).is_ok(),
            mean: standard.mean[index],
            inverse: standard.inverse[index],
            variance: scorer.residual_variance[index],
            limit: pipeline.groups.limit(index),
            long_limit: pipeline.long_rows.limit(index),
        };
        let rank = scorer.basis.rank();
        Some(Self {
            rule: ModelRule {
                score: settings.score,
                sketch: sketch.form(),
                clip: standard.clip(),
                residual_floor: settings.residual_floor,
                constants: pipeline.constant_rule,
                smoothing_span: settings.smoothing_span,
                percentile: settings.percentile,
                stride: settings.stride,
                learning_rate: settings.learning_rate,
                long_rows: pipeline.long_rows.rows(),
            },
            interval_ms: 0,
            columns: columns.iter().enumerate().map(column).collect(),
            gamma: pipeline.gamma,
            averaged: pipeline.averaged,
            quantiles: pipeline.quantiles,
            rank,
            sketch_rows: pipeline.sketch_rows,
            removed: sketch.removed(),
            // A running average may have fallen below what scores are computed with, and what a file may have.
            inside_variance: scorer.inside_variance.iter().map(|inside| inside.max(MIN_VARIANCE)).collect(),
            basis: (0..rank).flat_map(|at| scorer.direction(at).into_iter().take(m)).collect(),
            sketch: sketch.rows().flatten().copied().collect(),
        })
    }

    /// `settings`, overridden by those in the model. How many rows make a longer one is no part of scores: the model's
    /// number goes with its limits, and a fit finds other ones.
    pub(crate) fn applied_to(&self, settings: Settings) -> Settings {
        Settings {
            score: self.rule.score,
            sketch: self.rule.sketch,
            clip: self.rule.clip,
            residual_floor: self.rule.residual_floor,
            constant_weight: self.rule.constants.weight,
            // A fit multiplies it by the margin of episodes; the model's is multiplied already.
            constant_share: self.rule.constants.share / settings.episode_margin.powi(2),
            constants_counted: self.rule.constants.counted,
            constants_return: self.rule.constants.returns,
            smoothing_span: self.rule.smoothing_span,
            percentile: self.rule.percentile,
            stride: self.rule.stride,
            learning_rate: self.rule.learning_rate,
            ..settings
        }
    }

    /// The pipeline for `columns`, matched by fingerprint.
    ///
    /// A column that the caller does not have is left out: with z = 0, it would have a residual made of the others.
    pub(crate) fn pipeline(&self, columns: &[Column], settings: &Settings) -> Result<Pipeline, ModelError> {
        let mut found = matches(&self.columns, columns);
        found.iter_mut().zip(columns).filter(|(_, column)| !column.watched).for_each(|(found, _)| *found = None);
        if found.iter().all(Option::is_none) {
            return Err(ModelError::Columns { columns: columns.len(), known: self.columns.len() });
        }
        let (m, known) = (columns.len(), self.columns.len());
        let each = |pick: fn(&ModelColumn) -> f64| -> Vec<f64> {
            found.iter().map(|index| index.map_or(0.0, |index| pick(&self.columns[index]))).collect()
        };
        let roles: Vec<Role> =
            found.iter().map(|index| index.map_or(Role::Unwatched, |index| self.columns[index].role)).collect();
        let is_level = |column: usize| found[column].is_some_and(|index| self.columns[index].level);
        let rearranged = |rows: &[f64]| -> Vec<f64> {
            let row = |row: &[f64]| found.iter().map(|index| index.map_or(0.0, |index| row[index])).collect::<Vec<_>>();
            rows.chunks_exact(known).flat_map(row).collect()
        };
        // There are no more directions than columns. The first ones matter most.
        let rank = self.rank.min(m);
        let directions: Vec<f64> = rearranged(&self.basis).chunks_exact(m).take(rank).flat_map(padded_row).collect();
        let basis = Basis::new(Aligned::from(directions.as_slice()), rank, m);
        let levels: Vec<u32> = (0..m).filter(|&column| is_level(column)).map(|column| column as u32).collect();
        let (mean, inverse) = (each(|column| column.mean), each(|column| column.inverse));
        let standard = Standard::restore(roles.clone(), &mean, &inverse, self.rule.clip);
        let errors = standard.errors(&estimates(columns, &levels, self.rule.score));
        let scorer = Scorer::new(self.rule.score, self.rule.residual_floor, &basis, m);
        let mut scorer = scorer.with_errors(&errors, &basis);
        let inside = self.inside_variance.iter().take(rank).copied().collect();
        scorer.set_variances(&padded_row(&each(|column| column.variance)), inside);
        let sketch = FrequentDirections::new(m, self.sketch_rows, self.rule.sketch)
            .map_err(|_| ModelError::Value { field: "sketch_rows", found: self.sketch_rows as f64 })?
            .restore(&rearranged(&self.sketch), self.removed);
        let groups = Groups::restored(columns, &each(|column| column.limit));
        let long_rows = LongRows::new(columns, &levels, &groups, self.rule.long_rows.map(usize::from));
        let rows = self.rows_learnt();
        let pool_rows = settings.pool_rows.filter(|_| self.rule.score == ScoreForm::Scaled);
        Ok(Pipeline {
            latches: Latches::new(columns, &roles, &levels, settings.latch_rows),
            pools: Pools::new(columns, &roles, &levels, pool_rows),
            constants: Constant::list(columns, &standard, &levels, self.rule.constants, pool_rows),
            levels,
            standard,
            constant_rule: self.rule.constants,
            history: Some(History::restored(sketch, rows, &rearranged(&self.squares(rows)))),
            sketch_changed: true,
            sketch_rows: self.sketch_rows,
            gamma: self.gamma,
            factor: 1.0,
            averaged: self.averaged,
            quantiles: self.quantiles,
            projection: Projection::of(&scorer),
            scorer,
            onsets: Onsets::new(m),
            groups,
            long_rows: long_rows.restored(&each(|column| column.long_limit)),
            moved: 0,
        })
    }
}

impl Model {
    /// The number of rows that the sketch stands for, computed from T. At least 1.
    pub(crate) fn rows_learnt(&self) -> f64 {
        let m = self.columns.len();
        let along = |row: &[f64], direction: &[f64]| row.iter().zip(direction).map(|(x, u)| x * u).sum::<f64>().powi(2);
        let rows = || self.sketch.chunks_exact(m);
        let energy: f64 = self.basis.chunks_exact(m).flat_map(|u| rows().map(|row| along(row, u))).sum();
        let rows = energy / self.inside_variance.iter().sum::<f64>();
        if rows.is_finite() { rows.max(1.0) } else { self.averaged.max(1) as f64 }
    }

    /// Per column, the sum of squares over `rows` rows that V and T imply.
    fn squares(&self, rows: f64) -> Vec<f64> {
        let m = self.columns.len();
        let mut sums: Vec<f64> = self.columns.iter().map(|column| rows * column.variance).collect();
        for (direction, inside) in self.basis.chunks_exact(m).zip(&self.inside_variance) {
            for (sum, u) in sums.iter_mut().zip(direction) {
                *sum += rows * u * u * inside;
            }
        }
        sums
    }
}

/// For each column of the caller its index in the model. Equal fingerprints are matched in their order.
fn matches(known: &[ModelColumn], columns: &[Column]) -> Vec<Option<usize>> {
    let mut places: Vec<(u64, usize)> = known.iter().map(|column| column.fingerprint).zip(0..).collect();
    let mut wanted: Vec<(u64, usize)> = columns.iter().map(|column| column.fingerprint).zip(0..).collect();
    places.sort_unstable();
    wanted.sort_unstable();
    let mut found = vec![None; columns.len()];
    let mut places = places.into_iter().peekable();
    for (fingerprint, column) in wanted {
        while places.next_if(|(place, _)| *place < fingerprint).is_some() {}
        found[column] = places.next_if(|(place, _)| *place == fingerprint).map(|(_, index)| index);
    }
    found
}
