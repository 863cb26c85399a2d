//! How many packets only one of two ends has, before anything is decoded: what the number of cells follows.

use alloc::boxed::Box;
use alloc::vec;

use super::aggregator::MergeError;
use super::cache::Cache;
use crate::digest::{Digest, Mixer, place};

/// Levels, each with half of the ids of the one before.
pub(super) const LEVELS: usize = 17;
/// Words of a level.
pub(super) const WORDS: usize = 256;
/// A level with a larger share of differing words says little.
const MOST_DIFFERING: f64 = 0.7;

/// XORs of ids in words: those of packets that both ends have cancel out, and the number of words that differ says how many are left (linear counting).
/// Within 4 to 9 % from ten to some hundred thousand differences, exactly 0 for none, however many packets there are. 34 KiB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XorCounters {
    pub(super) seed: u64,
    /// Level after level.
    pub(super) words: Box<[u64]>,
}

impl XorCounters {
    /// Of no packets. Both ends need the same seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { seed, words: vec![0; LEVELS * WORDS].into_boxed_slice() }
    }

    /// Of the packets in a cache.
    #[must_use]
    pub fn of(cache: &Cache, seed: u64) -> Self {
        let mut counters = Self::new(seed);
        cache.iter().for_each(|(id, _)| counters.insert(id));
        counters
    }

    /// One packet, which may come only once.
    #[inline]
    pub fn insert(&mut self, id: u64) {
        let random = Mixer::new(self.seed, 33).mix(Digest(id));
        // In its level and all below: a level above has half as many. The word is taken from the other half of the bits.
        let level = (random as u32).trailing_zeros().min(LEVELS as u32 - 1) as usize;
        let word = place((random >> 32) as u32, WORDS as u32) as usize;
        for level in 0..=level {
            self.words[level * WORDS + word] ^= id;
        }
    }

    /// About how many packets only one of two ends has.
    ///
    /// # Errors
    ///
    /// [`MergeError`] if their seeds differ.
    pub fn estimate(&self, other: &Self) -> Result<f64, MergeError> {
        if self.seed != other.seed {
            return Err(MergeError);
        }
        let differing = |level: usize| {
            let words = level * WORDS..(level + 1) * WORDS;
            self.words[words.clone()].iter().zip(&other.words[words]).filter(|(ours, theirs)| ours != theirs).count()
        };
        let readable = |level: &usize| differing(*level) as f64 <= MOST_DIFFERING * WORDS as f64;
        let level = (0..LEVELS).find(readable).unwrap_or(LEVELS - 1);
        // In a full level there are more than can be counted: as if one word were left.
        let differing = differing(level).min(WORDS - 1) as f64;
        let words = WORDS as f64;
        Ok(libm::ldexp(-words * libm::log1p(-differing / words), level as i32))
    }

    /// Adds what another core saw.
    ///
    /// # Errors
    ///
    /// [`MergeError`] if its seed is another one.
    pub fn merge(&mut self, other: &Self) -> Result<(), MergeError> {
        if self.seed != other.seed {
            return Err(MergeError);
        }
        self.words.iter_mut().zip(&other.words).for_each(|(word, more)| *word ^= more);
        Ok(())
    }

    /// Bytes of the words.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        size_of_val(&*self.words)
    }
}

/// As published: least hashes, by as many functions; the share of equal ones is that of common packets among all. Does not see few differences
/// among many packets. To be compared with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MinHash {
    seed: u64,
    packets: u64,
    least: Box<[u64]>,
}

impl MinHash {
    /// Of no packets, with so many hash functions.
    #[must_use]
    pub fn new(functions: usize, seed: u64) -> Self {
        Self { seed, packets: 0, least: vec![u64::MAX; functions].into_boxed_slice() }
    }

    /// Of the packets in a cache.
    #[must_use]
    pub fn of(cache: &Cache, functions: usize, seed: u64) -> Self {
        let mut hashes = Self::new(functions, seed);
        cache.iter().for_each(|(id, _)| hashes.insert(id));
        hashes
    }

