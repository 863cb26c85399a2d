//! A reference implementation of columns, series by series, each with its own state: slow and simple.

use std::collections::BTreeMap;

use transport::RegionBuffer;
use wire::control::LmapSpec;
use wire::id::{MetricId, RegionId};
use wire::metric::{Kind, TickDivider};
use wire::time::Nanos;

use crate::aggregation::{Aggregations, Method};
use crate::histogram::statistics;
use crate::observation::{Observation, ObservationTime, SeriesLocation};

const STATISTICS: usize = 3;

enum Memory {
    Nothing,
    Count(Option<(Nanos, u64)>),
    Histogram(Option<Vec<u64>>, Nanos),
}

/// One series in one replica.
struct Reading {
    location: SeriesLocation,
    region: usize,
    memory: Memory,
    written: Option<u64>,
    last: [f64; STATISTICS],
    age: Option<u32>,
}

/// One series in all replicas.
struct Metric {
    id: MetricId,
    kind: Kind,
    parts: core::num::NonZeroU64,
    every: TickDivider,
    method: Option<Method>,
    first: usize,
    readings: Vec<Reading>,
    merged: Vec<u64>,
    of_all: [f64; STATISTICS],
}

pub(super) struct Columns {
    metrics: Vec<Metric>,
    row: Vec<f64>,
    ticks: u64,
    observations_held: u32,
}

impl Columns {
    pub(super) fn new(
        spec: &LmapSpec,
        regions: &BTreeMap<RegionId, usize>,
        aggregations: &Aggregations,
        observations_held: u32,
    ) -> Self {
        let (mut metrics, mut first) = (Vec::new(), 0);
        for metric in &spec.metrics {
            let (kind, parts) = (metric.series.kind, metric.series.parts_per_unit);
            let method = aggregations.find(&metric.aggregation);
            let summed = matches!(kind, Kind::Histogram(_)) && method.as_ref().is_some_and(Method::is_sum);
            let mut readings = Vec::new();
            for replica in &spec.replicas {
                for location in replica.places.iter().filter(|location| location.metric == metric.id) {
                    let region = regions[&location.region];
                    let location =
                        SeriesLocation { replica: replica.id, region: location.region, first: location.first };
                    readings.push(Reading::new(location, region, kind));
                }
            }
            readings.sort_by_key(|reading| reading.location);
            metrics.push(Metric {
                id: metric.id,
                kind,
                parts,
                every: metric.every,
                method,
                first,
                readings,
                merged: vec![0; if summed { kind.slots() as usize } else { 0 }],
                of_all: [f64::NAN; STATISTICS],
            });
            first += kind.statistics().len();
        }
        Self { metrics, row: vec![f64::NAN; first], ticks: 0, observations_held }
    }

    pub(super) fn take_over(mut self, old: Self) -> Self {
        self.ticks = old.ticks;
        let (mut readings, mut rows) = (BTreeMap::new(), BTreeMap::new());
        for metric in old.metrics {
            rows.insert(metric.id, (metric.kind, metric.first));
            for reading in metric.readings {
                readings.insert((metric.id, reading.location), (metric.kind, reading));
            }
        }
        for metric in &mut self.metrics {
            for reading in &mut metric.readings {
                if let Some((kind, old)) = readings.remove(&(metric.id, reading.location))
                    && kind == metric.kind
                {
                    *reading = Reading { location: reading.location, region: reading.region, ..old };
                }
            }
            if let Some((_, first)) = rows.get(&metric.id).filter(|(kind, _)| *kind == metric.kind) {
                let width = metric.kind.statistics().len();
                self.row[metric.first..][..width].copy_from_slice(&old.row[*first..][..width]);
            }
        }
        self
    }

    pub(super) fn read(
        &mut self,
        buffers: &[RegionBuffer],
        observations: &[Observation],
        time: ObservationTime,
    ) -> &[f64] {
        let due = |every: TickDivider, ticks: u64| ticks.is_multiple_of(u64::from(every.get()));
        for metric in self.metrics.iter_mut().filter(|metric| due(metric.every, self.ticks)) {
            metric.observe(buffers, observations, time);
            for statistic in 0..metric.kind.statistics().len() {
                self.row[metric.first + statistic] = metric.value(statistic, self.observations_held);
            }
        }
        self.ticks += 1;
        &self.row
    }
}

impl Metric {
    fn observe(&mut self, buffers: &[RegionBuffer], observations: &[Observation], time: ObservationTime) {
        self.merged.fill(0);
        for reading in &mut self.readings {
            let (observation, words) = (observations[reading.region], &buffers[reading.region].words);
            let mut added = vec![0; self.kind.slots() as usize];
            if reading.observe(observation, words, (self.kind, self.parts), time, &mut added) {
                for (merged, added) in self.merged.iter_mut().zip(added) {
                    *merged = merged.wrapping_add(added);
                }
            }
        }
        if let (Kind::Histogram(scale), false) = (self.kind, self.merged.is_empty()) {
            self.of_all = statistics(scale, self.parts, &self.merged);
        }
    }

