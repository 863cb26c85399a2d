//! Several models as one, so that a new replica, node or version begins with what others have learnt.
//!
//! # Source
//! Sketches of Frequent Directions merge (Ghashami, Liberty, Phillips, Woodruff 2016, Sec. 2). Each is of values in deviations from its own
//! model's means, so it is expressed in those of all together first: with d the shift of the means, both in deviations of the whole, the second
//! moments of n rows become D SᵀS D + n d dᵀ. A column's scale D stretches what its sketch may have lost.
//!
//! # Guarantee
//! Means and deviations are those of all training rows together (a floor under a deviation stays in it). Σ V + Σ T is the mean square of all rows
//! learnt, as far as each model knows it; what the sketch has lost is at most Σδ, as in every sketch. The order of the models makes no other
//! difference than which sketch is shrunk first.
//!
//! # What is decided, not computed
//! γ, with the percentiles of the scores, is that of the model with the highest; what defines scores is that of the model with the most rows. A
//! column that one model has not seen takes no part in its rows and is weighted up in the others', and one that is a level in one and none in
//! another is taken as by the model with the most rows.

use super::{Model, ModelColumn};
use crate::frequent_directions::{FrequentDirections, SketchError};
use crate::past::Past;
use crate::scorer::LEAST_VARIANCE;
use crate::settings::{ScoreForm, SketchForm};
use crate::standard::Role;
use crate::verdict::MOST_COLUMNS;
use std::collections::{BTreeMap, HashMap};
use thiserror::Error;

/// Constants closer to each other than this, times max(1, |value|), are the same.
const SAME: f64 = 1e-9;

/// Why models are not one.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum MergeError {
    /// There is none.
    #[error("there is no model to merge")]
    Nothing,
    /// They score differently, so that they have no threshold in common. Train one of them again.
    #[error("a model of the form {first:?} and one of the form {other:?} have no score in common")]
    Forms {
        /// Of the model with the most rows.
        first: ScoreForm,
        /// Of another one.
        other: ScoreForm,
    },
    /// Rows that were scaled to unit length cannot be expressed by other means.
    #[error("models of the relative form cannot be merged: lengths of rows are not kept")]
    Relative,
    /// Together they have too many columns.
    #[error("{0} columns together, up to {MOST_COLUMNS} are possible")]
    Columns(usize),
    /// The decomposition failed.
    #[error("the sketches cannot be put together")]
    Sketch(#[from] SketchError),
}

impl Model {
    /// One model that stands for the rows of all `models`, for [`Detector::warm`](crate::Detector::warm). Columns are matched by fingerprint;
    /// the result has those of all. See the module's source for what is carried over and what is decided. O(l² m) per model.
    ///
    /// # Errors
    ///
    /// [`MergeError`] if there is none, if they score differently, or if a decomposition fails.
    pub fn merge(models: &[&Self]) -> Result<Self, MergeError> {
        let mut parts: Vec<Part<'_>> = models.iter().map(|model| Part::new(model)).collect();
        parts.sort_by(|a, b| b.rows.total_cmp(&a.rows));
        let Some(first) = parts.first().map(|part| part.model) else { return Err(MergeError::Nothing) };
        if parts.len() == 1 {
            return Ok(first.clone());
        }
        for Part { model, .. } in &parts {
            let (first, other) = (first.rule.score, model.rule.score);
            match other {
                ScoreForm::PaperRelative => return Err(MergeError::Relative),
                _ if other != first => return Err(MergeError::Forms { first, other }),
                _ => {}
            }
        }
        let union = Union::new(&parts);
        if union.columns.len() > MOST_COLUMNS {
            return Err(MergeError::Columns(union.columns.len()));
        }
        union.model(&parts)
    }

    /// The standardised second moments of this model's rows as `terms` has them: n times that, as rows of `width` values, and per column the
    /// sum of squares. The first row holds the shift of the means.
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

/// Where a column of one model is in other terms, and what its values become there: scale · z + shift.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Term {
    pub(crate) column: usize,
    pub(crate) scale: f64,
    pub(crate) shift: f64,
}

/// Second moments of a model's rows in other terms.
#[derive(Debug)]
pub(crate) struct Moments {
    pub(crate) rows: Vec<Vec<f64>>,
    pub(crate) squares: Vec<f64>,
}

