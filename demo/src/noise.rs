//! Seeded randomness for the shop's work and load: the same in every run of one seed.

use std::sync::{Mutex, PoisonError};

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use wire::time::Nanos;

/// A stream of random numbers.
#[derive(Debug)]
pub struct Noise(ChaCha8Rng);

impl Noise {
    /// The stream `name` of `seed`. Different names give different streams.
    pub fn new(seed: u64, name: &str) -> Self {
        let stream = name.bytes().fold(0xCBF2_9CE4_8422_2325, |hash, byte| mix(hash ^ u64::from(byte)));
        Self(ChaCha8Rng::seed_from_u64(mix(seed) ^ stream))
    }

    /// Uniform in \[0, 1).
    pub fn uniform(&mut self) -> f64 {
        self.0.random()
    }

    /// Uniform in `low` to `high`, the latter excluded.
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.uniform()
    }

    /// Uniform over all 64-bit numbers.
    pub(crate) fn number(&mut self) -> u64 {
        self.0.random()
    }

    /// A number below `limit`; 0 if that is 0.
    pub fn below(&mut self, limit: usize) -> usize {
        ((self.uniform() * limit as f64) as usize).min(limit.saturating_sub(1))
    }

    /// Normal with mean 0 and standard deviation 1 (Box–Muller).
    pub(crate) fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (core::f64::consts::TAU * self.uniform()).cos()
    }

    /// Exponential with mean 1.
    pub(crate) fn exponential(&mut self) -> f64 {
        -(1.0 - self.uniform()).ln()
    }

    /// Lognormal with this median; `deviation` is the standard deviation of the logarithm.
    pub(crate) fn lognormal(&mut self, median: Nanos, deviation: f64) -> Nanos {
        Nanos((median.0 as f64 * (deviation * self.normal()).exp()) as u64)
    }

    /// Shuffles `items`, all orders equally likely.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

/// A stream that several tasks draw from.
#[derive(Debug)]
pub(crate) struct SharedNoise(Mutex<Noise>);

impl SharedNoise {
    /// The stream `name` of `seed`.
    pub(crate) fn new(seed: u64, name: &str) -> Self {
        Self(Mutex::new(Noise::new(seed, name)))
    }

    /// Draws from it.
    pub(crate) fn draw<T>(&self, draw: impl FnOnce(&mut Noise) -> T) -> T {
        draw(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The finaliser of SplitMix64: every bit of `number` reaches every bit of the result.
pub(crate) const fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
}

/// Real work: `rounds` of hashing that the compiler cannot remove. About 1 ns per round.
pub(crate) fn work(number: u64, rounds: u32) -> u64 {
    core::hint::black_box((0..rounds).fold(number, |number, round| mix(number ^ u64::from(round))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_is_one_stream_and_names_are_apart() {
        let numbers = |seed, name| {
            let mut noise = Noise::new(seed, name);
            (0..4).map(|_| noise.number()).collect::<Vec<_>>()
        };

        assert_eq!(numbers(7, "cart"), numbers(7, "cart"));
        assert_ne!(numbers(7, "cart"), numbers(8, "cart"));
        assert_ne!(numbers(7, "cart"), numbers(7, "store"));
    }

    #[test]
    fn half_of_the_lengths_are_below_the_median() {
        let mut noise = Noise::new(1, "test");
        let median = Nanos::from_millis(2);

        let below = (0..2000).filter(|_| noise.lognormal(median, 0.5) < median).count();

        assert!((900..1100).contains(&below), "{below} of 2000");
    }

    #[test]
    fn a_shuffle_keeps_what_it_was_given() {
        let mut items = [1, 2, 3, 4, 5];
        Noise::new(3, "test").shuffle(&mut items);
        items.sort_unstable();

        assert_eq!(items, [1, 2, 3, 4, 5]);
    }
}
