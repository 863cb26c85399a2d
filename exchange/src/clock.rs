//! What is known of the two ends' clocks: how far apart they are, as messages tell, and how far off each may be, as its own kernel says.

/// How far the receiver's clock is ahead of the sender's, as a question and its answer tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockOffset {
    /// Nanoseconds; below 0 where it is behind.
    pub ahead_ns: i64,
    /// Nanoseconds by which that may be wrong: half of the time from question to answer.
    pub within_ns: u64,
}

impl ClockOffset {
    /// Whether the clocks differ by more than `bound_ns`, beyond doubt.
    #[must_use]
    pub const fn exceeds(&self, bound_ns: u64) -> bool {
        self.ahead_ns.unsigned_abs() > self.within_ns.saturating_add(bound_ns)
    }

    /// Of a question asked at `sent_ns` whose answer, given at `clock_ns` by the receiver's clock, came at `now_ns`: it was given somewhere between.
    pub(crate) const fn of(sent_ns: u64, now_ns: u64, clock_ns: u64) -> Self {
        let within_ns = now_ns.saturating_sub(sent_ns).div_ceil(2);
        let middle = sent_ns.saturating_add(within_ns);
        Self { ahead_ns: clock_ns.wrapping_sub(middle).cast_signed(), within_ns }
    }
}

/// What an end's kernel says of its own clock, as whoever keeps it told the kernel: `ptp4l` with `phc2sys`, `chronyd`, `ntpd`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClockState {
    /// Nobody said anything.
    #[default]
    Unknown,
    /// Nobody keeps it, or whoever did has not been heard of for long: it may be off by anything.
    Unsynchronised,
    /// It is off by so many nanoseconds at the most.
    Within(u64),
}

impl ClockState {
    /// Of a difference between two clocks.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Unsynchronised, _) | (_, Self::Unsynchronised) => Self::Unsynchronised,
            (Self::Within(one), Self::Within(another)) => Self::Within(one.saturating_add(another)),
            (Self::Unknown, _) | (_, Self::Unknown) => Self::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ClockState::{Unknown, Unsynchronised, Within};
    use super::*;

    #[test]
    fn errors_of_two_clocks_add_up_and_one_that_nobody_keeps_spoils_both() {
        for (one, other, both) in [
            (Within(3), Within(4), Within(7)),
            (Within(u64::MAX), Within(4), Within(u64::MAX)),
            (Within(3), Unknown, Unknown),
            (Unknown, Unknown, Unknown),
            (Within(3), Unsynchronised, Unsynchronised),
            (Unknown, Unsynchronised, Unsynchronised),
        ] {
            assert_eq!((one.and(other), other.and(one)), (both, both));
        }
    }

    #[test]
    fn an_answer_was_given_in_the_middle_give_or_take_half_of_its_way() {
        let offset = ClockOffset::of(1_000, 1_100, 5_050);
        assert_eq!(offset, ClockOffset { ahead_ns: 4_000, within_ns: 50 });
        assert!(offset.exceeds(3_949) && !offset.exceeds(3_950));
        assert_eq!(ClockOffset::of(1_000, 1_100, 50).ahead_ns, -1_000);
    }
}
