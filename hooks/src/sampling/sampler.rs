//! One service's rows, and the samples to send of them.

use crate::sampling::columns::Column;
use crate::sampling::ledger::{Ledger, SampleLossReason, SuppressionReason};
use crate::sampling::ring::Ring;
use crate::sampling::rule::{RuleError, SamplingPolicy, SamplingRule};
use crate::sampling::steering::{Allowance, ThresholdSteering};
use wire::time::UnixNanos;

/// Id of one column of a service. Given out by the caller (a fingerprint of the column's title, for example).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ColumnId(pub u64);

/// The two series of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Series {
    /// Samples at a steady interval.
    Baseline,
    /// Samples during anomalies.
    Dense,
}

/// A sample to send. Within one series of one column, times rise strictly.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// The series of the column.
    pub series: Series,
    /// Id of the column.
    pub column: ColumnId,
    /// Milliseconds since 1970.
    pub at_ms: u64,
    /// The value; `None` marks the end of the series, because its column or its service was removed.
    pub value: Option<f64>,
}

/// One row of a service.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// When it was taken.
    pub at: UnixNanos,
    /// One value per column; NaN where there is none.
    pub values: &'a [f64],
    /// Its score as a share of γ; `None` while the LMAP is not armed.
    pub score: Option<f64>,
}

/// A row that has not one value per column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a row has {found} values, expected one for each of {expected} columns")]
pub struct WidthError {
    /// Number of announced columns.
    pub expected: usize,
    /// Number of values in the row.
    pub found: usize,
}

/// One service's sampler. Memory: 40 bytes per column, and 8 per column and row before a trigger.
#[derive(Debug)]
pub struct Sampler {
    rule: SamplingRule,
    ids: Vec<ColumnId>,
    columns: Vec<Column>,
    ring: Ring,
    allowance: Allowance,
    theta: ThresholdSteering,
    delta: ThresholdSteering,
    baseline: Ledger,
    dense: Ledger,
    last_ms: Option<u64>,
    next_baseline: UnixNanos,
    /// Rows for which dense sampling stays on because of the score.
    on: u32,
    /// The current row, without the values that were sent; kept for its memory.
    rest: Vec<f64>,
    rows: usize,
}

impl Sampler {
    /// A sampler without columns.
    ///
    /// # Errors
    ///
    /// [`RuleError`] for what is out of range.
    pub fn new(rule: SamplingRule) -> Result<Self, RuleError> {
        rule.check()?;
        let both = rule.policy.theta().is_some() && rule.policy.delta().is_some();
        let share = rule.budget.map(|budget| if both { budget / 2.0 } else { budget });
        let before = if rule.policy.theta().is_some() { rule.pre_trigger_rows } else { 0 };
        Ok(Self {
            rule,
            ids: Vec::new(),
            columns: Vec::new(),
            ring: Ring::new(before),
            allowance: Allowance::new(rule.budget),
            theta: ThresholdSteering::new(share),
            delta: ThresholdSteering::new(share),
            baseline: Ledger::default(),
            dense: Ledger::default(),
            last_ms: None,
            next_baseline: UnixNanos(0),
            on: 0,
            rest: Vec::new(),
            rows: 0,
        })
    }

    /// Sets the columns of rows from `at` on. Columns that stay keep their state; series of removed columns are ended.
    /// Rows that wait are suppressed. O(columns²).
    pub fn set_columns(&mut self, ids: &[ColumnId], at: UnixNanos, mut sink: impl FnMut(Sample)) {
        let waited = self.ring.clear();
        self.dense.waiting -= waited;
        self.dense.add_suppressed(SuppressionReason::Policy, waited);
        // An end mark is a sample of its series, too: it has to be later than the last sample, and later rows have to
        // be later than the mark.
        let at_ms = at.millis().max(self.last_ms.map_or(0, |last| last + 1));
        let mut ended = false;
        for (id, column) in self.ids.iter().zip(&self.columns).filter(|(id, _)| !ids.contains(id)) {
            let series = [(Series::Baseline, column.in_baseline), (Series::Dense, column.in_dense())];
            for (series, _) in series.into_iter().filter(|(_, there)| *there) {
                ended = true;
                sink(Sample { series, column: *id, at_ms, value: None });
            }
        }
        if ended {
            self.last_ms = Some(at_ms);
        }
        let known = |id| self.ids.iter().position(|known| known == id).map(|place| self.columns[place]);
        self.columns = ids.iter().map(|id| known(id).unwrap_or(Column::NEW)).collect();
        self.ids = ids.to_vec();
    }

