//! Handles: what a service writes its metrics through. A handle keeps its memory for as long as it lives, also after
//! the client is dropped and while there is no agent.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use region::{SlotRef, SlotRun, SlotsRef};
use wire::histogram::Scale;
use wire::registration::Shards;

use crate::thread_number;

/// Identifies a series within one client. The registry assigns it and never reuses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SeriesId(pub(crate) u64);

/// Words from one shard to the next.
const STRIDE: usize = Shards::STRIDE as usize;

/// A value that only grows: requests, errors, bytes. Clones share the value.
#[derive(Clone)]
pub struct Counter {
    slot: SlotRef,
    series: Option<SeriesId>,
}

/// A value that only grows, which many threads add to at once: each thread to a word of its own, as far as there are
/// words. Clones share the value.
#[derive(Clone)]
pub struct ShardedCounter {
    slots: SlotsRef,
    series: Option<SeriesId>,
}

/// A value that grows and falls in steps: requests in flight, connections. Clones share the value.
#[derive(Clone)]
pub struct UpDownCounter {
    slot: SlotRef,
    series: Option<SeriesId>,
}

/// A value that is measured elsewhere: a queue's depth, a temperature. Clones share the value.
#[derive(Clone)]
pub struct Gauge {
    slot: SlotRef,
    series: Option<SeriesId>,
}

/// A distribution of values: durations, payload sizes. Clones share the buckets.
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

    /// Raises the count to `total`, for a count that is kept elsewhere: one relaxed atomic operation. A smaller `total`
    /// changes nothing, so that callers may come in any order.
    #[inline]
    pub fn raise_to(&self, total: u64) {
        self.slot.word().fetch_max(total, Relaxed);
    }

    /// The current count.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.slot.word().load(Relaxed)
    }

    /// The slot: for bindings to other languages, which write it as this handle does. It lives as long as a handle.
    #[must_use]
    pub fn as_atomic(&self) -> &AtomicU64 {
        self.slot.word()
    }
}

impl ShardedCounter {
    /// Adds `count`: one relaxed atomic operation, on a cache line that other threads seldom use: up to 16 threads that
    /// first added one after another have words of their own. Each shard wraps after 2^64.
    #[inline]
    pub fn add(&self, count: u64) {
        self.add_as(thread_number::get(), count);
    }

    /// Adds `count` as the thread of this number.
    #[inline]
    fn add_as(&self, thread: usize, count: u64) {
        let words = self.slots.words();
        // A power of two, unless the words were given by somebody else.
        let shards = words.len() / STRIDE;
        let shard = thread & shards.wrapping_sub(1);
        if let Some(word) = words.get(shard * STRIDE) {
            word.fetch_add(count, Relaxed);
        }
    }

    /// The current count. Reads every shard.
    #[must_use]
    pub fn get(&self) -> u64 {
        let shards = self.slots.words().iter().step_by(STRIDE);
        shards.fold(0, |count, word| count.wrapping_add(word.load(Relaxed)))
    }
}

impl UpDownCounter {
    /// Adds `difference`: one relaxed atomic operation.
    #[inline]
    pub fn add(&self, difference: i64) {
        self.slot.word().fetch_add(difference as u64, Relaxed);
    }

    /// The current value.
    #[must_use]
    pub fn get(&self) -> i64 {
        self.slot.word().load(Relaxed) as i64
    }

    /// The slot: for bindings to other languages, which write it as this handle does. It lives as long as a handle.
    #[must_use]
    pub fn as_atomic(&self) -> &AtomicU64 {
        self.slot.word()
    }
}

impl Gauge {
    /// Sets the value: one relaxed atomic operation. NaN and infinities are read as a missing value.
    #[inline]
    pub fn set(&self, value: f64) {
        self.slot.word().store(value.to_bits(), Relaxed);
    }

    /// Adds `difference`: one relaxed atomic operation, repeated while other threads change the value meanwhile.
    #[inline]
    pub fn add(&self, difference: f64) {
        let add = |bits| Some((f64::from_bits(bits) + difference).to_bits());
        // Never refuses, so the result is the old value.
        let _ = self.slot.word().fetch_update(Relaxed, Relaxed, add);
    }

    /// The current value, 0 before the first `set`.
    #[must_use]
    pub fn get(&self) -> f64 {
        f64::from_bits(self.slot.word().load(Relaxed))
    }

    /// The slot: for bindings to other languages, which write it as this handle does. It lives as long as a handle.
    #[must_use]
    pub fn as_atomic(&self) -> &AtomicU64 {
        self.slot.word()
    }
}

