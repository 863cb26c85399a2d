//! Register and rank of an item.

use super::settings::{Hash, Settings};
use crate::digest::{Digest, Mixer};

/// Splits the hash of an item: the lowest bits are its register, the others give its rank.
#[derive(Clone, Copy, Debug)]
pub(super) struct Splitter {
    mixer: Option<Mixer>,
    mask: u64,
    /// p, bits of the register.
    shift: u32,
    /// The bit after the last one of the hash: the rank of a hash without any bits.
    end: u64,
}

impl Splitter {
    pub(super) const fn new(settings: &Settings) -> Self {
        let shift = settings.registers.trailing_zeros();
        let (mixer, width) = match settings.hash {
            Hash::Seeded(seed) => (Some(Mixer::new(seed, 3)), 64),
            Hash::Ready32 => (None, 32),
        };
        Self { mixer, mask: settings.registers as u64 - 1, shift, end: 1 << (width - shift) }
    }

    /// The register, and the rank: the place of the first bit that is set, from 1. Ranks are r with probability 2⁻ʳ.
    #[inline]
    pub(super) const fn split(&self, digest: Digest) -> (usize, u8) {
        let hash = match self.mixer {
            Some(mixer) => mixer.mix(digest),
            None => digest.0 & 0xffff_ffff,
        };
        let rank = (hash >> self.shift | self.end).trailing_zeros() + 1;
        ((hash & self.mask) as usize, rank as u8)
    }

    /// What a digest is combined with before it is mixed; `None` for hashes that are ready.
    pub(super) fn constant(&self) -> Option<u64> {
        self.mixer.map(Mixer::constant)
    }

    /// The largest rank.
    pub(super) const fn most(&self) -> u8 {
        (self.end.trailing_zeros() + 1) as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn splitter(registers: usize, hash: Hash) -> Splitter {
        Splitter::new(&Settings { registers, hash, ..Settings::default() })
    }

    #[test]
    fn a_rank_is_the_place_of_the_first_bit_beyond_the_register() {
        let ready = splitter(64, Hash::Ready32);

        assert_eq!(ready.split(Digest(0b101_1010)), (26, 1));
        assert_eq!(ready.split(Digest(0b100_0000_0001)), (1, 5));
        assert_eq!(ready.split(Digest(1 << 31)), (0, 26));
        // No bit is left: bits beyond 32 do not count.
        assert_eq!(ready.split(Digest(0x1_0000_0000_0000)), (0, 27));
        assert_eq!((ready.most(), splitter(16, Hash::Seeded(1)).most()), (27, 61));
    }

    #[test]
    fn registers_are_even_and_ranks_halve() {
        let (splitter, items) = (splitter(16, Hash::Seeded(7)), 160_000_u64);
        let (mut registers, mut ranks) = ([0_u32; 16], [0_u32; 65]);
        for item in 0..items {
            let (register, rank) = splitter.split(Digest(item));
            registers[register] += 1;
            ranks[usize::from(rank)] += 1;
        }

        assert!(registers.iter().all(|count| count.abs_diff(10_000) < 500), "{registers:?}");
        for (rank, found) in ranks.iter().enumerate().take(8).skip(1) {
            let expected = items as f64 / f64::from(1 << rank);
            assert!((f64::from(*found) - expected).abs() < 5.0 * expected.sqrt(), "{rank}: {found}");
        }
    }
}