    /// The wall clock was set back: what was sent after `last_ms` (milliseconds since 1970) is forgotten. Rows that
    /// wait are suppressed: their times are ahead.
    pub fn set_back(&mut self, last_ms: u64) {
        let waited = self.ring.clear();
        self.dense.waiting -= waited;
        self.dense.add_suppressed(SuppressionReason::Policy, waited);
        self.last_ms = self.last_ms.map(|last| last.min(last_ms));
        self.next_baseline = UnixNanos(0);
    }

    /// The service was removed: all of its series are ended.
    pub fn gone(&mut self, at: UnixNanos, sink: impl FnMut(Sample)) {
        self.set_columns(&[], at, sink);
    }

    /// Takes a row. `sink` takes the samples to send of it, and of earlier rows. Cost: O(columns), times the rows
    /// before a trigger for a column that moved.
    ///
    /// # Errors
    ///
    /// [`WidthError`] unless it has a value for each column. Nothing is counted then.
    pub fn row(&mut self, row: &Row<'_>, mut sink: impl FnMut(Sample)) -> Result<(), WidthError> {
        if row.values.len() != self.ids.len() {
            return Err(WidthError { expected: self.ids.len(), found: row.values.len() });
        }
        let present = row.values.iter().filter(|value| !value.is_nan()).count() as u64;
        self.baseline.seen += present;
        self.dense.seen += present;
        let at_ms = row.at.millis();
        if self.last_ms.is_some_and(|last| at_ms <= last) {
            self.baseline.add_lost(SampleLossReason::OutOfOrder, present);
            self.dense.add_lost(SampleLossReason::OutOfOrder, present);
            return Ok(());
        }
        self.last_ms = Some(at_ms);
        self.rows = self.rows.wrapping_add(1);
        self.allowance.see(present);
        self.take_baseline(row, at_ms, present, &mut sink);
        self.take_dense(row, at_ms, present, &mut sink);
        for (column, value) in self.columns.iter_mut().zip(row.values) {
            column.learn(*value);
        }
        Ok(())
    }

    /// Accounting of the baseline.
    #[must_use]
    pub const fn baseline(&self) -> &Ledger {
        &self.baseline
    }

    /// Accounting of the dense series.
    #[must_use]
    pub const fn dense(&self) -> &Ledger {
        &self.dense
    }

    /// The accounting of `series`, for results of sending.
    pub const fn ledger_mut(&mut self, series: Series) -> &mut Ledger {
        match series {
            Series::Baseline => &mut self.baseline,
            Series::Dense => &mut self.dense,
        }
    }

    /// θ and δ at present, if the policy uses them.
    #[must_use]
    pub fn thresholds(&self) -> (Option<f64>, Option<f64>) {
        let theta = self.rule.policy.theta().map(|theta| theta * self.theta.factor());
        (theta, self.rule.policy.delta().map(|delta| delta * self.delta.factor()))
    }

    /// Whether whole rows are sent because of the score.
    #[must_use]
    pub const fn is_on(&self) -> bool {
        self.on > 0
    }

    fn take_baseline(&mut self, row: &Row<'_>, at_ms: u64, present: u64, sink: &mut impl FnMut(Sample)) {
        if row.at < self.next_baseline {
            self.baseline.add_suppressed(SuppressionReason::Policy, present);
            return;
        }
        let interval = self.rule.baseline.0;
        self.next_baseline = UnixNanos((row.at.0 / interval + 1).saturating_mul(interval));
        self.baseline.in_flight += present;
        for ((column, id), &value) in self.columns.iter_mut().zip(&self.ids).zip(row.values) {
            if !value.is_nan() {
                column.in_baseline = true;
                sink(Sample { series: Series::Baseline, column: *id, at_ms, value: Some(value) });
            }
        }
    }

