//! Tells clients that come back with other addresses from clients that become more.
//!
//! A rollout at once replaces each client: for a while it is counted twice, with its old address and with its new one.
//! That at most doubles a count, and only until the old addresses have left the window. So a rise to about twice of
//! what was before counts if it lasts for longer than that. A larger one counts at once, and so does every fall.
//!
//! That the old ones are gone cannot be seen earlier: each of them might still send.

use std::collections::VecDeque;

/// A rise to more than this many times the least count is no turnover. Both addresses of each client make two; that
/// some clients were away when the count was least, and three standard errors of two estimates (of 3.4 %), make the
/// rest: 2 × 1.3 × (1 + 3 × √2 × 0.034).
pub const MAX_TURNOVER: f64 = 3.0;
/// Parts of a window in which the least count is kept: of long windows, not that of each interval.
const PARTS: u64 = 8;

/// A count of distinct items, in which a turnover does not show.
#[derive(Debug)]
pub(crate) struct LastingCount {
    /// For how long somebody who is gone may still be counted.
    window_ns: u64,
    /// Of the window, and of one interval before it: at most two more than [`PARTS`], and the one that begins.
    least: VecDeque<LeastCount>,
    last_ns: u64,
}

/// The least count of some intervals.
#[derive(Clone, Copy, Debug)]
struct LeastCount {
    count: f64,
    /// End of the first one.
    since_ns: u64,
}

impl LastingCount {
    /// Of counts of items of the last `window_ns` nanoseconds; 0: of those of one interval alone.
    pub(crate) const fn new(window_ns: u64) -> Self {
        Self { window_ns, least: VecDeque::new(), last_ns: 0 }
    }

    /// The count of an interval that ends at `now_ns`, or a lower one of before if a turnover may be between them.
    pub(crate) fn end_interval(&mut self, now_ns: u64, count: f64) -> f64 {
        if now_ns < self.last_ns {
            self.reset();
        }
        self.last_ns = now_ns;
        // Who left after an interval may be counted until a window later. One interval from before that is enough.
        let is_over = |least: &LeastCount| now_ns.saturating_sub(least.since_ns) >= self.window_ns;
        while self.least.get(1).is_some_and(is_over) {
            self.least.pop_front();
        }
        let before = self.least.iter().map(|least| least.count).reduce(f64::min).unwrap_or(count);
        if count > MAX_TURNOVER * before {
            self.least.clear();
        }
        match self.least.back_mut() {
            Some(least) if now_ns - least.since_ns < self.window_ns / PARTS => least.count = least.count.min(count),
            _ => self.least.push_back(LeastCount { count, since_ns: now_ns }),
        }
        if count > MAX_TURNOVER * before { count } else { count.min(before) }
    }

    /// Forgets what was before.
    pub(crate) fn reset(&mut self) {
        self.least.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// What comes of a count for each second, with a window of `window_ns`.
    fn lasting(window_ns: u64, counts: &[f64]) -> Vec<f64> {
        let mut lasting = LastingCount::new(window_ns);
        (1..).zip(counts).map(|(second, count)| lasting.end_interval(second * SECOND, *count)).collect()
    }

    #[test]
    fn a_count_that_doubles_while_the_old_ones_are_in_the_window_is_the_one_before() {
        // A change at the end of the third second shows in the fourth, too, as the window is longer than a second.
        assert_eq!(lasting(SECOND * 5 / 4, &[20.0, 20.0, 41.0, 40.0, 20.0]), [20.0; 5]);
        // A little more than usual right before it is no beginning of it.
        assert_eq!(lasting(SECOND * 5 / 4, &[20.0, 20.5, 40.0, 40.0, 20.5]), [20.0, 20.0, 20.0, 20.5, 20.5]);
        assert_eq!(lasting(0, &[20.0, 20.0, 40.0, 20.0]), [20.0; 4]);
        // Clients that come and go, and all of them at once.
        assert_eq!(lasting(0, &[24.0, 20.0, 48.0, 22.0]), [24.0, 20.0, 20.0, 22.0]);
        // One after the other.
        assert_eq!(lasting(0, &[20.0, 21.0, 20.0, 22.0, 20.0]), [20.0; 5]);
        // A window of three seconds, and intervals of one.
        assert_eq!(lasting(3 * SECOND, &[20.0, 40.0, 40.0, 40.0, 20.0]), [20.0; 5]);
    }

    #[test]
    fn what_lasts_is_growth_and_so_is_what_more_than_trebles_and_a_fall_counts_at_once() {
        assert_eq!(lasting(0, &[20.0, 30.0, 30.0, 30.0]), [20.0, 20.0, 30.0, 30.0]);
        assert_eq!(lasting(SECOND * 5 / 4, &[20.0, 30.0, 30.0, 30.0]), [20.0, 20.0, 20.0, 30.0]);
        assert_eq!(lasting(SECOND * 5 / 4, &[20.0, 61.0, 40.0, 5.0, 20.0]), [20.0, 61.0, 40.0, 5.0, 20.0]);
        assert_eq!(lasting(SECOND * 5 / 4, &[0.0, 1.0, 4.0]), [0.0, 1.0, 4.0]);
    }

    #[test]
    fn a_count_that_rises_all_the_time_counts_as_soon_as_it_has_more_than_trebled() {
        assert_eq!(lasting(9 * SECOND, &[10.0, 15.0, 22.0, 33.0]), [10.0, 10.0, 10.0, 33.0]);
    }

    #[test]
    fn a_window_of_an_hour_keeps_few_counts_and_holds_a_turnover_for_as_long() {
        const HOUR: u64 = 3_600;
        let mut lasting = LastingCount::new(HOUR * SECOND);
        for second in 0..3 * HOUR {
            // All change after the first hour, which shows for one.
            let count = if (HOUR + 1..=2 * HOUR).contains(&second) { 40.0 } else { 20.0 };
            assert_eq!(lasting.end_interval(second * SECOND, count), 20.0, "{second} s");
            assert!(lasting.least.len() <= PARTS as usize + 3, "{lasting:?}");
        }
    }

    #[test]
    fn a_clock_that_goes_back_holds_nothing() {
        let mut lasting = LastingCount::new(1_250);
        let found = [(5_000, 20.0), (5_000, 30.0), (4_000, 40.0)].map(|(now, count)| lasting.end_interval(now, count));
        assert_eq!(found, [20.0, 20.0, 40.0]);
        lasting.reset();
        assert_eq!(lasting.end_interval(4_500, 50.0), 50.0);
    }
}
