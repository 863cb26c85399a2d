//! Histograms: several slots and three columns each.

use core::num::NonZeroU64;
use std::collections::BTreeMap;

use transport::RegionBuffer;
use wire::histogram::Scale;
use wire::id::{MetricId, ReplicaId};
use wire::metric::TickDivider;
use wire::time::Nanos;

use super::series_place::SeriesPlace;
use crate::aggregation::Method;
use crate::histogram::{self, Buckets, Growth};
use crate::observation::{Observation, ObservationTime, SeriesLocation, ValueTime, is_due};
use crate::outlier::{Combination, Deviation, ReplicaValues, usual_after};

/// Number of statistics: count, mean and 99th percentile.
const STATISTICS: usize = 3;

/// One histogram in one replica.
#[derive(Clone, Debug)]
struct Reading {
    location: SeriesLocation,
    /// Index of its region.
    region: usize,
    /// Its first word in the region's buffer.
    word: usize,
    buckets: Buckets,
    seen: Nanos,
    /// Heartbeat word of its region at the last observation, if the region is sampled.
    written: Option<u64>,
    last: [f64; STATISTICS],
    /// What `last` usually is; NaN while that is unknown.
    usual: [f64; STATISTICS],
    /// Observations since `last` was read; `None` if it was never read.
    age: Option<u32>,
}

/// One histogram in all replicas.
#[derive(Clone, Debug)]
pub(super) struct Histogram {
    metric: MetricId,
    scale: Scale,
    parts: NonZeroU64,
    every: TickDivider,
    /// `None`: the aggregation is unknown, so the columns are missing.
    method: Option<Method>,
    /// Index of its first column.
    first: usize,
    readings: Vec<Reading>,
    /// Sum of the buckets of all replicas if the aggregation is a sum, and its statistics.
    merged: Box<[u64]>,
    of_all: [f64; STATISTICS],
}

/// The properties of a histogram.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) metric: MetricId,
    pub(super) scale: Scale,
    pub(super) parts: NonZeroU64,
    pub(super) every: TickDivider,
}

/// All of an LMAP's histograms.
#[derive(Clone, Debug, Default)]
pub(super) struct Histograms {
    all: Vec<Histogram>,
    values: Vec<f64>,
    /// What came into the histogram that is being read.
    growth: Growth,
}

impl Histograms {
    /// Adds a histogram whose first column is `first`, with its locations in the order of replicas. Allocates
    /// everything that reading it needs.
    pub(super) fn add(&mut self, shape: Shape, method: Option<Method>, first: usize, places: &[SeriesPlace]) {
        let Shape { metric, scale, parts, every } = shape;
        let slots = scale.slots() as usize;
        let merged = vec![0; if method.as_ref().is_some_and(Method::is_sum) { slots } else { 0 }].into();
        let readings = places.iter().map(|place| Reading::new(*place, scale)).collect();
        let of_all = [f64::NAN; STATISTICS];
        self.all.push(Histogram { metric, scale, parts, every, method, first, readings, merged, of_all });
        self.growth.reserve(scale);
        self.values.reserve(places.len());
    }

    /// Continues where `old` was, with every histogram of a replica whose location has not changed.
    pub(super) fn take_over(&mut self, old: Self) {
        let mut known = BTreeMap::new();
        for histogram in old.all {
            for reading in histogram.readings {
                known.insert((histogram.metric, reading.location), (histogram.scale, reading));
            }
        }
        for histogram in &mut self.all {
            for reading in &mut histogram.readings {
                if let Some((scale, old)) = known.remove(&(histogram.metric, reading.location))
                    && scale == histogram.scale
                {
                    *reading = Reading { region: reading.region, word: reading.word, ..old };
                }
            }
        }
    }

    /// Reads everything that is due in tick number `ticks`. The values of a replica count for `observations_held`
    /// observations after their own. Never allocates.
    pub(super) fn observe(
        &mut self,
        buffers: &[RegionBuffer],
        observations: &[Observation],
        (time, ticks, observations_held): (ObservationTime, u64, u32),
        row: &mut [f64],
    ) {
        let Self { all, values, growth } = self;
        for histogram in all.iter_mut().filter(|histogram| is_due(histogram.every, ticks)) {
            histogram.observe(buffers, observations, time, growth);
            for (statistic, cell) in row[histogram.first..][..STATISTICS].iter_mut().enumerate() {
                *cell = histogram.value(statistic, observations_held, values);
            }
        }
    }

    /// The values that were read last are ordinary ones.
    pub(super) fn learn_usual(&mut self) {
        let readings = self.all.iter_mut().flat_map(|histogram| &mut histogram.readings);
        for reading in readings.filter(|reading| reading.age == Some(0)) {
            for (usual, last) in reading.usual.iter_mut().zip(reading.last) {
                *usual = usual_after(*usual, last);
            }
        }
    }

    /// The histogram of a column.
    pub(super) fn of_column(&self, column: usize) -> Option<&Histogram> {
        self.all.iter().find(|histogram| (histogram.first..histogram.first + STATISTICS).contains(&column))
    }

    /// A fetch at which no row is due.
    pub(super) fn pass(&mut self, observations: &[Observation]) {
        for reading in self.all.iter_mut().flat_map(|histogram| &mut histogram.readings) {
            if let Some(observation) = observations.get(reading.region).filter(|observation| observation.forgets()) {
                reading.pass(*observation);
            }
        }
    }

