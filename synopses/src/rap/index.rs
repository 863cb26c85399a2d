//! Hash index from a digest to its entry, with a fixed capacity.

use alloc::boxed::Box;
use alloc::vec;

/// Lower bits of a word: the entry plus 1. The upper bits are those of the hash.
const ENTRY_BITS: u32 = 24;
const ENTRY: u64 = (1 << ENTRY_BITS) - 1;

/// Open addressing with linear probing. At most half of the words are in use; an empty one is 0.
#[derive(Clone, Debug)]
pub(super) struct Index {
    words: Box<[u64]>,
    shift: u32,
}

impl Index {
    /// An index for at most `most` entries, below 2²⁴.
    pub(super) fn new(most: usize) -> Self {
        let places = (2 * most).next_power_of_two().max(2);
        Self { words: vec![0; places].into_boxed_slice(), shift: 64 - places.trailing_zeros() }
    }

    const fn home(&self, word: u64) -> usize {
        (word >> self.shift) as usize
    }

    const fn after(&self, at: usize) -> usize {
        (at + 1) & (self.words.len() - 1)
    }

    /// The entry with this hash that `is` the one, if any.
    #[inline]
    pub(super) fn find(&self, hash: u64, is: impl Fn(usize) -> bool) -> Option<usize> {
        let mut at = self.home(hash);
        // Terminates, since at least half of the words are empty.
        loop {
            let word = self.words[at];
            if word == 0 {
                return None;
            }
            if (word ^ hash) >> ENTRY_BITS == 0 {
                let entry = (word & ENTRY) as usize - 1;
                if is(entry) {
                    return Some(entry);
                }
            }
            at = self.after(at);
        }
    }

    /// Adds an entry that is not in the index.
    #[inline]
    pub(super) fn add(&mut self, hash: u64, entry: usize) {
        let mut at = self.home(hash);
        while self.words[at] != 0 {
            at = self.after(at);
        }
        self.words[at] = hash & !ENTRY | (entry as u64 + 1);
    }

    /// Removes an entry that is in the index, and moves later words of its cluster up, so that none is behind a gap.
    #[inline]
    pub(super) fn remove(&mut self, hash: u64, entry: usize) {
        let word = hash & !ENTRY | (entry as u64 + 1);
        let mut gap = self.home(hash);
        while self.words[gap] != word {
            gap = self.after(gap);
        }
        let mut at = self.after(gap);
        while self.words[at] != 0 {
            let moved = self.words[at];
            // The word may stand in the gap unless its home lies between the gap and its place.
            let places = self.words.len() - 1;
            let (from_home, from_gap) = (at.wrapping_sub(self.home(moved)) & places, at.wrapping_sub(gap) & places);
            if from_home >= from_gap {
                self.words[gap] = moved;
                gap = at;
            }
            at = self.after(at);
        }
        self.words[gap] = 0;
    }

    pub(super) fn clear(&mut self) {
        self.words.fill(0);
    }

    pub(super) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const HOMES: [u64; 3] = [0xf800_0000_0000_0000, 0xfc00_0000_0000_0000, 0x0400_0000_0000_0000];

    proptest! {
        #[test]
        fn it_finds_what_a_set_contains(changes in prop::collection::vec((0_u64..40, any::<bool>()), 0..300)) {
            // Few homes, the last ones too: clusters are long and wrap around.
            let hash = |key: u64| HOMES[key as usize % HOMES.len()] | key << ENTRY_BITS;
            let (mut index, mut set) = (Index::new(20), BTreeSet::new());
            for (key, insert) in changes {
                if insert && set.len() < 20 && set.insert(key) {
                    index.add(hash(key), key as usize);
                } else if !insert && set.remove(&key) {
                    index.remove(hash(key), key as usize);
                }
                for key in 0..40 {
                    let found = index.find(hash(key), |entry| entry == key as usize);
                    prop_assert_eq!(found, set.get(&key).map(|key| *key as usize));
                }
            }
        }
    }
}
