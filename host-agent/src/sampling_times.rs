//! When something that one thread samples is due: as usual, and more often while its service is fetched faster, since
//! something seems wrong with it. Pure.
//!
//! Values carry the time of their sample, so that a pace that changes shows in no increment. Afterwards the next usual
//! sample is a whole usual interval later: no increment is of a short time, which would make a burst of what is rare.

use exposition::cost;
use wire::name::ServiceName;
use wire::time::{Interval, Nanos};

use crate::control_plane::Paces;

/// Least time between two samples of a cgroup, or of a process.
pub const FASTEST: Nanos = Nanos::from_millis(100);
/// Most of a processor that samples take in one thread which come before the usual ones would.
const EXTRA_SHARE: f64 = 0.05;
/// A sample may come earlier by this part of the time between two, so that one turn of the thread takes several.
const EARLY: u64 = 20;

/// [`FASTEST`] as the control plane takes it.
#[must_use]
pub fn fastest() -> Interval {
    Interval::new(FASTEST).unwrap_or(Interval::MIN)
}

/// The times of what one thread samples.
#[derive(Clone, Debug)]
pub struct SamplingTimes {
    usual: Nanos,
    paces: Paces,
    /// When something may be sampled again before it is due as usual.
    extra_from: Nanos,
}

/// A sample that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakenSample {
    /// The time from which the next one counts.
    pub last: Nanos,
    /// Usual samples that are left out.
    pub missed: u64,
    /// Whether it came before the usual one would have.
    pub is_extra: bool,
}

impl SamplingTimes {
    /// Samples every `usual`, until some service is fetched faster.
    #[must_use]
    pub fn new(usual: Nanos) -> Self {
        Self { usual, paces: Paces::default(), extra_from: Nanos::ZERO }
    }

    /// These services are sampled as often as they are fetched now, the others as usual.
    pub fn follow(&mut self, paces: Paces) {
        self.paces = paces;
    }

    /// Time between two samples of `service` now, if it is shorter than usual.
    fn pace(&self, service: &ServiceName) -> Option<Nanos> {
        self.paces.get(service).map(|pace| pace.length().max(FASTEST)).filter(|pace| *pace < self.usual)
    }

    /// Whether `service` is sampled more often than usual.
    #[must_use]
    pub fn is_hurried(&self, service: &ServiceName) -> bool {
        self.pace(service).is_some()
    }

    /// When something of `service` is due that was sampled at `last`.
    #[must_use]
    pub fn due(&self, service: &ServiceName, last: Nanos) -> Nanos {
        let usual = last.plus(self.usual);
        self.pace(service).map_or(usual, |pace| last.plus(pace).max(self.extra_from).min(usual))
    }

    /// Whether it is due at `now`, or so soon that it is sampled together with what is.
    #[must_use]
    pub fn is_due(&self, service: &ServiceName, last: Nanos, now: Nanos) -> bool {
        let early = self.pace(service).unwrap_or(self.usual).0 / EARLY;
        self.due(service, last) <= now.plus(Nanos(early))
    }

    /// It is sampled at `now`. Usual samples keep to their grid, and those that are missed are not made up for; others
    /// keep to one of their own if they are in time.
    #[must_use]
    pub fn taken(&self, service: &ServiceName, last: Nanos, now: Nanos) -> TakenSample {
        let usual = last.plus(self.usual);
        let Some(late) = now.since(usual) else {
            let due = self.pace(service).map(|pace| (last.plus(pace), pace));
            let in_time = due.filter(|(due, pace)| now.since(*due).is_some_and(|late| late < *pace));
            return TakenSample { last: in_time.map_or(now, |(due, _)| due), missed: 0, is_extra: due.is_some() };
        };
        let missed = late.0 / self.usual.0.max(1);
        let on_grid = usual.plus(Nanos(self.usual.0.saturating_mul(missed)));
        // By the grid it would be due again at once.
        let is_due = self.pace(service).is_some_and(|pace| now >= on_grid.plus(pace));
        let last = if is_due { now } else { on_grid };
        TakenSample { last, missed, is_extra: false }
    }

