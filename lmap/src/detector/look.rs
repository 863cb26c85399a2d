//! Interim scores: what a detector would say about a row that is not one of its sequence.
//!
//! While a service seems to be in trouble, its metrics may be fetched more often than a row is due. Two kinds of rows
//! come of it, both of which the model that was learnt from rows can judge:
//!
//! - A *partial* row covers only the part of the interval that has passed since the last row. Its increments are
//!   extrapolated to an interval. It stands for the next row, before that is complete, as if the rest of it were as
//!   usual: its distance counts `part` times. So a burst of a moment, which whole rows have as well, is no more than it
//!   will be in the row (D94). A gauge that is exactly as it was in the last row says nothing: it was judged there.
//! - A *sliding* row covers a whole interval, but ends between two rows. It has the distribution of any other row.
//!
//! Longer rows are judged as they would be if such a row came next, of a partial one with deviations `part` times as
//! large.
//!
//! Such a score changes nothing but its own buffer: rows are scored, smoothed and learnt as if nobody had asked.

use super::Detector;
use crate::column::{Column, ColumnKind};
use crate::intake::Intake;
use crate::pipeline::Pipeline;
use crate::scorer::Projection;

/// A row between two rows of the sequence.
#[derive(Clone, Copy, Debug)]
pub struct BetweenRow<'a> {
    /// One value per column; increments are those of a whole interval. NaN is missing, and says nothing: the last row's
    /// value may be what seemed wrong.
    pub values: &'a [f64],
    /// The values when the part that it covers began, from which levels move.
    pub before: &'a [f64],
    /// The part of the interval that it covers, in (0, 1\]; 1 for a sliding row.
    pub part: f64,
}

/// What a detector says about a row between two others.
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use = "an interim score that nobody uses costs as much as a row's"]
pub struct InterimScore {
    /// Its score, comparable with γ: finite, at least 0.
    pub score: f64,
    /// Whether it is at or above the threshold of alarms, not smoothed.
    pub over: bool,
    /// Whether an episode would begin with it if it were the next row.
    pub begins: bool,
}

/// Memory of interim scores, so that they allocate nothing after the first.
#[derive(Debug, Default)]
pub struct InterimBuffer {
    values: Vec<f64>,
    /// Columns without a value.
    missing: Vec<u32>,
    projection: Option<Projection>,
}

impl InterimBuffer {
    /// Memory in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let lists = size_of::<f64>() * self.values.capacity() + size_of::<u32>() * self.missing.capacity();
        lists + self.projection.as_ref().map_or(0, Projection::bytes)
    }
}

impl Detector {
    /// Judges a row between the last one and the next. `None` unless the detector is armed and `row` has one value per
    /// column. O(m k); allocates the first time only, and after a fit.
    pub fn look(&self, row: BetweenRow<'_>, buffer: &mut InterimBuffer) -> Option<InterimScore> {
        let pipeline = self.pipeline.as_ref().filter(|_| !self.provisional && !self.is_settling())?;
        let columns = self.columns.len();
        if !(row.values.len() == columns && row.before.len() == columns && row.part > 0.0 && row.part <= 1.0) {
            return None;
        }
        buffer.fill(row.values, &self.intake);
        let InterimBuffer { values, missing, projection } = buffer;
        if !projection.as_ref().is_some_and(|projection| projection.fits(&pipeline.scorer)) {
            *projection = Some(Projection::of(&pipeline.scorer));
        }
        let projection = projection.as_mut()?;
        self.standardise_between(pipeline, values, row, projection);
        missing.extend(pipeline.pools.would_wait(&pipeline.standard, values, &projection.z));
        missing.extend(self.unchanged(row));
        missing.sort_unstable();
        missing.dedup();
        for &column in &*missing {
            projection.z[column as usize] = 0.0;
        }
        let mut square = pipeline.scorer.score(projection);
        if !missing.is_empty() {
            for &column in &*missing {
                projection.z[column as usize] -= f64::from(projection.residual[column as usize]);
            }
            square = pipeline.scorer.score(projection);
        }
        let (moved, is_indicated) = self.moved_constants(pipeline, values, row);
        let constants = pipeline.constant_rule.square(moved, pipeline.gamma_in_force());
        let counts = row.part.powi(2);
        let group = counts * pipeline.group_square(projection);
        let long = pipeline.long_square(&pipeline.long_rows.squares_with(&projection.z, row.part));
        let alone = (counts * square + constants).max(group);
        let score = alone.max(long).sqrt().min(f64::MAX);
        let threshold = pipeline.gamma_in_force() * self.settings.episode_margin;
        let may_begin = self.episodes.would_begin() && self.steady_after(score, pipeline) >= threshold;
        let is_over_alone = alone >= threshold.powi(2);
        let begins = may_begin && (is_indicated || !self.load.would_hold(values, row.part, is_over_alone));
        Some(InterimScore { score, over: score >= threshold, begins })
    }

