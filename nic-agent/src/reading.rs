//! One series in one replica: slots → values, one look after the other.

use core::num::NonZeroU64;

use wire::id::{RegionId, ReplicaId};
use wire::layout::Slot;
use wire::metric::Kind;
use wire::time::{Interval, Nanos};

use crate::histogram::{self, Buckets};

/// The most columns that a series has.
pub(crate) const MOST_STATISTICS: usize = 3;

/// How a region came out of this tick's fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// Its words are of this tick, and of the layout that is known.
    Fresh,
    /// Likewise, but it is written from time to time by somebody who samples: so often so far. What has not been written since the last
    /// look has no new value, so that a counter's increment is neither 0 nor twice itself when two clocks beat against each other, and
    /// does not stop when the sampler does.
    Sampled(u64),
    /// It could not be read. What was read before still stands: a counter's next increment is spread over the time between.
    Unread,
    /// Its words may mean something else by now: what was read before is forgotten.
    Discarded,
    /// Its replica is silent: the words are there, but nobody writes them. What was read before is forgotten.
    Silent,
}

/// Where a series of a replica lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) replica: ReplicaId,
    pub(crate) region: RegionId,
    pub(crate) first: Slot,
}

/// What has to be remembered from one look to the next.
#[derive(Clone, Debug)]
enum Memory {
    Nothing,
    Count(Option<(Nanos, u64)>),
    Histogram(Buckets, Nanos),
}

/// One series in one replica.
///
/// An increment is what was added *per interval*: it is divided by the intervals since the last look, so that a late tick, a region that
/// could not be read, and a metric that is looked at every n ticks do not look like load.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    pub(crate) place: Place,
    /// Which of the LMAP's regions.
    pub(crate) region: usize,
    memory: Memory,
    /// How often its region had been written at the last look, if it is sampled.
    written: Option<u64>,
    last: [f64; MOST_STATISTICS],
    /// Looks since `last` was read; `None` if there is nothing.
    age: Option<u32>,
}

/// How a series is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) kind: Kind,
    pub(crate) parts: NonZeroU64,
}

/// When a look is, and how often there is one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) at: Nanos,
    pub(crate) interval: Interval,
}

impl Moment {
    /// `added` since `before`, per interval; `None` if no time has passed. Whole intervals count: a tick that is a little late or early
    /// would else turn a count that never changes into one that always does.
    fn per_interval(self, added: f64, before: Nanos) -> Option<f64> {
        let elapsed = self.at.since(before).filter(|elapsed| *elapsed != Nanos::ZERO)?;
        let whole = self.interval.nanos().get();
        let intervals = (elapsed.0.saturating_add(whole / 2) / whole).max(1);
        Some(added / intervals as f64)
    }
}

impl Reading {
    pub(crate) fn new(place: Place, region: usize, kind: Kind) -> Self {
        let memory = match kind {
            Kind::Counter => Memory::Count(None),
            Kind::UpDownCounter | Kind::Gauge => Memory::Nothing,
            Kind::Histogram(scale) => Memory::Histogram(Buckets::new(scale), Nanos::ZERO),
        };
        Self { place, region, memory, written: None, last: [f64::NAN; MOST_STATISTICS], age: None }
    }

    /// Goes on where `old`, a reading of the same place and kind, has been.
    pub(crate) fn take_over(&mut self, old: Self) {
        *self = Self { place: self.place, region: self.region, ..old };
    }