    /// Of the samples of a turn, which took `took` until `now`, so many came early: these rest for as long as their
    /// share of a processor asks.
    pub fn rest(&mut self, now: Nanos, took: Nanos, (extra, all): (usize, usize)) {
        if extra > 0 {
            let took = Nanos(took.0 / all.max(1) as u64 * extra as u64);
            self.extra_from = now.plus(cost::rest(took, EXTRA_SHARE));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use super::*;

    const MILLIS: fn(u64) -> Nanos = Nanos::from_millis;

    fn service(name: &str) -> ServiceName {
        ServiceName::new(name).unwrap()
    }

    /// Every second; `cart` as often as every `millis`.
    fn times(millis: Option<u64>) -> SamplingTimes {
        let mut times = SamplingTimes::new(MILLIS(1_000));
        let pace = |millis| (service("cart"), Interval::new(MILLIS(millis)).unwrap());
        times.follow(Arc::new(millis.map(pace).into_iter().collect::<BTreeMap<_, _>>()));
        times
    }

    /// When `service` is sampled between `from` and `until`, in ms, if each sample comes as soon as it is due.
    fn samples(times: &SamplingTimes, name: &str, (from, until): (u64, u64), last: &mut Nanos) -> Vec<u64> {
        let (service, mut samples) = (service(name), Vec::new());
        for now in (from..until).map(MILLIS) {
            if times.due(&service, *last) <= now {
                samples.push(now.as_millis());
                *last = times.taken(&service, *last, now).last;
            }
        }
        samples
    }

    #[test]
    fn a_service_is_sampled_at_once_when_it_is_fetched_faster_and_a_whole_interval_after_that_has_ended() {
        let (mut cart, mut shop) = (MILLIS(350), MILLIS(350));
        assert_eq!(samples(&times(None), "cart", (350, 2_000), &mut cart), [1_350]);

        let hurried = times(Some(250));
        assert_eq!(samples(&hurried, "cart", (2_003, 2_600), &mut cart), [2_003, 2_253, 2_503]);
        assert_eq!(samples(&hurried, "shop", (350, 2_600), &mut shop), [1_350, 2_350], "nothing is wrong with it");

        assert_eq!(samples(&times(None), "cart", (2_600, 4_600), &mut cart), [3_503, 4_503]);
    }

    #[test]
    fn nothing_is_sampled_more_often_than_ten_times_a_second_or_less_often_than_usual() {
        let mut last = MILLIS(0);
        assert_eq!(samples(&times(Some(20)), "cart", (0, 301), &mut last), [100, 200, 300]);
        assert!(!times(Some(2_000)).is_hurried(&service("cart")));
        assert_eq!(times(Some(2_000)).due(&service("cart"), MILLIS(0)), MILLIS(1_000));
    }

    #[test]
    fn early_samples_keep_to_a_twentieth_of_a_processor_and_usual_ones_come_all_the_same() {
        let (cart, mut times) = (service("cart"), times(Some(100)));

        times.rest(MILLIS(210), MILLIS(10), (1, 1));
        assert_eq!(times.due(&cart, MILLIS(200)), MILLIS(400));
        // One in four of them was early.
        times.rest(MILLIS(210), MILLIS(40), (1, 4));
        assert_eq!(times.due(&cart, MILLIS(200)), MILLIS(400));
        times.rest(MILLIS(210), MILLIS(900), (1, 1));
        assert_eq!(times.due(&cart, MILLIS(200)), MILLIS(1_200));
        times.rest(MILLIS(1_200), MILLIS(900), (0, 1));
        assert_eq!(times.due(&cart, MILLIS(1_200)), MILLIS(2_200));
    }

    #[test]
    fn usual_samples_keep_to_their_grid_and_those_that_are_missed_are_counted() {
        let (cart, times) = (service("cart"), times(None));
        let taken = |now| times.taken(&cart, MILLIS(1_000), MILLIS(now));

        assert_eq!(taken(2_001), TakenSample { last: MILLIS(2_000), missed: 0, is_extra: false });
        assert_eq!(taken(4_500), TakenSample { last: MILLIS(4_000), missed: 2, is_extra: false });
        assert!(
            times.is_due(&cart, MILLIS(1_000), MILLIS(1_950)) && !times.is_due(&cart, MILLIS(1_000), MILLIS(1_949))
        );
        assert_eq!(taken(1_950), TakenSample { last: MILLIS(1_950), missed: 0, is_extra: false });
    }

    #[test]
    fn a_late_usual_sample_is_followed_by_none_at_once() {
        let (cart, times) = (service("cart"), times(Some(100)));
        let next = |now| times.due(&cart, times.taken(&cart, MILLIS(0), MILLIS(now)).last);

        assert_eq!((next(1_050), next(1_150)), (MILLIS(1_100), MILLIS(1_250)));
    }
}