impl Histogram {
    /// Records `value`, in parts of the unit ([`parts_per_unit`](crate::Registration::parts_per_unit)): two relaxed
    /// atomic operations, one for the bucket and one for the sum.
    #[inline]
    pub fn observe(&self, value: u64) {
        self.observe_many(value, 1);
    }

    /// Records `value` `count` times, at the cost of once.
    #[inline]
    pub fn observe_many(&self, value: u64, count: u64) {
        if let Some((sum, buckets)) = self.slots.words().split_last()
            && let Some(bucket) = buckets.get(self.scale.bucket(value) as usize)
        {
            bucket.fetch_add(count, Relaxed);
            sum.fetch_add(value.wrapping_mul(count), Relaxed);
        }
    }

    /// The value below which the share `quantile` (0 to 1) of the recorded values lies, in parts of the unit, to the
    /// width of a bucket. `None` if nothing was recorded. Reads every bucket, and allocates.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> Option<f64> {
        let words = self.slots.words();
        let buckets = words.split_last().map_or(words, |(_, buckets)| buckets);
        let counts: Vec<u64> = buckets.iter().map(|bucket| bucket.load(Relaxed)).collect();
        self.scale.quantile(&counts, quantile)
    }

    /// Which buckets it has.
    #[cfg(feature = "opentelemetry")]
    pub(crate) const fn scale(&self) -> Scale {
        self.scale
    }

    /// Adds values that somebody else has put into `bucket`; their sum is added separately.
    #[cfg(feature = "opentelemetry")]
    pub(crate) fn add_to_bucket(&self, bucket: u32, count: u64) {
        if let Some((_, buckets)) = self.slots.words().split_last()
            && let Some(bucket) = buckets.get(bucket as usize)
        {
            bucket.fetch_add(count, Relaxed);
        }
    }

    /// Adds the sum of values, in parts of the unit.
    #[cfg(feature = "opentelemetry")]
    pub(crate) fn add_to_sum(&self, sum: u64) {
        if let Some(word) = self.slots.words().last() {
            word.fetch_add(sum, Relaxed);
        }
    }

    /// Records `duration`, rounded down to parts of the unit. The unit is taken for seconds unless it is `ms`, `us` or
    /// `ns`.
    #[inline]
    pub fn observe_duration(&self, duration: Duration) {
        let whole = duration.as_secs().saturating_mul(self.parts_per_second);
        let rest = u64::from(duration.subsec_nanos()).saturating_mul(self.parts_per_second) / 1_000_000_000;
        self.observe(whole.saturating_add(rest));
    }

    /// The number of values recorded. Reads every bucket.
    #[must_use]
    pub fn count(&self) -> u64 {
        let words = self.slots.words();
        let buckets = words.split_last().map_or(words, |(_, buckets)| buckets);
        buckets.iter().fold(0, |count, bucket| bucket.load(Relaxed).wrapping_add(count))
    }

    /// The sum of the values recorded, in parts of the unit. Wraps after 2^64.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.slots.words().last().map_or(0, |sum| sum.load(Relaxed))
    }
}

/// What the registry gives a handle: its memory and its series.
#[derive(Debug)]
pub struct Binding {
    /// The slots that hold the values.
    pub(crate) run: SlotRun,
    /// The registered series; `None` for a detached handle.
    pub(crate) series: Option<SeriesId>,
}

impl Binding {
    /// The only slot of a counter or gauge.
    fn slot(&self) -> SlotRef {
        self.run.slot(0).expect("a run has at least one slot")
    }
}

impl Counter {
    pub(crate) fn new(binding: &Binding) -> Self {
        Self { slot: binding.slot(), series: binding.series }
    }

    pub(crate) fn binding(&self) -> Binding {
        Binding { run: self.slot.run(), series: self.series }
    }
}

impl ShardedCounter {
    pub(crate) fn new(binding: &Binding) -> Self {
        Self { slots: binding.run.all(), series: binding.series }
    }

    pub(crate) fn binding(&self) -> Binding {
        Binding { run: self.slots.run(), series: self.series }
    }
}

impl UpDownCounter {
    pub(crate) fn new(binding: &Binding) -> Self {
        Self { slot: binding.slot(), series: binding.series }
    }

    pub(crate) fn binding(&self) -> Binding {
        Binding { run: self.slot.run(), series: self.series }
    }
}

impl Gauge {
    pub(crate) fn new(binding: &Binding) -> Self {
        Self { slot: binding.slot(), series: binding.series }
    }

    pub(crate) fn binding(&self) -> Binding {
        Binding { run: self.slot.run(), series: self.series }
    }
}

