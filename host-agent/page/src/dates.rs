//! Seconds by a clock that nobody sets. What the page remembers keeps its order when the wall clock jumps, and is dated
//! by what that shows when somebody reads it.
//!
//! A worker's clock, which may be that of another machine, plays no part.

use wire::time::{Timestamp, UnixNanos};

/// Nanoseconds of a second, and of half of one.
const SECOND: i128 = 1_000_000_000;
const HALF: i128 = SECOND / 2;
/// A wall clock that shows more at the first look (the year 2096) would leave too few seconds in 32 bits.
const LATEST: UnixNanos = UnixNanos::from_secs(4_000_000_000);

/// Steady seconds: those that the wall clock showed at the first look, and goes on showing unless it is set.
#[derive(Clone, Copy, Debug, Default)]
pub struct Dates {
    first: Option<Timestamp>,
    /// By how many seconds the wall clock is ahead of the steady seconds.
    ahead: i64,
}

impl Dates {
    /// The steady second of a look at `now`. Its monotonic part has to go on while the machine sleeps.
    pub fn look(&mut self, now: Timestamp) -> u32 {
        let Timestamp { monotonic, wall } = *self.first.get_or_insert(Timestamp { wall: now.wall.min(LATEST), ..now });
        let steady = wall.plus(now.monotonic.since(monotonic).unwrap_or_default());
        let ahead = i128::from(now.wall.0) - i128::from(steady.0);
        self.ahead = (ahead + HALF).div_euclid(SECOND) as i64;
        u32::try_from(steady.second()).unwrap_or(u32::MAX)
    }

    /// By how many seconds the wall clock was set forward between the last look and this one, at `now`; negative: back.
    pub fn set_forward(&mut self, now: Timestamp) -> i64 {
        let before = self.ahead;
        self.look(now);
        self.ahead - before
    }

    /// The date of a steady `second`, in seconds since 1970, by what the wall clock showed at the last look.
    #[must_use]
    pub fn of(&self, second: u32) -> u32 {
        (i64::from(second) + self.ahead).clamp(0, i64::from(u32::MAX)) as u32
    }
}

#[cfg(test)]
mod tests {
    use wire::time::Nanos;

    use super::*;

    const WALL: u64 = 1_700_000_000;

    /// So many milliseconds after the start, while the wall clock is ahead by so many seconds.
    fn now(millis: u64, ahead: i64) -> Timestamp {
        let wall = UnixNanos::from_secs(WALL.checked_add_signed(ahead).unwrap()).plus(Nanos::from_millis(millis));
        Timestamp { monotonic: Nanos::from_secs(50).plus(Nanos::from_millis(millis)), wall }
    }

    #[test]
    fn a_clock_that_is_not_set_is_the_date() {
        let mut dates = Dates::default();

        let seconds = [0, 999, 1_000, 86_400_500].map(|millis| dates.look(now(millis, 0)) - WALL as u32);

        assert_eq!(seconds, [0, 0, 1, 86_400]);
        assert_eq!(dates.of(WALL as u32 + 7), WALL as u32 + 7);
    }

    #[test]
    fn whatever_the_wall_clock_does_seconds_go_on_and_dates_are_what_it_shows() {
        let mut dates = Dates::default();
        for (millis, ahead) in [(0, 0), (1_000, 3_600), (2_000, 100 * 86_400), (3_000, -86_400), (4_000, 0)] {
            let second = dates.look(now(millis, ahead));

            assert_eq!(u64::from(second), WALL + millis / 1_000, "{ahead}");
            assert_eq!(i64::from(dates.of(WALL as u32)), WALL as i64 + ahead);
        }
    }

    #[test]
    fn each_time_that_the_clock_is_set_is_seen_once() {
        let mut dates = Dates::default();

        let all = [(0, 0), (1_000, 60), (2_000, 60), (3_000, -86_400), (4_000, 0)];

        assert_eq!(all.map(|(millis, ahead)| dates.set_forward(now(millis, ahead))), [0, 60, 0, -86_460, 86_400]);
    }

    #[test]
    fn a_clock_that_is_slowed_or_hurried_a_little_changes_no_date() {
        let mut dates = Dates::default();
        _ = dates.look(now(0, 0));
        let slewed =
            Timestamp { wall: UnixNanos::from_secs(WALL + 1_000).plus(Nanos::from_millis(499)), ..now(1_000_000, 0) };

        assert_eq!(u64::from(dates.look(slewed)), WALL + 1_000);
        assert_eq!(dates.of(5), 5);
    }

    #[test]
    fn clocks_out_of_reach_fail_nowhere() {
        for wall in [0, 4_294_967_296, u64::MAX / 1_000_000_000] {
            let mut dates = Dates::default();
            let at = |second: u64| Timestamp { monotonic: Nanos::from_secs(second), wall: UnixNanos::from_secs(wall) };
            let (first, later) = (dates.look(at(9)), dates.look(Timestamp { wall: UnixNanos(0), ..at(12) }));

            assert_eq!(later - first, 3, "seconds go on, even if the clock begins with {wall}");
            assert_eq!(dates.of(later), 0, "1970");
        }
    }
}
