//! Canary comparison: whether a new version of a service behaves like the old one, and in which metrics it does not.
//!
//! The old version's model scores the new version's rows as a whole, by their means and second moments. Both models'
//! sketches hold these, so two models are enough and no rows are needed. More load is no difference: the mean of a
//! metric is compared with what the old version's directions expect from the other metrics' means, and its spread is
//! that of the part that they do not explain.
//!
//! # Source
//! E\[zᵀA z\] for the quadratic form A of the score (see `explain.rs`), over the second moments D SᵀS D / n + d dᵀ of
//! the new rows in the old model's standardisation (see `model/merge.rs`). A metric's part is E\[zⱼ (A z)ⱼ\]; these add
//! up to the mean square score.
//!
//! # Limits
//! Versions that ran at different times also differ because of the time; compare replicas that run side by side. The
//! autocorrelation of rows is unknown here: [`Tolerance::memory_rows`] stands for it. A metric that only one version
//! has is counted, not compared.

use crate::column::{Column, ColumnKind};
use crate::lanes::padded_row;
use crate::model::{Model, Moments, Term};
use crate::pipeline::Pipeline;
use crate::scorer::Projection;
use crate::settings::{ScoreForm, Settings};
use crate::standard::Role;
use thiserror::Error;

/// Differences up to which versions count as alike.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// Maximum difference of a metric's mean from the expected one, in deviations of its residual. Default: 1.
    pub shift: f64,
    /// Maximum factor by which a metric's residual may spread more. Default: 2.
    pub spread: f64,
    /// Rows that are correlated: the mean of n rows counts as that of n / `memory_rows` independent ones, and a shift
    /// must be four standard errors. Default: 20.
    pub memory_rows: f64,
}

impl Default for Tolerance {
    fn default() -> Self {
        Self { shift: 1.0, spread: 2.0, memory_rows: 20.0 }
    }
}

/// Minimum shift, in standard errors.
const ERRORS: f64 = 4.0;

/// How a metric differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DifferenceKind {
    /// Its mean is not what the other metrics let expect.
    Moved,
    /// Its mean is as expected, but it spreads more, or had a rare event.
    Restless,
    /// It was constant in the old version, and moves or has another value in the new one.
    NoLongerConstant,
}

/// A metric that behaves differently. Values are in the metric's unit; for a level, per row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    /// Identifies the column in both models.
    pub fingerprint: u64,
    /// How it differs.
    pub kind: DifferenceKind,
    /// Its share of the increase of the mean square score, in \[0, 1\].
    pub share: f64,
    /// The mean expected of the old version at this load.
    pub expected: f64,
    /// The mean in the new version.
    pub seen: f64,
    /// Difference of the means in residual deviations; 0 for a constant.
    pub shift: f64,
    /// Factor by which the new version's values spread more about the expected ones; 0 for a constant.
    pub spread: f64,
    /// Whether both versions are judged by its increments.
    pub level: bool,
}

/// Why two models cannot be compared.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum CanaryError {
    /// Only the scaled form has a variance per metric. Train the old version again.
    #[error("a model of the form {0:?} has no variance per metric: train the old version in the form Scaled")]
    Form(ScoreForm),
    /// Models of two services.
    #[error("of {old} metrics of the old version and {new} of the new one none is in both")]
    NothingInCommon {
        /// Columns of the old model.
        old: usize,
        /// Columns of the new model.
        new: usize,
    },
}

/// How a new version compares with an old one.
#[derive(Clone, Debug, PartialEq)]
pub struct Canary {
    /// Root mean square score of the new version's rows under the old version's model.
    pub score: f64,
    /// Root mean square score of the old version's own rows.
    pub own_score: f64,
    /// The old version's γ.
    pub gamma: f64,
    /// Number of rows that the models stand for: old, new.
    pub rows: (f64, f64),
    /// Number of metrics compared.
    pub compared: usize,
    /// Number of metrics not compared: only in the old version, only in the new one, and a level in only one of them.
    pub left_out: (usize, usize, usize),
    /// Metrics that differ, largest share first.
    pub differences: Vec<Difference>,
}

