//! Counters of several words.

use crate::layout::Slot;
use crate::metric::Kind;

/// Words of a counter, which threads add to separately: 1 to [`Shards::LIMIT`], each in a cache line of its own. The
/// counter's value is their sum, which whoever reads the region computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shards(u8);

/// A number of shards out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a counter of {0} shards: it may have 1 to {limit}", limit = Shards::LIMIT)]
pub struct ShardsError(pub u32);

impl Shards {
    /// An ordinary series.
    pub const ONE: Self = Self(1);
    /// Largest number of shards: 1 KiB.
    pub const LIMIT: u32 = 16;
    /// Slots from one shard to the next: a cache line.
    pub const STRIDE: u32 = 8;

    /// A counter of `shards` words.
    ///
    /// # Errors
    ///
    /// [`ShardsError`] unless 1 ≤ `shards` ≤ [`Shards::LIMIT`].
    pub fn new(shards: u32) -> Result<Self, ShardsError> {
        if !(1..=Self::LIMIT).contains(&shards) {
            return Err(ShardsError(shards));
        }
        Ok(Self(shards as u8))
    }

    /// Number of shards.
    #[must_use]
    pub const fn count(self) -> u32 {
        self.0 as u32
    }

    /// Number of slots of a series of `kind`, with the rest of the last shard's cache line.
    #[must_use]
    pub const fn slots(self, kind: Kind) -> u32 {
        if self.count() > 1 { self.count() * Self::STRIDE } else { kind.slots() }
    }

    /// The slot of each shard of a series whose first slot is `first`.
    pub fn places(self, first: Slot) -> impl Iterator<Item = Slot> {
        (0..self.count()).map(move |shard| Slot(first.0.saturating_add(shard * Self::STRIDE)))
    }
}
