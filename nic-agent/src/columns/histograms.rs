//! Histograms: runs of slots, three columns each.

use core::num::NonZeroU64;
use std::collections::BTreeMap;

use transport::RegionBuffer;
use wire::histogram::Scale;
use wire::id::MetricId;
use wire::metric::Every;
use wire::time::Nanos;

use crate::aggregation::Method;
use crate::histogram::{self, Buckets};
use crate::reading::{Look, Moment, Place, is_due};

/// Count, mean and 99th percentile.
const STATISTICS: usize = 3;

/// One histogram in one replica.
#[derive(Debug)]
struct Reading {
    place: Place,
    /// Which of the LMAP's regions.
    region: usize,
    buckets: Buckets,
    seen: Nanos,
    /// How often its region had been written at the last look, if it is sampled.
    written: Option<u64>,
    last: [f64; STATISTICS],
    /// Looks since `last` was read; `None` if there is nothing.
    age: Option<u32>,
}

/// One histogram in all replicas.
#[derive(Debug)]
pub(super) struct Histogram {
    metric: MetricId,
    scale: Scale,
    parts: NonZeroU64,
    every: Every,
    /// `None`: nobody knows how, so that the columns are missing.
    method: Option<Method>,
    /// The first of its columns.
    first: usize,
    readings: Vec<Reading>,
    /// Buckets of all replicas, if it is summed, and what they say.
    merged: Box<[u64]>,
    of_all: [f64; STATISTICS],
}

/// What a histogram is like.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) metric: MetricId,
    pub(super) scale: Scale,
    pub(super) parts: NonZeroU64,
    pub(super) every: Every,
}

/// All of an LMAP's histograms.
#[derive(Debug, Default)]
pub(super) struct Histograms {
    all: Vec<Histogram>,
    values: Vec<f64>,
    /// What was added to each slot of the one that is looked at.
    added: Vec<u64>,
}

impl Histograms {
    /// Adds one whose columns begin with `first`, with its places in the order of replicas. Allocates what reading it needs.
    pub(super) fn add(&mut self, shape: Shape, method: Option<Method>, first: usize, places: &[(Place, usize)]) {
        let Shape { metric, scale, parts, every } = shape;
        let slots = scale.slots() as usize;
        let merged = vec![0; if method.as_ref().is_some_and(Method::is_sum) { slots } else { 0 }].into();
        let readings = places.iter().map(|(place, region)| Reading::new(*place, *region, scale)).collect();
        let of_all = [f64::NAN; STATISTICS];
        self.all.push(Histogram { metric, scale, parts, every, method, first, readings, merged, of_all });
        self.added.resize(self.added.len().max(slots), 0);
        self.values.reserve(places.len());
    }

    /// Goes on where `old` has been, with every histogram of a replica that lies where it lay.
    pub(super) fn take_over(&mut self, old: Self) {
        let mut known = BTreeMap::new();
        for histogram in old.all {
            for reading in histogram.readings {
                known.insert((histogram.metric, reading.place), (histogram.scale, reading));
            }
        }
        for histogram in &mut self.all {
            for reading in &mut histogram.readings {
                if let Some((scale, old)) = known.remove(&(histogram.metric, reading.place))
                    && scale == histogram.scale
                {
                    *reading = Reading { region: reading.region, ..old };
                }
            }
        }
    }

    /// One look at everything that is due in tick number `ticks`. A replica's values count for `looks_held` looks after their own. Never
    /// allocates.
    pub(super) fn look(
        &mut self,
        buffers: &[RegionBuffer],
        looks: &[Look],
        (moment, ticks, looks_held): (Moment, u64, u32),
        row: &mut [f64],
    ) {
        let Self { all, values, added } = self;
        for histogram in all.iter_mut().filter(|histogram| is_due(histogram.every, ticks)) {
            histogram.look(buffers, looks, moment, added);
            for (statistic, cell) in row[histogram.first..][..STATISTICS].iter_mut().enumerate() {
                *cell = histogram.value(statistic, looks_held, values);
            }
        }
    }
}

impl Histogram {
    fn look(&mut self, buffers: &[RegionBuffer], looks: &[Look], moment: Moment, added: &mut [u64]) {
        let Self { scale, parts, readings, merged, .. } = self;
        merged.fill(0);
        for reading in readings {
            let look = looks.get(reading.region).copied().unwrap_or(Look::Unread);
            let words = buffers.get(reading.region).map_or(&[][..], |buffer| &buffer.words);
            if reading.look(look, words, (*scale, *parts), moment, added) {
                for (merged, added) in merged.iter_mut().zip(&*added) {
                    *merged = merged.wrapping_add(*added);
                }
            }
        }
        if !self.merged.is_empty() {
            self.of_all = histogram::statistics(self.scale, self.parts, &self.merged);
        }
    }

    fn value(&self, statistic: usize, looks_held: u32, values: &mut Vec<f64>) -> f64 {
        let Some(method) = &self.method else { return f64::NAN };
        if !self.readings.iter().any(|reading| reading.age == Some(0)) {
            return f64::NAN;
        }
        if statistic > 0 && !self.merged.is_empty() {
            return self.of_all[statistic];
        }
        values.clear();
        values.extend(self.readings.iter().filter_map(|reading| reading.value(statistic, looks_held)));
        method.apply(values)
    }
}

impl Reading {
    fn new(place: Place, region: usize, scale: Scale) -> Self {
        let (buckets, last) = (Buckets::new(scale), [f64::NAN; STATISTICS]);
        Self { place, region, buckets, seen: Nanos::ZERO, written: None, last, age: None }
    }

    /// Looks at the region's `words`. `added` is room for the slots; it holds what was added to them if the result is true: there is a new
    /// value.
    fn look(
        &mut self,
        look: Look,
        words: &[u64],
        (scale, parts): (Scale, NonZeroU64),
        moment: Moment,
        added: &mut [u64],
    ) -> bool {
        let first = self.place.first.word();
        let new = match look {
            Look::Fresh => true,
            Look::Sampled(written) => self.written.replace(written) != Some(written),
            Look::Unread | Look::Discarded | Look::Silent => false,
        };
        let slots = words.get(first..first + scale.slots() as usize).filter(|_| new);
        if let Some(values) = slots.and_then(|slots| self.values(slots, scale, parts, moment, added)) {
            (self.last, self.age) = (values, Some(0));
            return true;
        }
        if matches!(look, Look::Discarded | Look::Silent) {
            self.buckets.forget();
        }
        self.age = self.age.filter(|_| look != Look::Silent).map(|age| age.saturating_add(1));
        false
    }

    fn values(
        &mut self,
        slots: &[u64],
        scale: Scale,
        parts: NonZeroU64,
        moment: Moment,
        added: &mut [u64],
    ) -> Option<[f64; STATISTICS]> {
        let before = core::mem::replace(&mut self.seen, moment.at);
        let added = added.get_mut(..slots.len())?;
        if !self.buckets.step(slots, added) {
            return None;
        }
        let [count, mean, p99] = histogram::statistics(scale, parts, added);
        Some([count / moment.intervals_since(before)?, mean, p99])
    }

    /// The value of `statistic`, at most `looks` looks old.
    fn value(&self, statistic: usize, looks: u32) -> Option<f64> {
        let value = self.last[statistic];
        (self.age.is_some_and(|age| age <= looks) && !value.is_nan()).then_some(value)
    }
}
