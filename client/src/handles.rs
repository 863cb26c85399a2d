//! What a service writes through. Every handle owns a place in memory for as long as it lives, whatever becomes of agents and clients.

use std::fmt;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use region::{SlotRef, SlotRun, SlotsRef};
use wire::histogram::Scale;

use crate::registry::SeriesId;

/// Counts what only grows: requests, errors, bytes. Clones count together.
#[derive(Clone)]
pub struct Counter {
    slot: SlotRef,
    series: Option<SeriesId>,
}

/// Counts what comes and goes: requests in flight, connections. Clones count together.
#[derive(Clone)]
pub struct UpDownCounter {
    slot: SlotRef,
    series: Option<SeriesId>,
}

/// Holds what is measured elsewhere: a queue's depth, a temperature. Clones hold the same value.
#[derive(Clone)]
pub struct Gauge {
    slot: SlotRef,
    series: Option<SeriesId>,
}

/// Counts values by size: durations, payloads. Clones count together.
#[derive(Clone)]
pub struct Histogram {
    slots: SlotsRef,
    scale: Scale,
    parts_per_second: u64,
    series: Option<SeriesId>,
}

impl Counter {
    /// Adds `count`: one relaxed atomic operation. Wraps after 2^64.
    #[inline]
    pub fn add(&self, count: u64) {
        self.slot.word().fetch_add(count, Relaxed);
    }

    /// What it has counted.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.slot.word().load(Relaxed)
    }
}

impl UpDownCounter {
    /// Adds `difference`: one relaxed atomic operation.
    #[inline]
    pub fn add(&self, difference: i64) {
        self.slot.word().fetch_add(difference as u64, Relaxed);
    }

    /// Its value.
    #[must_use]
    pub fn get(&self) -> i64 {
        self.slot.word().load(Relaxed) as i64
    }
}

impl Gauge {
    /// Takes `value`: one relaxed atomic operation. Something that is not finite is read as a missing value.
    #[inline]
    pub fn set(&self, value: f64) {
        self.slot.word().store(value.to_bits(), Relaxed);
    }

    /// Its value, 0 before the first `set`.
    #[must_use]
    pub fn get(&self) -> f64 {
        f64::from_bits(self.slot.word().load(Relaxed))
    }
}

impl Histogram {
    /// Counts `value`, in parts of the unit as registered: two relaxed atomic operations, one for the bucket and one for the sum.
    #[inline]
    pub fn observe(&self, value: u64) {
        if let Some((sum, buckets)) = self.slots.words().split_last()
            && let Some(bucket) = buckets.get(self.scale.bucket(value) as usize)
        {
            bucket.fetch_add(1, Relaxed);
            sum.fetch_add(value, Relaxed);
        }
    }

    /// Counts `duration`, rounded down to parts of the unit as registered: of a second, if the unit is neither `ms`, `us` nor `ns`.
    #[inline]
    pub fn observe_duration(&self, duration: Duration) {
        let whole = duration.as_secs().saturating_mul(self.parts_per_second);
        let rest = u64::from(duration.subsec_nanos()).saturating_mul(self.parts_per_second) / 1_000_000_000;
        self.observe(whole.saturating_add(rest));
    }

    /// How many values it has counted. Reads every bucket.
    #[must_use]
    pub fn count(&self) -> u64 {
        let words = self.slots.words();
        let buckets = words.split_last().map_or(words, |(_, buckets)| buckets);
        buckets.iter().fold(0, |count, bucket| bucket.load(Relaxed).wrapping_add(count))
    }

    /// The sum of the values that it has counted, in parts of the unit. Wraps after 2^64.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.slots.words().last().map_or(0, |sum| sum.load(Relaxed))
    }
}

/// A handle, as the registry makes and takes it.
#[derive(Debug)]
pub struct Parts {
    /// Where its values are.
    pub(crate) run: SlotRun,
    /// Which series it is; none if nobody reads it.
    pub(crate) series: Option<SeriesId>,
}

