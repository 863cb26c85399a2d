//! From the slots of all replicas to one row of an LMAP: values per replica, then one value per column.
//!
//! # Replicas that come, go, fall silent, or cannot be read
//! Counters become increments in each replica before they are put together, so that no cumulative value ever enters or leaves a sum:
//! a replica that comes adds what it did since its first look, not what it did in its life, and one that goes takes nothing along.
//! A replica that cannot be read for a moment (fetch failed, layout changed, counter reset, NaN) stands in the aggregate with its own
//! last value, for a few looks: a sum does not dip. A replica that is gone, or silent, does not count, and what the others do is the truth
//! about the service: where load is balanced, sums of counters go on as they were. The LMAP's differences and smoothing restart at such a
//! change. A column is missing (NaN) when no replica has a new value for it.
//!
//! A histogram that is summed is put together bucket by bucket: its mean and 99th percentile are those of all replicas' values.

use std::collections::BTreeMap;

use lmap::ColumnKind;
use transport::RegionBuffer;
use wire::control::{LmapSpec, MetricSpec};
use wire::id::{MetricId, RegionId};
use wire::metric::{Every, Kind, Statistic};

use crate::aggregation::{Aggregations, Method};
use crate::histogram;
use crate::reading::{Look, MOST_STATISTICS, Moment, Place, Reading, Shape};

/// What makes two columns the same across configurations and host agents: what it is called, and how it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ColumnKey {
    /// Of metric, statistic and labels.
    title: u64,
    /// Of kind, aggregation, frequency and parts.
    making: u64,
}

/// One column of an LMAP's row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ColumnInfo {
    pub(crate) metric: MetricId,
    pub(crate) statistic: Statistic,
    pub(crate) key: ColumnKey,
    pub(crate) column: lmap::Column,
}

/// Names a column in a model file: the 64-bit FNV-1a hash of its title, see [`wire::metric::Series::column_title`].
#[must_use]
pub fn fingerprint(title: &str) -> u64 {
    fingerprint_of(title.as_bytes())
}

/// The 64-bit FNV-1a hash of `bytes`.
pub(crate) fn fingerprint_of(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

impl ColumnInfo {
    fn all(metric: &MetricSpec) -> impl Iterator<Item = Self> + '_ {
        let series = &metric.series;
        let making = format!("{:?} {:?} {} {}", series.kind, metric.aggregation, metric.every, series.parts_per_unit);
        series.kind.statistics().iter().map(move |&statistic| {
            let title = fingerprint(&series.column_title(statistic));
            // Statistics of an interval are no state that could drift or latch, so that only values may be found to be levels.
            let (kind, level) = match statistic {
                Statistic::Increment | Statistic::Count => (ColumnKind::Increment, None),
                Statistic::Value => (ColumnKind::Gauge, None),
                Statistic::Mean | Statistic::P99 => (ColumnKind::Gauge, Some(false)),
            };
            let group = series.group as u16;
            let column = lmap::Column { level, group, ..lmap::Column::new(kind, title) };
            let key = ColumnKey { title, making: fingerprint(&making) };
            Self { metric: metric.id, statistic, key, column }
        })
    }
}

/// One series in all replicas.
#[derive(Debug)]
struct Metric {
    id: MetricId,
    shape: Shape,
    every: Every,
    /// `None`: nobody knows how, so that the columns are missing.
    method: Option<Method>,
    /// The first of its columns.
    first: usize,
    readings: Vec<Reading>,
    /// Buckets of all replicas, for a histogram that is summed, and what they say.
    merged: Box<[u64]>,
    of_all: [f64; MOST_STATISTICS],
}

/// What turns the regions of one LMAP into rows.
#[derive(Debug)]
pub(crate) struct Columns {
    infos: Vec<ColumnInfo>,
    metrics: Vec<Metric>,
    row: Vec<f64>,
    ticks: u64,
    looks_held: u32,
    values: Vec<f64>,
    added: Vec<u64>,
}