    /// Gauges that are exactly as they were in the last row, of a partial one. They were judged there, and may not have
    /// been read since.
    fn unchanged<'a>(&'a self, row: BetweenRow<'a>) -> impl Iterator<Item = u32> + 'a {
        let is_state = |column: &Column| column.kind == ColumnKind::Gauge && column.level != Some(false);
        let each = (0..).zip(self.columns.iter()).zip(row.values.iter().zip(row.before));
        let same =
            each.filter(move |((_, column), (value, before))| is_state(column) && value.to_bits() == before.to_bits());
        same.map(|((at, _), _)| at).filter(move |_| row.part < 1.0)
    }

    /// z of the row, in `projection`.
    fn standardise_between(
        &self,
        pipeline: &Pipeline,
        values: &[f64],
        row: BetweenRow<'_>,
        projection: &mut Projection,
    ) {
        let standard = &pipeline.standard;
        standard.row(values, &mut projection.z);
        for &level in &pipeline.levels {
            let column = level as usize;
            projection.z[column] = standard.one(column, self.move_of(column, values[column], row));
        }
        for (column, centre) in pipeline.latches.centres() {
            let deviations = |centre: f64| (values[column] - centre) * standard.inverse[column];
            if deviations(centre).abs() < deviations(standard.mean[column]).abs() {
                projection.z[column] = standard.soft(deviations(centre));
            }
        }
        for column in pipeline.latches.unjudged(values, &standard.mean) {
            projection.z[column] = 0.0;
        }
    }

    /// How much a level has moved, per interval: increments are rates already.
    fn move_of(&self, column: usize, value: f64, row: BetweenRow<'_>) -> f64 {
        let before = row.before[column];
        let moved = if before.is_nan() { 0.0 } else { value - before };
        match self.columns[column].kind {
            ColumnKind::Increment => moved,
            ColumnKind::Gauge => moved / row.part,
        }
    }

    /// How many constants moved, and whether an indicator did. A constant rate other than 0 cannot be told from a part
    /// of the interval: what comes once per interval has come, or it has not.
    fn moved_constants(&self, pipeline: &Pipeline, values: &[f64], row: BetweenRow<'_>) -> (u32, bool) {
        let moved = |constant: &&crate::constants::Constant| {
            let column = constant.column as usize;
            if !row.values[column].is_finite() {
                return false;
            }
            let is_rate = self.columns[column].kind == ColumnKind::Increment;
            let tells = row.part >= 1.0 || !is_rate || pipeline.standard.mean[column] == 0.0;
            tells && constant.would_move(values[column], self.move_of(column, values[column], row))
        };
        let moved = pipeline.constants.iter().filter(moved);
        moved.fold((0, false), |(count, any), constant| (count + 1, any || constant.indicator))
    }

    /// The smoothed score with single rows capped, if a row with this score came next.
    fn steady_after(&self, score: f64, pipeline: &Pipeline) -> f64 {
        let (gamma, weight) = (pipeline.gamma_in_force(), 2.0 / (self.settings.smoothing_span + 1.0));
        let before = self.steady.unwrap_or_else(|| score.min(gamma / 2.0));
        before + weight * (score.min(self.settings.cap() * gamma) - before)
    }

    /// Whether an episode is on.
    #[must_use]
    pub fn is_in_episode(&self) -> bool {
        self.episodes.rows() > 0
    }

    /// Begins an episode between two rows, as [`InterimScore::begins`] says. It goes on and ends by the rule of
    /// episodes. Returns false if one is on already, or the detector is not armed.
    pub fn begin_episode(&mut self) -> bool {
        if self.pipeline.is_none() || self.provisional || self.is_in_episode() {
            return false;
        }
        self.episodes.begin();
        self.counts.episodes += 1;
        self.begun_between = true;
        true
    }

    /// Ends the episode between two rows. Returns false if none is on.
    pub fn end_episode(&mut self) -> bool {
        let was_on = self.is_in_episode();
        if was_on {
            self.episodes.end();
            if let Some(novelty) = &mut self.novelty {
                novelty.end();
            }
        }
        was_on
    }
}

impl InterimBuffer {
    /// Copies a row, and lists what is missing or not finite; there it is as the last row of `intake`.
    fn fill(&mut self, row: &[f64], intake: &Intake) {
        self.values.clear();
        self.missing.clear();
        let values = row.iter().zip(intake.row());
        self.values.extend(values.map(|(value, last)| if value.is_finite() { *value } else { *last }));
        let missing = (0..).zip(row).filter(|(_, value)| !value.is_finite());
        self.missing.extend(missing.map(|(column, _)| column));
    }
}