impl Parts {
    /// The run's only slot.
    fn slot(&self) -> SlotRef {
        self.run.slot(0).expect("a run has at least one slot")
    }
}

impl Counter {
    pub(crate) fn new(parts: &Parts) -> Self {
        Self { slot: parts.slot(), series: parts.series }
    }

    pub(crate) fn parts(&self) -> Parts {
        Parts { run: self.slot.run(), series: self.series }
    }
}

impl UpDownCounter {
    pub(crate) fn new(parts: &Parts) -> Self {
        Self { slot: parts.slot(), series: parts.series }
    }

    pub(crate) fn parts(&self) -> Parts {
        Parts { run: self.slot.run(), series: self.series }
    }
}

impl Gauge {
    pub(crate) fn new(parts: &Parts) -> Self {
        Self { slot: parts.slot(), series: parts.series }
    }

    pub(crate) fn parts(&self) -> Parts {
        Parts { run: self.slot.run(), series: self.series }
    }
}

impl Histogram {
    pub(crate) fn new(parts: &Parts, scale: Scale, parts_per_second: u64) -> Self {
        Self { slots: parts.run.all(), scale, parts_per_second, series: parts.series }
    }

    pub(crate) fn parts(&self) -> Parts {
        Parts { run: self.slots.run(), series: self.series }
    }
}

impl fmt::Debug for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Counter").field(&self.get()).finish()
    }
}

impl fmt::Debug for UpDownCounter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("UpDownCounter").field(&self.get()).finish()
    }
}

impl fmt::Debug for Gauge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Gauge").field(&self.get()).finish()
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Histogram").field("count", &self.count()).field("sum", &self.sum()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detached(slots: u32) -> Parts {
        Parts { run: SlotRun::detached(slots), series: None }
    }

    #[test]
    fn an_up_down_counter_goes_below_zero() {
        let counter = UpDownCounter::new(&detached(1));

        counter.add(3);
        counter.clone().add(-5);

        assert_eq!(counter.get(), -2);
    }

    #[test]
    fn a_gauge_holds_what_was_set_last() {
        let gauge = Gauge::new(&detached(1));
        assert_eq!(gauge.get(), 0.0);

        gauge.set(3.5);
        gauge.set(-0.25);

        assert_eq!(gauge.get(), -0.25);
    }

    #[test]
    fn an_observation_touches_its_bucket_and_the_sum_and_nothing_else() {
        let scale = Scale::DEFAULT;
        let parts = detached(scale.slots());
        let histogram = Histogram::new(&parts, scale, 1);

        for value in [0, 7, u64::MAX] {
            let before: Vec<u64> = parts.run.words().iter().map(|word| word.load(Relaxed)).collect();
            histogram.observe(value);
            let after = parts.run.words().iter().map(|word| word.load(Relaxed));

            for (slot, (before, after)) in (0..).zip(before.into_iter().zip(after)) {
                let expected = if slot == scale.bucket(value) {
                    1
                } else if slot == scale.sum_slot() {
                    value
                } else {
                    0
                };
                assert_eq!(after.wrapping_sub(before), expected, "slot {slot} by {value}");
            }
        }
        assert_eq!(histogram.count(), 3);
        assert_eq!(histogram.sum(), 6, "7 + (2^64 - 1) wraps");
    }

    #[test]
    fn a_duration_is_counted_in_parts_of_the_unit() {
        let observed = |parts_per_second, duration| {
            let histogram = Histogram::new(&detached(Scale::DEFAULT.slots()), Scale::DEFAULT, parts_per_second);
            histogram.observe_duration(duration);
            histogram.sum()
        };

        assert_eq!(observed(1_000_000, Duration::from_micros(1_500_042)), 1_500_042);
        assert_eq!(observed(1_000, Duration::from_micros(1_999)), 1);
        assert_eq!(observed(1_000_000_000, Duration::new(1, 999_999_999)), 1_999_999_999);
        assert_eq!(observed(1, Duration::from_millis(999)), 0);
        assert_eq!(observed(u64::MAX, Duration::MAX), u64::MAX);
    }
}
