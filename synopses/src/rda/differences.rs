//! Estimates of the number of packets that only one end has, before decoding. The number of cells follows from it.

use alloc::boxed::Box;
use alloc::vec;

use super::aggregator::MergeError;
use super::cache::Cache;
use crate::digest::{Digest, Mixer, place};

/// Levels, each with half of the ids of the one before.
pub(super) const LEVELS: usize = 17;
/// Number of words in a level.
pub(super) const WORDS: usize = 256;
/// Levels with a larger share of differing words are not used.
const MAX_DIFFERING: f64 = 0.7;

/// XORs of ids in words. Packets that both ends have cancel out, and the number of differing words gives the number of
/// differences (linear counting). The error is 4 to 9 % for ten to some hundred thousand differences, whatever the
/// number of packets. Without differences the estimate is exactly 0. Takes 34 KiB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XorCounters {
    pub(super) seed: u64,
    /// All levels in order.
    pub(super) words: Box<[u64]>,
}

impl XorCounters {
    /// Empty counters. Both ends need the same seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { seed, words: vec![0; LEVELS * WORDS].into_boxed_slice() }
    }

    /// Counters of the packets in a cache.
    #[must_use]
    pub fn of(cache: &Cache, seed: u64) -> Self {
        let mut counters = Self::new(seed);
        cache.iter().for_each(|(id, _)| counters.insert(id));
        counters
    }

    /// Adds a packet. Each packet may be added only once.
    #[inline]
    pub fn insert(&mut self, id: u64) {
        let random = Mixer::new(self.seed, 33).mix(Digest(id));
        // In its level and all below: each level has half as many packets as the one below. The word is derived from
        // the other half of the bits.
        let level = (random as u32).trailing_zeros().min(LEVELS as u32 - 1) as usize;
        let word = place((random >> 32) as u32, WORDS as u32) as usize;
        for level in 0..=level {
            self.words[level * WORDS + word] ^= id;
        }
    }

    /// Estimated number of packets that only one of the two ends has.
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
        let readable = |level: &usize| differing(*level) as f64 <= MAX_DIFFERING * WORDS as f64;
        let level = (0..LEVELS).find(readable).unwrap_or(LEVELS - 1);
        // A full level is beyond linear counting: count one word as equal.
        let differing = differing(level).min(WORDS - 1) as f64;
        let words = WORDS as f64;
        Ok(libm::ldexp(-words * libm::log1p(-differing / words), level as i32))
    }

    /// Adds the packets of another core.
    ///
    /// # Errors
    ///
    /// [`MergeError`] if the seeds differ.
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

/// MinHash, as published: the share of equal minimum hashes estimates the Jaccard index of the packets of both ends.
/// Does not detect few differences among many packets. For comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MinHash {
    seed: u64,
    packets: u64,
    least: Box<[u64]>,
}

impl MinHash {
    /// Empty, with this many hash functions.
    #[must_use]
    pub fn new(functions: usize, seed: u64) -> Self {
        Self { seed, packets: 0, least: vec![u64::MAX; functions].into_boxed_slice() }
    }

    /// Counters of the packets in a cache.
    #[must_use]
    pub fn of(cache: &Cache, functions: usize, seed: u64) -> Self {
        let mut hashes = Self::new(functions, seed);
        cache.iter().for_each(|(id, _)| hashes.insert(id));
        hashes
    }

    /// Adds a packet, in time linear in the number of functions.
    pub fn insert(&mut self, id: u64) {
        self.packets += 1;
        for (function, least) in (64..).zip(&mut self.least) {
            *least = (*least).min(Mixer::new(self.seed, function).mix(Digest(id)));
        }
    }

    /// Estimated number of packets that only one of the two ends has: (1 − J)/(1 + J) of the packets of both ends.
    /// `None` without functions.
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

    /// Caches with `common` packets in common, and `alone` packets each.
    fn caches(common: u64, alone: u64, seed: u64) -> [Cache; 2] {
        [0, 1].map(|end| {
            let mut cache = Cache::new((common + alone) as usize, Ids::Plain).expect("possible");
            let own = (0..alone).map(|number| (end + 1) << 40 | number);
            (0..common).chain(own).for_each(|number| cache.insert(Digest(finalise(number ^ seed << 50)), number));
            cache
        })
    }

    #[test]
    fn xor_counters_estimate_the_number_of_differences() {
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

        // Common packets cancel out.
        let [ours, theirs] = caches(0, 50, 1).map(|cache| XorCounters::of(&cache, 7));
        assert_eq!(both.estimate(&XorCounters::new(7)), ours.estimate(&theirs));
        assert_eq!(both.memory_bytes(), 34_816);
        assert_eq!(both.estimate(&XorCounters::new(8)), Err(MergeError));
        assert_eq!(both.merge(&XorCounters::new(8)), Err(MergeError));
    }

    #[test]
    fn min_hash_detects_many_differences_but_not_few() {
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
