//! From series to slots of a region.

use std::num::NonZeroU64;

use wire::layout::Slot;
use wire::metric::{Declaration, Kind, Series as ColumnSeries};
use wire::name::{Labels, MetricName, Unit};
use wire::registration::{PlacedSeries, Shards};

use crate::distribution::Distribution;
use crate::format::FamilyKind;
use crate::lines::Lines;
use crate::naming;
use crate::placement::{self, Increase, Shape};
use crate::series::{Buckets, Family, Series, Values};

/// Label of the sum of those series of a name that have no column of their own.
pub const REST: (&str, &str) = ("series", "other");

/// Ends the name of a histogram of which only the values are counted.
const COUNT: &str = ".count";

/// What has been counted, or is measured.
#[derive(Clone, Debug)]
enum State {
    /// A total, and the factor by which it is kept in whole numbers.
    Counter { total: f64, factor: f64 },
    /// The sum of what is there in this scrape; NaN if nothing is.
    Gauge(f64),
    /// A count per bucket of the region, and the sum in the histogram's unit.
    Histogram { shape: Shape, counts: Vec<u64>, sum: f64 },
}

/// One series of the region: a series of the target, or a sum of several.
#[derive(Debug)]
pub struct Output {
    series: ColumnSeries,
    first: Slot,
    state: State,
}

/// Why a series has no output: its name is longer than that of a column may be, or has other letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoName;

impl Output {
    /// An output for `series` with the labels `labels`, in the slots from `first` on.
    pub fn new(
        (series, family): (&Series, &Family),
        labels: Labels,
        first: Slot,
        lines: &Lines,
    ) -> Result<Self, NoName> {
        let stated = family.unit.as_deref();
        // No bucket of a region holds values below 0: only how many values there are.
        let only_counted = || (State::Counter { total: 0.0, factor: 1.0 }, Kind::Counter, "", NonZeroU64::MIN);
        let (state, kind, unit, parts) = match &series.values {
            Values::Counter(_) => {
                let is_count = family.kind == FamilyKind::Summary && series.name.ends_with("_count");
                let scaled = || naming::counter_unit(&series.name, stated, family.has_fractions);
                let (unit, factor) = if is_count { ("", 1.0) } else { scaled() };
                (State::Counter { total: 0.0, factor }, Kind::Counter, unit, NonZeroU64::MIN)
            }
            Values::Gauge(_) => {
                (State::Gauge(f64::NAN), Kind::Gauge, naming::unit(&series.name, stated), NonZeroU64::MIN)
            }
            Values::Histogram(buckets) => {
                let bounds: Vec<f64> =
                    buckets.bounds.iter().map(|(bound, _)| *bound).filter(|bound| bound.is_finite()).collect();
                if bounds.first().is_some_and(|bound| *bound < 0.0) {
                    only_counted()
                } else {
                    let shape = Shape::of(&bounds);
                    let counts = vec![0; shape.scale.buckets() as usize + 1];
                    let state = State::Histogram { shape, counts, sum: 0.0 };
                    (state, Kind::Histogram(shape.scale), naming::unit(&series.name, stated), shape.parts)
                }
            }
            Values::Distribution(line) => match lines.distribution(*line) {
                Some(of) if !of.is_negative() => {
                    let shape = of.shape();
                    let state =
                        State::Histogram { shape, counts: vec![0; shape.scale.buckets() as usize + 1], sum: 0.0 };
                    (state, Kind::Histogram(shape.scale), naming::unit(&series.name, stated), shape.parts)
                }
                _ => only_counted(),
            },
        };
        let is_count =
            matches!((&series.values, kind), (Values::Distribution(_) | Values::Histogram(_), Kind::Counter));
        let suffix = if is_count { COUNT } else { "" };
        let name = MetricName::new(&format!("{}{suffix}", series.name)).map_err(|_| NoName)?;
        let group = naming::group(&series.name);
        let series = ColumnSeries { name, labels, kind, unit: Unit::new(unit).ok(), group, parts_per_unit: parts };
        Ok(Self { series, first, state })
    }

    /// The slot after its last one.
    pub const fn end(&self) -> Slot {
        Slot(self.first.0 + self.series.kind.slots())
    }

    /// The same output for another replica, of which nothing was counted.
    pub fn twin(&self) -> Self {
        let state = match &self.state {
            State::Counter { factor, .. } => State::Counter { total: 0.0, factor: *factor },
            State::Gauge(_) => State::Gauge(f64::NAN),
            State::Histogram { shape, counts, .. } => {
                State::Histogram { shape: *shape, counts: vec![0; counts.len()], sum: 0.0 }
            }
        };
        Self { series: self.series.clone(), first: self.first, state }
    }

