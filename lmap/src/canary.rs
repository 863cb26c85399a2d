//! Canary comparison: does a new version of a service behave like the old one, and if not, in which metrics.
//!
//! The rows of the new version are judged by what the old one's taught, as a whole: by their means and second moments, which both sketches
//! hold. So two models are enough, and neither version's rows are needed. More load is no difference: the mean of a metric is held against
//! what the old version's directions make of the other metrics' means, and its spread is that of what these do not explain.
//!
//! # Source
//! E\[zᵀA z\] for the quadratic form A of the score (see `explain.rs`), over the second moments D SᵀS D / n + d dᵀ of the new rows in the old
//! model's terms (see `model/merge.rs`). A metric's part is E\[zⱼ (A z)ⱼ\]; these add up to the mean square score.
//!
//! # Limits
//! Two versions that ran at different times also differ in what the time brought; the best comparison is of replicas side by side. The
//! rows' own memory is unknown here: [`Tolerance::memory_rows`] stands for it. A metric that one version does not have is counted, not compared.

use crate::column::{Column, ColumnKind};
use crate::lanes::padded_row;
use crate::model::{Model, Moments, Term};
use crate::pipeline::Pipeline;
use crate::scorer::Split;
use crate::settings::ScoreForm;
use crate::standard::Role;
use thiserror::Error;

/// What is still alike.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// A metric's mean may be off what is expected by so many deviations of what the old version's directions leave of it. 1.
    pub shift: f64,
    /// What the directions leave of a metric may spread by so much more. 2.
    pub spread: f64,
    /// So many rows hang together: means of n rows are as sure as n / so many independent ones, and a shift has to be four standard errors. 20.
    pub memory_rows: f64,
}

impl Default for Tolerance {
    fn default() -> Self {
        Self { shift: 1.0, spread: 2.0, memory_rows: 20.0 }
    }
}

/// A shift has to be so many standard errors.
const ERRORS: f64 = 4.0;

/// How a metric is unlike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unlike {
    /// Its mean is elsewhere than the other metrics let expect.
    Moved,
    /// It is where it should be, and less steady, or had a rare event.
    Restless,
    /// It never moved in the old version, and has another value or moves in the new one.
    NoLongerConstant,
}

/// A metric that behaves differently. Values are in the metric's own unit; of a level, per row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    /// The column's name in both models.
    pub fingerprint: u64,
    /// What is different.
    pub unlike: Unlike,
    /// Its share of what the new version scores more, in \[0, 1\].
    pub share: f64,
    /// The mean that the old version would have at this load.
    pub expected: f64,
    /// The mean in the new version.
    pub seen: f64,
    /// By how many residual deviations the mean is off; 0 for a constant.
    pub shift: f64,
    /// How many times as far the new version's values spread about what is expected of them; 0 for a constant.
    pub spread: f64,
    /// Both versions were judged by its increments.
    pub level: bool,
}

/// Why two models cannot be compared.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum CanaryError {
    /// Only the scaled form knows how far each metric usually is from what is expected of it. Train the old version anew.
    #[error("a model of the form {0:?} does not know how far its metrics stray; one of the form Scaled does")]
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
    /// Root mean square score of the new version's rows, judged by the old version's model as it is.
    pub score: f64,
    /// The same of the old version's own rows.
    pub own_score: f64,
    /// The old version's γ.
    pub gamma: f64,
    /// Rows that the models stand for: the old one's, the new one's.
    pub rows: (f64, f64),
    /// Metrics compared.
    pub compared: usize,
    /// Metrics of the old version only, of the new version only, and judged differently by both (as a level and as a value).
    pub left_out: (usize, usize, usize),
    /// Metrics that are unlike, largest share first.
    pub differences: Vec<Difference>,
}

impl Canary {
    /// Compares what `new` was trained on with what `old` was trained on. O(l m k).
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
        let judge = old.pipeline(&columns, None).map_err(|_| nothing)?;
        let pairs = Pairs::new(old, new);
        if pairs.compared() == 0 {
            return Err(nothing);
        }
        let rows = (old.rows_learnt(), new.rows_learnt());
        let width = columns.len();
        let own: Vec<Option<Term>> = (0..width).map(|column| Some(Term { column, scale: 1.0, shift: 0.0 })).collect();
        let own = Judged::new(&judge, &old.moments(rows.0, &own, width), rows.0);
        let found = Judged::new(&judge, &new.moments(rows.1, &pairs.terms, width), rows.1);
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

