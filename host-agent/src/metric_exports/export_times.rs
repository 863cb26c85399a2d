//! The times of exports, by the agent's clock. Pure.
//!
//! An export is of the time at which it came: the clock of its sender may be wrong, and be set. That clock has a say
//! when an export comes late. If it shows that a whole number of usual times has passed since the export before, as it
//! should, the export was made in time and is of the time at which it was due. If it shows anything else, it is not
//! asked. So a clock that is set, coarse or wrong makes no time worse than the arrival.

use wire::time::{Nanos, UnixNanos};

/// Times differ if they do by more than this part of the usual time between two exports: a reader takes a sampler's
/// times that differ by less for whole intervals.
const DIFFERS: u64 = 20;
/// What comes later than so many usual times is not believed.
const LATEST: u64 = 5;

/// When the last export was made by its sender's clock, and the time that it has by the agent's.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ExportTimes {
    last: Option<(UnixNanos, Nanos)>,
}

impl ExportTimes {
    /// The time of the next export, which came at `came`: that, or an earlier one, but none before that of the last
    /// export. `made` is that of its latest point, 1970 if it has none; `usual` the usual time between two exports.
    pub(super) fn time_of(&mut self, made: UnixNanos, came: Nanos, usual: Option<Nanos>) -> Nanos {
        let late = self.last.zip(usual).and_then(|((before, last), usual)| {
            let due = last.plus(in_time(made.since(before), usual)?);
            of_late(due, came, usual)
        });
        let time = late.unwrap_or(came);
        self.last = Some((made, time));
        time
    }
}

/// `length` if it is as good as a whole number of `usual` times.
fn in_time(length: Nanos, usual: Nanos) -> Option<Nanos> {
    let usual = usual.0.max(1);
    let whole = (length.0.saturating_add(usual / 2) / usual).saturating_mul(usual);
    (whole > 0 && length.0.abs_diff(whole) <= usual / DIFFERS).then_some(length)
}

/// The time of an export that was due at `due` and came late, at `came`. It is a little later than `due`, so little
/// that a reader does not see it: times of exports that are late from now on get to their arrivals, without a jump.
fn of_late(due: Nanos, came: Nanos, usual: Nanos) -> Option<Nanos> {
    let (least, most) = (usual.0 / DIFFERS, usual.0.saturating_mul(LATEST));
    let late = came.since(due).filter(|late| least < late.0 && late.0 <= most)?;
    Some(due.plus(Nanos((late.0 / DIFFERS).min(least))))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLIS: fn(u64) -> Nanos = Nanos::from_millis;
    /// The time between two exports.
    const USUAL: Nanos = Nanos::from_millis(10_000);

    /// The times in ms of exports that were made so many ms after some time, and came at these ms.
    fn times(exports: &[(u64, u64)]) -> Vec<u64> {
        let mut times = ExportTimes::default();
        let of = |&(made, came): &(u64, u64)| {
            let made = UnixNanos::from_secs(1_800_000_000).plus(MILLIS(made));
            times.time_of(made, MILLIS(came), Some(USUAL)).as_millis()
        };
        exports.iter().map(of).collect()
    }

    #[test]
    fn an_export_that_came_late_is_of_the_time_at_which_it_was_due_if_its_sender_says_so() {
        // The third is 2.46 s late, of which a twentieth stays. The fourth is in time again, and two are lost after it.
        let exports = [(0, 500), (10_000, 10_540), (20_003, 23_003), (30_000, 30_520), (60_000, 63_520)];

        assert_eq!(times(&exports), [500, 10_540, 20_666, 30_520, 60_670]);
    }

    #[test]
    fn exports_that_come_together_are_about_as_far_apart_as_they_were_made() {
        // All three waited until a queue was emptied.
        let times = times(&[(0, 500), (10_000, 30_500), (20_000, 30_500), (30_000, 30_500)]);

        assert_eq!(times, [500, 11_000, 21_475, 30_500]);
    }

    #[test]
    fn a_clock_that_is_set_or_wrong_is_not_asked() {
        let set_back = [(0, 500), (10_000, 10_500), (16_000, 20_500), (26_000, 30_500)];
        let set_back_by_all = [(50_000, 500), (0, 10_500), (10_000, 20_500)];
        let set_forward = [(0, 500), (10_000, 10_500), (27_000, 20_500), (47_000, 30_500)];
        let stands_still = [(0, 500), (0, 10_500), (0, 23_500), (0, 30_500)];
        let says_what_cannot_be = [(0, 500), (10_000, 60_501), (20_000, 61_000)];

        for exports in
            [&set_back[..], &set_back_by_all[..], &set_forward[..], &stands_still[..], &says_what_cannot_be[..]]
        {
            let came: Vec<u64> = exports.iter().map(|(_, came)| *came).collect();
            assert_eq!(times(exports), came);
        }
        let mut untold = ExportTimes::default();
        let times = [500, 10_500, 23_500].map(|came| untold.time_of(UnixNanos(0), MILLIS(came), Some(USUAL)));
        assert_eq!(times, [500, 10_500, 23_500].map(MILLIS));
    }

    #[test]
    fn exports_that_are_late_from_now_on_get_to_their_arrivals_without_a_jump() {
        let exports: Vec<(u64, u64)> =
            (0..60).map(|at| (10_000 * at, 10_000 * at + if at < 3 { 0 } else { 3_000 })).collect();

        let times = times(&exports);

        let lengths: Vec<u64> = times.windows(2).map(|two| two[1] - two[0]).collect();
        assert!(lengths.iter().all(|length| (10_000..=10_500).contains(length)), "{lengths:?}");
        assert_eq!(times.last(), exports.last().map(|(_, came)| came));
    }
}