    /// Looks at the region's `words`. `added` is room for a histogram's slots; it holds what was added to them if the result is true.
    /// Returns whether there is a new value.
    pub(crate) fn look(&mut self, look: Look, words: &[u64], shape: Shape, moment: Moment, added: &mut [u64]) -> bool {
        let first = self.place.first.word();
        let new = match look {
            Look::Fresh => true,
            Look::Sampled(written) => self.written.replace(written) != Some(written),
            Look::Unread | Look::Discarded | Look::Silent => false,
        };
        let slots = words.get(first..first + shape.kind.slots() as usize).filter(|_| new);
        let values = match slots {
            Some(slots) => self.values(slots, shape, moment, added),
            None => None,
        };
        if let Some(values) = values {
            self.last = values;
            self.age = Some(0);
            return true;
        }
        match look {
            Look::Fresh | Look::Sampled(_) | Look::Unread => {}
            Look::Discarded => self.forget(),
            Look::Silent => {
                self.forget();
                self.age = None;
            }
        }
        self.age = self.age.map(|age| age.saturating_add(1));
        false
    }

    fn values(
        &mut self,
        slots: &[u64],
        shape: Shape,
        moment: Moment,
        added: &mut [u64],
    ) -> Option<[f64; MOST_STATISTICS]> {
        let one = |value: f64| value.is_finite().then_some([value, f64::NAN, f64::NAN]);
        let &word = slots.first()?;
        match (shape.kind, &mut self.memory) {
            (Kind::Gauge, _) => one(f64::from_bits(word)),
            (Kind::UpDownCounter, _) => one(word.cast_signed() as f64),
            (Kind::Counter, Memory::Count(before)) => {
                let (then, before) = before.replace((moment.at, word))?;
                one(moment.per_interval(word.checked_sub(before)? as f64, then)?)
            }
            (Kind::Histogram(scale), Memory::Histogram(buckets, then)) => {
                let before = core::mem::replace(then, moment.at);
                let added = added.get_mut(..slots.len())?;
                if !buckets.step(slots, added) {
                    return None;
                }
                let [count, mean, p99] = histogram::statistics(scale, shape.parts, added);
                Some([moment.per_interval(count, before)?, mean, p99])
            }
            _ => None,
        }
    }

    fn forget(&mut self) {
        match &mut self.memory {
            Memory::Nothing => {}
            Memory::Count(before) => *before = None,
            Memory::Histogram(buckets, _) => buckets.forget(),
        }
    }

    /// Whether the last look brought a new value.
    pub(crate) fn is_new(&self) -> bool {
        self.age == Some(0)
    }