impl Histogram {
    pub(crate) fn new(binding: &Binding, scale: Scale, parts_per_second: u64) -> Self {
        Self { slots: binding.run.all(), scale, parts_per_second, series: binding.series }
    }

    pub(crate) fn binding(&self) -> Binding {
        Binding { run: self.slots.run(), series: self.series }
    }
}

impl fmt::Debug for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Counter").field(&self.get()).finish()
    }
}

impl fmt::Debug for ShardedCounter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ShardedCounter").field(&self.get()).finish()
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

    fn detached(slots: u32) -> Binding {
        Binding { run: SlotRun::detached(slots), series: None }
    }

    #[test]
    fn an_up_down_counter_goes_below_zero() {
        let counter = UpDownCounter::new(&detached(1));

        counter.add(3);
        counter.clone().add(-5);

        assert_eq!(counter.get(), -2);
    }

    #[test]
    fn threads_that_add_at_once_use_different_words_and_lose_nothing() {
        let shards = 4;
        let binding = detached(shards * Shards::STRIDE);
        let counter = ShardedCounter::new(&binding);

        // One after the other, so that their numbers follow each other, unless another test starts threads.
        for _ in 0..32 {
            let counter = counter.clone();
            std::thread::spawn(move || (0..1_000).for_each(|_| counter.add(1))).join().unwrap();
        }

        assert_eq!(counter.get(), 32_000);
        let words: Vec<_> = binding.run.words().iter().map(|word| word.load(Relaxed)).collect();
        let used = words.iter().step_by(STRIDE).filter(|word| **word > 0).count();
        assert!(used > 1, "{words:?}");
        assert_eq!(words.iter().step_by(STRIDE).sum::<u64>(), 32_000, "nothing between the shards: {words:?}");
    }

    #[test]
    fn as_many_threads_as_there_are_words_share_none_and_those_that_do_lose_nothing() {
        let binding = detached(Shards::LIMIT * Shards::STRIDE);
        let counter = ShardedCounter::new(&binding);
        let threads = Shards::LIMIT as usize;
        let counts =
            || -> Vec<u64> { binding.run.words().iter().step_by(STRIDE).map(|word| word.load(Relaxed)).collect() };

        // Numbers go on from any other thread's.
        (100..100 + threads).for_each(|thread| counter.add_as(thread, 1));
        assert_eq!(counts(), vec![1; threads]);
        counter.add_as(100 + threads, 1);
        assert_eq!(counts().iter().filter(|count| **count == 2).count(), 1, "the 17th shares with the first");

        std::thread::scope(|scope| {
            for thread in [100, 100 + threads] {
                let counter = &counter;
                scope.spawn(move || (0..10_000).for_each(|_| counter.add_as(thread, 1)));
            }
        });
        assert_eq!(counter.get(), threads as u64 + 1 + 20_000);
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
    fn a_gauge_that_threads_add_to_loses_nothing() {
        let gauge = Gauge::new(&detached(1));

        std::thread::scope(|scope| {
            for difference in [1.0, 1.0, -0.5] {
                let gauge = &gauge;
                scope.spawn(move || (0..1_000).for_each(|_| gauge.add(difference)));
            }
        });

        assert_eq!(gauge.get(), 1_500.0);
    }

    #[test]
    fn a_count_that_is_kept_elsewhere_never_falls() {
        let counter = Counter::new(&detached(1));

        counter.raise_to(7);
        counter.raise_to(5);

        assert_eq!(counter.get(), 7);
    }

    #[test]
    fn a_value_that_is_observed_many_times_is_what_as_many_observations_are() {
        let observed = |observe: &dyn Fn(&Histogram)| {
            let binding = detached(Scale::DEFAULT.slots());
            observe(&Histogram::new(&binding, Scale::DEFAULT, 1));
            binding.run.words().iter().map(|word| word.load(Relaxed)).collect::<Vec<_>>()
        };

        let many = observed(&|histogram| histogram.observe_many(1_000, 3));

        assert_eq!(many, observed(&|histogram| (0..3).for_each(|_| histogram.observe(1_000))));
    }

    #[test]
    fn an_observation_touches_its_bucket_and_the_sum_and_nothing_else() {
        let scale = Scale::DEFAULT;
        let binding = detached(scale.slots());
        let histogram = Histogram::new(&binding, scale, 1);

        for value in [0, 7, u64::MAX] {
            let before: Vec<u64> = binding.run.words().iter().map(|word| word.load(Relaxed)).collect();
            histogram.observe(value);
            let after = binding.run.words().iter().map(|word| word.load(Relaxed));

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
