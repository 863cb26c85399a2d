//! Explanations: which columns a score comes from.
//!
//! The square of a score is a quadratic form of the standardised row, s² = zᵀA z with A = (I − UUᵀ)W(I − UUᵀ) + U
//! T⁻¹Uᵀ, and a column's part is zⱼ (A z)ⱼ: its deviation times the sensitivity of the score to it. So a column is
//! named if both are large. The parts add up to s², including the energy inside the subspace. The residual alone,
//! rⱼ²/Vⱼ, names a wrong column when a fault moves along a learnt direction, and blames normal columns for what
//! correlated columns do;
//! |zⱼ| alone blames columns that follow the load. `docs/detection.md` compares them on labelled data.

use crate::column::Column;
use crate::intake::Intake;
use crate::pipeline::Pipeline;
use crate::saturation::Saturations;
use crate::scorer::Projection;
use crate::standard::Role;

/// Learnt directions explain a deviation if they leave less than this share of it.
const EXPLAINED: f64 = 0.5;

/// Whether a value lies above or below what was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Above the expected value.
    Above,
    /// Below the expected value, or equal to it.
    Below,
}

/// The contribution of one column to a score. Values are in the column's unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reason {
    /// Index of the column in the row.
    pub column: usize,
    /// Its share of the square of the score (not smoothed), in (0, 1\]. The shares of all columns add up to 1; a column
    /// that lowers the score has none. Of a row with which another episode begins within one: of what is new in it.
    pub share: f64,
    /// The value in the row.
    pub seen: f64,
    /// The value expected from the learnt directions, each limited to a plausible size. Where these explain most of the
    /// deviation, how far the row lies along them is what was judged: then it is the mean of training. For a level: the
    /// value before plus the expected increment. For a column that was constant in training: its value then. For one
    /// that is too much by itself ([`Saturation`](crate::Saturation)): its mean before.
    pub expected: f64,
    /// Whether `seen` is above or below `expected`.
    pub direction: Direction,
    /// Deviations of training (clipped) between the value, or a level's increment, and its mean. For a column that was
    /// constant: the weight of constants. For one that is too much by itself: deviations from its mean before.
    pub z: f64,
    /// Rows since the column first stood out (by 3 deviations, its own or its residual's) in the current run of unusual
    /// rows; five ordinary rows end a run. 0: since this row, or it does not stand out by itself.
    pub since_rows: u32,
}

/// The row scored last, and all that judged it.
#[derive(Clone, Copy)]
pub(crate) struct JudgedRow<'a> {
    pub(crate) pipeline: &'a Pipeline,
    /// The row itself, or what of it is to be explained.
    pub(crate) projection: &'a Projection,
    pub(crate) intake: &'a Intake,
    pub(crate) saturations: &'a Saturations,
}

/// Fills `out` with the `top` columns of the row scored last, largest share first. O(m (k + top)).
pub(crate) fn explain(judged: JudgedRow<'_>, top: usize, out: &mut Vec<Reason>) {
    let mut buffer = Buffer::default();
    let contributions = buffer.contributions(judged);
    largest(Parts::of(judged, contributions), top, out);
}

/// Fills `out` with the share of each group, in the order in which groups first appear among the columns. O(m k).
pub(crate) fn group_shares(judged: JudgedRow<'_>, columns: &[Column], out: &mut Vec<(u16, f64)>) {
    let mut buffer = Buffer::default();
    let contributions = buffer.contributions(judged);
    by_group(Parts::of(judged, contributions), columns, out);
}

/// [`explain`], [`group_shares`] and, if `shares` are asked for, [`column_shares`] at once: what each column
/// contributes, which takes most of the time, is computed once. O(m (k + top)).
pub(crate) fn explain_at_once(
    judged: JudgedRow<'_>,
    (top, columns): (usize, &[Column]),
    out: &mut Vec<Reason>,
    groups: &mut Vec<(u16, f64)>,
    shares: Option<&mut Vec<(usize, f64)>>,
) {
    let mut buffer = Buffer::default();
    let contributions = buffer.contributions(judged);
    let parts = Parts::of(judged, contributions);
    largest(parts, top, out);
    by_group(parts, columns, groups);
    if let Some(shares) = shares {
        by_column(judged, contributions, shares);
    }
}

/// What each column contributes to the square of a score, and what all of them do.
#[derive(Clone, Copy)]
struct Parts<'a> {
    judged: JudgedRow<'a>,
    contributions: &'a [f64],
    total: f64,
}

