//! Which columns a score comes from.
//!
//! The square of a score is a quadratic form of the standardised row, s² = zᵀA z with A = (I − UUᵀ)W(I − UUᵀ) + U T⁻¹Uᵀ, and a column's part is
//! zⱼ (A z)ⱼ: how far it is from its normal times how much the score minds. So a column is named if both is the case. The parts add up to
//! s², the energy inside the subspace included. The residual alone, rⱼ²/Vⱼ, names a wrong column when a fault swings along a learnt direction,
//! and blames columns that are where they always are for what those they are tied to do; |zⱼ| alone blames the load's followers. What each
//! of them names on labelled data is in `docs/detection.md`.

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
    /// Its share of the square of the score (not smoothed), in (0, 1\]. The shares of all columns add up to 1; one that pulls
    /// the score down has none.
    pub share: f64,
    /// The value.
    pub seen: f64,
    /// The value that the learnt directions would have, none of them further out than is plausible. For a level: the value before,
    /// plus the increment expected; for a column that was constant in training: its value then.
    pub expected: f64,
    /// The side of `seen` on which it lies.
    pub direction: Direction,
    /// How many (clipped) training deviations the value, or a level's increment, lies from its mean; for a column that was
    /// constant: the constants' weight.
    pub z: f64,
    /// Since when: rows since the column first stood out (3 deviations, of its own or of its residual) in this run of rows that score γ / 2
    /// or more; a run ends with five that do not. 0: with this row, or not at all by itself.
    pub since_rows: u32,
}

/// Fills `out` with the `top` columns of the row judged last, largest share first. O(m (k + top)).
pub(crate) fn explain(pipeline: &Pipeline, intake: &Intake, top: usize, out: &mut Vec<Reason>) {
    out.clear();
    let mut room = Room::default();
    let pulls = room.pulls(pipeline);
    let total: f64 = parts(pipeline, intake, pulls).map(|(_, part)| part).sum();
    if total <= 0.0 {
        return;
    }
    for (column, part) in parts(pipeline, intake, pulls) {
        let share = part / total;
        let place = out.partition_point(|reason| reason.share >= share);
        if place >= top {
            continue;
        }
        out.truncate(top - 1);
        out.insert(place, reason(pipeline, intake, column, share));
    }
}

/// Fills `out` with the share of each group, in the order in which groups first appear among the columns.
pub(crate) fn group_shares(pipeline: &Pipeline, intake: &Intake, columns: &[Column], out: &mut Vec<(u16, f64)>) {
    out.clear();
    let mut room = Room::default();
    let pulls = room.pulls(pipeline);
    let total: f64 = parts(pipeline, intake, pulls).map(|(_, part)| part).sum();
    for column in columns {
        if !out.iter().any(|(group, _)| *group == column.group) {
            out.push((column.group, 0.0));
        }
    }
    for (column, part) in parts(pipeline, intake, pulls) {
        let group = columns[column].group;
        if let Some((_, share)) = out.iter_mut().find(|(known, _)| *known == group)
            && total > 0.0
        {
            *share += part / total;
        }
    }
}

/// Fills `out` with the share of each column that has one, in the order of the columns. O(m k).
pub(crate) fn column_shares(pipeline: &Pipeline, intake: &Intake, out: &mut Vec<(usize, f64)>) {
    out.clear();
    let mut room = Room::default();
    let pulls = room.pulls(pipeline);
    out.extend(parts(pipeline, intake, pulls));
    let total: f64 = out.iter().map(|(_, part)| part).sum();
    for (_, part) in out.iter_mut() {
        *part /= total;
    }
}

/// Room for one number per direction: none is taken from the heap for a basis of usual rank.
struct Room {
    near: [f64; 64],
    far: Vec<f64>,
}

impl Default for Room {
    fn default() -> Self {
        Self { near: [0.0; 64], far: Vec::new() }
    }
}

impl Room {
    /// The pulls of the row judged last.
    fn pulls(&mut self, pipeline: &Pipeline) -> &[f64] {
        let rank = pipeline.scorer.basis.rank();
        let room = if let Some(room) = self.near.get_mut(..rank) {
            room
        } else {
            self.far.resize(rank, 0.0);
            &mut self.far
        };
        pipeline.scorer.pulls(&pipeline.split, room);
        room
    }
}

/// What every column adds to the square of the score, if it is above 0. Constants that moved share what they are bounded to. A column that
/// has not been there yet, and was taken for what the directions make of the others, explains nothing.
fn parts(pipeline: &Pipeline, intake: &Intake, pulls: &[f64]) -> impl Iterator<Item = (usize, f64)> {
    // A column that does not take part may still get a rounding error's share through the basis.
    let roles = pipeline.standard.roles.iter().enumerate();
    let watched = roles.filter(|(column, role)| **role == Role::Watched && !intake.value(*column).is_nan());
    let watched =
        watched.map(move |(column, _)| (column, pipeline.scorer.contribution(&pipeline.split, pulls, column)));
    let each = pipeline.constant_square() / f64::from(pipeline.moved.max(1));
    watched.chain(pipeline.moved_constants().map(move |column| (column, each))).filter(|(_, part)| *part > 0.0)
}

fn reason(pipeline: &Pipeline, intake: &Intake, column: usize, share: f64) -> Reason {
    let (split, standard) = (&pipeline.split, &pipeline.standard);
    let (seen, before) = (intake.value(column), intake.before(column));
    let since_rows = pipeline.since.rows(column);
    let is_level = pipeline.levels.binary_search(&(column as u32)).is_ok();
    if standard.roles[column] != Role::Watched {
        let expected = if is_level { before } else { 0.0 } + standard.mean[column];
        let direction = if seen > expected { Direction::Above } else { Direction::Below };
        let z = pipeline.constant_rule.weight.copysign(seen - expected);
        return Reason { column, share, seen, expected, direction, z, since_rows };
    }
    let expected = standard.value(column, pipeline.scorer.expected(split, column) * split.length);
    let expected = if is_level && !before.is_nan() { before + expected } else { expected };
    let mean = standard.mean[column];
    let expected = pipeline.latches.centre(column, seen, mean).map_or(expected, |centre| expected + centre - mean);
    let direction = if seen > expected { Direction::Above } else { Direction::Below };
    Reason { column, share, seen, expected, direction, z: split.z[column] * split.length, since_rows }
}