impl Canary {
    /// Compares the training rows of `new` with those of `old`. O(l m k).
    ///
    /// # Errors
    ///
    /// [`CanaryError`] if the old model has not the scaled form, or no metric is in both.
    pub fn compare(old: &Model, new: &Model, tolerance: Tolerance) -> Result<Self, CanaryError> {
        if old.form() != ScoreForm::Scaled {
            return Err(CanaryError::Form(old.form()));
        }
        let columns: Vec<Column> = old.fingerprints().map(|name| Column::new(ColumnKind::Gauge, name)).collect();
        let nothing = CanaryError::NothingInCommon { old: old.fingerprints().count(), new: new.fingerprints().count() };
        let judge = old.pipeline(&columns, &Settings::default()).map_err(|_| nothing)?;
        let pairs = Pairs::new(old, new);
        if pairs.compared() == 0 {
            return Err(nothing);
        }
        let rows = (old.rows_learnt(), new.rows_learnt());
        let width = columns.len();
        let own: Vec<Option<Term>> = (0..width).map(|column| Some(Term { column, scale: 1.0, shift: 0.0 })).collect();
        let own = MeanSquares::new(&judge, &old.moments(rows.0, &own, width), rows.0);
        let found = MeanSquares::new(&judge, &new.moments(rows.1, &pairs.terms, width), rows.1);
        let sure = ERRORS * (tolerance.memory_rows * (1.0 / rows.0 + 1.0 / rows.1)).sqrt();
        let tolerance = Tolerance { shift: tolerance.shift.max(sure), ..tolerance };
        let differences = pairs.differences(&judge, &own, &found, tolerance);
        Ok(Self {
            score: found.parts.iter().sum::<f64>().max(0.0).sqrt(),
            own_score: own.parts.iter().sum::<f64>().max(0.0).sqrt(),
            gamma: old.gamma(),
            rows,
            compared: pairs.compared(),
            left_out: pairs.left_out,
            differences,
        })
    }

    /// Whether any metric has moved, or is no longer constant. Metrics that only spread more do not count: a single
    /// rare event in a few hundred rows looks the same in second moments.
    #[must_use]
    pub fn differs(&self) -> bool {
        self.differences.iter().any(|difference| difference.kind != DifferenceKind::Restless)
    }
}

/// Mean squares of rows under a model, per column.
struct MeanSquares {
    /// Parts of the square of the score.
    parts: Vec<f64>,
    /// Squares of the residuals.
    residual: Vec<f64>,
}

impl MeanSquares {
    fn new(judge: &Pipeline, moments: &Moments, rows: f64) -> Self {
        let width = moments.squares.len();
        let (scorer, floored) = (&judge.scorer, judge.scorer.floored_residual_variance());
        let mut projection = Projection::of(scorer);
        let mut pulls = vec![0.0; scorer.basis.rank()];
        let (mut parts, mut residual) = (vec![0.0; width], vec![0.0; width]);
        let mut kept = vec![0.0; width];
        for row in &moments.rows {
            projection.z.copy_from_slice(&padded_row(row));
            scorer.score(&mut projection);
            scorer.pulls(&projection, &mut pulls);
            for column in 0..width {
                parts[column] += scorer.contribution(&projection, &pulls, column) / rows;
                residual[column] += f64::from(projection.residual[column]).powi(2) / rows;
                kept[column] += row[column] * row[column];
            }
        }
        // Squares that the sketch has forgotten count as residual.
        for column in 0..width {
            let forgotten = (moments.squares[column] - kept[column]).max(0.0) / rows;
            parts[column] += forgotten / floored[column];
            residual[column] += forgotten;
        }
        Self { parts, residual }
    }
}

/// The columns of two models, matched.
struct Pairs<'a> {
    old: &'a Model,
    new: &'a Model,
    /// For each column of the new model its conversion to the old one, if both watch it.
    terms: Vec<Option<Term>>,
    /// Columns that were constant in the old version, as indexes (old, new).
    constants: Vec<(usize, usize)>,
    left_out: (usize, usize, usize),
}

