//! A small seeded generator (SplitMix64; Steele, Lea, Flood 2014). Not for secrets.

/// Uniform numbers from a seed; the same seed gives the same numbers.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number in \[0, 1).
    pub(crate) fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ (bits >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_lie_in_the_unit_interval_and_average_a_half() {
        let mut random = Random::new(7);

        let numbers: Vec<f64> = (0..10_000).map(|_| random.unit()).collect();

        assert!(numbers.iter().all(|x| (0.0..1.0).contains(x)));
        let mean = numbers.iter().sum::<f64>() / 10_000.0;
        assert!((mean - 0.5).abs() < 0.015, "{mean}"); // five deviations of a mean of 10,000
    }
}
