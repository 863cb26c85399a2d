//! When an LMAP that a worker runs takes a longer interval: once nothing has asked for its own for a while.
//!
//! A source that comes back within the wait changes nothing. One that comes back soon after makes the next wait twice
//! as long, so that a source that comes and goes moves the interval ever more seldom.

use wire::time::{Interval, Nanos};

/// The shortest wait: a program that restarts, or a pod whose restarts are held back, is there again before.
pub const WAIT: Nanos = Nanos::from_secs(600);
/// How often the wait doubles at most: 64 × the shortest is half a day.
const DOUBLINGS: u32 = 6;
/// Pause of what is due during an alarm, which a change of the interval would only disturb.
const ALARM_PAUSE: Nanos = Nanos::from_secs(10);

/// The way of one LMAP back to a longer interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slowdown {
    /// Since when nothing has asked for its own interval, and for what at the least.
    asked: Option<(Nanos, Interval)>,
    /// When it takes the longer interval, if nothing asks for its own until then.
    due: Option<Nanos>,
    /// Not before, since it was in alarm.
    postponed: Nanos,
    /// Until when a source that comes back is one that comes and goes.
    unsettled: Nanos,
    /// How often in a row one came back in that time.
    returns: u32,
}

impl Slowdown {
    /// When [`Self::follow`] is to be called at the latest; `None`: no longer interval is waited for.
    pub const fn due(&self) -> Option<Nanos> {
        self.due
    }

    /// The LMAP has what it was asked for without a wait.
    pub const fn cancel(&mut self) {
        (self.asked, self.due) = (None, None);
    }

    /// It is in alarm when it might take the longer interval.
    pub fn postpone(&mut self, now: Nanos) {
        self.postponed = now.plus(ALARM_PAUSE);
        self.due = Some(self.postponed);
    }

    /// The interval at `now` of an LMAP that has `current`, if its metrics ask for `asked`: the shorter one at once,
    /// the longer one after a wait of `least` or more, and not during an alarm. If a still longer one is asked for
    /// meanwhile, the wait begins anew: another source has gone.
    pub fn follow(
        &mut self,
        now: Nanos,
        (current, asked): (Interval, Interval),
        least: Nanos,
        in_alarm: bool,
    ) -> Interval {
        if asked <= current {
            self.cancel();
            if asked < current {
                self.returns = if now < self.unsettled { DOUBLINGS.min(self.returns + 1) } else { 0 };
            }
            return asked;
        }
        let wait = Nanos(least.0.saturating_mul(1 << self.returns));
        let since = match self.asked {
            Some((since, before)) if asked <= before => since,
            _ => now,
        };
        self.asked = Some((since, asked));
        let due = since.plus(wait).max(self.postponed);
        if now < due {
            self.due = Some(due);
            return current;
        }
        if in_alarm {
            self.postpone(now);
            return current;
        }
        self.cancel();
        self.unsettled = now.plus(wait).plus(wait);
        asked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(seconds: u64) -> Interval {
        Interval::new(Nanos::from_secs(seconds)).unwrap()
    }

    /// An LMAP at ten seconds that becomes faster for a second, from `from` on. Returns how long it stays so after
    /// that.
    fn stays_faster(slowdown: &mut Slowdown, from: u64) -> u64 {
        let (slow, fast) = (interval(10), interval(1));
        let mut follow = |at: u64, current, asked| slowdown.follow(Nanos::from_secs(at), (current, asked), WAIT, false);
        assert_eq!(follow(from, slow, fast), fast);
        let gone = from + 1;
        assert_eq!(follow(gone, fast, slow), fast);
        let wait = slowdown.due().unwrap();
        let slower = slowdown.follow(Nanos(wait.0 - 1), (fast, slow), WAIT, false);
        assert_eq!((slower, slowdown.due()), (fast, Some(wait)), "not a moment before");
        assert_eq!(slowdown.follow(wait, (fast, slow), WAIT, false), slow);
        wait.0 / 1_000_000_000 - gone
    }

    #[test]
    fn a_source_that_comes_back_within_the_wait_changes_nothing_and_the_wait_begins_anew() {
        let (slow, fast) = (interval(10), interval(1));
        let mut slowdown = Slowdown::default();
        let mut follow = |at: u64, asked| slowdown.follow(Nanos::from_secs(at), (fast, asked), WAIT, false);

        for at in [0, 599] {
            assert_eq!(follow(at, slow), fast);
        }
        assert_eq!(follow(599, fast), fast);
        assert_eq!(follow(600, slow), fast);
        assert_eq!(follow(1199, slow), fast);
        assert_eq!(follow(1200, slow), slow);
        assert_eq!(slowdown.due(), None);
    }

    #[test]
    fn each_wait_of_a_source_that_comes_and_goes_is_twice_the_one_before_and_a_settled_one_begins_anew() {
        let mut slowdown = Slowdown::default();
        let (mut from, mut waits) = (0, Vec::new());
        for _ in 0..9 {
            let waited = stays_faster(&mut slowdown, from);
            waits.push(waited / 600);
            from += 1 + waited + 60;
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 64, 64]);

        assert_eq!(stays_faster(&mut slowdown, from + 2 * 64 * 600), 600, "it was away for long");
    }

    #[test]
    fn a_second_source_that_goes_begins_the_wait_anew_and_one_that_comes_shortens_what_is_waited_for() {
        let [fast, slow, slower] = [1, 10, 60].map(interval);
        let mut slowdown = Slowdown::default();
        let mut follow = |at: u64, asked: Interval, least: u64| {
            let left = slowdown.follow(Nanos::from_secs(at), (fast, asked), Nanos::from_secs(least), false);
            (left, slowdown.due())
        };
        let due = |at: u64| Some(Nanos::from_secs(at));

        assert_eq!(follow(0, slow, 1_200), (fast, due(1_200)));
        assert_eq!(follow(1_190, slower, 7_200), (fast, due(8_390)), "what is not known takes its own wait");
        assert_eq!(follow(1_300, slow, 1_200), (fast, due(2_390)), "since the second one went");
        assert_eq!(follow(2_390, slow, 1_200), (slow, None));
    }

    #[test]
    fn an_alarm_ends_before_the_interval_changes() {
        let (slow, fast) = (interval(10), interval(1));
        let mut slowdown = Slowdown::default();
        let mut follow =
            |at: u64, in_alarm| slowdown.follow(Nanos::from_secs(at), (fast, slow), Nanos::from_secs(600), in_alarm);

        assert_eq!(follow(0, false), fast);
        assert_eq!(follow(600, true), fast);
        assert_eq!(follow(605, false), fast, "it is looked at again ten seconds later");
        assert_eq!(follow(610, true), fast);
        assert_eq!(follow(620, false), slow);
    }
}
