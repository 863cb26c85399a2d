//! Intervals of the wall clock. They end at multiples of their length, so they are the same on all NICs.

use wire::time::{Nanos, UnixNanos};

/// The number of the interval that `at` is in, of those of this `length`, which is not zero; the first began in 1970.
pub(super) const fn interval_number(at: UnixNanos, length: Nanos) -> u64 {
    at.0 / length.0
}

/// The interval that goes on; none before the first one.
#[derive(Clone, Copy, Debug)]
pub(super) struct WallInterval {
    /// Length of each, which is not zero.
    length: Nanos,
    /// 1970 before the first one.
    ends: UnixNanos,
}

/// How an interval ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// There was none before, so when it began is unknown.
    First,
    /// The clock was set back while it went on, which was to end at this time.
    Cut(UnixNanos),
    /// It went on until this time.
    Whole(UnixNanos),
}

impl WallInterval {
    /// None yet, of intervals of this length, which is not zero.
    pub(super) const fn new(length: Nanos) -> Self {
        Self { length, ends: UnixNanos(0) }
    }

    /// Its begin; 1970 before the first one.
    pub(super) const fn begins(&self) -> UnixNanos {
        self.ends.minus(self.length)
    }

    /// Its end; 1970 before the first one.
    pub(super) const fn ends(&self) -> UnixNanos {
        self.ends
    }

    /// Whether the clock was set back to `now` while it went on: its begin lies more than an interval ahead. After a
    /// smaller step the clock soon catches up. Before the first one nothing lies ahead.
    pub(super) fn was_set_back(&self, now: UnixNanos) -> bool {
        now.plus(self.length) < self.begins()
    }

    /// Whether it is over at `now`: at its end, and at once if the clock was set back.
    pub(super) fn is_due(&self, now: UnixNanos) -> bool {
        now >= self.ends || self.was_set_back(now)
    }

    /// The time from `now` until it is due.
    pub(super) fn left(&self, now: UnixNanos) -> Nanos {
        if self.is_due(now) { Nanos::ZERO } else { self.ends.since(now) }
    }

    /// Begins the interval that `at` is in. Returns when the one before was to end, unless there was none.
    pub(super) fn enter(&mut self, at: UnixNanos) -> Option<UnixNanos> {
        let ends = UnixNanos((interval_number(at, self.length) + 1) * self.length.0);
        let before = core::mem::replace(&mut self.ends, ends);
        (before != UnixNanos(0)).then_some(before)
    }

    /// Ends it if it is due, and begins the one that `now` is in.
    pub(super) fn end(&mut self, now: UnixNanos) -> Option<Ending> {
        if !self.is_due(now) {
            return None;
        }
        let is_cut = self.was_set_back(now);
        let ending = if is_cut { Ending::Cut } else { Ending::Whole };
        Some(self.enter(now).map_or(Ending::First, ending))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: Nanos = Nanos::from_millis(250);

    /// The interval from 6.75 s to 7 s.
    fn interval() -> WallInterval {
        let mut interval = WallInterval::new(LENGTH);
        assert_eq!(interval.enter(UnixNanos::from_millis(6_900)), None, "there was none yet");
        interval
    }

    #[test]
    fn an_interval_ends_where_the_next_one_begins() {
        let begin = UnixNanos::from_secs(7);

        for (at, ends) in [(begin, 250), (begin.plus(Nanos(1)), 250), (begin.plus(LENGTH), 500)] {
            let mut interval = interval();
            assert_eq!(interval.enter(at), Some(begin));
            let ends = begin.plus(Nanos::from_millis(ends));
            assert_eq!((interval.begins(), interval.ends()), (ends.minus(LENGTH), ends), "{at}");
        }
        assert_eq!(interval_number(begin.minus(Nanos(1)), LENGTH), 27);
        assert_eq!(interval_number(begin, LENGTH), 28);
    }

    #[test]
    fn a_clock_was_set_back_if_the_interval_begins_more_than_its_length_ahead() {
        let (interval, ends) = (interval(), UnixNanos::from_secs(7));
        let borderline = UnixNanos::from_millis(6_500);

        assert!(interval.was_set_back(borderline.minus(Nanos(1))));
        for now in [borderline, ends, ends.plus(Nanos::from_secs(3_600))] {
            assert!(!interval.was_set_back(now), "{now}");
        }
        let none = WallInterval::new(LENGTH);
        assert!(!none.was_set_back(UnixNanos(0)), "there was no interval yet");
    }

    #[test]
    fn nobody_waits_for_the_end_of_an_interval_before_which_the_clock_was_set_back() {
        let (interval, ends) = (interval(), UnixNanos::from_secs(7));

        assert_eq!(interval.left(ends.minus(Nanos(1))), Nanos(1));
        // After a small step, for two intervals at most.
        assert_eq!(interval.left(UnixNanos::from_millis(6_500)), LENGTH.plus(LENGTH));
        let hour = Nanos::from_secs(3_600);
        for now in [ends, ends.plus(hour), UnixNanos::from_millis(6_499), UnixNanos(0)] {
            assert_eq!((interval.left(now), interval.is_due(now)), (Nanos::ZERO, true), "{now}");
        }
        assert_eq!(WallInterval::new(LENGTH).left(UnixNanos(0)), Nanos::ZERO);
    }

    #[test]
    fn an_interval_that_is_due_says_whether_it_was_the_first_one_or_cut_and_the_next_one_begins() {
        let (second, mut interval) = (UnixNanos::from_secs, WallInterval::new(LENGTH));

        assert_eq!(interval.end(second(3_600)), Some(Ending::First));
        assert_eq!(interval.end(second(3_600)), None);
        let ends = second(3_600).plus(LENGTH);
        assert_eq!(interval.end(ends.minus(Nanos(1))), None);
        assert_eq!(interval.end(second(3_607)), Some(Ending::Whole(ends)));
        assert_eq!(interval.end(second(7)), Some(Ending::Cut(second(3_607).plus(LENGTH))));
        assert_eq!(interval.end(second(8)), Some(Ending::Whole(second(7).plus(LENGTH))));
    }
}