impl<'a> Parts<'a> {
    fn of(judged: JudgedRow<'a>, contributions: &'a [f64]) -> Self {
        let total: f64 = parts(judged, contributions).map(|(_, part)| part).sum();
        Self { judged, contributions, total }
    }
}

fn largest(Parts { judged, contributions, total }: Parts<'_>, top: usize, out: &mut Vec<Reason>) {
    out.clear();
    if total <= 0.0 {
        return;
    }
    for (column, part) in parts(judged, contributions) {
        let share = part / total;
        let place = out.partition_point(|reason| reason.share >= share);
        if place >= top {
            continue;
        }
        out.truncate(top - 1);
        out.insert(place, untold(column, share));
    }
    // Many columns give way to larger ones: only those that are left are told about.
    for told in out {
        *told = reason(judged, told.column, told.share);
    }
}

fn by_group(Parts { judged, contributions, total }: Parts<'_>, columns: &[Column], out: &mut Vec<(u16, f64)>) {
    out.clear();
    for column in columns {
        if !out.iter().any(|(group, _)| *group == column.group) {
            out.push((column.group, 0.0));
        }
    }
    for (column, part) in parts(judged, contributions) {
        let group = columns[column].group;
        if let Some((_, share)) = out.iter_mut().find(|(known, _)| *known == group)
            && total > 0.0
        {
            *share += part / total;
        }
    }
}

/// Fills `out` with the share of each column that has one, in the order of the columns. O(m k).
pub(crate) fn column_shares(judged: JudgedRow<'_>, out: &mut Vec<(usize, f64)>) {
    let mut buffer = Buffer::default();
    let contributions = buffer.contributions(judged);
    by_column(judged, contributions, out);
}

fn by_column(judged: JudgedRow<'_>, contributions: &[f64], out: &mut Vec<(usize, f64)>) {
    out.clear();
    // Once for all rows: how many columns have a part differs.
    out.reserve(contributions.len());
    out.extend(parts(judged, contributions));
    out.sort_unstable_by_key(|(column, _)| *column);
    let total: f64 = out.iter().map(|(_, part)| part).sum();
    for (_, part) in out.iter_mut() {
        *part /= total;
    }
}

/// Fills `out` with each column that is judged and has a value, in the order of the columns. O(m k).
pub(crate) fn explain_each(judged: JudgedRow<'_>, out: &mut Vec<Reason>) {
    out.clear();
    let mut shares = Vec::new();
    column_shares(judged, &mut shares);
    let mut shares = shares.into_iter().peekable();
    for (column, role) in judged.pipeline.standard.roles.iter().enumerate() {
        let share = shares.next_if(|(of, _)| *of == column).map_or(0.0, |(_, share)| share);
        if *role != Role::Unwatched && !judged.intake.value(column).is_nan() {
            out.push(reason(judged, column, share));
        }
    }
}

/// Fills `out` with the residual of each column, NaN for one that is not watched or has no value. O(m).
pub(crate) fn residuals(pipeline: &Pipeline, intake: &Intake, out: &mut Vec<f32>) {
    out.clear();
    out.extend(pipeline.standard.roles.iter().enumerate().map(|(column, role)| {
        let is_judged = *role == Role::Watched && !intake.value(column).is_nan();
        if is_judged { pipeline.projection.residual[column] } else { f32::NAN }
    }));
}

/// Numbers of which there is room on the stack.
const NEAR_DIRECTIONS: usize = 64;
const NEAR_COLUMNS: usize = 512;

/// A buffer of one number per direction and one per column, on the stack for a basis of up to [`NEAR_DIRECTIONS`] and
/// rows of up to [`NEAR_COLUMNS`].
struct Buffer {
    pulls: [f64; NEAR_DIRECTIONS],
    contributions: [f64; NEAR_COLUMNS],
    far: Vec<f64>,
}

impl Default for Buffer {
    fn default() -> Self {
        Self { pulls: [0.0; NEAR_DIRECTIONS], contributions: [0.0; NEAR_COLUMNS], far: Vec::new() }
    }
}

