//! A generator of seeds.

use wire::backoff::fraction;

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

    /// A number that is uniform in \[0, 1), for jitter.
    pub(crate) fn fraction(&mut self) -> f64 {
        fraction(self.draw())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_draws_the_same() {
        let (mut one, mut other) = (Seeds::new(3), Seeds::new(3));

        assert_eq!(one.draw(), other.draw());
        assert_ne!(one.draw(), one.draw());
    }
}