    fn take_dense(&mut self, row: &Row<'_>, at_ms: u64, present: u64, sink: &mut impl FnMut(Sample)) {
        let (theta, delta) = self.thresholds();
        let was_on = self.on > 0;
        if theta.zip(row.score).is_some_and(|(theta, score)| score > theta) {
            self.on = self.rule.hold_rows + 1;
        }
        let whole = self.on > 0 || self.rule.policy == SamplingPolicy::Every;
        let flushed = if self.on > 0 && !was_on { self.flush(present, sink) } else { 0 };
        self.on = self.on.saturating_sub(1);
        self.rest.clear();
        self.rest.extend_from_slice(row.values);
        if row.score.is_some() {
            self.theta.step(if whole { flushed + present } else { 0 }, present);
        }
        if whole {
            self.send_whole(at_ms, present, sink);
        } else if let Some(delta) = delta {
            let moved = self.send_moved(at_ms, delta, sink);
            self.delta.step(moved, present);
        }
        let rest = self.rest.iter().filter(|value| !value.is_nan()).count() as u64;
        let gone = self.ring.push(at_ms, &self.rest);
        self.dense.waiting = self.dense.waiting + rest - gone;
        self.dense.add_suppressed(SuppressionReason::Policy, gone);
    }

    /// Sends earlier rows, as far as the budget allows beside the current row with `present` samples. Returns how many
    /// samples were selected.
    fn flush(&mut self, present: u64, sink: &mut impl FnMut(Sample)) -> u64 {
        let affordable = self.allowance.affordable().saturating_sub(present);
        let (ids, columns) = (&self.ids, &mut self.columns);
        let (sent, suppressed) = self.ring.drain(affordable, |at_ms, values| {
            for ((column, id), &value) in columns.iter_mut().zip(ids).zip(values) {
                if !value.is_nan() {
                    column.send(value);
                    sink(Sample { series: Series::Dense, column: *id, at_ms, value: Some(value) });
                }
            }
        });
        self.allowance.spend(sent);
        self.dense.waiting -= sent + suppressed;
        self.dense.in_flight += sent;
        self.dense.add_suppressed(SuppressionReason::Budget, suppressed);
        sent + suppressed
    }

    /// Sends the whole row, or nothing of it.
    fn send_whole(&mut self, at_ms: u64, present: u64, sink: &mut impl FnMut(Sample)) {
        let affordable = self.allowance.affordable() >= present;
        for place in 0..self.rest.len() {
            if !self.rest[place].is_nan() {
                self.decide(place, at_ms, affordable, sink);
            }
        }
    }

    /// Sends columns that moved. If the budget does not cover all of them, each row begins with another column. Returns
    /// how many moved.
    fn send_moved(&mut self, at_ms: u64, delta: f64, sink: &mut impl FnMut(Sample)) -> u64 {
        let width = self.rest.len();
        let mut wanted = 0;
        for step in 0..width {
            let place = (step + self.rows) % width;
            let value = self.rest[place];
            if !value.is_nan() && self.columns[place].moved(value, delta) {
                wanted += 1;
                let affordable = self.allowance.affordable() >= 1;
                self.decide(place, at_ms, affordable, sink);
            }
        }
        wanted
    }

    /// Sends or suppresses a selected sample of the current row. Earlier samples of its series cannot follow it any
    /// more, and are suppressed.
    fn decide(&mut self, place: usize, at_ms: u64, affordable: bool, sink: &mut impl FnMut(Sample)) {
        let value = core::mem::replace(&mut self.rest[place], f64::NAN);
        if !affordable {
            self.dense.add_suppressed(SuppressionReason::Budget, 1);
            return;
        }
        let settled = self.ring.settle(place);
        self.dense.waiting -= settled;
        self.dense.add_suppressed(SuppressionReason::Policy, settled);
        self.columns[place].send(value);
        self.allowance.spend(1);
        self.dense.in_flight += 1;
        sink(Sample { series: Series::Dense, column: self.ids[place], at_ms, value: Some(value) });
    }
}
