//! Settings that both ends of a stream have to share.

use alloc::vec;
use alloc::vec::Vec;

use thiserror::Error;

use super::sizing;

/// Maximum number of buckets in a bank.
pub const MAX_BUCKETS: usize = 1 << 20;
/// Maximum number of banks.
pub const MAX_BANKS: usize = crate::moments::MAX_BANKS;
/// Maximum number of stashed packets before or after an interval's end.
const MAX_STASHED: usize = 1 << 20;

/// The rule by which a bucket counts as useful, that is, with the same packets at both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Equal counts. Wrong if one packet is lost and another is added.
    Lda,
    /// Equal counts, and a sum of delays that is not negative.
    LdaPlus,
    /// Equal counts and equal XORs of digests.
    FineCombMinus,
    /// As `FineCombMinus`, after recovery of displaced packets.
    FineComb,
}

/// Which packets a bank samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampling {
    /// A bank with a larger probability samples all packets of a bank with a smaller one. Row i has the same packets or
    /// fewer in each bank, so only one of them is used.
    Nested,
    /// A packet is in one bank at most (LDA). All banks are used.
    Disjoint,
}

/// Settings of one bank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bank {
    /// p, probability with which a packet is sampled, above 0 and at most 1. Rounded to a multiple of 2⁻⁶⁴.
    pub probability: f64,
    /// w, number of sampled packets stashed before an interval's end, and after it. 0 disables recovery.
    pub stash: usize,
    /// Share of lost packets that the bank is designed for. The loss is taken from the bank whose estimate is nearest
    /// to its design value.
    pub loss: f64,
}

/// Settings of FineComb and LDA, the same at both ends.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// M, number of buckets in each bank, from 1 to [`MAX_BUCKETS`].
    pub buckets: usize,
    /// The banks, from 1 to [`MAX_BANKS`].
    pub banks: Vec<Bank>,
    /// Which packets each bank samples.
    pub sampling: Sampling,
    /// Seed of rows and sampling. Keep it secret if packets may be crafted.
    pub seed: u64,
}

/// Why settings of FineComb are not valid.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// Invalid number of buckets.
    #[error("{0} buckets, from 1 to {MAX_BUCKETS} are possible")]
    Buckets(usize),
    /// Invalid number of banks.
    #[error("{0} banks, from 1 to {MAX_BANKS} are possible")]
    Banks(usize),
    /// Not a probability, or too small to sample any packet.
    #[error("a probability of {0}, above 2⁻⁶⁴ and at most 1 are possible")]
    Probability(f64),
    /// The probabilities of disjoint banks add up to more than 1.
    #[error("probabilities of {0} in disjoint banks, at most 1 is possible")]
    Sum(f64),
    /// The stash is too large.
    #[error("{0} packets stashed near an end of an interval, at most {MAX_STASHED} are possible")]
    Stash(usize),
    /// Not a share from 0 to 1.
    #[error("a share of {0} lost packets, from 0 to 1 are possible")]
    Loss(f64),
}

/// Range of the shares of lost and of displaced packets that four banks are designed for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// Smallest and largest share of lost packets.
    pub loss: (f64, f64),
    /// Smallest and largest share of displaced packets.
    pub displaced: (f64, f64),
}

impl Settings {
    /// Settings with one bank.
    #[must_use]
    pub fn one_bank(buckets: usize, probability: f64, stash: usize, seed: u64) -> Self {
        let banks = vec![Bank { probability, stash, loss: 0.0 }];
        Self { buckets, banks, sampling: Sampling::Nested, seed }
    }

    /// Four banks, one for each combination of the ends of `spread`, for intervals of `packets` packets. They share
    /// `memory` buckets and stash entries at the receiver: a fifth for each, and the last fifth evens out the number of
    /// buckets.
    #[must_use]
    pub fn four_banks(memory: usize, packets: f64, spread: Spread, seed: u64) -> Self {
        let fifth = memory as f64 / 5.0;
        let (mut banks, mut buckets) = (Vec::with_capacity(4), fifth);
        for (loss, displaced) in [
            (spread.loss.0, spread.displaced.0),
            (spread.loss.0, spread.displaced.1),
            (spread.loss.1, spread.displaced.0),
            (spread.loss.1, spread.displaced.1),
        ] {
            let probability = sizing::best_probability(fifth, packets, loss, displaced);
            let stashed = libm::round(probability * displaced * packets).min(fifth);
            buckets += fifth - stashed;
            banks.push(Bank { probability, stash: libm::round(stashed / 4.0) as usize, loss });
        }
        Self { buckets: ((buckets / 4.0) as usize).max(1), banks, sampling: Sampling::Nested, seed }
    }

