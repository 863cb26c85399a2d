//! Which columns a score comes from.

use crate::column::Column;
use crate::intake::Intake;
use crate::pipeline::Pipeline;
use crate::standard::Role;

/// Whether a value lies above or below what was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Above.
    Above,
    /// Below, or exactly there.
    Below,
}

/// What one column has to do with a score. Values are in the column's own unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reason {
    /// The column, as in the row.
    pub column: usize,
    /// Its share of the square of the score (not smoothed), in \[0, 1\]. What lies along the learnt directions belongs to
    /// no single column: the shares of all columns add up to 1 − [`Detector::inside_share`](crate::Detector::inside_share).
    pub share: f64,
    /// The value.
    pub seen: f64,
    /// The value that the learnt directions would have. For a level: the value before, plus the increment expected; for
    /// a column that was constant in training: the value before.
    pub expected: f64,
    /// The side of `seen` on which it lies.
    pub direction: Direction,
    /// How many (clipped) training deviations the value, or a level's increment, lies from its mean; for a column that was
    /// constant: the constants' weight.
    pub z: f64,
}

/// Fills `out` with the `top` columns of the row judged last, largest share first. O(m · top).
pub(crate) fn explain(pipeline: &Pipeline, intake: &Intake, top: usize, out: &mut Vec<Reason>) {
    out.clear();
    let total = total(pipeline);
    if total <= 0.0 {
        return;
    }
    for (column, part) in parts(pipeline, intake) {
        let share = part / total;
        let place = out.partition_point(|reason| reason.share >= share);
        if place >= top || part <= 0.0 {
            continue;
        }
        out.truncate(top - 1);
        out.insert(place, reason(pipeline, intake, column, share));
    }
}

/// Fills `out` with the share of each group, in the order in which groups first appear among the columns.
pub(crate) fn group_shares(pipeline: &Pipeline, intake: &Intake, columns: &[Column], out: &mut Vec<(u16, f64)>) {
    out.clear();
    let total = total(pipeline);
    for column in columns {
        if !out.iter().any(|(group, _)| *group == column.group) {
            out.push((column.group, 0.0));
        }
    }
    for (column, part) in parts(pipeline, intake) {
        let group = columns[column].group;
        if let Some((_, share)) = out.iter_mut().find(|(known, _)| *known == group)
            && total > 0.0
        {
            *share += part / total;
        }
    }
}

/// The share of the score's square that lies along the learnt directions.
pub(crate) fn inside_share(pipeline: &Pipeline) -> f64 {
    let total = total(pipeline);
    if total > 0.0 { pipeline.scorer.inside(&pipeline.split) / total } else { 0.0 }
}

/// The square of the score, added up from its parts.
fn total(pipeline: &Pipeline) -> f64 {
    let columns = 0..pipeline.standard.columns();
    let residuals: f64 = columns.map(|column| pipeline.scorer.contribution(&pipeline.split, column)).sum();
    residuals + pipeline.scorer.inside(&pipeline.split) + pipeline.constant_rule.square(pipeline.moved)
}

/// What every column adds to the square of the score. Constants that moved share what they are bounded to.
fn parts<'a>(pipeline: &'a Pipeline, intake: &'a Intake) -> impl Iterator<Item = (usize, f64)> + 'a {
    let residuals =
        (0..pipeline.standard.columns()).map(|column| (column, pipeline.scorer.contribution(&pipeline.split, column)));
    let each = pipeline.constant_rule.square(pipeline.moved) / f64::from(pipeline.moved.max(1));
    residuals.chain(pipeline.moved_constants(intake).map(move |column| (column, each)))
}

fn reason(pipeline: &Pipeline, intake: &Intake, column: usize, share: f64) -> Reason {
    let (split, standard) = (&pipeline.split, &pipeline.standard);
    let (seen, before) = (intake.value(column), intake.before(column));
    if standard.roles[column] != Role::Watched {
        let direction = if seen > before { Direction::Above } else { Direction::Below };
        let z = pipeline.constant_rule.weight.copysign(seen - before);
        return Reason { column, share, seen, expected: before, direction, z };
    }
    let expected = standard.value(column, (split.z[column] - split.residual[column]) * split.length);
    let is_level = pipeline.levels.binary_search(&(column as u32)).is_ok();
    let expected = if is_level { before + expected } else { expected };
    let direction = if split.residual[column] > 0.0 { Direction::Above } else { Direction::Below };
    // A column that has not been there yet lies on its mean.
    let seen = if seen.is_nan() { standard.mean[column] } else { seen };
    Reason { column, share, seen, expected, direction, z: split.z[column] * split.length }
}