impl<'a> Pairs<'a> {
    fn new(old: &'a Model, new: &'a Model) -> Self {
        let places = old.places_of(new);
        let mut pairs = Self { old, new, terms: vec![None; places.len()], constants: Vec::new(), left_out: (0, 0, 0) };
        let mut met = 0;
        for (at, place) in places.iter().enumerate() {
            let Some(place) = *place else {
                pairs.left_out.1 += 1;
                continue;
            };
            met += 1;
            let (known, found) = (old.column(place), new.column(at));
            match (known.role, found.role) {
                (Role::Unwatched, _) => pairs.left_out.1 += 1,
                (_, Role::Unwatched) => pairs.left_out.0 += 1,
                (Role::Constant, Role::Constant) if known.level != found.level => {}
                _ if known.level != found.level => pairs.left_out.2 += 1,
                (Role::Constant, _) => pairs.constants.push((place, at)),
                (Role::Watched, _) => {
                    let scale = if found.inverse > 0.0 { known.inverse / found.inverse } else { 0.0 };
                    let shift = (found.mean - known.mean) * known.inverse;
                    pairs.terms[at] = Some(Term { column: place, scale, shift });
                }
            }
        }
        pairs.left_out.0 += old.fingerprints().count() - met;
        pairs
    }

    fn compared(&self) -> usize {
        self.terms.iter().flatten().count() + self.constants.len()
    }

    fn differences(
        &self,
        judge: &Pipeline,
        own: &MeanSquares,
        found: &MeanSquares,
        tolerance: Tolerance,
    ) -> Vec<Difference> {
        let weight = judge.constant_rule.weight.powi(2);
        let constants = self.constants.iter().filter_map(|&(old, new)| self.constant(old, new));
        let mut all: Vec<(Difference, f64)> = constants.map(|difference| (difference, weight)).collect();
        let mut total = weight * all.len() as f64;
        let mean = self.mean(judge);
        let floored = judge.scorer.floored_residual_variance();
        for (at, term) in self.terms.iter().enumerate().filter_map(|(at, term)| term.map(|term| (at, term))) {
            let column = term.column;
            let excess = (found.parts[column] - own.parts[column]).max(0.0);
            total += excess;
            let off = f64::from(mean.residual[column]);
            let shift = off / floored[column].sqrt();
            let about = (found.residual[column] - off.powi(2)).max(0.0);
            let spread = (about / own.residual[column].max(floored[column])).sqrt();
            let kind = match (shift.abs() >= tolerance.shift, spread >= tolerance.spread) {
                (true, _) => DifferenceKind::Moved,
                (false, true) => DifferenceKind::Restless,
                (false, false) => continue,
            };
            let expected = judge.standard.value(column, judge.scorer.expected(&mean, column));
            let (known, seen) = (self.old.column(column), self.new.column(at).mean);
            let (fingerprint, level) = (known.fingerprint, known.level);
            let difference = Difference { fingerprint, kind, share: 0.0, expected, seen, shift, spread, level };
            all.push((difference, excess));
        }
        for (difference, excess) in &mut all {
            difference.share = if total > 0.0 { *excess / total } else { 0.0 };
        }
        all.sort_by(|a, b| b.1.total_cmp(&a.1));
        all.into_iter().map(|(difference, _)| difference).collect()
    }

    /// The mean of the new version's rows, projected on the old version's directions.
    fn mean(&self, judge: &Pipeline) -> Projection {
        let width = judge.standard.roles.len();
        let mut mean = vec![0.0; width];
        for term in self.terms.iter().flatten() {
            mean[term.column] = judge.standard.soft(term.shift);
        }
        let mut projection = Projection::of(&judge.scorer);
        projection.z.copy_from_slice(&padded_row(&mean));
        judge.scorer.score(&mut projection);
        projection
    }

    /// The difference of a column that was constant in the old version; `None` if it still is, with the same value.
    fn constant(&self, old: usize, new: usize) -> Option<Difference> {
        let (known, found) = (self.old.column(old), self.new.column(new));
        let same = (known.mean - found.mean).abs() <= 1e-9 * known.mean.abs().max(1.0);
        if found.role == Role::Constant && same {
            return None;
        }
        Some(Difference {
            fingerprint: known.fingerprint,
            kind: DifferenceKind::NoLongerConstant,
            share: 0.0,
            expected: known.mean,
            seen: found.mean,
            shift: 0.0,
            spread: 0.0,
            level: known.level,
        })
    }
}
