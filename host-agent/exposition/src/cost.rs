//! How often a target is scraped: as often as its cost allows, also while it is learnt.

use wire::time::Nanos;

/// Seconds between two scrapes, of which one is chosen.
const SECONDS: [u64; 5] = [1, 2, 5, 10, 15];

/// The time between two scrapes of a target whose scrapes took `took`: the shortest of 1, 2, 5, 10 and 15 s in which
/// the usual scrape takes at most the share `share` of one processor, taken for busy all the while.
#[must_use]
pub fn interval(took: &mut [Nanos], share: f64) -> Nanos {
    took.sort_unstable();
    let usual = took.get(took.len() / 2).copied().unwrap_or(Nanos::ZERO);
    let fits = |seconds: &u64| usual.0 as f64 <= share * (seconds * 1_000_000_000) as f64;
    Nanos::from_secs(SECONDS.into_iter().find(fits).unwrap_or(SECONDS[SECONDS.len() - 1]))
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
    fn the_interval_follows_the_usual_cost_and_not_a_single_slow_scrape() {
        let of = |millis: [u64; 3]| interval(&mut millis.map(Nanos::from_millis), 0.01).as_millis();

        assert_eq!(of([3, 900, 5]), 1_000);
        assert_eq!(of([11, 12, 13]), 2_000);
        assert_eq!(of([90, 90, 90]), 10_000);
        assert_eq!(of([900, 900, 900]), 15_000);
        assert_eq!(interval(&mut [], 0.01), Nanos::from_secs(1));
    }
}