impl Columns {
    /// What `spec` asks for; `regions` tells which of the LMAP's regions a region is. Allocates all that reading needs.
    pub(crate) fn new(
        spec: &LmapSpec,
        regions: &BTreeMap<RegionId, usize>,
        aggregations: &Aggregations,
        looks_held: u32,
    ) -> Self {
        let mut infos = Vec::new();
        let mut metrics: Vec<Metric> = Vec::with_capacity(spec.metrics.len());
        let mut place_of = BTreeMap::new();
        for (at, metric) in spec.metrics.iter().enumerate() {
            let method = aggregations.find(&metric.aggregation);
            let kind = metric.series.kind;
            let summed = matches!(kind, Kind::Histogram(_)) && method.as_ref().is_some_and(Method::is_sum);
            let merged = vec![0; if summed { kind.slots() as usize } else { 0 }].into();
            let (shape, every) = (Shape { kind, parts: metric.series.parts_per_unit }, metric.every);
            let (first, readings) = (infos.len(), Vec::new());
            let of_all = [f64::NAN; MOST_STATISTICS];
            metrics.push(Metric { id: metric.id, shape, every, method, first, readings, merged, of_all });
            infos.extend(ColumnInfo::all(metric));
            place_of.insert(metric.id, at);
        }
        for replica in &spec.replicas {
            for place in &replica.places {
                let (Some(&at), Some(&region)) = (place_of.get(&place.metric), regions.get(&place.region)) else {
                    continue;
                };
                let Some(metric) = metrics.get_mut(at) else { continue };
                let place = Place { replica: replica.id, region: place.region, first: place.first };
                metric.readings.push(Reading::new(place, region, metric.shape.kind));
            }
        }
        for metric in &mut metrics {
            metric.readings.sort_by_key(|reading| reading.place);
        }
        let slots = metrics.iter().map(|metric| metric.shape.kind.slots() as usize).max().unwrap_or(0);
        Self {
            row: vec![f64::NAN; infos.len()],
            infos,
            metrics,
            ticks: 0,
            looks_held,
            values: Vec::with_capacity(spec.replicas.len()),
            added: vec![0; slots],
        }
    }

    /// Goes on where `old` has been, with every series of a replica that lies where it lay.
    pub(crate) fn take_over(&mut self, old: Self) {
        self.ticks = old.ticks;
        let mut readings = BTreeMap::new();
        let mut rows = BTreeMap::new();
        for metric in old.metrics {
            rows.insert(metric.id, (metric.shape.kind, metric.first));
            for reading in metric.readings {
                readings.insert((metric.id, reading.place), (metric.shape.kind, reading));
            }
        }
        for metric in &mut self.metrics {
            for reading in &mut metric.readings {
                if let Some((kind, old)) = readings.remove(&(metric.id, reading.place))
                    && kind == metric.shape.kind
                {
                    reading.take_over(old);
                }
            }
            let Some(&(kind, first)) = rows.get(&metric.id) else { continue };
            let width = metric.shape.kind.statistics().len();
            if kind == metric.shape.kind
                && let (Some(new), Some(old)) =
                    (self.row.get_mut(metric.first..metric.first + width), old.row.get(first..first + width))
            {
                new.copy_from_slice(old);
            }
        }
    }

    /// The row of this tick: one value per column, NaN where it is missing. `looks` says how each region, in the order of `buffers`,
    /// came out of the fetch. O(slots). Never allocates.
    pub(crate) fn read(&mut self, buffers: &[RegionBuffer], looks: &[Look], moment: Moment) -> &[f64] {
        let Self { metrics, row, values, added, ticks, looks_held, .. } = self;
        for metric in metrics.iter_mut().filter(|metric| metric.is_due(*ticks)) {
            metric.look(buffers, looks, moment, added);
            for (statistic, cell) in
                row[metric.first..].iter_mut().enumerate().take(metric.shape.kind.statistics().len())
            {
                *cell = metric.value(statistic, *looks_held, values);
            }
        }
        self.ticks += 1;
        &self.row
    }

    /// The row of the last tick.
    pub(crate) fn row(&self) -> &[f64] {
        &self.row
    }

    /// What the columns are, in the order of the row.
    pub(crate) fn infos(&self) -> &[ColumnInfo] {
        &self.infos
    }
}

impl Metric {
    fn is_due(&self, ticks: u64) -> bool {
        self.every == Every::MIN || ticks.is_multiple_of(u64::from(self.every.get()))
    }

    fn look(&mut self, buffers: &[RegionBuffer], looks: &[Look], moment: Moment, added: &mut [u64]) {
        // Most metrics have none, and to fill nothing is a call all the same.
        if !self.merged.is_empty() {
            self.merged.fill(0);
        }
        for reading in &mut self.readings {
            let look = looks.get(reading.region).copied().unwrap_or(Look::Unread);
            let words = buffers.get(reading.region).map_or(&[][..], |buffer| &buffer.words);
            if reading.look(look, words, self.shape, moment, added) {
                for (merged, added) in self.merged.iter_mut().zip(&*added) {
                    *merged = merged.wrapping_add(*added);
                }
            }
        }
        if let (Kind::Histogram(scale), false) = (self.shape.kind, self.merged.is_empty()) {
            self.of_all = histogram::statistics(scale, self.shape.parts, &self.merged);
        }
    }

    fn value(&self, statistic: usize, looks_held: u32, values: &mut Vec<f64>) -> f64 {
        let Some(method) = &self.method else { return f64::NAN };
        if !self.readings.iter().any(Reading::is_new) {
            return f64::NAN;
        }
        if statistic > 0 && !self.merged.is_empty() {
            return self.of_all[statistic.min(MOST_STATISTICS - 1)];
        }
        values.clear();
        values.extend(self.readings.iter().filter_map(|reading| reading.value(statistic, looks_held)));
        method.apply(values)
    }
}
