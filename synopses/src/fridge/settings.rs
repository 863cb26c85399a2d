//! Settings of a fridge, and their checks.

use thiserror::Error;

/// Maximum number of slots (192 MiB).
pub const MAX_SLOTS: usize = 1 << 24;
/// 2³², the threshold for a probability of 1. It needs more than 32 bits: wrapped to 0, it would admit no request.
pub(super) const ALWAYS: u64 = 1 << 32;

/// The requests that the insertion counter counts. Each counter has its own formula for the chance of survival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    /// Requests that entered: the chance is p (1 − 1/M)ˣ. Not affected by copies of requests that did not enter.
    Accepted,
    /// All requests: the chance is p (1 − p/M)ˣ. Slightly more precise without repeated requests.
    Arrivals,
}

/// Handling of a request that is already pending, that is, of a retransmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duplicates {
    /// The delay is measured from the last copy. Unbiased with [`Coin::HashSplit`], for any number of copies.
    Overwrite,
    /// The delay is measured from the first copy, as a user experiences it. Biased upwards if first copies are evicted
    /// before the second one, so retransmission has to be much faster than the lifetime M/p.
    KeepFirst,
    /// No sample, because the response may belong to either copy (Karn's algorithm). Fingerprints have 31 bits.
    Discard,
}

/// What decides whether a request enters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coin {
    /// A hash of its digest, the same for all copies.
    HashSplit,
    /// A sequence of random numbers derived from the seed, independent for each copy.
    Random,
}

/// Settings of a [`super::Fridge`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// M, number of slots, from 2 to [`MAX_SLOTS`].
    pub slots: usize,
    /// p, probability with which a request enters, above 0 and at most 1. Rounded to a multiple of 2⁻³²
    /// ([`super::Fridge::probability`]).
    pub probability: f64,
    /// The requests that the insertion counter counts.
    pub counter: Counter,
    /// Handling of retransmitted requests.
    pub duplicates: Duplicates,
    /// What decides whether a request enters.
    pub coin: Coin,
    /// A tick is 2^`tick_shift` nanoseconds, at most 2³². Delays are exact to a tick and must be below 2³¹ ticks, which
    /// is 37 minutes with 10.
    pub tick_shift: u32,
    /// Seed of slots and coins, a new one for each generation. Keep it secret if packets may be crafted.
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            slots: 1 << 12,
            probability: 1.0,
            counter: Counter::Accepted,
            duplicates: Duplicates::Overwrite,
            coin: Coin::HashSplit,
            tick_shift: 10,
            seed: 0,
        }
    }
}

/// Invalid settings of a fridge.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// Invalid number of slots. With one slot the chance of survival would be 0.
    #[error("{0} slots, from 2 to {MAX_SLOTS} are possible")]
    Slots(usize),
    /// Not a probability, or too small to admit any request.
    #[error("a probability of {0}, above 2⁻³³ and at most 1 are possible")]
    Probability(f64),
    /// The probabilities of several fridges add up to more than 1.
    #[error("probabilities of {0} in all, at most 1 is possible")]
    Sum(f64),
    /// Invalid number of fridges.
    #[error("{0} fridges, from 1 to 16 are possible")]
    Fridges(usize),
    /// A tick of more than four seconds.
    #[error("a tick of 2^{0} ns, at most 2^32 is possible")]
    Tick(u32),
}

impl Settings {
    /// Number of slots that fit into `bytes` of memory.
    #[must_use]
    pub fn slots_within(bytes: usize) -> usize {
        bytes / size_of::<super::slot::Slot>()
    }

    /// Checks all settings but the probability, which [`threshold`] checks.
    pub(super) fn checked(self) -> Result<Self, SettingsError> {
        slots(self.slots)?;
        tick(self.tick_shift)?;
        Ok(self)
    }
}

pub(super) fn slots(slots: usize) -> Result<u32, SettingsError> {
    if (2..=MAX_SLOTS).contains(&slots) { Ok(slots as u32) } else { Err(SettingsError::Slots(slots)) }
}

pub(super) fn tick(shift: u32) -> Result<(), SettingsError> {
    if shift <= 32 { Ok(()) } else { Err(SettingsError::Tick(shift)) }
}

/// A probability as a threshold for 32-bit coins, from 1 to 2³².
pub(super) fn threshold(probability: f64) -> Result<u64, SettingsError> {
    // The comparison is false for a NaN, too.
    if !(probability > 0.0 && probability <= 1.0) {
        return Err(SettingsError::Probability(probability));
    }
    match libm::round(probability * ALWAYS as f64) as u64 {
        0 => Err(SettingsError::Probability(probability)),
        threshold => Ok(threshold),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString as _;

    #[test]
    fn a_probability_of_one_admits_all_requests_and_tiny_ones_are_refused() {
        assert_eq!(threshold(1.0), Ok(ALWAYS));
        assert_eq!(threshold(0.5), Ok(1 << 31));
        assert_eq!(threshold(2.4e-10), Ok(1));
        for none in [0.0, -0.5, 1.000_001, 1e-10, f64::INFINITY] {
            assert_eq!(threshold(none), Err(SettingsError::Probability(none)));
        }
        assert!(threshold(f64::NAN).is_err());
    }

    #[test]
    fn invalid_sizes_are_reported() {
        let of = |settings: Settings| settings.checked().map_err(|error| error.to_string());

        for slots in [0, 1, MAX_SLOTS + 1] {
            let expected = alloc::format!("{slots} slots, from 2 to 16777216 are possible");
            assert_eq!(of(Settings { slots, ..Settings::default() }), Err(expected));
        }
        let tick = of(Settings { tick_shift: 33, ..Settings::default() });
        assert_eq!(tick, Err("a tick of 2^33 ns, at most 2^32 is possible".to_string()));
        assert_eq!(Settings::slots_within(48 << 10), 1 << 12);
    }
}