    /// The value of `statistic`, at most `looks` looks old.
    pub(crate) fn value(&self, statistic: usize, looks: u32) -> Option<f64> {
        let value = self.last.get(statistic).copied()?;
        (self.age.is_some_and(|age| age <= looks) && !value.is_nan()).then_some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::histogram::Scale;

    const PLACE: Place = Place { replica: ReplicaId(1), region: RegionId(1), first: Slot(0) };

    struct Series(Reading, Kind);

    impl Series {
        fn new(kind: Kind) -> Self {
            Self(Reading::new(PLACE, 0, kind), kind)
        }

        fn look(&mut self, millis: u64, look: Look, slot: u64) -> Option<f64> {
            let mut words = vec![0; 8 + self.1.slots() as usize];
            words[8] = slot;
            let interval = Interval::new(Nanos::from_millis(10)).unwrap();
            let moment = Moment { at: Nanos::from_millis(millis), interval };
            let new = self.0.look(look, &words, Shape { kind: self.1, parts: NonZeroU64::MIN }, moment, &mut [0; 126]);
            self.0.value(0, 0).filter(|_| new)
        }

        fn fresh(&mut self, millis: u64, slot: u64) -> Option<f64> {
            self.look(millis, Look::Fresh, slot)
        }
    }

    #[test]
    fn a_counters_first_look_and_its_reset_are_missing() {
        let mut counter = Series::new(Kind::Counter);

        assert_eq!(counter.fresh(0, 1_000_000), None);
        assert_eq!(counter.fresh(10, 1_000_005), Some(5.0));
        assert_eq!(counter.fresh(20, 3), None);
        assert_eq!(counter.fresh(30, 4), Some(1.0));
    }

    #[test]
    fn increments_are_per_interval_whatever_the_time_between() {
        let mut counter = Series::new(Kind::Counter);

        assert_eq!(counter.fresh(0, 0), None);
        assert_eq!(counter.fresh(30, 15), Some(5.0), "two ticks late");
        assert_eq!(counter.look(40, Look::Unread, 0), None);
        assert_eq!(counter.fresh(50, 25), Some(5.0), "after one that could not be read");
        assert_eq!(counter.fresh(50, 26), None, "no time has passed");
        assert_eq!(counter.fresh(62, 31), Some(5.0), "a little late is on time");
    }

    #[test]
    fn what_was_read_before_a_discarded_look_is_forgotten() {
        for look in [Look::Discarded, Look::Silent] {
            let mut counter = Series::new(Kind::Counter);
            assert_eq!(counter.fresh(0, 0), None);
            assert_eq!(counter.fresh(10, 1), Some(1.0));

            assert_eq!(counter.look(20, look, 900), None);

            assert_eq!(counter.fresh(30, 1000), None);
            assert_eq!(counter.fresh(40, 1002), Some(2.0));
        }
    }

    #[test]
    fn a_region_that_is_sampled_has_a_new_value_only_when_it_was_written() {
        let mut counter = Series::new(Kind::Counter);

        assert_eq!(counter.look(0, Look::Sampled(1), 0), None);
        assert_eq!(counter.look(10, Look::Sampled(2), 5), Some(5.0));
        assert_eq!(counter.look(20, Look::Sampled(2), 5), None, "the sampler is a little late");
        assert_eq!(counter.look(30, Look::Sampled(4), 15), Some(5.0), "and has been here twice since");
        for tick in 4..50 {
            assert_eq!(counter.look(10 * tick, Look::Sampled(4), 15), None, "it is gone: that is no load of 0");
        }
    }

    #[test]
    fn a_value_is_held_for_some_looks_but_not_that_of_a_silent_replica() {
        let mut gauge = Series::new(Kind::Gauge);
        assert_eq!(gauge.fresh(0, 2.5_f64.to_bits()), Some(2.5));

        for (looks, value) in [(1, Some(2.5)), (2, Some(2.5)), (3, None)] {
            assert_eq!(gauge.look(looks, Look::Unread, 0), None);
            assert_eq!(gauge.0.value(0, 2), value, "after {looks} looks");
        }
        assert_eq!(gauge.fresh(10, 1.0_f64.to_bits()), Some(1.0));
        assert_eq!(gauge.look(20, Look::Silent, 0), None);
        assert_eq!(gauge.0.value(0, 2), None);
    }

    #[test]
    fn gauges_that_are_no_numbers_are_missing_and_steps_go_below_zero() {
        let mut gauge = Series::new(Kind::Gauge);
        for wrong in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert_eq!(gauge.fresh(0, wrong.to_bits()), None);
        }

        assert_eq!(Series::new(Kind::UpDownCounter).fresh(0, u64::MAX), Some(-1.0));
    }

    #[test]
    fn a_histogram_counts_per_interval() {
        let mut histogram = Series::new(Kind::Histogram(Scale::DEFAULT));

        assert_eq!(histogram.fresh(0, 7), None);
        assert_eq!(histogram.fresh(20, 13), Some(3.0));
        assert_eq!(histogram.fresh(30, 12), None, "a bucket shrank");
    }

    #[test]
    fn a_place_outside_the_words_is_missing() {
        let mut reading = Reading::new(Place { first: Slot(100), ..PLACE }, 0, Kind::Gauge);
        let moment = Moment { at: Nanos::ZERO, interval: Interval::new(Nanos::from_millis(1)).unwrap() };

        assert!(!reading.look(
            Look::Fresh,
            &[0; 20],
            Shape { kind: Kind::Gauge, parts: NonZeroU64::MIN },
            moment,
            &mut []
        ));
    }
}
