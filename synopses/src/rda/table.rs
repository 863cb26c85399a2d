//! A hash table of ids with a word each and a fixed capacity: entries in insertion order, and an index into them.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

/// Multiplier that spreads ids over the index, by the upper bits of the product.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// An id and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) id: u64,
    pub(super) value: u64,
}

/// Result of an insertion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Insertion {
    New,
    /// The id is present. Its value is unchanged.
    Present,
    /// The capacity is exceeded.
    Full,
}

/// A hash table with a fixed capacity.
#[derive(Clone, Debug)]
pub(super) struct Table {
    most: usize,
    entries: Vec<Entry>,
    /// An index into `entries` plus 1 in the lower bits, and a tag of hash bits above it, so that other ids are seldom
    /// compared. 0 for an empty word. At most half of the words are in use.
    index: Box<[u32]>,
    shift: u32,
    place_bits: u32,
}

impl Table {
    /// A table for at most `most` ids, below 2³⁰.
    pub(super) fn new(most: usize) -> Self {
        let places = (2 * most).next_power_of_two().max(2);
        let shift = 64 - places.trailing_zeros();
        let place_bits = usize::BITS - most.leading_zeros();
        let (entries, index) = (Vec::with_capacity(most), vec![0; places].into_boxed_slice());
        Self { most, entries, index, shift, place_bits: place_bits.max(1) }
    }

    /// The tag of a hash.
    #[inline]
    const fn tag(&self, hash: u64) -> u32 {
        (hash as u32) >> self.place_bits
    }

    /// The index of the id's entry, or the position and value of the word to be written for it.
    #[inline]
    fn find(&self, id: u64) -> Result<usize, (usize, u32)> {
        let hash = id.wrapping_mul(SPREAD);
        let (mut at, tag) = ((hash >> self.shift) as usize, self.tag(hash));
        // Terminates, since at least half of the index is empty.
        loop {
            let word = self.index[at];
            if word == 0 {
                return Err((at, tag << self.place_bits | (self.entries.len() + 1) as u32));
            }
            let place = (word & ((1 << self.place_bits) - 1)) as usize - 1;
            if word >> self.place_bits == tag && self.entries[place].id == id {
                return Ok(place);
            }
            at = (at + 1) & (self.index.len() - 1);
        }
    }

    #[inline]
    pub(super) fn insert(&mut self, id: u64, value: u64) -> Insertion {
        match self.find(id) {
            Ok(_) => Insertion::Present,
            Err(_) if self.entries.len() == self.most => Insertion::Full,
            Err((at, word)) => {
                self.entries.push(Entry { id, value });
                self.index[at] = word;
                Insertion::New
            }
        }
    }

    #[inline]
    pub(super) fn get(&self, id: u64) -> Option<u64> {
        self.find(id).ok().map(|place| self.entries[place].value)
    }

    /// A mutable reference to the id's value.
    #[inline]
    pub(super) fn get_mut(&mut self, id: u64) -> Option<&mut u64> {
        let place = self.find(id).ok()?;
        Some(&mut self.entries[place].value)
    }

    pub(super) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.index.fill(0);
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.most * size_of::<Entry>() + size_of_val(&*self.index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_full_table_still_finds_its_entries() {
        let mut table = Table::new(3);

        let found: Vec<Insertion> = [7, 0, 7, u64::MAX, 9, 0].iter().map(|id| table.insert(*id, id ^ 1)).collect();

        assert_eq!(
            found,
            [Insertion::New, Insertion::New, Insertion::Present, Insertion::New, Insertion::Full, Insertion::Present]
        );
        assert_eq!([7, 0, u64::MAX, 9].map(|id| table.get(id)), [Some(6), Some(1), Some(u64::MAX - 1), None]);
        assert_eq!(Table::new(0).insert(1, 1), Insertion::Full);
    }

    proptest! {
        #[test]
        fn it_holds_what_a_map_holds(ids in prop::collection::vec(0_u64..4_000, 0..60)) {
            let (mut table, mut map) = (Table::new(60), BTreeMap::new());
            for (value, id) in (0..).zip(&ids) {
                // Ids with equal lower halves have equal tags, so that tags do not tell colliding ids apart.
                table.insert(id << 32, value);
                map.entry(id << 32).or_insert(value);
            }

            prop_assert_eq!(table.entries().len(), map.len());
            prop_assert!((0..4_000).all(|id| table.get(id << 32) == map.get(&(id << 32)).copied()));
            table.clear();
            prop_assert!((0..4_000).all(|id| table.get(id << 32).is_none()));
        }
    }
}
