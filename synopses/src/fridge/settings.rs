//! What a fridge is like, and what it cannot be like.

use thiserror::Error;

/// More slots than this (192 MiB) are a mistake.
pub const MOST_SLOTS: usize = 1 << 24;
/// 2³², as which a probability of 1 is kept: it does not fit into 32 bits, and a wrap to 0 would admit nobody.
pub(super) const ALWAYS: u64 = 1 << 32;

/// Which requests the insertion counter counts. Each has its own chance of survival, and neither may be used with the other's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    /// Those that entered: the chance is p (1 − 1/M)ˣ. Not misled by copies of requests that did not enter.
    Accepted,
    /// All that came: the chance is p (1 − p/M)ˣ. A very little more precise where no request comes twice.
    Arrivals,
}

/// What is done with a request that is still there: a retransmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duplicates {
    /// The last copy counts: the delay is measured from it. With [`Coin::HashSplit`], and for any number of copies, unbiased.
    Overwrite,
    /// The first copy counts: the delay is what a user waits. Counts too much where first copies are evicted before the second comes, so that
    /// retransmission has to be much faster than the lifetime M/p.
    KeepFirst,
    /// Nobody can say which copy was answered (Karn): no sample. Fingerprints have 31 bits.
    Discard,
}

/// What decides whether a request enters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coin {
    /// A hash of its digest: all copies share one outcome.
    HashSplit,
    /// A sequence of random numbers, derived from the seed. A copy is decided anew.
    Random,
}

/// What a [`super::Fridge`] is like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// M, from 2 to [`MOST_SLOTS`].
    pub slots: usize,
    /// p, above 0 and at most 1. Used as a multiple of 2⁻³² ([`super::Fridge::probability`] says which).
    pub probability: f64,
    /// What the insertion counter counts.
    pub counter: Counter,
    /// What happens to retransmitted requests.
    pub duplicates: Duplicates,
    /// What decides whether a request enters.
    pub coin: Coin,
    /// A tick is 2^this nanoseconds, at most 2³². Delays are exact to a tick and must be below 2³¹ ticks: 37 minutes with 10.
    pub tick_shift: u32,
    /// Another one for each generation, and secret where packets may be crafted.
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

/// A fridge that cannot be.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// None, one (whose chance of survival would be 0), or too many.
    #[error("{0} slots, from 2 to {MOST_SLOTS} are possible")]
    Slots(usize),
    /// Not a probability, or one that admits nobody.
    #[error("a probability of {0}, above 2⁻³³ and at most 1 are possible")]
    Probability(f64),
    /// More requests would enter than come.
    #[error("probabilities of {0} in all, at most 1 is possible")]
    Sum(f64),
    /// No fridge, or more than a report can name.
    #[error("{0} fridges, from 1 to 16 are possible")]
    Fridges(usize),
    /// Ticks of more than four seconds.
    #[error("a tick of 2^{0} ns, at most 2^32 is possible")]
    Tick(u32),
}

impl Settings {
    /// As many slots as `bytes` of memory hold.
    #[must_use]
    pub fn slots_within(bytes: usize) -> usize {
        bytes / size_of::<super::slot::Slot>()
    }

    /// Checks all but the probability, which [`threshold`] turns into what is used.
    pub(super) fn checked(self) -> Result<Self, SettingsError> {
        slots(self.slots)?;
        tick(self.tick_shift)?;
        Ok(self)
    }
}

pub(super) fn slots(slots: usize) -> Result<u32, SettingsError> {
    if (2..=MOST_SLOTS).contains(&slots) { Ok(slots as u32) } else { Err(SettingsError::Slots(slots)) }
}

pub(super) fn tick(shift: u32) -> Result<(), SettingsError> {
    if shift <= 32 { Ok(()) } else { Err(SettingsError::Tick(shift)) }
}

/// A probability as a number of 32-bit coins, from 1 to 2³².
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
    fn a_probability_of_one_admits_everybody_and_none_admits_nobody() {
        assert_eq!(threshold(1.0), Ok(ALWAYS));
        assert_eq!(threshold(0.5), Ok(1 << 31));
        assert_eq!(threshold(2.4e-10), Ok(1));
        for none in [0.0, -0.5, 1.000_001, 1e-10, f64::INFINITY] {
            assert_eq!(threshold(none), Err(SettingsError::Probability(none)));
        }
        assert!(threshold(f64::NAN).is_err());
    }

    #[test]
    fn impossible_sizes_are_said() {
        let of = |settings: Settings| settings.checked().map_err(|error| error.to_string());

        for slots in [0, 1, MOST_SLOTS + 1] {
            let expected = alloc::format!("{slots} slots, from 2 to 16777216 are possible");
            assert_eq!(of(Settings { slots, ..Settings::default() }), Err(expected));
        }
        let tick = of(Settings { tick_shift: 33, ..Settings::default() });
        assert_eq!(tick, Err("a tick of 2^33 ns, at most 2^32 is possible".to_string()));
        assert_eq!(Settings::slots_within(48 << 10), 1 << 12);
    }
}