    fn value(&self, statistic: usize, observations_held: u32) -> f64 {
        let Some(method) = &self.method else { return f64::NAN };
        if !self.readings.iter().any(|reading| reading.age == Some(0)) {
            return f64::NAN;
        }
        if statistic > 0 && !self.merged.is_empty() {
            return self.of_all[statistic];
        }
        let mut of: BTreeMap<wire::id::ReplicaId, Vec<f64>> = BTreeMap::new();
        for reading in &self.readings {
            let value = reading.last[statistic];
            if reading.age.is_some_and(|age| age <= observations_held) && !value.is_nan() {
                of.entry(reading.location.replica).or_default().push(value);
            }
        }
        let sum = |words: &Vec<f64>| words[1..].iter().fold(words[0], |sum, word| sum + word);
        method.apply(&mut of.values().map(sum).collect::<Vec<_>>())
    }
}

/// The increase `added` since `before`, per interval.
fn per_interval(time: ObservationTime, added: f64, before: Nanos) -> Option<f64> {
    let elapsed = time.at.since(before).filter(|elapsed| *elapsed != Nanos::ZERO)?;
    let whole = time.interval.nanos().get();
    Some(added / ((elapsed.0 + whole / 2) / whole).max(1) as f64)
}

impl Reading {
    fn new(location: SeriesLocation, region: usize, kind: Kind) -> Self {
        let memory = match kind {
            Kind::Counter => Memory::Count(None),
            Kind::UpDownCounter | Kind::Gauge => Memory::Nothing,
            Kind::Histogram(_) => Memory::Histogram(None, Nanos::ZERO),
        };
        Self { location, region, memory, written: None, last: [f64::NAN; STATISTICS], age: None }
    }

    fn observe(
        &mut self,
        observation: Observation,
        words: &[u64],
        (kind, parts): (Kind, core::num::NonZeroU64),
        time: ObservationTime,
        added: &mut [u64],
    ) -> bool {
        let new = match observation {
            Observation::Fresh => true,
            Observation::Sampled(written) | Observation::Timed(written) => {
                self.written.replace(written) != Some(written)
            }
            Observation::Unsampled | Observation::Unread | Observation::Discarded | Observation::Silent => false,
        };
        let slots = &words[self.location.first.word()..][..kind.slots() as usize];
        if let Some(values) = Some(slots).filter(|_| new).and_then(|slots| self.values(slots, kind, parts, time, added))
        {
            (self.last, self.age) = (values, Some(0));
            return true;
        }
        match observation {
            Observation::Fresh
            | Observation::Sampled(_)
            | Observation::Timed(_)
            | Observation::Unsampled
            | Observation::Unread => {}
            Observation::Discarded => self.forget(),
            Observation::Silent => {
                self.forget();
                self.age = None;
            }
        }
        self.age = self.age.map(|age| age + 1);
        false
    }

    fn values(
        &mut self,
        slots: &[u64],
        kind: Kind,
        parts: core::num::NonZeroU64,
        time: ObservationTime,
        added: &mut [u64],
    ) -> Option<[f64; STATISTICS]> {
        let one = |value: f64| value.is_finite().then_some([value, f64::NAN, f64::NAN]);
        match (kind, &mut self.memory) {
            (Kind::Gauge, _) => one(f64::from_bits(slots[0])),
            (Kind::UpDownCounter, _) => one(slots[0].cast_signed() as f64),
            (Kind::Counter, Memory::Count(before)) => {
                let (then, before) = before.replace((time.at, slots[0]))?;
                one(per_interval(time, slots[0].checked_sub(before)? as f64, then)?)
            }
            (Kind::Histogram(scale), Memory::Histogram(before, then)) => {
                let then = core::mem::replace(then, time.at);
                let before = before.replace(slots.to_vec())?;
                for (at, (added, before)) in added.iter_mut().zip(before).enumerate() {
                    let is_sum = at == slots.len() - 1;
                    *added = if is_sum { slots[at].wrapping_sub(before) } else { slots[at].checked_sub(before)? };
                }
                let [count, mean, p99] = statistics(scale, parts, added);
                Some([per_interval(time, count, then)?, mean, p99])
            }
            _ => unreachable!("a reading has its kind's memory"),
        }
    }

    fn forget(&mut self) {
        match &mut self.memory {
            Memory::Nothing => {}
            Memory::Count(before) => *before = None,
            Memory::Histogram(before, _) => *before = None,
        }
    }
}
