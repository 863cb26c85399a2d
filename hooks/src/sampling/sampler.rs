//! One service's rows, and what of them is sent.

use crate::sampling::columns::Column;
use crate::sampling::ledger::{Ledger, LostSample, Suppressed};
use crate::sampling::ring::Ring;
use crate::sampling::rule::{RuleError, SamplingPolicy, SamplingRule};
use crate::sampling::steering::{Allowance, Knob};
use crate::time::UnixNanos;

/// Names one column of a service. Given out by whoever names its series (a fingerprint of its title, say).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ColumnId(pub u64);

/// Which of a column's two series a sample belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Series {
    /// At a steady interval.
    Baseline,
    /// While there is something to say.
    Dense,
}

/// What is to be sent. Within one series of one column, times rise strictly.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Which of the two.
    pub series: Series,
    /// Which column.
    pub column: ColumnId,
    /// Milliseconds since 1970.
    pub at_ms: u64,
    /// The value; `None` marks the end of the series, because its column or its service is gone.
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

/// A row of another width than was said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a row of {found} values, {expected} columns were announced")]
pub struct WidthError {
    /// Columns, as announced.
    pub expected: usize,
    /// Values.
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
    theta: Knob,
    delta: Knob,
    baseline: Ledger,
    dense: Ledger,
    last_ms: Option<u64>,
    next_baseline: UnixNanos,
    /// Rows that the score still keeps it on.
    on: u32,
    /// The row at hand, without what of it was sent; kept for its memory.
    rest: Vec<f64>,
    rows: usize,
}

impl Sampler {
    /// No columns yet.
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
            theta: Knob::new(share),
            delta: Knob::new(share),
            baseline: Ledger::default(),
            dense: Ledger::default(),
            last_ms: None,
            next_baseline: UnixNanos(0),
            on: 0,
            rest: Vec::new(),
            rows: 0,
        })
    }

    /// The columns of rows from `at` on. What is known of a column that stays is kept; the series of one that goes are ended. Rows that wait
    /// are suppressed. O(columns²), at a change only.
    pub fn set_columns(&mut self, ids: &[ColumnId], at: UnixNanos, mut sink: impl FnMut(Sample)) {
        let waited = self.ring.clear();
        self.dense.waiting -= waited;
        self.dense.add_suppressed(Suppressed::Policy, waited);
        // A mark is a sample of its series, too: later than the last one, and rows after it are later than the mark.
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

    /// The service is gone: all of its series are ended.
    pub fn gone(&mut self, at: UnixNanos, sink: impl FnMut(Sample)) {
        self.set_columns(&[], at, sink);
    }

    /// A row came. What is to be sent of it, and of rows before it, goes to `sink`. Cost: O(columns); times rows before a trigger for a column
    /// that moved.
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
            self.baseline.add_lost(LostSample::OutOfOrder, present);
            self.dense.add_lost(LostSample::OutOfOrder, present);
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

    /// The baseline's books.
    #[must_use]
    pub const fn baseline(&self) -> &Ledger {
        &self.baseline
    }

    /// The dense series' books.
    #[must_use]
    pub const fn dense(&self) -> &Ledger {
        &self.dense
    }

    /// The books of `series`, for whoever knows what arrived.
    pub const fn ledger_mut(&mut self, series: Series) -> &mut Ledger {
        match series {
            Series::Baseline => &mut self.baseline,
            Series::Dense => &mut self.dense,
        }
    }

    /// θ and δ as they are now, where the policy has them.
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
            self.baseline.add_suppressed(Suppressed::Policy, present);
            return;
        }
        let interval = self.rule.baseline.0;
        self.next_baseline = UnixNanos((row.at.0 / interval + 1).saturating_mul(interval));
        self.baseline.handed += present;
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
        self.dense.add_suppressed(Suppressed::Policy, gone);
    }

    /// Sends what came before, as far as it is affordable beside the row at hand, which has `present` samples. Returns how many samples it was.
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
        self.dense.handed += sent;
        self.dense.add_suppressed(Suppressed::Budget, suppressed);
        sent + suppressed
    }

    /// The whole row, or nothing of it.
    fn send_whole(&mut self, at_ms: u64, present: u64, sink: &mut impl FnMut(Sample)) {
        let affordable = self.allowance.affordable() >= present;
        for place in 0..self.rest.len() {
            if !self.rest[place].is_nan() {
                self.decide(place, at_ms, affordable, sink);
            }
        }
    }

    /// The columns that moved; where not all are affordable, another one comes first in each row. Returns how many moved.
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

    /// A wanted sample of the row at hand is sent or suppressed, and does not wait. What came before it in its series cannot follow it any
    /// more.
    fn decide(&mut self, place: usize, at_ms: u64, affordable: bool, sink: &mut impl FnMut(Sample)) {
        let value = core::mem::replace(&mut self.rest[place], f64::NAN);
        if !affordable {
            self.dense.add_suppressed(Suppressed::Budget, 1);
            return;
        }
        let settled = self.ring.settle(place);
        self.dense.waiting -= settled;
        self.dense.add_suppressed(Suppressed::Policy, settled);
        self.columns[place].send(value);
        self.allowance.spend(1);
        self.dense.handed += 1;
        sink(Sample { series: Series::Dense, column: self.ids[place], at_ms, value: Some(value) });
    }
}
