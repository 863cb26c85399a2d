//! Merges models, so that a new replica, node or version starts with what others have learnt.
//!
//! # Source
//! Frequent Directions sketches can be merged (Ghashami, Liberty, Phillips, Woodruff 2016, Sec. 2). Each sketch is in
//! units of its own model's means and deviations, so it is first converted to the common ones. With scales D and shifts
//! d of the means, both in common deviations, the second moments of n rows become D SᵀS D + n d dᵀ. D also scales the
//! error of the sketch.
//!
//! # Guarantee
//! Means and deviations are those of all training rows together (a floor under a deviation stays in it). Σ V + Σ T is
//! the mean square of all rows learnt, as far as each model knows it. The sketch's error is at most Σδ, as in every
//! sketch. The order of the models only determines which sketch is decomposed first.
//!
//! # Decisions
//! - γ and the percentiles of scores are those of the model with the highest γ, so that no one's ordinary rows alarm.
//! - The limit of a group is the highest of its columns' in any model, for the same reason. Longer rows have none:
//!   where means differ, a replica is off the common one in all its rows, and by as much in an average, for which no
//!   model's limit has room. A fit will find one.
//! - The settings that define scores are those of the model with the most rows.
//! - A column that a model has not seen is weighted up in the rows of the others.
//! - A column that is a level in one model but not in another is treated as in the model with the most rows.

use super::{Model, ModelColumn, ModelRule};
use crate::frequent_directions::{FrequentDirections, SketchError};
use crate::history::History;
use crate::scorer::MIN_VARIANCE;
use crate::settings::{ScoreForm, SketchForm};
use crate::standard::Role;
use crate::verdict::MAX_COLUMNS;
use std::collections::{BTreeMap, HashMap};
use thiserror::Error;

/// Constants that differ by at most this, times max(1, |value|), count as equal.
const SAME: f64 = 1e-9;

/// Why models cannot be merged.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum MergeError {
    /// No models were passed.
    #[error("there is no model to merge")]
    Nothing,
    /// They compute scores differently, so there is no common threshold. Train one of them again.
    #[error("a model of the form {first:?} and one of the form {other:?} have no score in common")]
    Forms {
        /// The form of the model with the most rows.
        first: ScoreForm,
        /// The form of another model.
        other: ScoreForm,
    },
    /// Rows scaled to unit length cannot be converted to other means.
    #[error("models of the relative form cannot be merged: lengths of rows are not kept")]
    Relative,
    /// They have too many columns together.
    #[error("{0} columns together, up to {MAX_COLUMNS} are possible")]
    Columns(usize),
    /// The decomposition failed.
    #[error("cannot merge the sketches")]
    Sketch(#[from] SketchError),
}

impl Model {
    /// One model that stands for the rows of all `models`, for [`Detector::warm`](crate::Detector::warm). Columns are
    /// matched by fingerprint; the result has the columns of all models. O(l² m) per model.
    ///
    /// # Errors
    ///
    /// [`MergeError`] if there is none, if they score differently, or if a decomposition fails.
    pub fn merge(models: &[&Self]) -> Result<Self, MergeError> {
        let mut parts: Vec<WeightedModel<'_>> = models.iter().map(|model| WeightedModel::new(model)).collect();
        parts.sort_by(|a, b| b.rows.total_cmp(&a.rows));
        let Some(first) = parts.first().map(|part| part.model) else { return Err(MergeError::Nothing) };
        if parts.len() == 1 {
            return Ok(first.clone());
        }
        for WeightedModel { model, .. } in &parts {
            let (first, other) = (first.rule.score, model.rule.score);
            match other {
                ScoreForm::PaperRelative => return Err(MergeError::Relative),
                _ if other != first => return Err(MergeError::Forms { first, other }),
                _ => {}
            }
        }
        let union = Union::new(&parts);
        if union.columns.len() > MAX_COLUMNS {
            return Err(MergeError::Columns(union.columns.len()));
        }
        union.model(&parts)
    }

