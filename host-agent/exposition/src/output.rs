//! From series to slots of a region.

use std::num::NonZeroU64;

use wire::histogram::BELOW_ZERO;
use wire::layout::Slot;
use wire::metric::{Declaration, Kind, Series as ColumnSeries};
use wire::name::{Labels, MetricName, Unit};
use wire::registration::{PlacedSeries, Shards};

use crate::distribution::Distribution;
use crate::format::FamilyKind;
use crate::lines::Lines;
use crate::naming;
use crate::placement::{Increase, Shape};
use crate::series::{Buckets, Family, Series, Values};
use crate::sides::Sides;

/// Label of the sum of those series of a name that have no column of their own.
pub const REST: (&str, &str) = ("series", "other");

/// What has been counted, or is measured.
#[derive(Clone, Debug)]
enum State {
    /// A total, and the factor by which it is kept in whole numbers.
    Counter { total: f64, factor: f64 },
    /// The sum of what is there in this scrape; NaN if nothing is.
    Gauge(f64),
    /// Counts per bucket of the region.
    Histogram(Sides),
}

/// The name of the histogram for what `name` has below 0; `None` if it would be too long.
fn below_zero(name: &str) -> Option<MetricName> {
    MetricName::new(&format!("{name}{BELOW_ZERO}")).ok()
}

/// Whether a histogram of this name can have a second one for its values below 0.
pub fn has_room_below_zero(name: &str) -> bool {
    below_zero(name).is_some()
}

/// One series of the region, or two for a histogram with values on both sides of 0: a series of the target, or a sum of
/// several.
#[derive(Debug)]
pub struct Output {
    series: ColumnSeries,
    /// What is below 0, in the slots that follow. `None` also if it has no name: then it is left out.
    below: Option<ColumnSeries>,
    first: Slot,
    state: State,
}

/// Why a series has no output: its name is longer than that of a column may be, or has other letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoName;

impl Output {
    /// An output for `series` with the labels `labels`, in the slots from `first` on; a histogram with both sides of 0
    /// if it `is_two_sided`.
    pub fn new(
        (series, family): (&Series, &Family),
        labels: Labels,
        is_two_sided: bool,
        first: Slot,
        lines: &Lines,
    ) -> Result<Self, NoName> {
        let stated = family.unit.as_deref();
        let histogram = |shape: Shape| {
            let state = State::Histogram(Sides::new(shape, is_two_sided));
            (state, Kind::Histogram(shape.scale), naming::unit(&series.name, stated), shape.parts)
        };
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
                let bounds = buckets.bounds.iter().map(|(bound, _)| *bound);
                histogram(Shape::of(bounds.filter(|bound| bound.is_finite())))
            }
            Values::Distribution(line) => {
                histogram(lines.distribution(*line).map_or_else(|| Shape::of([]), Distribution::shape))
            }
        };
        let name = MetricName::new(&series.name).map_err(|_| NoName)?;
        let group = naming::group(&series.name);
        let below = match &state {
            State::Histogram(sides) if sides.are_both() => below_zero(&series.name),
            _ => None,
        };
        let series = ColumnSeries { name, labels, kind, unit: Unit::new(unit).ok(), group, parts_per_unit: parts };
        let below = below.map(|name| ColumnSeries { name, ..series.clone() });
        Ok(Self { series, below, first, state })
    }

    /// The slot after its last one.
    pub const fn end(&self) -> Slot {
        let slots = self.series.kind.slots();
        Slot(self.first.0 + if self.below.is_some() { 2 * slots } else { slots })
    }

    /// Whether values below 0 are left out for lack of a name.
    pub const fn leaves_out_below_zero(&self) -> bool {
        matches!(&self.state, State::Histogram(sides) if sides.are_both()) && self.below.is_none()
    }

    /// The same output for another replica, of which nothing was counted.
    pub fn twin(&self) -> Self {
        let state = match &self.state {
            State::Counter { factor, .. } => State::Counter { total: 0.0, factor: *factor },
            State::Gauge(_) => State::Gauge(f64::NAN),
            State::Histogram(sides) => State::Histogram(sides.emptied()),
        };
        Self { series: self.series.clone(), below: self.below.clone(), first: self.first, state }
    }

    /// Columns of an LMAP.
    pub const fn columns(&self) -> usize {
        let columns = self.series.kind.statistics().len();
        if self.below.is_some() { 2 * columns } else { columns }
    }

    /// Moves it to the slots from `first` on.
    pub const fn move_to(&mut self, first: Slot) {
        self.first = first;
    }

    /// Its series and their places.
    pub fn placed(&self) -> impl Iterator<Item = PlacedSeries> {
        let after = Slot(self.first.0 + self.series.kind.slots());
        let below = self.below.iter().map(move |below| (below, after));
        core::iter::once((&self.series, self.first)).chain(below).map(|(series, first)| PlacedSeries {
            series: series.clone(),
            region: 0,
            first,
            shards: Shards::ONE,
            declared: Declaration::NONE,
        })
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
            (State::Counter { total, .. }, Values::Counter(line)) => *total += lines.growth(*line),
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
            (State::Histogram(sides), Values::Histogram(buckets)) => observe(buckets, lines, sides),
            (State::Histogram(sides), Values::Distribution(line)) => {
                let Some(of) = lines.distribution(*line) else { return };
                distribute(of, sides);
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
            State::Histogram(sides) => sides.store(self.first, self.below.is_some(), store),
        }
    }
}

/// Adds what came into `of` to `sides`.
fn distribute(of: &Distribution, sides: &mut Sides) {
    let (count, sum) = of.growth();
    if count >= 1.0 {
        let is_likely = |sum: &f64| sides.are_both() || *sum >= 0.0;
        let sum = sum.filter(is_likely);
        sides.add(of.increases(), sum);
    }
}

/// Adds what came into `buckets` to `sides`.
fn observe(buckets: &Buckets, lines: &Lines, sides: &mut Sides) {
    let below = |at: usize| buckets.bounds.get(at).map_or(0.0, |(_, line)| lines.growth(*line));
    let least = if buckets.are_two_sided() { f64::NEG_INFINITY } else { 0.0 };
    let increase = |at: usize| {
        let low = at.checked_sub(1).and_then(|at| buckets.bounds.get(at)).map_or(least, |(bound, _)| *bound);
        let high = buckets.bounds.get(at).map_or(f64::INFINITY, |(bound, _)| *bound);
        let already = at.checked_sub(1).map_or(0.0, below);
        Increase { low, high, count: (below(at) - already).max(0.0) }
    };
    // The sum of values below 0 falls; only the number of values says whether it began anew.
    let is_reset = || buckets.total().is_some_and(|line| lines.has_fallen(line));
    let grown = |line| if buckets.are_two_sided() { lines.change(line, is_reset()) } else { lines.growth(line) };
    let sum = buckets.sum.map(grown);
    if !buckets.bounds.is_empty() {
        return sides.add((0..buckets.bounds.len()).map(increase), sum);
    }
    // Without buckets, all values are taken for their mean.
    let count = buckets.count.map_or(0.0, |line| lines.growth(line));
    sides.add(core::iter::once(Increase { low: 0.0, high: f64::INFINITY, count }), sum);
}
