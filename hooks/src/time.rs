//! Wall-clock time. Durations and deadlines use [`Nanos`] of the local monotonic clock; times of events are what the
//! clocks of other machines showed.

use core::fmt;

use wire::time::Nanos;

/// Wall-clock time in nanoseconds since 1970-01-01 UTC, as in spans, verdicts and samples. Often from another machine's
/// clock: it is never used for deadlines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixNanos(pub u64);

impl UnixNanos {
    /// `seconds` seconds after 1970; saturates.
    #[must_use]
    pub const fn from_secs(seconds: u64) -> Self {
        Self(seconds.saturating_mul(1_000_000_000))
    }

    /// The whole second, rounded down.
    #[must_use]
    pub const fn second(self) -> u64 {
        self.0 / 1_000_000_000
    }

    /// Whole milliseconds since 1970, rounded down.
    #[must_use]
    pub const fn millis(self) -> u64 {
        self.0 / 1_000_000
    }

    /// The time from `earlier` to `self`; zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }

    /// `self` plus `length`; saturates.
    #[must_use]
    pub const fn plus(self, length: Nanos) -> Self {
        Self(self.0.saturating_add(length.0))
    }

    /// `self` minus `length`; 1970 at the earliest.
    #[must_use]
    pub const fn minus(self, length: Nanos) -> Self {
        Self(self.0.saturating_sub(length.0))
    }
}

impl fmt::Display for UnixNanos {
    /// Seconds since 1970, to the millisecond.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}", self.second(), self.millis() % 1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wall_clock_time_saturates_at_both_ends() {
        let time = UnixNanos::from_secs(3).plus(Nanos::from_millis(250));

        assert_eq!(time.to_string(), "3.250");
        assert_eq!(time.second(), 3);
        assert_eq!(time.minus(Nanos::from_secs(9)), UnixNanos(0));
        assert_eq!(UnixNanos(0).since(time), Nanos::ZERO);
        assert_eq!(UnixNanos(u64::MAX).plus(Nanos(1)), UnixNanos(u64::MAX));
    }
}
