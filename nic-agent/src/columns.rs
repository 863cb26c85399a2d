//! From the slots of all replicas to one row of an LMAP: values of each replica, then one value for each column.
//!
//! # Replicas that come, go, fall silent, or cannot be read
//!
//! - Counters become increments in each replica before they are aggregated, so no cumulative value enters or leaves a
//!   sum. A new replica adds its increase since its first observation, and a removed one takes nothing away.
//! - A replica that cannot be read for a moment (failed fetch, changed layout, counter reset, NaN) counts with its last
//!   value for a few observations, so a sum does not dip.
//! - A replica that is removed or silent does not count. The others are the service: with load balancing, sums of
//!   counters stay as they were. The LMAP's differences and smoothing restart at such a change.
//! - A column is missing (NaN) if no replica has a new value for it, or if its expression has no finite value.
//! - The words of a sharded counter are one value of their replica: they are summed before replicas are aggregated.
//!
//! A summed histogram is merged bucket by bucket: its mean and 99th percentile are those of the values of all replicas.
//!
//! What is usual of each replica is known, too, so that a column can name the one that makes it unusual.

mod derived;
mod histograms;
mod kernels;
mod outliers;
#[cfg(test)]
mod reference;
mod saturation;
mod scalars;
mod series_place;
#[cfg(test)]
mod tests;

use core::ops::Range;
use std::collections::BTreeMap;

use lmap::ColumnKind;
use transport::{RegionBuffer, Runs};
use wire::control::{LmapSpec, MetricSpec};
use wire::id::{MetricId, RegionId, ReplicaId};
use wire::metric::{Kind, Statistic, TickDivider, fingerprint, is_estimated, is_load, is_pool};
use wire::time::Nanos;

use crate::aggregation::{Aggregations, Method};
use crate::observation::{Observation, ObservationTime, SeriesLocation, is_due};
use derived::DerivedColumn;
use histograms::{Histograms, Shape};
pub use saturation::saturation;
use scalars::{Scalars, Series, SeriesState, SlotKind};
use series_place::SeriesPlace;

/// Identity of a column across configurations and host agents: its title, and how it is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ColumnKey {
    /// Fingerprint of metric, statistic and labels.
    title: u64,
    /// Fingerprint of kind, aggregation, tick divider and parts per unit.
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

impl ColumnInfo {
    fn all(metric: &MetricSpec, interval: Nanos) -> impl Iterator<Item = Self> + '_ {
        let series = &metric.series;
        let making = format!("{:?} {:?} {} {}", series.kind, metric.aggregation, metric.every, series.parts_per_unit);
        series.kind.statistics().iter().map(move |&statistic| {
            let column_title = series.column_title(statistic);
            let title = fingerprint(&column_title);
            // Statistics of an interval are no state that could drift or latch. Only values may be classified as
            // levels.
            let (kind, level) = match statistic {
                Statistic::Increment | Statistic::Count => (ColumnKind::Increment, None),
                Statistic::Value => (ColumnKind::Gauge, None),
                Statistic::Mean | Statistic::P99 => (ColumnKind::Gauge, Some(false)),
            };
            let group = series.group as u16;
            let (watched, indicator) = (series.group.is_judged(), series.group.is_indicator());
            let unit = series.column_unit(statistic);
            let saturation = saturation(series.name.as_str(), unit, interval, metric.every.get());
            let is_gauge = statistic == Statistic::Value;
            let pool = is_pool(&column_title, is_gauge);
            let estimated = is_estimated(&column_title, is_gauge);
            let load = is_load(&column_title, kind == ColumnKind::Increment);
            let base = lmap::Column::new(kind, title);
            let column = lmap::Column { level, group, watched, indicator, pool, estimated, load, saturation, ..base };
            let key = ColumnKey { title, making: fingerprint(&making) };
            Self { metric: metric.id, statistic, key, column }
        })
    }
}

/// A column that is aggregated from several series, or by a user-defined aggregation.
#[derive(Clone, Debug)]
struct AggregatedColumn {
    metric: MetricId,
    column: usize,
    every: TickDivider,
    /// `None`: the aggregation is unknown, so the column is missing.
    method: Option<Method>,
    /// The range of its series in [`Columns::members`], in the order of replicas.
    members: Range<usize>,
}

/// One series of an aggregated column.
#[derive(Clone, Copy, Debug)]
struct Member {
    series: u32,
    cell: u32,
    /// Whether it is another word of the replica of the member before it.
    further_word: bool,
}