    /// One packet. Takes as long as there are functions.
    pub fn insert(&mut self, id: u64) {
        self.packets += 1;
        for (function, least) in (64..).zip(&mut self.least) {
            *least = (*least).min(Mixer::new(self.seed, function).mix(Digest(id)));
        }
    }

    /// About how many packets only one of two ends has, (1 − J)/(1 + J) of those of both; `None` without functions.
    ///
    /// # Errors
    ///
    /// [`MergeError`] if their functions differ.
    pub fn estimate(&self, other: &Self) -> Result<Option<f64>, MergeError> {
        if (self.seed, self.least.len()) != (other.seed, other.least.len()) {
            return Err(MergeError);
        }
        let equal = self.least.iter().zip(&other.least).filter(|(ours, theirs)| ours == theirs).count() as f64;
        let common = equal / self.least.len() as f64;
        let both = self.packets as f64 + other.packets as f64;
        Ok((!self.least.is_empty()).then(|| (1.0 - common) / (1.0 + common) * both))
    }

    /// Bytes of the hashes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        size_of_val(&*self.least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::finalise;
    use crate::rda::Ids;

    /// Caches that have so many packets in common, and so many each alone.
    fn caches(common: u64, alone: u64, seed: u64) -> [Cache; 2] {
        [0, 1].map(|end| {
            let mut cache = Cache::new((common + alone) as usize, Ids::Plain).expect("possible");
            let own = (0..alone).map(|number| (end + 1) << 40 | number);
            (0..common).chain(own).for_each(|number| cache.insert(Digest(finalise(number ^ seed << 50)), number));
            cache
        })
    }

    #[test]
    fn words_say_how_many_packets_differ() {
        for alone in [0, 5, 50, 500, 5_000, 50_000] {
            let runs = 12;
            let (mut sum, mut squares) = (0.0, 0.0);
            for seed in 0..runs {
                let [ours, theirs] = caches(2_000, alone, seed).map(|cache| XorCounters::of(&cache, seed));
                let found = ours.estimate(&theirs).expect("one seed");
                let off = if alone == 0 { found } else { found / (2 * alone) as f64 - 1.0 };
                sum += off / runs as f64;
                squares += off * off / runs as f64;
            }
            assert!(sum.abs() < 0.08 && squares.sqrt() < 0.13, "{alone}: {sum} ± {}", squares.sqrt());
            assert!(alone > 0 || squares == 0.0);
        }
    }

    #[test]
    fn parts_merged_are_the_whole() {
        let [ours, theirs] = caches(100, 50, 1).map(|cache| XorCounters::of(&cache, 7));
        let mut both = ours.clone();
        both.merge(&theirs).expect("one seed");

        // What both have cancels out.
        let [ours, theirs] = caches(0, 50, 1).map(|cache| XorCounters::of(&cache, 7));
        assert_eq!(both.estimate(&XorCounters::new(7)), ours.estimate(&theirs));
        assert_eq!(both.memory_bytes(), 34_816);
        assert_eq!(both.estimate(&XorCounters::new(8)), Err(MergeError));
        assert_eq!(both.merge(&XorCounters::new(8)), Err(MergeError));
    }

    #[test]
    fn least_hashes_see_many_differences_and_not_few() {
        let of = |common, alone| {
            let [ours, theirs] = caches(common, alone, 2).map(|cache| MinHash::of(&cache, 512, 3));
            ours.estimate(&theirs).expect("one seed").expect("512 functions")
        };

        assert!((of(1_000, 1_000) / 2_000.0 - 1.0).abs() < 0.15);
        assert_eq!(of(20_000, 1), 0.0);
        assert_eq!(MinHash::new(0, 1).estimate(&MinHash::new(0, 1)), Ok(None));
        assert!(MinHash::new(1, 1).estimate(&MinHash::new(2, 1)).is_err());
    }
}
