//! The two ends' clocks: their offset, measured with the protocol's messages, and the error of each, from its kernel.

use wire::time::{Nanos, UnixNanos};

/// Offset of the receiver's clock from the sender's, measured with one request and its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockOffset {
    /// How far the receiver's clock is ahead, in nanoseconds. Negative if it is behind.
    pub ahead_ns: i64,
    /// Largest error of that in nanoseconds: half of the round-trip time.
    pub uncertainty_ns: u64,
}

impl ClockOffset {
    /// Whether the clocks certainly differ by more than `bound`.
    #[must_use]
    pub const fn exceeds(&self, bound: Nanos) -> bool {
        self.ahead_ns.unsigned_abs() > self.uncertainty_ns.saturating_add(bound.0)
    }

    /// From a request that was `sent`, whose response was sent at `clock` on the receiver's clock and received `now`.
    pub(crate) const fn measured(sent: UnixNanos, now: UnixNanos, clock: UnixNanos) -> Self {
        let uncertainty_ns = now.since(sent).0.div_ceil(2);
        let middle = sent.plus(Nanos(uncertainty_ns));
        Self { ahead_ns: clock.0.wrapping_sub(middle.0).cast_signed(), uncertainty_ns }
    }
}

/// State of an end's clock, as its time daemon (`ptp4l` with `phc2sys`, `chronyd`, `ntpd`) reported it to the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClockState {
    /// The kernel reports nothing about its clock.
    #[default]
    Unknown,
    /// No time daemon synchronises it, or none has for long. The error is unbounded.
    Unsynchronised,
    /// Synchronised, with at most this error in nanoseconds.
    Synchronised(u64),
}

impl ClockState {
    /// The state of the difference between two clocks. Errors add up.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Unsynchronised, _) | (_, Self::Unsynchronised) => Self::Unsynchronised,
            (Self::Synchronised(one), Self::Synchronised(another)) => Self::Synchronised(one.saturating_add(another)),
            (Self::Unknown, _) | (_, Self::Unknown) => Self::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ClockState::{Synchronised, Unknown, Unsynchronised};
    use super::*;

    #[test]
    fn errors_of_two_clocks_add_up_and_one_unsynchronised_clock_spoils_both() {
        for (one, other, both) in [
            (Synchronised(3), Synchronised(4), Synchronised(7)),
            (Synchronised(u64::MAX), Synchronised(4), Synchronised(u64::MAX)),
            (Synchronised(3), Unknown, Unknown),
            (Unknown, Unknown, Unknown),
            (Synchronised(3), Unsynchronised, Unsynchronised),
            (Unknown, Unsynchronised, Unsynchronised),
        ] {
            assert_eq!((one.and(other), other.and(one)), (both, both));
        }
    }

    #[test]
    fn the_offset_is_taken_at_the_middle_of_the_round_trip() {
        let measured = |sent, now, clock| ClockOffset::measured(UnixNanos(sent), UnixNanos(now), UnixNanos(clock));
        let offset = measured(1_000, 1_100, 5_050);
        assert_eq!(offset, ClockOffset { ahead_ns: 4_000, uncertainty_ns: 50 });
        assert!(offset.exceeds(Nanos(3_949)) && !offset.exceeds(Nanos(3_950)));
        assert_eq!(measured(1_000, 1_100, 50).ahead_ns, -1_000);
    }
}