    pub(super) fn checked(&self) -> Result<(), SettingsError> {
        if !(1..=MAX_BUCKETS).contains(&self.buckets) {
            return Err(SettingsError::Buckets(self.buckets));
        }
        if !(1..=MAX_BANKS).contains(&self.banks.len()) {
            return Err(SettingsError::Banks(self.banks.len()));
        }
        for bank in &self.banks {
            // Comparisons are false for a NaN, too.
            if !(bank.probability > 0.0 && bank.probability <= 1.0) || threshold(bank.probability) == 0 {
                return Err(SettingsError::Probability(bank.probability));
            }
            if bank.stash > MAX_STASHED {
                return Err(SettingsError::Stash(bank.stash));
            }
            if !(0.0..=1.0).contains(&bank.loss) {
                return Err(SettingsError::Loss(bank.loss));
            }
        }
        let sum: f64 = self.banks.iter().map(|bank| bank.probability).sum();
        match self.sampling {
            Sampling::Disjoint if sum > 1.0 + 1e-9 => Err(SettingsError::Sum(sum)),
            _ => Ok(()),
        }
    }

    /// The range of hashes that each bank samples.
    pub(super) fn shares(&self) -> Vec<HashRange> {
        let mut before = 0.0;
        let share = |bank: &Bank| {
            let (from, end) = (before, before + bank.probability);
            if self.sampling == Sampling::Disjoint {
                before = end;
            }
            let last = threshold(end).saturating_sub(u64::from(end < 1.0));
            HashRange { from: threshold(from), more: last.saturating_sub(threshold(from)) }
        };
        self.banks.iter().map(share).collect()
    }
}

/// The hashes that a bank samples: `from` and the `more` following ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HashRange {
    from: u64,
    more: u64,
}

impl HashRange {
    /// The first hash, and how many follow it.
    pub(super) const fn ends(self) -> (u64, u64) {
        (self.from, self.more)
    }

    #[inline]
    pub(super) const fn has(self, hash: u64) -> bool {
        hash.wrapping_sub(self.from) <= self.more
    }
}

/// p × 2⁶⁴, the largest number for 1 and above.
fn threshold(probability: f64) -> u64 {
    // `as` saturates.
    libm::ldexp(probability, 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_banks_are_refused() {
        let bank = Bank { probability: 0.6, stash: 0, loss: 0.0 };
        let good = Settings { buckets: 8, banks: vec![bank; 2], sampling: Sampling::Nested, seed: 0 };
        let of = |settings: Settings| settings.checked();

        assert_eq!(of(good.clone()), Ok(()));
        assert_eq!(of(Settings { buckets: 0, ..good.clone() }), Err(SettingsError::Buckets(0)));
        assert_eq!(of(Settings { banks: vec![], ..good.clone() }), Err(SettingsError::Banks(0)));
        assert_eq!(of(Settings { sampling: Sampling::Disjoint, ..good.clone() }), Err(SettingsError::Sum(1.2)));
        for probability in [0.0, -1.0, 1.1, 1e-30] {
            let banks = vec![Bank { probability, ..bank }];
            assert_eq!(of(Settings { banks, ..good.clone() }), Err(SettingsError::Probability(probability)));
        }
        let banks = vec![Bank { probability: f64::NAN, ..bank }];
        assert!(of(Settings { banks, ..good }).is_err());
    }

    #[test]
    fn a_probability_of_one_samples_every_hash_and_disjoint_banks_share_them() {
        let all = Settings::one_bank(8, 1.0, 0, 0);
        let bank = Bank { probability: 0.5, stash: 0, loss: 0.0 };
        let halves = Settings { banks: vec![bank; 2], sampling: Sampling::Disjoint, ..all.clone() };

        let half = 1 << 63;
        assert_eq!(all.shares(), [HashRange { from: 0, more: u64::MAX }]);
        assert_eq!(halves.shares(), [HashRange { from: 0, more: half - 1 }, HashRange { from: half, more: half - 1 }]);
        assert_eq!([0, half - 1, half, u64::MAX].map(|hash| halves.shares()[1].has(hash)), [false, false, true, true]);
    }

    #[test]
    fn four_banks_are_those_of_the_example() {
        let spread = Spread { loss: (1e-4, 1e-2), displaced: (4e-4, 4e-2) };
        let settings = Settings::four_banks(1_000, 5e6, spread, 0);

        assert_eq!(settings.buckets, 139);
        let found: Vec<_> = settings.banks.iter().map(|bank| (bank.probability, 4 * bank.stash)).collect();
        for ((probability, stash), (p, w)) in
            found.into_iter().zip([(0.060_96, 122), (0.000_95, 190), (0.003_71, 7), (0.000_61, 122)])
        {
            assert!(
                (probability - p).abs() < 1e-5 && stash.abs_diff(w) <= 2,
                "{probability} {stash}, expected {p} {w}"
            );
        }
    }
}