/// A model, and the rows that it stands for.
struct Part<'a> {
    model: &'a Model,
    rows: f64,
}

impl<'a> Part<'a> {
    fn new(model: &'a Model) -> Self {
        Self { model, rows: model.rows_learnt() }
    }
}

/// The columns of all models together.
struct Union {
    columns: Vec<ModelColumn>,
    /// Per model and column of it: its term in the union.
    terms: Vec<Vec<Option<Term>>>,
    /// Of all models.
    rows: f64,
}

impl Union {
    fn new(parts: &[Part<'_>]) -> Self {
        let places = places(parts.iter().map(|part| part.model));
        let width = places.iter().flatten().max().map_or(0, |last| last + 1);
        let mut seen: Vec<Vec<(&ModelColumn, f64)>> = vec![Vec::new(); width];
        let mut spoken: Vec<Option<&ModelColumn>> = vec![None; width];
        for (part, places) in parts.iter().zip(&places) {
            for (column, place) in part.model.columns.iter().zip(places) {
                let counts = column.role != Role::Unwatched;
                let known = spoken[*place].filter(|known| known.role != Role::Unwatched);
                if known.is_none() {
                    spoken[*place] = Some(column);
                }
                if counts && known.is_none_or(|known| known.level == column.level) {
                    seen[*place].push((column, part.rows));
                }
            }
        }
        let rows: f64 = parts.iter().map(|part| part.rows).sum();
        let columns: Vec<ModelColumn> =
            spoken.into_iter().flatten().zip(&seen).map(|(spoken, seen)| pooled(spoken, seen)).collect();
        let term = |part: &Part<'_>, (index, place): (usize, &usize)| {
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

    fn model(self, parts: &[Part<'_>]) -> Result<Model, MergeError> {
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
        let mut past = Past::restored(sketch, self.rows, &squares);
        let (basis, found) = past.shrink(rank)?;
        let highest = parts.iter().map(|part| part.model).max_by(|a, b| a.gamma.total_cmp(&b.gamma));
        let highest = highest.unwrap_or(parts[0].model);
        let columns = self.columns.into_iter().zip(found.residual.iter());
        Ok(Model {
            columns: columns.map(|(column, variance)| ModelColumn { variance: *variance, ..column }).collect(),
            gamma: highest.gamma,
            quantiles: highest.quantiles,
            averaged: parts.iter().map(|part| part.model.averaged).fold(0, usize::saturating_add),
            rank,
            sketch_rows,
            removed: removed + past.sketch().removed(),
            inside_variance: found.inside.iter().map(|inside| inside.max(LEAST_VARIANCE)).collect(),
            basis: (0..rank).flat_map(|index| basis.direction(index)[..width].to_vec()).collect(),
            sketch: past.sketch().rows().flatten().copied().collect(),
            rule,
        })
    }
}

/// The place of every column of every model among all of them; the nth of a fingerprint is the nth elsewhere.
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

/// One column as all who have seen it have: mean and deviation of their rows together. V is still to come.
fn pooled(spoken: &ModelColumn, seen: &[(&ModelColumn, f64)]) -> ModelColumn {
    let rows: f64 = seen.iter().map(|(_, rows)| rows).sum();
    if seen.is_empty() {
        return *spoken;
    }
    let mean: f64 = seen.iter().map(|(column, n)| n / rows * column.mean).sum();
    let deviation = |column: &ModelColumn| if column.inverse > 0.0 { 1.0 / column.inverse } else { 0.0 };
    let variance: f64 =
        seen.iter().map(|(column, n)| n / rows * (deviation(column).powi(2) + (column.mean - mean).powi(2))).sum();
    let apart = |column: &ModelColumn| (column.mean - mean).abs() > SAME * mean.abs().max(1.0);
    let moves = seen.iter().any(|(column, _)| column.role == Role::Watched || apart(column));
    let (role, inverse) = if moves { (Role::Watched, 1.0 / variance.sqrt()) } else { (Role::Constant, 0.0) };
    ModelColumn { role, mean, inverse, variance: 0.0, ..*spoken }
}

#[cfg(test)]
mod tests;
