//! Exponential back-off, the same everywhere. Pure: randomness is an argument, and who waits adds the pause to its own
//! time.
//!
//! Each pause is twice the one before, up to a limit, and is shortened by up to a half at random: those that failed
//! together do not try again together ("equal jitter").

use crate::time::Nanos;

/// The pauses of a back-off. The longest is at least the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pauses {
    first: Nanos,
    longest: Nanos,
}

impl Pauses {
    /// Pauses from `first` to `longest`; all are `first` if that is longer.
    #[must_use]
    pub const fn new(first: Nanos, longest: Nanos) -> Self {
        Self { first, longest: if longest.0 < first.0 { first } else { longest } }
    }

    /// The longest pause.
    #[must_use]
    pub const fn longest(self) -> Nanos {
        self.longest
    }

    /// The pause after `failures` in a row, from 1. `random` is uniform in \[0, 1) and drawn anew for each call: 0 is
    /// the whole pause, and 1 would be half of it.
    #[must_use]
    pub fn after(self, failures: u32, random: f64) -> Nanos {
        let doublings = failures.saturating_sub(1);
        let doubled = self.first.0.saturating_mul(1_u64.checked_shl(doublings).unwrap_or(u64::MAX));
        let whole = doubled.min(self.longest.0);
        // A number that is none shortens nothing.
        let share = if random > 0.0 { random.min(1.0) } else { 0.0 };
        Nanos(whole - ((whole / 2) as f64 * share) as u64)
    }
}

/// A back-off: its pauses, and how many attempts have failed in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    pauses: Pauses,
    failures: u32,
}

impl Backoff {
    /// A back-off with pauses from `first` to `longest`, before any failure.
    #[must_use]
    pub const fn new(first: Nanos, longest: Nanos) -> Self {
        Self { pauses: Pauses::new(first, longest), failures: 0 }
    }

    /// An attempt failed: the pause before the next one. For `random` see [`Pauses::after`]; 0 where nobody else tries
    /// at the same time.
    #[must_use]
    pub fn pause(&mut self, random: f64) -> Nanos {
        self.failures = self.failures.saturating_add(1);
        self.pauses.after(self.failures, random)
    }

    /// An attempt succeeded: the next pause is the first one again.
    pub const fn reset(&mut self) {
        self.failures = 0;
    }

    /// Attempts that failed since the start, or since the last success.
    #[must_use]
    pub const fn failures(self) -> u32 {
        self.failures
    }
}

/// When a request that failed is sent again: with a back-off, or later if the receiver asks for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryRule {
    /// Pauses without `Retry-After`.
    pub pauses: Pauses,
    /// Maximum pause that `Retry-After` can ask for.
    pub max_retry_after: Nanos,
}

impl Default for RetryRule {
    /// 100 ms to 30 s; 10 minutes for `Retry-After`.
    fn default() -> Self {
        let pauses = Pauses::new(Nanos::from_millis(100), Nanos::from_secs(30));
        Self { pauses, max_retry_after: Nanos::from_secs(600) }
    }
}

impl RetryRule {
    /// The pause after `failures` in a row (from 1), or what the receiver `asked` for if that is longer. `random` is
    /// uniform in \[0, 1).
    #[must_use]
    pub fn pause(&self, failures: u32, asked: Option<Nanos>, random: f64) -> Nanos {
        let asked = asked.unwrap_or(Nanos::ZERO).min(self.max_retry_after);
        self.pauses.after(failures.max(1), random).max(asked)
    }
}

/// 64 random bits as a number that is uniform in \[0, 1), in steps of 2⁻⁵³.
#[must_use]
pub const fn fraction(random: u64) -> f64 {
    (random >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PAUSES: Pauses = Pauses::new(Nanos::from_millis(100), Nanos::from_secs(1));

    #[test]
    fn pauses_double_up_to_a_bound_and_start_again_after_a_success() {
        let mut backoff = Backoff::new(Nanos::from_millis(100), Nanos::from_secs(1));

        for millis in [100, 200, 400, 800, 1000, 1000] {
            assert_eq!(backoff.pause(0.0), Nanos::from_millis(millis));
        }
        assert_eq!(backoff.failures(), 6);
        backoff.reset();

        assert_eq!((backoff.failures(), backoff.pause(0.0)), (0, Nanos::from_millis(100)));
    }

    #[test]
    fn randomness_shortens_a_pause_by_up_to_a_half() {
        assert_eq!(PAUSES.after(1, 0.5), Nanos::from_millis(75));
        assert_eq!(PAUSES.after(2, 1.0), Nanos::from_millis(100));
        for odd in [-1.0, f64::NAN, f64::NEG_INFINITY] {
            assert_eq!(PAUSES.after(1, odd), Nanos::from_millis(100), "{odd}");
        }
        assert_eq!(PAUSES.after(1, f64::INFINITY), Nanos::from_millis(50));
    }

    #[test]
    fn a_first_pause_above_the_longest_stays_as_it_is() {
        let pauses = Pauses::new(Nanos::from_secs(9), Nanos::from_secs(1));

        assert_eq!((pauses.after(1, 0.0), pauses.after(9, 0.0)), (Nanos::from_secs(9), Nanos::from_secs(9)));
    }

    #[test]
    fn a_receiver_may_ask_for_a_longer_pause_up_to_ten_minutes_and_for_no_shorter_one() {
        let rule = RetryRule::default();
        let seconds = |asked: u64| rule.pause(9, Some(Nanos::from_secs(asked)), 0.0);

        assert_eq!(rule.pause(0, None, 0.0), Nanos::from_millis(100));
        assert_eq!(rule.pause(1, None, 0.5), Nanos::from_millis(75));
        assert_eq!(seconds(1), Nanos::from_millis(25_600));
        assert_eq!((seconds(60), seconds(100_000)), (Nanos::from_secs(60), Nanos::from_secs(600)));
    }

    #[test]
    fn random_bits_become_a_fraction_below_one() {
        assert_eq!((fraction(0), fraction(1 << 63)), (0.0, 0.5));
        assert!(fraction(u64::MAX) < 1.0);
    }

    proptest! {
        #[test]
        fn no_pause_is_longer_than_the_longest_or_shorter_than_half_of_the_first(
            first in 0_u64..=u64::MAX, longest: u64, failures: u32, random: u64
        ) {
            let pauses = Pauses::new(Nanos(first), Nanos(longest));

            let pause = pauses.after(failures, fraction(random));

            prop_assert!(pause <= pauses.longest());
            prop_assert!(pause.0 >= first / 2);
        }
    }
}
