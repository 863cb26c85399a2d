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

mod flat;
mod histograms;
mod kernels;
#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;

use core::ops::Range;
use std::collections::BTreeMap;

use lmap::ColumnKind;
use transport::RegionBuffer;
use wire::control::{LmapSpec, MetricSpec};
use wire::id::{MetricId, RegionId};
use wire::metric::{Every, Kind, Statistic};

use crate::aggregation::{Aggregations, Method};
use crate::reading::{Look, Moment, Place, is_due};
use flat::{Flat, Memory, Series, Slots};
use histograms::{Histograms, Shape};

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
            let watched = series.group.is_judged();
            let column = lmap::Column { level, group, watched, ..lmap::Column::new(kind, title) };
            let key = ColumnKey { title, making: fingerprint(&making) };
            Self { metric: metric.id, statistic, key, column }
        })
    }
}

/// A column that several series are put together for, or one in a way of one's own.
#[derive(Debug)]
struct Pooled {
    metric: MetricId,
    column: usize,
    every: Every,
    /// `None`: nobody knows how, so that the column is missing.
    method: Option<Method>,
    /// Its series, in the order of replicas, among [`Columns::members`].
    members: Range<usize>,
}

/// One series of such a column.
#[derive(Clone, Copy, Debug)]
struct Member {
    series: u32,
    cell: u32,
}

/// What turns the regions of one LMAP into rows.
#[derive(Debug)]
pub(crate) struct Columns {
    infos: Vec<ColumnInfo>,
    /// What each metric is, and the first of its columns.
    metrics: Vec<(MetricId, Kind, usize)>,
    /// All series of one slot, and the row.
    flat: Flat,
    pooled: Vec<Pooled>,
    members: Vec<Member>,
    histograms: Histograms,
    ticks: u64,
    looks_held: u32,
    values: Vec<f64>,
}

/// What a configuration asks for, metric by metric.
#[derive(Default)]
struct Draft {
    series: Vec<Series>,
    pooled: Vec<Pooled>,
    histograms: Histograms,
}

impl Draft {
    /// `places` has the metric's replicas in order.
    fn add(&mut self, metric: &MetricSpec, first: usize, method: Option<Method>, places: &[(Place, usize)]) {
        let (id, every) = (metric.id, metric.every);
        let slots = match metric.series.kind {
            Kind::Counter => Slots::Counter,
            Kind::UpDownCounter => Slots::UpDownCounter,
            Kind::Gauge => Slots::Gauge,
            Kind::Histogram(scale) => {
                let shape = Shape { metric: id, scale, parts: metric.series.parts_per_unit, every };
                return self.histograms.add(shape, method, first, places);
            }
        };
        let alone = places.len() == 1 && method.as_ref().is_some_and(Method::keeps_one);
        let (column, memory) = (alone.then_some(first), Memory::NOTHING);
        let series = |&(place, region)| Series { metric: id, place, region, slots, every, column, memory };
        self.series.extend(places.iter().map(series));
        if !alone {
            self.pooled.push(Pooled { metric: id, column: first, every, method, members: 0..0 });
        }
    }
}

impl Columns {
    /// What `spec` asks for; `regions` tells which of the LMAP's regions a region is. Allocates all that reading needs.
    pub(crate) fn new(
        spec: &LmapSpec,
        regions: &BTreeMap<RegionId, usize>,
        aggregations: &Aggregations,
        looks_held: u32,
    ) -> Self {
        let mut places: BTreeMap<MetricId, Vec<(Place, usize)>> = BTreeMap::new();
        for replica in &spec.replicas {
            for place in &replica.places {
                if let Some(&region) = regions.get(&place.region) {
                    let found = Place { replica: replica.id, region: place.region, first: place.first };
                    places.entry(place.metric).or_default().push((found, region));
                }
            }
        }
        let (mut infos, mut metrics, mut draft) = (Vec::new(), Vec::new(), Draft::default());
        for metric in &spec.metrics {
            let places = places.entry(metric.id).or_default();
            places.sort_by_key(|(place, _)| *place);
            draft.add(metric, infos.len(), aggregations.find(&metric.aggregation), places);
            metrics.push((metric.id, metric.series.kind, infos.len()));
            infos.extend(ColumnInfo::all(metric));
        }
        let Draft { series, pooled, histograms } = draft;
        let (flat, members) = (Flat::new(series, infos.len(), looks_held), Vec::new());
        let values = Vec::with_capacity(spec.replicas.len());
        let columns = Self { infos, metrics, flat, pooled, members, histograms, ticks: 0, looks_held, values };
        columns.with_members()
    }

    /// Says where the series lie that are put together.
    fn with_members(mut self) -> Self {
        let mut of: BTreeMap<MetricId, Vec<(Place, Member)>> = BTreeMap::new();
        for ((metric, place, _), series, cell) in self.flat.all() {
            of.entry(metric).or_default().push((place, Member { series, cell }));
        }
        self.members.clear();
        for pooled in &mut self.pooled {
            let first = self.members.len();
            let of = of.entry(pooled.metric).or_default();
            of.sort_by_key(|(place, _)| *place);
            self.members.extend(of.iter().map(|(_, member)| *member));
            pooled.members = first..self.members.len();
        }
        self
    }

    /// Goes on where `old` has been, with every series of a replica that lies where it lay.
    #[must_use]
    pub(crate) fn take_over(mut self, old: Self) -> Self {
        self.ticks = old.ticks;
        self.flat = self.flat.taking_over(&old.flat, self.looks_held);
        let known: BTreeMap<_, _> = old.metrics.iter().map(|(id, kind, first)| (*id, (*kind, *first))).collect();
        for (id, kind, first) in &self.metrics {
            let Some((_, before)) = known.get(id).filter(|(known, _)| known == kind) else { continue };
            let columns = kind.statistics().len();
            let (row, old) = (&mut self.flat.row_mut()[*first..], &old.flat.row()[*before..]);
            row[..columns].copy_from_slice(&old[..columns]);
        }
        self.histograms.take_over(old.histograms);
        self.with_members()
    }

    /// The row of this tick: one value per column, NaN where it is missing. `looks` says how each region, in the order of `buffers`,
    /// came out of the fetch. O(slots). Never allocates.
    pub(crate) fn read(&mut self, buffers: &[RegionBuffer], looks: &[Look], moment: Moment) -> &[f64] {
        let all_new = self.flat.look(buffers, looks, moment, self.ticks);
        for pooled in self.pooled.iter().filter(|pooled| is_due(pooled.every, self.ticks)) {
            let members = &self.members[pooled.members.clone()];
            let value = pooled.value(&self.flat, members, all_new, &mut self.values);
            self.flat.row_mut()[pooled.column] = value;
        }
        self.histograms.look(buffers, looks, (moment, self.ticks, self.looks_held), self.flat.row_mut());
        self.ticks += 1;
        self.flat.row()
    }

    /// The row of the last tick.
    pub(crate) fn row(&self) -> &[f64] {
        self.flat.row()
    }

    /// What the columns are, in the order of the row.
    pub(crate) fn infos(&self) -> &[ColumnInfo] {
        &self.infos
    }
}

impl Pooled {
    fn value(&self, flat: &Flat, members: &[Member], all_new: bool, values: &mut Vec<f64>) -> f64 {
        let Some(method) = &self.method else { return f64::NAN };
        if !(all_new || members.iter().any(|member| flat.is_new(member.series))) {
            return f64::NAN;
        }
        values.clear();
        values.extend(members.iter().map(|member| flat.cell(member.cell)).filter(|value| !value.is_nan()));
        method.apply(values)
    }
}
