//! The times of ticks: absolute deadlines, one ticker for each interval.

use std::collections::BTreeMap;

use wire::time::{Interval, Nanos};

/// The deadlines of one interval: multiples of it on the monotonic clock. So intervals that divide each other tick
/// together.
#[derive(Clone, Debug)]
pub struct Ticker {
    interval: Interval,
    next: Nanos,
    ticks: u64,
    late: u64,
}

impl Ticker {
    /// A ticker whose first tick is the next multiple of `interval`, `now` included.
    #[must_use]
    pub fn new(interval: Interval, now: Nanos) -> Self {
        let length = interval.nanos().get();
        Self { interval, next: Nanos(now.0.div_ceil(length).saturating_mul(length)), ticks: 0, late: 0 }
    }

    /// `Some(missed)` if a tick is due at `now`, with the number of intervals that were skipped before it. Skipped
    /// intervals are counted, and never ticked later.
    pub fn poll(&mut self, now: Nanos) -> Option<u64> {
        let length = self.interval.nanos();
        let Some(behind) = now.since(self.next) else {
            if now.plus(Nanos(length.get())) < self.next {
                // The clock was set back: wait for one interval, not for the whole difference.
                self.next = Self::new(self.interval, now).next;
            }
            return None;
        };
        let missed = behind.0 / length;
        self.ticks += 1;
        self.late += missed;
        self.next = self.next.plus(Nanos((missed + 1).saturating_mul(length.get())));
        Some(missed)
    }

    /// The next deadline.
    #[must_use]
    pub fn next(&self) -> Nanos {
        self.next
    }

    /// Whole intervals between the deadline that is due and `now`; 0 if none is due.
    fn skipped(&self, now: Nanos) -> u64 {
        now.since(self.next).map_or(0, |behind| behind.0 / self.interval.nanos())
    }
}

/// The tickers of all intervals in use. LMAPs with the same interval tick together.
#[derive(Debug, Default)]
pub struct Schedule {
    tickers: BTreeMap<Interval, (Ticker, usize)>,
    ticks: u64,
    late: u64,
}

impl Schedule {
    /// Adds an LMAP with `interval`.
    pub fn join(&mut self, interval: Interval, now: Nanos) {
        self.tickers.entry(interval).or_insert_with(|| (Ticker::new(interval, now), 0)).1 += 1;
    }

    /// Removes an LMAP with `interval`. Intervals that its ticker has skipped by then are counted with the last one: a
    /// worker that stood still for longer than its lease ends its configuration before the next tick.
    pub fn leave(&mut self, interval: Interval, now: Nanos) {
        let Some((ticker, lmaps)) = self.tickers.get_mut(&interval) else { return };
        *lmaps -= 1;
        if *lmaps == 0 {
            self.late += ticker.skipped(now);
            self.tickers.remove(&interval);
        }
    }

    /// Fills `due` with the intervals that tick at `now`, each with the number of intervals skipped before. O(intervals
    /// in use).
    pub fn poll(&mut self, now: Nanos, due: &mut Vec<(Interval, u64)>) {
        due.clear();
        for (interval, (ticker, _)) in &mut self.tickers {
            if let Some(missed) = ticker.poll(now) {
                self.ticks += 1;
                self.late += missed;
                due.push((*interval, missed));
            }
        }
    }

    /// The next deadline, or [`Nanos::NEVER`].
    #[must_use]
    pub fn next(&self) -> Nanos {
        self.tickers.values().map(|(ticker, _)| ticker.next()).min().unwrap_or(Nanos::NEVER)
    }

    /// Ticks of all intervals so far.
    #[must_use]
    pub fn ticks(&self) -> u64 {
        self.ticks
    }

    /// Intervals that were skipped so far.
    #[must_use]
    pub fn late(&self) -> u64 {
        self.late
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(millis: u64) -> Interval {
        Interval::new(Nanos::from_millis(millis)).unwrap()
    }

    fn at(millis: u64) -> Nanos {
        Nanos::from_millis(millis)
    }

    #[test]
    fn missed_ticks_are_counted_and_not_made_up_for() {
        let mut ticker = Ticker::new(interval(10), at(0));

        assert_eq!(ticker.poll(at(0)), Some(0));
        assert_eq!(ticker.poll(at(35)), Some(2));
        assert_eq!(ticker.poll(at(36)), None);

        assert_eq!((ticker.ticks, ticker.late, ticker.next()), (2, 2, at(40)));
    }

    #[test]
    fn a_late_tick_does_not_move_the_deadlines_after_it() {
        let mut ticker = Ticker::new(interval(10), at(3));

        let ticks: Vec<u64> =
            (0..1000).filter(|&now| ticker.poll(Nanos::from_micros(now * 100 + 37)).is_some()).collect();

        assert_eq!(ticks, [100, 200, 300, 400, 500, 600, 700, 800, 900]);
    }

    #[test]
    fn intervals_that_divide_each_other_meet() {
        let (mut schedule, mut due) = (Schedule::default(), Vec::new());
        schedule.join(interval(10), at(7));
        schedule.join(interval(100), at(13));
        schedule.join(interval(100), at(14));

        schedule.poll(at(100), &mut due);

        assert_eq!(due, [(interval(10), 9), (interval(100), 0)]);
        assert_eq!(schedule.next(), at(110));
    }

    #[test]
    fn an_interval_without_lmaps_ticks_no_more() {
        let (mut schedule, mut due) = (Schedule::default(), Vec::new());
        schedule.join(interval(10), at(0));
        schedule.join(interval(10), at(0));

        schedule.leave(interval(10), at(0));
        schedule.poll(at(0), &mut due);
        assert_eq!(due.len(), 1);
        schedule.leave(interval(10), at(0));
        schedule.poll(at(10), &mut due);

        assert!(due.is_empty());
        assert_eq!(schedule.next(), Nanos::NEVER);
    }

    #[test]
    fn intervals_that_were_skipped_before_the_last_lmap_left_are_counted() {
        let (mut schedule, mut due) = (Schedule::default(), Vec::new());
        schedule.join(interval(10), at(0));
        schedule.join(interval(10), at(0));
        schedule.poll(at(0), &mut due);

        schedule.leave(interval(10), at(30_009));
        assert_eq!(schedule.late(), 0, "the other one may tick yet");
        schedule.leave(interval(10), at(30_009));

        assert_eq!((schedule.ticks(), schedule.late()), (1, 2999));
        schedule.join(interval(10), at(30_009));
        schedule.leave(interval(10), at(30_011));
        assert_eq!(schedule.late(), 2999, "nothing was skipped");
    }

    #[test]
    fn a_clock_that_is_set_back_does_not_stop_the_ticks() {
        let mut ticker = Ticker::new(interval(10), at(1_000_000));
        assert_eq!(ticker.poll(at(1_000_000)), Some(0));

        assert_eq!(ticker.poll(at(501)), None);

        assert_eq!(ticker.poll(at(510)), Some(0));
    }

    #[test]
    fn time_that_is_over_does_not_overflow() {
        let mut ticker = Ticker::new(interval(3_600_000), Nanos(u64::MAX - 1));

        assert_eq!(ticker.poll(Nanos::NEVER), Some(0));
        assert_eq!(ticker.next(), Nanos::NEVER);
    }
}