/// Computes rows from the regions of one LMAP. A clone goes on from the same observations on its own.
#[derive(Clone, Debug)]
pub(crate) struct Columns {
    infos: Vec<ColumnInfo>,
    /// The kind of each metric, and its first column.
    metrics: Vec<(MetricId, Kind, usize)>,
    /// All counters and gauges, and the row.
    scalars: Scalars,
    aggregated: Vec<AggregatedColumn>,
    members: Vec<Member>,
    /// By member, the first word of each replica: its usual value, NaN while that is unknown.
    usual: Vec<f64>,
    histograms: Histograms,
    derived: Vec<DerivedColumn>,
    /// The replica of the LMAP, if it has one only.
    only_replica: Option<ReplicaId>,
    ticks: u64,
    observations_held: u32,
    values: Vec<f64>,
}

/// The columns of a configuration, while they are collected metric by metric.
#[derive(Default)]
struct Draft {
    series: Vec<Series>,
    aggregated: Vec<AggregatedColumn>,
    histograms: Histograms,
}

impl Draft {
    /// Adds a metric; `places` has its replicas in order.
    fn add(&mut self, metric: &MetricSpec, first: usize, method: Option<Method>, places: &[SeriesPlace]) {
        let (id, every) = (metric.id, metric.every);
        let kind = match metric.series.kind {
            Kind::Counter => SlotKind::Counter,
            Kind::UpDownCounter => SlotKind::UpDownCounter,
            Kind::Gauge => SlotKind::Gauge,
            Kind::Histogram(scale) => {
                let shape = Shape { metric: id, scale, parts: metric.series.parts_per_unit, every };
                return self.histograms.add(shape, method, first, places);
            }
        };
        let alone = places.len() == 1 && method.as_ref().is_some_and(Method::keeps_one);
        let (column, state) = (alone.then_some(first), SeriesState::EMPTY);
        let series = |&SeriesPlace { location, region, word }| {
            let word = word as u32;
            Series { metric: id, location, region, word, kind, every, column, state }
        };
        self.series.extend(places.iter().map(series));
        if !alone {
            self.aggregated.push(AggregatedColumn { metric: id, column: first, every, method, members: 0..0 });
        }
    }
}

impl Columns {
    /// The columns of `spec`; `regions` has the index of each region of the LMAP, and the words in its buffer.
    /// Allocates everything that reading needs.
    pub(crate) fn new(
        spec: &LmapSpec,
        regions: &BTreeMap<RegionId, (usize, Runs)>,
        aggregations: &Aggregations,
        observations_held: u32,
    ) -> Self {
        let mut places: BTreeMap<MetricId, Vec<SeriesPlace>> = BTreeMap::new();
        for replica in &spec.replicas {
            for place in &replica.places {
                let Some((region, runs)) = regions.get(&place.region) else { continue };
                let Some(word) = runs.position(place.first.word()) else { continue };
                let location = SeriesLocation { replica: replica.id, region: place.region, first: place.first };
                places.entry(place.metric).or_default().push(SeriesPlace { location, region: *region, word });
            }
        }
        let (mut infos, mut metrics, mut draft) = (Vec::new(), Vec::new(), Draft::default());
        let (mut derived, mut methods) = (Vec::new(), BTreeMap::new());
        for metric in &spec.metrics {
            if let Some(Ok(expression)) = derived::expression(metric) {
                derived.push(DerivedColumn::new(infos.len(), expression, &spec.metrics));
            }
            let places = places.entry(metric.id).or_default();
            places.sort_by_key(|place| place.location);
            // An expression of many metrics is compiled once.
            let method = methods.entry(&metric.aggregation).or_insert_with_key(|of| aggregations.find(of)).clone();
            draft.add(metric, infos.len(), method, places);
            metrics.push((metric.id, metric.series.kind, infos.len()));
            infos.extend(ColumnInfo::all(metric, Nanos(spec.interval.nanos().get())));
        }
        let Draft { series, aggregated, histograms } = draft;
        let (scalars, members) = (Scalars::new(series, infos.len(), observations_held), Vec::new());
        let values = Vec::with_capacity(spec.replicas.len());
        let only_replica = if let [only] = &spec.replicas[..] { Some(only.id) } else { None };
        let columns = Self {
            infos,
            metrics,
            scalars,
            aggregated,
            members,
            usual: Vec::new(),
            histograms,
            derived,
            only_replica,
            ticks: 0,
            observations_held,
            values,
        };
        columns.with_members()
    }

    /// Whether the columns of `metric` can be computed; else they are missing.
    pub(crate) fn can_compute(metric: &MetricSpec, aggregations: &Aggregations) -> bool {
        derived::expression(metric)
            .map_or_else(|| aggregations.find(&metric.aggregation).is_some(), |expression| expression.is_ok())
    }

