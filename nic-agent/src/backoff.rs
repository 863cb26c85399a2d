//! Exponential back-off, and a generator of seeds.

use wire::time::Nanos;

/// SplitMix64 (Steele, Lea, Flood 2014): small, fast, and good enough for seeds and jitter. Not for secrets.
#[derive(Clone, Debug)]
pub(crate) struct Seeds(u64);

impl Seeds {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// Exponential back-off with jitter: each pause is twice the one before, up to a limit, and between half of that and
/// all of it is waited.
#[derive(Clone, Debug)]
pub struct Backoff {
    first: Nanos,
    longest: Nanos,
    tries: u32,
}

impl Backoff {
    /// A back-off with pauses from `first` to `longest`.
    #[must_use]
    pub const fn new(first: Nanos, longest: Nanos) -> Self {
        Self { first, longest, tries: 0 }
    }

    /// The pause before the next attempt; `random` is a number drawn anew for each call.
    #[must_use]
    pub fn pause(&mut self, random: u64) -> Nanos {
        let doubled = self.first.0.saturating_mul(1_u64.checked_shl(self.tries).unwrap_or(u64::MAX));
        self.tries = self.tries.saturating_add(1);
        let whole = doubled.min(self.longest.0);
        Nanos(whole / 2 + random % (whole / 2 + 1))
    }

    /// Starts over with the first pause, after a success.
    pub fn reset(&mut self) {
        self.tries = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_bound_with_jitter() {
        let (mut backoff, mut seeds) = (Backoff::new(Nanos::from_millis(100), Nanos::from_millis(1000)), Seeds::new(7));

        for whole in [100, 200, 400, 800, 1000, 1000] {
            let pause = backoff.pause(seeds.draw());
            assert!(Nanos::from_millis(whole / 2) <= pause && pause <= Nanos::from_millis(whole), "{pause} of {whole}");
        }
        for _ in 0..200 {
            assert!(backoff.pause(seeds.draw()) <= Nanos::from_millis(1000));
        }
        backoff.reset();
        assert!(backoff.pause(seeds.draw()) <= Nanos::from_millis(100));
    }

    #[test]
    fn the_same_seed_draws_the_same() {
        let (mut one, mut other) = (Seeds::new(3), Seeds::new(3));

        assert_eq!(one.draw(), other.draw());
        assert_ne!(one.draw(), one.draw());
    }
}