    /// Columns of an LMAP.
    pub const fn columns(&self) -> usize {
        self.series.kind.statistics().len()
    }

    /// Moves it to the slots from `first` on.
    pub const fn move_to(&mut self, first: Slot) {
        self.first = first;
    }

    /// The series and its place.
    pub fn placed(&self) -> PlacedSeries {
        PlacedSeries {
            series: self.series.clone(),
            region: 0,
            first: self.first,
            shards: Shards::ONE,
            declared: Declaration::NONE,
        }
    }

    /// Begins a scrape.
    pub const fn begin(&mut self) {
        if let State::Gauge(value) = &mut self.state {
            *value = f64::NAN;
        }
    }

    /// Adds what `series` did in this scrape.
    pub fn add(&mut self, series: &Series, lines: &Lines) {
        match (&mut self.state, &series.values) {
            (State::Counter { total, .. }, Values::Counter(line) | Values::Distribution(line)) => {
                *total += lines.growth(*line);
            }
            (State::Counter { total, .. }, Values::Histogram(buckets)) => {
                *total += buckets.total().map_or(0.0, |line| lines.growth(line));
            }
            (State::Gauge(sum), Values::Gauge(line)) => {
                let value = lines.value(*line);
                *sum = if sum.is_nan() {
                    value
                } else if value.is_nan() {
                    *sum
                } else {
                    *sum + value
                };
            }
            (State::Histogram { shape, counts, sum }, Values::Histogram(buckets)) => {
                *sum += observe(buckets, lines, *shape, counts);
            }
            (State::Histogram { shape, counts, sum }, Values::Distribution(line)) => {
                let Some(of) = lines.distribution(*line) else { return };
                *sum += distribute(of, *shape, counts);
            }
            // The target changed the type of a name.
            _ => {}
        }
    }

    /// Writes its values by `store`.
    pub fn store(&self, store: &mut impl FnMut(Slot, u64)) {
        match &self.state {
            State::Counter { total, factor } => store(self.first, (total * factor).round() as u64),
            State::Gauge(value) => store(self.first, value.to_bits()),
            State::Histogram { shape, counts, sum } => {
                for (slot, count) in (self.first.0..).zip(counts) {
                    store(Slot(slot), *count);
                }
                let sum = (sum * shape.parts.get() as f64).round() as u64;
                store(Slot(self.first.0 + shape.scale.sum_slot()), sum);
            }
        }
    }
}

/// Adds what came into `of` to `counts`. Returns the sum of it.
fn distribute(of: &Distribution, shape: Shape, counts: &mut [u64]) -> f64 {
    let (count, sum) = of.growth();
    if count < 1.0 {
        return 0.0;
    }
    let place = |bucket: usize, count: u64| {
        if let Some(counter) = counts.get_mut(bucket) {
            *counter = counter.saturating_add(count);
        }
    };
    placement::place(shape, of.increases(), sum.filter(|sum| *sum >= 0.0), place)
}

/// Adds what came into `buckets` to `counts`. Returns the sum of it.
fn observe(buckets: &Buckets, lines: &Lines, shape: Shape, counts: &mut [u64]) -> f64 {
    let below = |at: usize| buckets.bounds.get(at).map_or(0.0, |(_, line)| lines.growth(*line));
    let increase = |at: usize| {
        let low = at.checked_sub(1).and_then(|at| buckets.bounds.get(at)).map_or(0.0, |(bound, _)| *bound);
        let high = buckets.bounds.get(at).map_or(f64::INFINITY, |(bound, _)| *bound);
        let already = at.checked_sub(1).map_or(0.0, below);
        Increase { low, high, count: (below(at) - already).max(0.0) }
    };
    let sum = buckets.sum.map(|line| lines.growth(line));
    let place = |bucket: usize, count: u64| {
        if let Some(counter) = counts.get_mut(bucket) {
            // A target may say that it counted more than there can be.
            *counter = counter.wrapping_add(count);
        }
    };
    if !buckets.bounds.is_empty() {
        return placement::place(shape, (0..buckets.bounds.len()).map(increase), sum, place);
    }
    // Without buckets, all values are taken for their mean.
    let count = buckets.count.map_or(0.0, |line| lines.growth(line));
    let all = Increase { low: 0.0, high: f64::INFINITY, count };
    placement::place(shape, core::iter::once(all), sum, place)
}
