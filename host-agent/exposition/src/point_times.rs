//! Times of points: here they order the points of one series, and nothing else. Clocks of senders may be wrong.

use wire::time::UnixNanos;

use crate::lines::Line;

/// Rising points from before the last one after which a sender's clock was set back.
const SET_BACK: u8 = 3;
/// A time that is not stated.
const NEVER: UnixNanos = UnixNanos(0);

/// When the point before was, by the sender's clock; 1970 is never.
#[derive(Clone, Copy, Debug, Default)]
struct LastPoint {
    start: UnixNanos,
    time: UnixNanos,
    /// The last of those points in a row that were older, and how many.
    older: UnixNanos,
    older_points: u8,
}

/// How a point follows the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// It is later.
    Later,
    /// It is later, and counts from a new start.
    Restarted,
    /// It is older, like some before: the sender's clock was set back. How much of it is new is not known.
    SetBack,
    /// It is older, or counts from an older start.
    Older,
    /// It has the same time.
    Duplicate,
}

/// When the points of each line were.
#[derive(Debug, Default)]
pub struct PointTimes(Vec<LastPoint>);

impl PointTimes {
    /// Forgets what was known of `line`.
    pub fn forget(&mut self, line: Line) {
        if let Some(seen) = self.0.get_mut(line as usize) {
            *seen = LastPoint::default();
        }
    }

    /// Whether a point at `time` is later than the last one.
    pub fn is_later(&self, line: Line, time: UnixNanos) -> bool {
        self.0.get(line as usize).is_none_or(|seen| time > seen.time)
    }

    /// Takes a point at `time` that counts from `start` on; 1970: not stated.
    pub fn take(&mut self, line: Line, start: UnixNanos, time: UnixNanos) -> Order {
        if time == NEVER {
            return Order::Later;
        }
        let at = line as usize;
        if self.0.len() <= at {
            self.0.resize(at + 1, LastPoint::default());
        }
        let seen = &mut self.0[at];
        if time == seen.time {
            return Order::Duplicate;
        }
        let of_before = start != NEVER && start < seen.start;
        if time < seen.time || of_before {
            seen.older_points = if time > seen.older { seen.older_points.saturating_add(1) } else { 1 };
            seen.older = time;
            if seen.older_points < SET_BACK {
                return Order::Older;
            }
            *seen = LastPoint { start, time, ..LastPoint::default() };
            return Order::SetBack;
        }
        let restarted = seen.start != NEVER && start > seen.start;
        *seen = LastPoint { start: start.max(seen.start), time, ..LastPoint::default() };
        if restarted { Order::Restarted } else { Order::Later }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_and_repeated_points_are_told_and_a_later_start_is_a_restart() {
        use Order::{Duplicate, Later, Older, Restarted};
        let mut times = PointTimes::default();
        let orders = [(1, 10), (1, 20), (1, 20), (1, 15), (1, 30), (25, 40), (1, 50), (25, 60)];

        let orders = orders.map(|(start, time)| times.take(3, UnixNanos(start), UnixNanos(time)));

        assert_eq!(orders, [Later, Later, Duplicate, Older, Later, Restarted, Older, Later]);
    }

    #[test]
    fn a_clock_that_was_set_back_is_believed_with_its_third_point() {
        let mut times = PointTimes::default();
        times.take(0, NEVER, UnixNanos(1_000_000));

        let orders = [10, 20, 30, 40].map(|time| times.take(0, NEVER, UnixNanos(time)));

        assert_eq!(orders, [Order::Older, Order::Older, Order::SetBack, Order::Later]);
        times.forget(0);
        assert_eq!(times.take(0, NEVER, UnixNanos(5)), Order::Later);
        assert_eq!(times.take(0, NEVER, NEVER), Order::Later, "a point without a time is not ordered");
    }
}
