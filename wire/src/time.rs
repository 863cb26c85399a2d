//! Time as a number. This crate never reads a clock: `now` is an argument. Durations and deadlines are [`Nanos`] of a
//! monotonic clock; times of events are [`UnixNanos`], as the clocks of other machines showed them.

use core::fmt;
use core::num::{NonZeroU32, NonZeroU64};

/// A duration, or a time since a clock's start, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

impl Nanos {
    /// No time at all, or a clock's start.
    pub const ZERO: Self = Self(0);
    /// A time that never comes (after 584 years).
    pub const NEVER: Self = Self(u64::MAX);

    /// `millis` milliseconds; saturates.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// `micros` microseconds; saturates.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros.saturating_mul(1_000))
    }

    /// `seconds` seconds; saturates.
    #[must_use]
    pub const fn from_secs(seconds: u64) -> Self {
        Self(seconds.saturating_mul(1_000_000_000))
    }

    /// Whole milliseconds, rounded down.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }

    /// Seconds as a number for people and formulas; exact to 53 bits.
    #[must_use]
    pub const fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// The time from `earlier` to `self`, or `None` if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Option<Self> {
        self.0.checked_sub(earlier.0).map(Self)
    }

    /// `self` plus `length`; saturates at [`Nanos::NEVER`].
    #[must_use]
    pub const fn plus(self, length: Self) -> Self {
        Self(self.0.saturating_add(length.0))
    }
}

impl From<core::time::Duration> for Nanos {
    /// Saturates at 584 years.
    fn from(length: core::time::Duration) -> Self {
        Self(u64::try_from(length.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<Nanos> for core::time::Duration {
    fn from(length: Nanos) -> Self {
        Self::from_nanos(length.0)
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&core::time::Duration::from(*self), f)
    }
}

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

    /// `millis` milliseconds after 1970; saturates.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
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

/// A moment, by both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timestamp {
    /// Monotonic time since the start of whoever took it; for deadlines.
    pub monotonic: Nanos,
    /// Wall-clock time; may jump.
    pub wall: UnixNanos,
}

/// The time between two scrapes of one LMAP: 1 ms to 1 hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Interval(NonZeroU64);

/// An interval out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a local scraping interval of {} is outside 1 ms to 1 h", .0)]
pub struct IntervalError(pub Nanos);

impl Interval {
    /// The shortest: 1 ms.
    pub const SHORTEST: Nanos = Nanos::from_millis(1);
    /// The interval of [`SHORTEST`](Self::SHORTEST).
    pub const MIN: Self = match NonZeroU64::new(Self::SHORTEST.0) {
        Some(nanos) => Self(nanos),
        None => Self(NonZeroU64::MIN),
    };
    /// The longest: 1 hour.
    pub const LONGEST: Nanos = Nanos::from_secs(3600);
    /// Most fetches in one interval.
    pub const MAX_PARTS: u32 = 10;

    /// An interval of `length`.
    ///
    /// # Errors
    ///
    /// [`IntervalError`] unless 1 ms ≤ `length` ≤ 1 h.
    pub fn new(length: Nanos) -> Result<Self, IntervalError> {
        let allowed = Self::SHORTEST <= length && length <= Self::LONGEST;
        NonZeroU64::new(length.0).filter(|_| allowed).map(Self).ok_or(IntervalError(length))
    }

    /// The interval as a duration.
    #[must_use]
    pub const fn length(self) -> Nanos {
        Nanos(self.0.get())
    }

    /// Its length as a divisor, in nanoseconds.
    #[must_use]
    pub const fn nanos(self) -> NonZeroU64 {
        self.0
    }

    /// How often an LMAP may be fetched in one such interval if no two fetches may be closer than `fastest`: the
    /// largest number of equal parts, at most 10; `None` if that is only one.
    #[must_use]
    pub fn parts(self, fastest: Self) -> Option<NonZeroU32> {
        let (whole, least) = (self.0.get(), fastest.0);
        let most = (whole / least).min(u64::from(Self::MAX_PARTS)) as u32;
        let divides = |parts: &u32| whole.is_multiple_of(u64::from(*parts));
        (2..=most).rev().find(divides).and_then(NonZeroU32::new)
    }

    /// One of so many equal `parts` of it, rounded down to nanoseconds; itself if that would be less than
    /// [`SHORTEST`](Self::SHORTEST).
    #[must_use]
    pub fn part(self, parts: NonZeroU32) -> Self {
        Self::new(Nanos(self.0.get() / u64::from(parts.get()))).unwrap_or(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_does_not_run_backwards() {
        assert_eq!(Nanos(5).since(Nanos(3)), Some(Nanos(2)));
        assert_eq!(Nanos(3).since(Nanos(5)), None);
        assert_eq!(Nanos::NEVER.plus(Nanos(1)), Nanos::NEVER);
    }

    #[test]
    fn wall_clock_time_saturates_at_both_ends() {
        let time = UnixNanos::from_secs(3).plus(Nanos::from_millis(250));

        assert_eq!(time.to_string(), "3.250");
        assert_eq!(time.second(), 3);
        assert_eq!(time.minus(Nanos::from_secs(9)), UnixNanos(0));
        assert_eq!(UnixNanos(0).since(time), Nanos::ZERO);
        assert_eq!(UnixNanos(u64::MAX).plus(Nanos(1)), UnixNanos(u64::MAX));
    }

    #[test]
    fn an_interval_is_at_least_a_millisecond_and_at_most_an_hour() {
        assert!(Interval::new(Nanos::from_millis(1)).is_ok());
        assert!(Interval::new(Nanos::from_secs(3600)).is_ok());

        let error = Interval::new(Nanos(999_999)).unwrap_err();
        assert_eq!(error.to_string(), "a local scraping interval of 999.999µs is outside 1 ms to 1 h");
        assert!(Interval::new(Nanos::from_secs(3601)).is_err());
    }

    #[test]
    fn an_interval_is_divided_into_as_many_equal_parts_as_are_allowed() {
        let millis = |millis| Interval::new(Nanos::from_millis(millis)).unwrap();
        let of = |interval, fastest| millis(interval).parts(millis(fastest)).map(NonZeroU32::get);

        assert_eq!(of(1000, 100), Some(10));
        assert_eq!(of(1000, 1), Some(10), "no more than ten");
        assert_eq!(of(1000, 120), Some(8));
        assert_eq!(of(1000, 333), Some(2), "a third of a second is no whole number of nanoseconds");
        assert_eq!((of(1000, 501), of(100, 100), of(10, 100)), (None, None, None));
        assert_eq!(millis(1000).part(NonZeroU32::new(8).unwrap()), millis(125));
        assert_eq!(millis(1).part(NonZeroU32::new(2).unwrap()), millis(1), "less is no interval");
    }
}
