//! Ticks of tasks and of threads. Those of the whole process are multiples of their periods since the same moment: so
//! tasks that look at something now and then are woken together, and a thread wakes once for all of them.

use core::pin::pin;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, OnceLock};
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

/// Does `work` on a thread that may block: at once, then at each multiple of `period`, above 0, until `end`, and then
/// waits for what is being done. Multiples that are missed are left out. Where it panics, it goes on at the next one.
/// Nothing but that thread wakes for it. Needs a runtime.
pub async fn every(period: Duration, end: impl Future<Output = ()>, work: impl Fn() + Send + Sync + 'static) {
    let mut end = pin!(end);
    let (work, mut pause) = (Arc::new(work), Duration::ZERO);
    loop {
        let (going, gone) = channel();
        let of = Arc::clone(&work);
        let mut working = tokio::task::spawn_blocking(move || repeat(&*of, period, pause, &gone));
        tokio::select! {
            () = &mut end => {
                drop(going);
                // What does not panic has no error.
                _ = working.await;
                return;
            }
            // Otherwise the runtime ends.
            ended = &mut working => if !ended.is_err_and(|error| error.is_panic()) { return },
        }
        pause = until_next(period);
    }
}

/// Does `work` after a `pause` and at each multiple of `period`, until the other end of `gone` is.
fn repeat(work: &impl Fn(), period: Duration, mut pause: Duration, gone: &Receiver<()>) {
    while gone.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
        work();
        pause = until_next(period);
    }
}

/// The time until the next multiple of `period`.
fn until_next(period: Duration) -> Duration {
    let now = timer_now();
    let last = latest(*ORIGIN.get_or_init(|| now), now, period);
    period.saturating_sub(now.saturating_duration_since(last))
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
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::sync::{mpsc, oneshot};

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

    #[tokio::test]
    async fn work_is_done_at_once_and_again_also_where_it_panics_until_the_end() {
        let (does, mut done) = mpsc::unbounded_channel();
        let (ends, end) = oneshot::channel::<()>();
        let times = AtomicU32::new(0);
        let working = tokio::spawn(every(Duration::from_millis(5), async { _ = end.await }, move || {
            let time = times.fetch_add(1, Ordering::Relaxed);
            does.send(time).unwrap();
            assert_ne!(time, 1, "the second time, it panics");
        }));

        for time in 0..4 {
            assert_eq!(done.recv().await, Some(time));
        }
        ends.send(()).unwrap();
        working.await.unwrap();

        while done.try_recv().is_ok() {}
        assert_eq!(done.try_recv(), Err(mpsc::error::TryRecvError::Disconnected), "nobody is at work any more");
    }
}