    /// n times the second moments of this model's standardised rows, converted by `terms`: as rows of `width` values,
    /// and per column as sum of squares. The first row holds the shift of the means.
    pub(crate) fn moments(&self, rows: f64, terms: &[Option<Term>], width: usize) -> Moments {
        let mut shift = vec![0.0; width];
        let mut squares = vec![0.0; width];
        let all = self.squares(rows);
        for (term, all) in terms.iter().zip(all).filter_map(|(term, all)| term.map(|term| (term, all))) {
            shift[term.column] = rows.sqrt() * term.shift;
            squares[term.column] = term.scale * term.scale * all + rows * term.shift * term.shift;
        }
        let row = |row: &[f64]| {
            let mut out = vec![0.0; width];
            for (value, term) in row.iter().zip(terms).filter_map(|(value, term)| term.map(|term| (value, term))) {
                out[term.column] = term.scale * value;
            }
            out
        };
        let sketch = self.sketch.chunks_exact(self.columns.len()).map(row);
        Moments { rows: std::iter::once(shift).chain(sketch).collect(), squares }
    }
}

/// Converts a column of one model to the standardisation of another: its index there, and z ↦ scale · z + shift.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Term {
    pub(crate) column: usize,
    pub(crate) scale: f64,
    pub(crate) shift: f64,
}

/// Second moments of a model's rows, converted to another standardisation.
#[derive(Debug)]
pub(crate) struct Moments {
    pub(crate) rows: Vec<Vec<f64>>,
    pub(crate) squares: Vec<f64>,
}

/// A model, and the number of rows that it stands for.
struct WeightedModel<'a> {
    model: &'a Model,
    rows: f64,
}

impl<'a> WeightedModel<'a> {
    fn new(model: &'a Model) -> Self {
        Self { model, rows: model.rows_learnt() }
    }
}

/// The union of the columns of all models.
struct Union {
    columns: Vec<ModelColumn>,
    /// Per model and column: its conversion to the union.
    terms: Vec<Vec<Option<Term>>>,
    /// Rows of all models together.
    rows: f64,
}

impl Union {
    fn new(parts: &[WeightedModel<'_>]) -> Self {
        let places = places(parts.iter().map(|part| part.model));
        let width = places.iter().flatten().max().map_or(0, |last| last + 1);
        let mut seen: Vec<Vec<(&ModelColumn, f64)>> = vec![Vec::new(); width];
        let mut chosen: Vec<Option<&ModelColumn>> = vec![None; width];
        for (part, places) in parts.iter().zip(&places) {
            for (column, place) in part.model.columns.iter().zip(places) {
                let counts = column.role != Role::Unwatched;
                let known = chosen[*place].filter(|known| known.role != Role::Unwatched);
                if known.is_none() {
                    chosen[*place] = Some(column);
                }
                if counts && known.is_none_or(|known| known.level == column.level) {
                    seen[*place].push((column, part.rows));
                }
            }
        }
        let rows: f64 = parts.iter().map(|part| part.rows).sum();
        let columns: Vec<ModelColumn> =
            chosen.into_iter().flatten().zip(&seen).map(|(chosen, seen)| pooled(chosen, seen)).collect();
        let term = |part: &WeightedModel<'_>, (index, place): (usize, &usize)| {
            let (own, whole) = (&part.model.columns[index], &columns[*place]);
            let used = seen[*place].iter().any(|(column, _)| std::ptr::eq(*column, own));
            if !(used && whole.role == Role::Watched) {
                return None;
            }
            // A column of some models only stands for as many rows as the others.
            let weight = (rows / seen[*place].iter().map(|(_, rows)| rows).sum::<f64>()).sqrt();
            let scale = if own.inverse > 0.0 { weight * whole.inverse / own.inverse } else { 0.0 };
            Some(Term { column: *place, scale, shift: weight * (own.mean - whole.mean) * whole.inverse })
        };
        let terms = parts.iter().zip(&places);
        let terms = terms.map(|(part, places)| places.iter().enumerate().map(|at| term(part, at)).collect()).collect();
        Self { columns, terms, rows }
    }

