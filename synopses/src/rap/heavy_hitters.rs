//! The verbs of all heavy-hitter tables.

use alloc::vec::Vec;
use core::num::NonZeroU64;

use thiserror::Error;

use crate::digest::Digest;

/// A stored key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeavyHitter {
    /// The key's digest. Keys with equal digests (2⁻⁶⁴) share an entry.
    pub digest: Digest,
    /// Estimated count. A newcomer inherits the count of the key that it replaced.
    pub count: u64,
    /// Count since the key's last admission: its true count is at least this.
    pub since: u64,
}

impl HeavyHitter {
    /// Whether most of the count is inherited, as of all keys in a flood of light ones.
    #[must_use]
    pub const fn low_confidence(&self) -> bool {
        self.since < self.count / 2
    }
}

/// Weights inserted and rejected since the last reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Weight of all keys.
    pub inserted: u64,
    /// Weight of keys that got no entry. The counts' sum is what was inserted less this.
    pub rejected: u64,
}

/// A table of the heaviest keys. See the [module](super).
pub trait HeavyHitters: Sized {
    /// Adds a key with a weight, such as bytes. O(1) for a weight of 1; otherwise Stream-Summary passes each distinct
    /// count that the key overtakes.
    fn insert_weighted(&mut self, digest: Digest, weight: NonZeroU64);

    /// Adds one occurrence of a key.
    #[inline]
    fn insert(&mut self, digest: Digest) {
        self.insert_weighted(digest, NonZeroU64::MIN);
    }

    /// The key's entry, `None` if it has none.
    fn estimate(&self, digest: Digest) -> Option<HeavyHitter>;

    /// All entries, in no particular order.
    fn entries(&self) -> impl Iterator<Item = HeavyHitter>;

    /// The `most` heaviest keys, heaviest first, equal counts by digest. O(m log m).
    fn top(&self, most: usize) -> Vec<HeavyHitter> {
        let mut entries: Vec<_> = self.entries().collect();
        entries.sort_unstable_by_key(|entry| (core::cmp::Reverse(entry.count), entry.digest));
        entries.truncate(most);
        entries
    }

    /// The least count of all entries, 0 if one is empty.
    fn least(&self) -> u64;

    /// Weights inserted and rejected.
    fn tally(&self) -> Tally;

    /// Begins an epoch with an empty table. Coins go on.
    fn reset(&mut self);

    /// Begins an epoch with half of all counts, rounded up; [`HeavyHitter::since`] is rounded down. What was rejected
    /// is forgotten. O(m).
    fn halve(&mut self);

    /// Adds another table's counts and keeps the largest ones. For [`super::SpaceSaving`] bounds add up; for the others
    /// there is no guarantee. O(m log m).
    ///
    /// # Errors
    ///
    /// [`MergeError`] if the settings differ.
    fn merge(&mut self, other: &Self) -> Result<(), MergeError>;

    /// Allocated bytes, whatever is stored.
    fn memory_bytes(&self) -> usize;
}

/// Two tables with different settings.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("heavy-hitter tables of different size, admission or seed cannot be merged")]
pub struct MergeError;