    /// Sets the members of the aggregated columns.
    fn with_members(mut self) -> Self {
        let mut of: BTreeMap<MetricId, Vec<(SeriesLocation, Member)>> = BTreeMap::new();
        for ((metric, location, _), series, cell) in self.scalars.all() {
            of.entry(metric).or_default().push((location, Member { series, cell, further_word: false }));
        }
        self.members.clear();
        for aggregated in &mut self.aggregated {
            let first = self.members.len();
            let of = of.entry(aggregated.metric).or_default();
            of.sort_by_key(|(location, _)| *location);
            for (at, (location, member)) in of.iter().enumerate() {
                let before = at.checked_sub(1).and_then(|before| of.get(before));
                let further_word = before.is_some_and(|(before, _)| before.replica == location.replica);
                self.members.push(Member { further_word, ..*member });
            }
            aggregated.members = first..self.members.len();
        }
        self.usual = vec![f64::NAN; self.members.len()];
        self
    }

    /// Continues where `old` was, with every series of a replica whose location has not changed.
    #[must_use]
    pub(crate) fn take_over(mut self, old: Self) -> Self {
        self.ticks = old.ticks;
        let usual = old.usual_of_replicas();
        self.scalars = self.scalars.taking_over(&old.scalars, self.observations_held);
        let known: BTreeMap<_, _> = old.metrics.iter().map(|(id, kind, first)| (*id, (*kind, *first))).collect();
        for (id, kind, first) in &self.metrics {
            let Some((_, before)) = known.get(id).filter(|(known, _)| known == kind) else { continue };
            let columns = kind.statistics().len();
            let (row, old) = (&mut self.scalars.row_mut()[*first..], &old.scalars.row()[*before..]);
            row[..columns].copy_from_slice(&old[..columns]);
        }
        self.histograms.take_over(old.histograms);
        self.with_members().with_usual(&usual)
    }

    /// The row of this tick: one value per column, NaN if it is missing. `observations` has the state of each region,
    /// in the order of `buffers`. O(slots). Never allocates.
    pub(crate) fn read(
        &mut self,
        buffers: &[RegionBuffer],
        observations: &[Observation],
        time: ObservationTime,
    ) -> &[f64] {
        let all_new = self.scalars.observe(buffers, observations, time, self.ticks);
        for aggregated in self.aggregated.iter().filter(|aggregated| is_due(aggregated.every, self.ticks)) {
            let members = &self.members[aggregated.members.clone()];
            let value = aggregated.value(&self.scalars, members, all_new, &mut self.values);
            self.scalars.row_mut()[aggregated.column] = value;
        }
        self.histograms.observe(
            buffers,
            observations,
            (time, self.ticks, self.observations_held),
            self.scalars.row_mut(),
        );
        for derived in &self.derived {
            derived.compute(self.scalars.row_mut());
        }
        self.ticks += 1;
        self.scalars.row()
    }

    /// Asks for the memory of the next [`read`](Self::read): that of counters and gauges.
    pub(crate) fn prefetch(&self) {
        self.scalars.prefetch();
    }

    /// A fetch at which no row is due: what must not be used any more is forgotten, and everything else stays as it is.
    /// Never allocates.
    pub(crate) fn pass(&mut self, observations: &[Observation]) {
        if observations.iter().any(|observation| observation.forgets()) {
            self.scalars.pass(observations);
            self.histograms.pass(observations);
        }
    }

    /// Memory in bytes, about.
    pub(crate) fn memory_bytes(&self) -> usize {
        let columns = size_of_val(&self.infos[..]) + size_of_val(&self.metrics[..]);
        let members = size_of_val(&self.members[..]) + size_of_val(&self.usual[..]);
        size_of::<Self>() + columns + members + self.scalars.memory_bytes() + self.histograms.memory_bytes()
    }

    /// Memory in bytes, about, with the place that there is for further columns.
    pub(crate) fn kept_bytes(&self) -> usize {
        let infos = (self.infos.capacity() - self.infos.len()) * size_of::<ColumnInfo>();
        let metrics = (self.metrics.capacity() - self.metrics.len()) * size_of::<(MetricId, Kind, usize)>();
        self.memory_bytes() + infos + metrics
    }

    /// The row of the last tick.
    pub(crate) fn row(&self) -> &[f64] {
        self.scalars.row()
    }

    /// The columns, in the order of the row.
    pub(crate) fn infos(&self) -> &[ColumnInfo] {
        &self.infos
    }
}

impl AggregatedColumn {
    fn value(&self, scalars: &Scalars, members: &[Member], all_new: bool, values: &mut Vec<f64>) -> f64 {
        let Some(method) = &self.method else { return f64::NAN };
        if !(all_new || members.iter().any(|member| scalars.is_new(member.series))) {
            return f64::NAN;
        }
        values.clear();
        // A replica without a value adds none. Its further words add to the first of them that has one.
        let mut has_value = false;
        for member in members {
            let value = scalars.cell(member.cell);
            has_value &= member.further_word;
            match values.last_mut().filter(|_| has_value) {
                _ if value.is_nan() => {}
                Some(replica) => *replica += value,
                None => {
                    values.push(value);
                    has_value = true;
                }
            }
        }
        method.apply(values)
    }
}
