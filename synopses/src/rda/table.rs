//! Ids with a word each, in memory that is taken once: entries in the order in which they came, and an index into them.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

/// Spreads ids over the index by the upper bits of a product.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// An id and what is known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) id: u64,
    pub(super) value: u64,
}

/// What became of an insertion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Inserted {
    New,
    /// It was there, and stays as it was.
    There,
    /// There is no room.
    Full,
}

/// At most so many ids.
#[derive(Clone, Debug)]
pub(super) struct Table {
    most: usize,
    entries: Vec<Entry>,
    /// A place in `entries` plus 1 and, above it, as many bits of the hash as there is room for: another id is seldom looked at. 0 for none. At most half of
    /// it is in use.
    index: Box<[u32]>,
    shift: u32,
    place_bits: u32,
}

impl Table {
    /// Room for `most` ids, below 2³⁰.
    pub(super) fn new(most: usize) -> Self {
        let places = (2 * most).next_power_of_two().max(2);
        let shift = 64 - places.trailing_zeros();
        let place_bits = usize::BITS - most.leading_zeros();
        let (entries, index) = (Vec::with_capacity(most), vec![0; places].into_boxed_slice());
        Self { most, entries, index, shift, place_bits: place_bits.max(1) }
    }

    /// The bits above a place.
    #[inline]
    const fn tag(&self, hash: u64) -> u32 {
        (hash as u32) >> self.place_bits
    }

    /// Where the id is, or the word of the index where it would be named and what would be there.
    #[inline]
    fn find(&self, id: u64) -> Result<usize, (usize, u32)> {
        let hash = id.wrapping_mul(SPREAD);
        let (mut at, tag) = ((hash >> self.shift) as usize, self.tag(hash));
        // Ends: at least half of the index is empty.
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
    pub(super) fn insert(&mut self, id: u64, value: u64) -> Inserted {
        match self.find(id) {
            Ok(_) => Inserted::There,
            Err(_) if self.entries.len() == self.most => Inserted::Full,
            Err((at, word)) => {
                self.entries.push(Entry { id, value });
                self.index[at] = word;
                Inserted::New
            }
        }
    }

    #[inline]
    pub(super) fn get(&self, id: u64) -> Option<u64> {
        self.find(id).ok().map(|place| self.entries[place].value)
    }

    /// Its value, to be changed.
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
    fn what_is_full_still_knows_what_it_has() {
        let mut table = Table::new(3);

        let found: Vec<Inserted> = [7, 0, 7, u64::MAX, 9, 0].iter().map(|id| table.insert(*id, id ^ 1)).collect();

        assert_eq!(
            found,
            [Inserted::New, Inserted::New, Inserted::There, Inserted::New, Inserted::Full, Inserted::There]
        );
        assert_eq!([7, 0, u64::MAX, 9].map(|id| table.get(id)), [Some(6), Some(1), Some(u64::MAX - 1), None]);
        assert_eq!(Table::new(0).insert(1, 1), Inserted::Full);
    }

    proptest! {
        #[test]
        fn it_holds_what_a_map_holds(ids in prop::collection::vec(0_u64..4_000, 0..60)) {
            let (mut table, mut map) = (Table::new(60), BTreeMap::new());
            for (value, id) in (0..).zip(&ids) {
                // Ids whose lower halves are the same: all of one tag, so that it does not tell those apart that meet in the index.
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
