//! The two ends' clocks: their offset, measured with the protocol's messages, and the error of each, from its kernel.

/// Offset of the receiver's clock from the sender's, measured with one request and its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockOffset {
    /// How far the receiver's clock is ahead, in nanoseconds. Negative if it is behind.
    pub ahead_ns: i64,
    /// Largest error of that in nanoseconds: half of the round-trip time.
    pub uncertainty_ns: u64,
}

impl ClockOffset {
    /// Whether the clocks certainly differ by more than `bound_ns`.
    #[must_use]
    pub const fn exceeds(&self, bound_ns: u64) -> bool {
        self.ahead_ns.unsigned_abs() > self.uncertainty_ns.saturating_add(bound_ns)
    }

    /// From a request sent at `sent_ns` whose response was sent at `clock_ns` on the receiver's clock and received at
    /// `now_ns`.
    pub(crate) const fn measured(sent_ns: u64, now_ns: u64, clock_ns: u64) -> Self {
        let uncertainty_ns = now_ns.saturating_sub(sent_ns).div_ceil(2);
        let middle = sent_ns.saturating_add(uncertainty_ns);
        Self { ahead_ns: clock_ns.wrapping_sub(middle).cast_signed(), uncertainty_ns }
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
        let offset = ClockOffset::measured(1_000, 1_100, 5_050);
        assert_eq!(offset, ClockOffset { ahead_ns: 4_000, uncertainty_ns: 50 });
        assert!(offset.exceeds(3_949) && !offset.exceeds(3_950));
        assert_eq!(ClockOffset::measured(1_000, 1_100, 50).ahead_ns, -1_000);
    }
}