    /// Memory in bytes, about.
    pub(super) fn memory_bytes(&self) -> usize {
        let of = |histogram: &Histogram| {
            let readings = histogram.readings.iter();
            let readings: usize = readings.map(|reading| size_of::<Reading>() + reading.buckets.memory_bytes()).sum();
            size_of::<Histogram>() + readings + size_of_val(&histogram.merged[..])
        };
        self.all.iter().map(of).sum::<usize>() + self.growth.memory_bytes()
    }
}

impl Histogram {
    fn observe(
        &mut self,
        buffers: &[RegionBuffer],
        observations: &[Observation],
        time: ObservationTime,
        growth: &mut Growth,
    ) {
        let Self { scale, parts, readings, merged, of_all, .. } = self;
        let place = |region: usize| {
            let words = buffers.get(region).map_or(&[][..], |buffer| &buffer.words[..]);
            (observations.get(region).copied().unwrap_or(Observation::Unread), words)
        };
        // What all replicas added is what the only one did: there is nothing to merge, and nothing to compute again.
        if let [only] = &mut readings[..] {
            let (observation, words) = place(only.region);
            only.observe(observation, words, (*scale, *parts), time, growth);
            *of_all = only.last;
            return;
        }
        merged.fill(0);
        for reading in readings {
            let (observation, words) = place(reading.region);
            if reading.observe(observation, words, (*scale, *parts), time, growth) {
                growth.add_to(merged);
            }
        }
        if !self.merged.is_empty() {
            self.of_all = histogram::statistics(self.scale, self.parts, &self.merged);
        }
    }

    fn value(&self, statistic: usize, observations_held: u32, values: &mut Vec<f64>) -> f64 {
        let Some(method) = &self.method else { return f64::NAN };
        if !self.readings.iter().any(|reading| reading.age == Some(0)) {
            return f64::NAN;
        }
        if statistic > 0 && !self.merged.is_empty() {
            return self.of_all[statistic];
        }
        values.clear();
        values.extend(self.readings.iter().filter_map(|reading| reading.value(statistic, observations_held)));
        method.apply(values)
    }

    /// The replica that stands out in `column`, one of its own. Merged buckets are not kept by replica: their mean is
    /// that of the replicas, weighted, and their 99th percentile is taken to be the largest one.
    pub(super) fn outlier(
        &self,
        (column, observations_held): (usize, u32),
        deviation: Deviation,
        values: &mut ReplicaValues,
    ) -> Option<ReplicaId> {
        let (statistic, method) = (column - self.first, self.method.as_ref()?);
        let is_merged = statistic > 0 && !self.merged.is_empty();
        // Only new values are merged.
        let held = if is_merged { 0 } else { observations_held };
        values.clear();
        for reading in &self.readings {
            let value = reading.value(statistic, held).unwrap_or(f64::NAN);
            let weight = if is_merged { reading.value(0, held).unwrap_or(0.0) } else { 1.0 };
            values.push(reading.location.replica, value, reading.usual[statistic], weight);
        }
        let combination = match statistic {
            _ if !is_merged => Combination::By(method),
            1 => Combination::WeightedMean,
            _ => Combination::Largest,
        };
        values.outlier(combination, deviation)
    }
}

impl Reading {
    fn new(SeriesPlace { location, region, word }: SeriesPlace, scale: Scale) -> Self {
        let (buckets, last) = (Buckets::new(scale), [f64::NAN; STATISTICS]);
        Self { location, region, word, buckets, seen: Nanos::ZERO, written: None, last, usual: last, age: None }
    }

    /// Reads the region's `words`. Returns true if there is a new value; then `growth` is what came since the last one.
    fn observe(
        &mut self,
        observation: Observation,
        words: &[u64],
        (scale, parts): (Scale, NonZeroU64),
        time: ObservationTime,
        growth: &mut Growth,
    ) -> bool {
        let first = self.word;
        let new = match observation {
            Observation::Fresh => true,
            Observation::Sampled(written) | Observation::Timed(written) => {
                self.written.replace(written) != Some(written)
            }
            Observation::Unsampled | Observation::Unread | Observation::Discarded | Observation::Silent => false,
        };
        let slots = words.get(first..first + scale.slots() as usize).filter(|_| new);
        let time = ValueTime::of(observation, time);
        if let Some(values) = slots.and_then(|slots| self.values(slots, scale, parts, time, growth)) {
            (self.last, self.age) = (values, Some(0));
            return true;
        }
        self.pass(observation);
        false
    }

    /// An observation without new values.
    fn pass(&mut self, observation: Observation) {
        if observation.forgets() {
            self.buckets.forget();
        }
        self.age = self.age.filter(|_| observation != Observation::Silent).map(|age| age.saturating_add(1));
    }

    fn values(
        &mut self,
        slots: &[u64],
        scale: Scale,
        parts: NonZeroU64,
        time: ValueTime,
        growth: &mut Growth,
    ) -> Option<[f64; STATISTICS]> {
        let before = core::mem::replace(&mut self.seen, time.at());
        if !self.buckets.step(slots, growth) {
            return None;
        }
        let [count, mean, p99] = growth.statistics(scale, parts);
        Some([count / time.intervals_since(before)?, mean, p99])
    }

    /// The value of `statistic`, if it is at most `observations` observations old.
    fn value(&self, statistic: usize, observations: u32) -> Option<f64> {
        let value = self.last[statistic];
        (self.age.is_some_and(|age| age <= observations) && !value.is_nan()).then_some(value)
    }
}
