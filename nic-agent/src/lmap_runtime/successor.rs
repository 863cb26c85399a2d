//! A changed interval: what is normal at the new one is learnt beside the one that goes on judging.
//!
//! A model is of one interval: a counter's increments are other numbers in a longer one. So the models of earlier
//! intervals stay on a *shelf*, and a change to one of those takes effect with its second row. Otherwise a *successor*
//! learns from rows of its own, until it is armed and both are quiet. An alarm that is on then goes on.

use std::collections::BTreeMap;
use std::sync::Arc;

use wire::control::LmapSpec;
use wire::id::MetricId;
use wire::metric::{TickDivider, stride};
use wire::time::{Interval, Nanos};

use crate::columns::Columns;
use crate::detector_slot::Detectors;
use crate::jobs::Jobs;
use crate::observation::ObservationTime;
use crate::regions::Regions;

/// Intervals of an LMAP whose models are kept besides those that are running.
const SHELF_INTERVALS: usize = 3;
/// Rows that a successor has to judge before it takes over: its first one has no increments.
const JUDGED_ROWS: u32 = 2;

/// Models that were learnt at other intervals, the oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shelf(Vec<(Interval, Arc<lmap::Model>)>);

impl Shelf {
    /// Keeps the model of `interval` in place of an earlier one, or of the oldest.
    pub(crate) fn put(&mut self, interval: Interval, model: Option<Arc<lmap::Model>>) {
        let Some(model) = model else { return };
        self.0.retain(|(known, _)| *known != interval);
        if self.0.len() == SHELF_INTERVALS {
            self.0.remove(0);
        }
        self.0.push((interval, model));
    }

    /// The model that was learnt at `interval`.
    pub(crate) fn get(&self, interval: Interval) -> Option<Arc<lmap::Model>> {
        self.0.iter().find(|(known, _)| *known == interval).map(|(_, model)| Arc::clone(model))
    }

    /// Memory in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.0.iter().map(|(_, model)| model.memory_bytes() as u64).sum()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// How often each metric is read, in rows of the interval that judges.
pub(crate) type Strides = Arc<BTreeMap<MetricId, TickDivider>>;

/// The strides of a configuration.
pub(crate) fn strides(spec: &LmapSpec) -> Strides {
    Arc::new(spec.metrics.iter().map(|metric| (metric.id, metric.every)).collect())
}

/// `spec` for rows at another interval, whose strides are `known`; those of other metrics are scaled.
pub(crate) fn at_interval(spec: &LmapSpec, interval: Interval, known: &Strides) -> LmapSpec {
    let mut other = LmapSpec { interval, ..spec.clone() };
    for metric in &mut other.metrics {
        let period = Nanos(spec.interval.length().0.saturating_mul(u64::from(metric.every.get())));
        let scaled = if metric.every == TickDivider::MIN { TickDivider::MIN } else { stride(period, interval) };
        metric.every = known.get(&metric.id).copied().unwrap_or(scaled);
    }
    other
}

/// What is known of a fetch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowSigns {
    /// There are new values.
    pub(crate) usable: bool,
    /// The row may be learnt.
    pub(crate) learn: bool,
    /// An alarm is on.
    pub(crate) in_alarm: bool,
}

/// The columns and detectors of the interval that is learnt.
#[derive(Debug)]
pub(crate) struct Successor {
    pub(crate) interval: Interval,
    pub(crate) columns: Columns,
    pub(crate) detectors: Detectors,
    pub(crate) strides: Strides,
    /// It began with a model: it may take over during an alarm.
    is_warm: bool,
    gap: bool,
    rows: u32,
    /// Its columns are those of a configuration that has ended.
    is_stale: bool,
}

impl Successor {
    /// One that has seen no row.
    pub(crate) fn new(
        interval: Interval,
        columns: Columns,
        detectors: Detectors,
        strides: Strides,
        is_warm: bool,
    ) -> Self {
        Self { interval, columns, detectors, strides, is_warm, gap: true, rows: 0, is_stale: false }
    }

    /// Continues with the columns of a later configuration.
    pub(crate) fn with_columns(mut self, columns: Columns, strides: Strides) -> Self {
        self.columns = if self.is_stale { columns } else { columns.take_over(self.columns) };
        self.gap |= core::mem::take(&mut self.is_stale);
        Self { strides, ..self }
    }

    /// Its configuration has ended: the places of its columns may be others from now on.
    pub(crate) fn retain(&mut self) {
        self.is_stale = true;
    }

    /// A gap in time or in the replicas.
    pub(crate) fn gap(&mut self) {
        self.gap = true;
    }

    /// A fetch at which no row of its own is due.
    pub(crate) fn pass(&mut self, regions: &Regions) {
        self.columns.pass(regions.observations());
    }

    /// Its next row. Returns whether it can take over.
    pub(crate) fn row(&mut self, at: Nanos, regions: &Regions, signs: RowSigns, jobs: &mut Jobs) -> bool {
        let RowSigns { usable, learn, in_alarm } = signs;
        let time = ObservationTime::of_row(at, self.interval);
        let row = self.columns.read(&regions.buffers, regions.observations(), time);
        if !usable {
            self.gap = true;
            return false;
        }
        if core::mem::take(&mut self.gap) {
            self.detectors.gap();
        }
        if regions.several_services {
            self.detectors.forget_missing(row);
        }
        // What is learnt in an alarm is no normal.
        let Some((verdict, _)) = self.detectors.step(row, learn && !in_alarm, jobs) else { return false };
        self.rows = self.rows.saturating_add(1);
        let is_quiet = !verdict.over && verdict.episode == lmap::Episode::Quiet && !in_alarm;
        if is_quiet {
            self.columns.learn_usual();
        }
        verdict.state.judges() && self.rows >= JUDGED_ROWS && (self.is_warm || is_quiet)
    }
}
