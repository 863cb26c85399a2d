//! Coins that decide about admission.

use super::settings::Admission;
use crate::digest::Mixer;

/// Random numbers from a counter and a seed. Drawn only where a key meets full places.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Coins {
    mixer: Mixer,
    pub(crate) drawn: u64,
}

impl Coins {
    pub(crate) const fn new(seed: u64) -> Self {
        Self { mixer: Mixer::new(seed, 2), drawn: 0 }
    }

    /// Draws by another seed from the next coin on. Coins go on: a state that is decoded has the coins of its seed, and
    /// goes on with the next one.
    pub(crate) const fn reseed(&mut self, seed: u64) {
        self.mixer = Mixer::new(seed, 2);
    }

    /// What the number of a coin is combined with before it is mixed.
    pub(crate) const fn constant(&self) -> u64 {
        self.mixer.constant()
    }

    /// Whether a key of this weight replaces one with a count of `least`, which is above 0.
    #[inline]
    pub(crate) fn admit(&mut self, admission: Admission, least: u64, weight: u64) -> bool {
        if least == u64::MAX {
            return false;
        }
        self.drawn = self.drawn.wrapping_add(1);
        let of = match admission {
            Admission::InverseOfNext => least.saturating_add(weight),
            Admission::Inverse => least,
            Admission::PowerOfTwo => least.saturating_add(weight).checked_next_power_of_two().unwrap_or(u64::MAX),
        };
        // A uniform integer below `of`, to 2⁻⁶⁴, without a division.
        let drawn = (u128::from(self.mixer.mix_number(self.drawn)) * u128::from(of)) >> 64;
        (drawn as u64) < weight
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_admitted_as_often_as_the_law_says() {
        let draws = 200_000_u32;
        for (admission, least, weight, probability) in [
            (Admission::InverseOfNext, 1, 1, 0.5),
            (Admission::InverseOfNext, 9, 1, 0.1),
            (Admission::InverseOfNext, 99, 1, 0.01),
            (Admission::InverseOfNext, 30, 10, 0.25),
            (Admission::Inverse, 1, 1, 1.0),
            (Admission::Inverse, 10, 1, 0.1),
            (Admission::Inverse, 5, 9, 1.0),
            (Admission::PowerOfTwo, 7, 1, 0.125),
            (Admission::PowerOfTwo, 8, 1, 0.062_5),
        ] {
            let mut coins = Coins::new(7);
            let admitted = (0..draws).filter(|_| coins.admit(admission, least, weight)).count() as f64;
            let expected = f64::from(draws) * probability;
            let sigma = (expected * (1.0 - probability)).sqrt();
            assert!((admitted - expected).abs() <= 4.0 * sigma, "{admission:?}, {least}: {admitted}");
            assert_eq!(coins.drawn, u64::from(draws));
        }
    }

    #[test]
    fn nobody_replaces_a_saturated_count() {
        let mut coins = Coins::new(1);

        assert!(!(0..1_000).any(|_| coins.admit(Admission::Inverse, u64::MAX, u64::MAX)));
        assert!((0..1_000).any(|_| coins.admit(Admission::InverseOfNext, u64::MAX - 1, u64::MAX)));
    }
}