impl Buffer {
    /// What each column of the row adds to the square of its score, whether it is watched or not. O(m k).
    fn contributions(&mut self, judged: JudgedRow<'_>) -> &[f64] {
        let JudgedRow { pipeline, projection, .. } = judged;
        let (rank, columns) = (pipeline.scorer.basis.rank(), pipeline.standard.roles.len());
        let (pulls, contributions) = if rank <= NEAR_DIRECTIONS && columns <= NEAR_COLUMNS {
            (&mut self.pulls[..rank], &mut self.contributions[..columns])
        } else {
            self.far.resize(rank + columns, 0.0);
            self.far.split_at_mut(rank)
        };
        pipeline.scorer.pulls(projection, pulls);
        pipeline.scorer.contributions(projection, pulls, contributions);
        contributions
    }
}

/// The parts of the square of the score that are above 0, by column. Constants that moved share their bounded part. A
/// column that is too much by itself has at least the part that brings a score to γ. A column without any value so far
/// has no part.
fn parts<'a>(judged: JudgedRow<'a>, contributions: &'a [f64]) -> impl Iterator<Item = (usize, f64)> + 'a {
    let JudgedRow { pipeline, intake, saturations, .. } = judged;
    // A column that is not watched may have a rounding error in the basis.
    let roles = pipeline.standard.roles.iter().enumerate();
    let watched = roles.filter(|(column, role)| **role == Role::Watched && !intake.value(*column).is_nan());
    let part_of = move |column: usize| contributions[column];
    let watched = watched.map(move |(column, _)| (column, part_of(column)));
    let each = pipeline.constant_square() / f64::from(pipeline.moved.max(1));
    let parts = watched.chain(pipeline.moved_constants().map(move |column| (column, each)));
    let is_saturated = move |column| saturations.any() && saturations.over().any(|(over, ..)| over == column);
    // A column that lasts in longer rows has at least its part there.
    let (long_rows, long) = (&pipeline.long_rows, pipeline.long_rows.squares_at_limit());
    let square = pipeline.gamma * pipeline.gamma;
    let lasting = move |column: usize| long.as_ref().map_or(0.0, |long| long_rows.part(column, long) * square);
    let parts = parts.map(move |(column, part)| (column, part.max(lasting(column))));
    let by_score = parts.filter(move |(column, part)| *part > 0.0 && !is_saturated(*column));
    let by_itself = saturations.over().map(move |(column, ..)| {
        let is_watched = pipeline.standard.roles[column] == Role::Watched;
        let part = if is_watched { part_of(column) } else { 0.0 };
        (column, part.max(pipeline.gamma_in_force().powi(2)))
    });
    by_score.chain(by_itself)
}

/// A column with its share, of which nothing else is said yet.
fn untold(column: usize, share: f64) -> Reason {
    Reason { column, share, seen: 0.0, expected: 0.0, direction: Direction::Below, z: 0.0, since_rows: 0 }
}

fn reason(judged: JudgedRow<'_>, column: usize, share: f64) -> Reason {
    let JudgedRow { pipeline, projection, intake, saturations } = judged;
    if let Some((expected, deviation)) = saturations.usual(column) {
        let seen = intake.value(column);
        let z = pipeline.standard.soft((seen - expected) / deviation.max(f64::MIN_POSITIVE));
        let direction = if seen > expected { Direction::Above } else { Direction::Below };
        return Reason { column, share, seen, expected, direction, z, since_rows: pipeline.onsets.rows(column) };
    }
    let standard = &pipeline.standard;
    let (seen, before) = (intake.value(column), intake.before(column));
    let since_rows = pipeline.onsets.rows(column);
    let is_level = pipeline.levels.binary_search(&(column as u32)).is_ok();
    if standard.roles[column] != Role::Watched {
        let expected = if is_level { before } else { 0.0 } + standard.mean[column];
        let direction = if seen > expected { Direction::Above } else { Direction::Below };
        let z = pipeline.constant_rule.weight.copysign(seen - expected);
        return Reason { column, share, seen, expected, direction, z, since_rows };
    }
    let (z, residual) = (projection.z[column], f64::from(projection.residual[column]));
    let is_along = residual.abs() < EXPLAINED * z.abs();
    let learnt = if is_along { 0.0 } else { pipeline.scorer.expected(projection, column) };
    let expected = standard.value(column, learnt * projection.length);
    let expected = if is_level && !before.is_nan() { before + expected } else { expected };
    let mean = standard.mean[column];
    let expected = pipeline.latches.centre(column, seen, mean).map_or(expected, |centre| expected + centre - mean);
    let direction = if seen > expected { Direction::Above } else { Direction::Below };
    let z = pipeline.projection.z[column] * pipeline.projection.length;
    Reason { column, share, seen, expected, direction, z, since_rows }
}
