//! How often a target is scraped: as often as its cost allows, also while it is learnt, and while something seems
//! wrong.

use wire::time::Nanos;

/// Seconds between two scrapes, of which one is chosen.
const SECONDS: [u64; 5] = [1, 2, 5, 10, 15];
/// Least time between two scrapes.
const LEAST: Nanos = Nanos::from_millis(100);

/// The time between two scrapes of a target whose scrapes took `took`: the shortest of 1, 2, 5, 10 and 15 s in which
/// the usual scrape takes at most the share `share` of one processor, taken for busy all the while.
#[must_use]
pub fn interval(took: &mut [Nanos], share: f64) -> Nanos {
    let usual = median(took);
    let fits = |seconds: &u64| usual.0 as f64 <= share * (seconds * 1_000_000_000) as f64;
    Nanos::from_secs(SECONDS.into_iter().find(fits).unwrap_or(SECONDS[SECONDS.len() - 1]))
}

/// The shortest time between two scrapes of a target whose scrapes took `took`, in which the usual one takes at most
/// the share `share` of one processor, taken for busy all the while: 100 ms at least.
#[must_use]
pub fn fastest(took: &mut [Nanos], share: f64) -> Nanos {
    Nanos((median(took).0 as f64 * (1.0 / share)) as u64).max(LEAST)
}

fn median(took: &mut [Nanos]) -> Nanos {
    took.sort_unstable();
    took.get(took.len() / 2).copied().unwrap_or(Nanos::ZERO)
}

/// When a target is scraped next whose service is fetched every `pace`, after a scrape that began at `began` and took
/// `took`: as often, or every second, third, … time, 100 ms after it at the earliest, and once it has rested for as
/// long as its `share` asks.
#[must_use]
pub fn sooner((began, took): (Nanos, Nanos), pace: Nanos, share: f64) -> Nanos {
    let pace = pace.max(LEAST).0;
    let times = took.plus(rest(took, share)).0.div_ceil(pace).max(1);
    began.plus(Nanos(pace.saturating_mul(times)))
}

/// How long a target rests after a scrape that took `took`, so that scrapes take at most the share `share` of one
/// processor, 0.0001 to 1, taken for busy all the while: 15 s at most, since a scrape that long waited for an answer.
#[must_use]
pub fn rest(took: Nanos, share: f64) -> Nanos {
    let longest = Nanos::from_secs(SECONDS[SECONDS.len() - 1]);
    let rest = took.0 as f64 * (1.0 / share - 1.0);
    Nanos(rest.clamp(0.0, longest.0 as f64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_rests_for_as_long_as_its_share_asks_and_for_fifteen_seconds_at_most() {
        let of = |millis: u64, share: f64| rest(Nanos::from_millis(millis), share).as_millis();

        assert_eq!((of(100, 0.05).div_ceil(10), of(100, 0.25).div_ceil(10)), (190, 30));
        assert_eq!((of(0, 0.05), of(700, 1.0)), (0, 0));
        assert_eq!((of(5_000, 0.05), of(u64::MAX / 2_000_000, 0.0001)), (15_000, 15_000));
    }

    #[test]
    fn while_its_service_is_fetched_faster_a_target_is_scraped_as_often_as_its_share_allows_and_no_more() {
        let of = |millis: u64, pace: u64, share: f64| {
            let scrape = (Nanos::from_secs(1), Nanos::from_millis(millis));
            sooner(scrape, Nanos::from_millis(pace), share).as_millis() - 1_000
        };

        assert_eq!((of(4, 100, 0.05), of(5, 100, 0.05), of(6, 100, 0.05), of(40, 500, 0.05)), (100, 100, 200, 1_000));
        assert_eq!((of(0, 20, 0.05), of(400, 100, 1.0)), (100, 400));
        let fastest = |millis: [u64; 3]| fastest(&mut millis.map(Nanos::from_millis), 0.05).as_millis();
        assert_eq!((fastest([3, 900, 4]), fastest([11, 12, 13])), (100, 240));
    }

    #[test]
    fn the_interval_follows_the_usual_cost_and_not_a_single_slow_scrape() {
        let of = |millis: [u64; 3]| interval(&mut millis.map(Nanos::from_millis), 0.01).as_millis();

        assert_eq!(of([3, 900, 5]), 1_000);
        assert_eq!(of([11, 12, 13]), 2_000);
        assert_eq!(of([90, 90, 90]), 10_000);
        assert_eq!(of([900, 900, 900]), 15_000);
        assert_eq!(interval(&mut [], 0.01), Nanos::from_secs(1));
    }
}