    /// Whether any metric lies elsewhere, or is constant no longer. One that is only less steady does not decide: a single rare event in a few
    /// hundred rows looks the same in second moments.
    #[must_use]
    pub fn is_unlike(&self) -> bool {
        self.differences.iter().any(|difference| difference.unlike != Unlike::Restless)
    }
}

/// Mean squares of rows under a judge, per column.
struct Judged {
    /// What it adds to the square of the score.
    parts: Vec<f64>,
    /// Of its residual.
    residual: Vec<f64>,
}

impl Judged {
    fn new(judge: &Pipeline, moments: &Moments, rows: f64) -> Self {
        let width = moments.squares.len();
        let (scorer, floored) = (&judge.scorer, judge.scorer.floored_residual_variance());
        let mut split = Split::of(scorer);
        let mut pulls = vec![0.0; scorer.basis.rank()];
        let (mut parts, mut residual) = (vec![0.0; width], vec![0.0; width]);
        let mut kept = vec![0.0; width];
        for row in &moments.rows {
            split.z.copy_from_slice(&padded_row(row));
            scorer.score(&mut split);
            scorer.pulls(&split, &mut pulls);
            for column in 0..width {
                parts[column] += scorer.contribution(&split, &pulls, column) / rows;
                residual[column] += f64::from(split.residual[column]).powi(2) / rows;
                kept[column] += row[column] * row[column];
            }
        }
        // What the sketch has forgotten is taken for residual, as in `past.rs`.
        for column in 0..width {
            let forgotten = (moments.squares[column] - kept[column]).max(0.0) / rows;
            parts[column] += forgotten / floored[column];
            residual[column] += forgotten;
        }
        Self { parts, residual }
    }
}

/// Which column of the one model is which of the other.
struct Pairs<'a> {
    old: &'a Model,
    new: &'a Model,
    /// For each of the new model's columns its term among the old one's, if both watch it.
    terms: Vec<Option<Term>>,
    /// Columns that were constant in the old version, as (old, new).
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

    fn differences(&self, judge: &Pipeline, own: &Judged, found: &Judged, tolerance: Tolerance) -> Vec<Difference> {
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
            let unlike = match (shift.abs() >= tolerance.shift, spread >= tolerance.spread) {
                (true, _) => Unlike::Moved,
                (false, true) => Unlike::Restless,
                (false, false) => continue,
            };
            let expected = judge.standard.value(column, judge.scorer.expected(&mean, column));
            let (known, seen) = (self.old.column(column), self.new.column(at).mean);
            let (fingerprint, level) = (known.fingerprint, known.level);
            let difference = Difference { fingerprint, unlike, share: 0.0, expected, seen, shift, spread, level };
            all.push((difference, excess));
        }
        for (difference, excess) in &mut all {
            difference.share = if total > 0.0 { *excess / total } else { 0.0 };
        }
        all.sort_by(|a, b| b.1.total_cmp(&a.1));
        all.into_iter().map(|(difference, _)| difference).collect()
    }

    /// The mean of the new version's rows, split by the old one's directions.
    fn mean(&self, judge: &Pipeline) -> Split {
        let width = judge.standard.roles.len();
        let mut mean = vec![0.0; width];
        for term in self.terms.iter().flatten() {
            mean[term.column] = judge.standard.soft(term.shift);
        }
        let mut split = Split::of(&judge.scorer);
        split.z.copy_from_slice(&padded_row(&mean));
        judge.scorer.score(&mut split);
        split
    }

    /// A constant that is none any more, or another one.
    fn constant(&self, old: usize, new: usize) -> Option<Difference> {
        let (known, found) = (self.old.column(old), self.new.column(new));
        let same = (known.mean - found.mean).abs() <= 1e-9 * known.mean.abs().max(1.0);
        if found.role == Role::Constant && same {
            return None;
        }
        Some(Difference {
            fingerprint: known.fingerprint,
            unlike: Unlike::NoLongerConstant,
            share: 0.0,
            expected: known.mean,
            seen: found.mean,
            shift: 0.0,
            spread: 0.0,
            level: known.level,
        })
    }
}
