//! Ticks of tasks. Those of all tasks of the process are multiples of their periods since the same moment: so tasks that
//! look at something now and then are woken together, and a thread wakes once for all of them.

use std::sync::OnceLock;
use std::time::Duration;

use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use crate::clock::timer_now;

/// The moment of which all ticks are multiples: when somebody asked for the first ones.
static ORIGIN: OnceLock<Instant> = OnceLock::new();

/// Ticks every `period`, above 0: at once, then at each multiple of it. Those that are missed are left out. Needs a
/// runtime with time.
#[must_use]
pub fn ticks(period: Duration) -> Interval {
    let now = timer_now();
    let mut ticks = interval_at(latest(*ORIGIN.get_or_init(|| now), now, period), period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    ticks
}

/// The last multiple of `period` from `origin` that is not after `now`, which may be before `origin`.
fn latest(origin: Instant, now: Instant, period: Duration) -> Instant {
    let length = period.as_nanos().max(1);
    let since = match now.checked_duration_since(origin) {
        Some(since) => since.as_nanos() % length,
        None => (length - origin.saturating_duration_since(now).as_nanos() % length) % length,
    };
    // It is less than a period. What is before the beginning of time is now.
    let since = u64::try_from(since).map_or(Duration::ZERO, Duration::from_nanos);
    now.checked_sub(since).unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When the next ticks are due.
    async fn next(ticks: &mut Interval, number: usize) -> Vec<Instant> {
        let mut due = Vec::new();
        for _ in 0..number {
            due.push(ticks.tick().await);
        }
        due
    }

    #[test]
    fn the_last_multiple_is_at_the_moment_itself_or_less_than_a_period_before() {
        let origin = timer_now();
        let after = |millis| origin + Duration::from_millis(millis);
        let of = |millis| latest(origin, after(millis), Duration::from_millis(500));

        let found = [0, 499, 500, 1_499, 1_500].map(of);

        assert_eq!(found, [0, 0, 500, 1_000, 1_500].map(after));
        assert_eq!(latest(after(700), after(400), Duration::from_millis(500)), after(200));
        assert_eq!(latest(after(700), after(200), Duration::from_millis(500)), after(200));
    }

    #[tokio::test(start_paused = true)]
    async fn ticks_that_were_asked_for_at_different_times_come_together_and_the_first_one_comes_at_once() {
        let (half, whole) = (Duration::from_millis(500), Duration::from_secs(1));
        let began = timer_now();
        let mut often = ticks(half);
        often.tick().await;
        assert!(timer_now().duration_since(began) < Duration::from_millis(5));
        tokio::time::sleep(Duration::from_millis(120)).await;
        let mut seldom = ticks(whole);
        seldom.tick().await;

        let (often, seldom) = tokio::join!(next(&mut often, 6), next(&mut seldom, 2));

        assert!(seldom.iter().all(|due| often.contains(due)), "{often:?} and {seldom:?}");
        assert_eq!(seldom[1].duration_since(seldom[0]), whole);
    }

    #[tokio::test(start_paused = true)]
    async fn a_tick_that_was_missed_is_left_out_and_the_next_one_is_a_multiple_again() {
        let period = Duration::from_millis(500);
        let mut ticks = ticks(period);
        ticks.tick().await;
        let first = ticks.tick().await;

        tokio::time::sleep(Duration::from_millis(1_200)).await;
        let late = next(&mut ticks, 2).await;

        let since: Vec<_> = late.iter().map(|due| due.duration_since(first)).collect();
        assert_eq!(since, [period, 3 * period]);
    }
}