    fn model(self, parts: &[WeightedModel<'_>]) -> Result<Model, MergeError> {
        let (width, rule) = (self.columns.len(), parts[0].model.rule);
        let sketch_rows = parts.iter().map(|part| part.model.sketch_rows).max().unwrap_or(2);
        let rank = parts.iter().map(|part| part.model.rank).max().unwrap_or(1).min(width).min(sketch_rows - 1);
        let mut sketch = FrequentDirections::new(width, sketch_rows, SketchForm::Buffered)?;
        let mut squares = vec![0.0; width];
        let mut removed = 0.0;
        for (part, terms) in parts.iter().zip(&self.terms) {
            let moments = part.model.moments(part.rows, terms, width);
            moments.rows.iter().try_for_each(|row| sketch.append(row))?;
            squares.iter_mut().zip(&moments.squares).for_each(|(sum, square)| *sum += square);
            let stretched = terms.iter().flatten().map(|term| term.scale * term.scale).fold(0.0, f64::max);
            removed += part.model.removed * stretched;
        }
        let mut history = History::restored(sketch, self.rows, &squares);
        let (basis, found) = history.shrink(rank)?;
        let highest = parts.iter().map(|part| part.model).max_by(|a, b| a.gamma.total_cmp(&b.gamma));
        let highest = highest.unwrap_or(parts[0].model);
        let columns = self.columns.into_iter().zip(found.residual.iter());
        let columns = columns.map(|(column, variance)| ModelColumn { variance: *variance, long_limit: 0.0, ..column });
        // Of several intervals, it is of none.
        let interval_ms = parts[0].model.interval_ms;
        let is_of_one = parts.iter().all(|part| part.model.interval_ms == interval_ms);
        Ok(Model {
            interval_ms: if is_of_one { interval_ms } else { 0 },
            columns: columns.collect(),
            gamma: highest.gamma,
            quantiles: highest.quantiles,
            averaged: parts.iter().map(|part| part.model.averaged).fold(0, usize::saturating_add),
            rank,
            sketch_rows,
            removed: removed + history.sketch().removed(),
            inside_variance: found.inside.iter().map(|inside| inside.max(MIN_VARIANCE)).collect(),
            basis: (0..rank).flat_map(|index| basis.direction(index)[..width].to_vec()).collect(),
            sketch: history.sketch().rows().flatten().copied().collect(),
            rule: ModelRule { long_rows: None, ..rule },
        })
    }
}

/// Per model and column: the index in the union. The n-th column of a fingerprint matches the n-th elsewhere.
fn places<'a>(models: impl Iterator<Item = &'a Model>) -> Vec<Vec<usize>> {
    let mut known: BTreeMap<(u64, usize), usize> = BTreeMap::new();
    let place = |model: &Model| {
        let mut counted: HashMap<u64, usize> = HashMap::new();
        let mut one = |fingerprint: u64| {
            let number = counted.entry(fingerprint).or_default();
            *number += 1;
            let next = known.len();
            *known.entry((fingerprint, *number)).or_insert(next)
        };
        model.fingerprints().map(&mut one).collect()
    };
    models.map(place).collect()
}

/// One column of the union: mean and deviation over the rows of all models that have seen it. V is set later.
fn pooled(chosen: &ModelColumn, seen: &[(&ModelColumn, f64)]) -> ModelColumn {
    let rows: f64 = seen.iter().map(|(_, rows)| rows).sum();
    if seen.is_empty() {
        return *chosen;
    }
    let mean: f64 = seen.iter().map(|(column, n)| n / rows * column.mean).sum();
    let deviation = |column: &ModelColumn| if column.inverse > 0.0 { 1.0 / column.inverse } else { 0.0 };
    let variance: f64 =
        seen.iter().map(|(column, n)| n / rows * (deviation(column).powi(2) + (column.mean - mean).powi(2))).sum();
    let apart = |column: &ModelColumn| (column.mean - mean).abs() > SAME * mean.abs().max(1.0);
    let moves = seen.iter().any(|(column, _)| column.role == Role::Watched || apart(column));
    let (role, inverse) = if moves { (Role::Watched, 1.0 / variance.sqrt()) } else { (Role::Constant, 0.0) };
    let limit = seen.iter().map(|(column, _)| column.limit).fold(0.0, f64::max);
    ModelColumn { role, mean, inverse, variance: 0.0, limit, ..*chosen }
}

#[cfg(test)]
mod tests;
