//! Heavy hitters with their keys: a [`Rap`] that can say what its digests stand for.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::num::NonZeroU64;

use super::heavy_hitters::{HeavyHitter, HeavyHitters as _, Tally};
use super::settings::{Settings, SettingsError};
use super::single::{Arrival, Rap};
use crate::digest::Digest;

/// A [`Rap`] with the key of each entry, such as an address. A key takes its own size per entry more.
#[derive(Clone, Debug)]
pub struct NamedRap<K> {
    table: Rap,
    keys: Box<[K]>,
}

/// A stored key with its counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedHitter<K> {
    /// The key itself.
    pub key: K,
    /// What it has counted.
    pub hitter: HeavyHitter,
}

impl<K: Copy + Default> NamedRap<K> {
    /// An empty table.
    ///
    /// # Errors
    ///
    /// [`SettingsError`] if the number of entries is invalid.
    pub fn new(settings: Settings) -> Result<Self, SettingsError> {
        Ok(Self { table: Rap::new(settings)?, keys: vec![K::default(); settings.entries].into_boxed_slice() })
    }

    /// Adds a key with a weight, such as bytes. `digest` is the key's. Allocates nothing.
    #[inline]
    pub fn insert(&mut self, digest: Digest, key: K, weight: NonZeroU64) {
        if let Some((entry, Arrival::Free | Arrival::Replaced)) = self.table.place(digest, weight.get())
            && let Some(place) = self.keys.get_mut(entry)
        {
            *place = key;
        }
    }

    /// The `most` heaviest keys, heaviest first. O(m log m).
    #[must_use]
    pub fn top(&self, most: usize) -> Vec<NamedHitter<K>> {
        let key = |hitter: &HeavyHitter| self.table.find(hitter.digest).and_then(|entry| self.keys.get(entry)).copied();
        let named = |hitter| Some(NamedHitter { key: key(&hitter)?, hitter });
        self.table.top(most).into_iter().filter_map(named).collect()
    }

    /// Weights inserted and rejected since the last reset.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.table.tally()
    }

    /// Begins an epoch with an empty table.
    pub fn reset(&mut self) {
        self.table.reset();
    }

    /// Allocated bytes, whatever is stored.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.table.memory_bytes() + size_of_val(&*self.keys)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heaviest_keys_have_their_own_names_also_after_others_gave_way_to_them() {
        let mut table = NamedRap::new(Settings { entries: 8, ..Settings::default() }).expect("possible");
        let insert = |table: &mut NamedRap<u64>, key: u64, weight: u64| {
            table.insert(Digest(key), key, NonZeroU64::new(weight).expect("not 0"));
        };
        let bytes = table.memory_bytes();
        (0..8).for_each(|light| insert(&mut table, 100 + light, 1));
        (0..500).for_each(|_| (0..3).for_each(|heavy| insert(&mut table, heavy, 10 + heavy)));

        let top = table.top(3);

        assert_eq!(top.iter().map(|named| named.key).collect::<Vec<_>>(), [2, 1, 0]);
        assert!(top.iter().all(|named| named.hitter.digest == Digest(named.key)), "{top:?}");
        assert_eq!((table.tally().inserted, table.memory_bytes()), (8 + 500 * 33, bytes));
        table.reset();
        assert!(
            table.top(3).is_empty() && NamedRap::<u8>::new(Settings { entries: 0, ..Settings::default() }).is_err()
        );
    }
}
