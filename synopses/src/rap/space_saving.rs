//! Space-Saving: each new key replaces the one with the least count.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::num::NonZeroU64;

use super::heavy_hitters::{HeavyHitter, HeavyHitters, MergeError, Tally};
use super::settings::{SettingsError, entries};
use super::summary::StreamSummary;
use crate::digest::Digest;

/// Space-Saving(m), the deterministic baseline. With N the weight inserted, the least count is at most N/m, an estimate
/// exceeds the true count by at most the least count, and each key above N/m is stored.
#[derive(Clone, Debug)]
pub struct SpaceSaving {
    pub(super) seed: u64,
    pub(super) summary: StreamSummary,
    pub(super) tally: Tally,
}

impl SpaceSaving {
    /// An empty table of `entries` entries. The seed only determines places in memory.
    ///
    /// # Errors
    ///
    /// [`SettingsError`] if the number of entries is invalid.
    pub fn new(entries_most: usize, seed: u64) -> Result<Self, SettingsError> {
        let summary = StreamSummary::new(entries(entries_most)?, seed);
        Ok(Self { seed, summary, tally: Tally::default() })
    }
}

impl HeavyHitters for SpaceSaving {
    #[inline]
    fn insert_weighted(&mut self, digest: Digest, weight: NonZeroU64) {
        let weight = weight.get();
        self.tally.inserted = self.tally.inserted.saturating_add(weight);
        if let Some(entry) = self.summary.find(digest) {
            self.summary.raise(entry, weight);
        } else if self.summary.push(digest, weight).is_none() {
            self.summary.replace(digest, weight);
        }
    }

    fn estimate(&self, digest: Digest) -> Option<HeavyHitter> {
        self.summary.find(digest).map(|entry| self.summary.get(entry))
    }

    fn entries(&self) -> impl Iterator<Item = HeavyHitter> {
        self.summary.iter()
    }

    fn least(&self) -> u64 {
        self.summary.least()
    }

    fn tally(&self) -> Tally {
        self.tally
    }

    fn reset(&mut self) {
        self.summary.clear();
        self.tally = Tally::default();
    }

    fn halve(&mut self) {
        self.tally = halved(&mut self.summary);
    }

    fn merge(&mut self, other: &Self) -> Result<(), MergeError> {
        if self.summary.capacity() != other.summary.capacity() {
            return Err(MergeError);
        }
        // A key that one table does not store may have occurred there as often as its least count says.
        let least = (self.summary.least(), other.summary.least());
        let _ = added(&mut self.summary, &other.summary, least);
        self.tally.inserted = self.tally.inserted.saturating_add(other.tally.inserted);
        Ok(())
    }

    fn memory_bytes(&self) -> usize {
        self.summary.memory_bytes()
    }
}

/// Halves all counts, and returns the tally of what is left.
pub(super) fn halved(summary: &mut StreamSummary) -> Tally {
    // Rounding keeps the order.
    let half = |entry: HeavyHitter| HeavyHitter { count: entry.count.div_ceil(2), since: entry.since / 2, ..entry };
    let entries: Vec<_> = summary.iter().map(half).collect();
    let inserted = entries.iter().fold(0_u64, |sum, entry| sum.saturating_add(entry.count));
    summary.refill(entries);
    Tally { inserted, rejected: 0 }
}

/// Adds the counts of `other`, with `least` for a key that only the other one of the two stores, and keeps the largest.
/// Returns the sum of counts.
pub(super) fn added(summary: &mut StreamSummary, other: &StreamSummary, least: (u64, u64)) -> u64 {
    let mut all: BTreeMap<Digest, HeavyHitter> = BTreeMap::new();
    for entry in summary.iter() {
        let there = other.find(entry.digest).map(|entry| other.get(entry));
        let (count, since) = there.map_or((least.1, 0), |there| (there.count, there.since));
        let (count, since) = (entry.count.saturating_add(count), entry.since.saturating_add(since));
        all.insert(entry.digest, HeavyHitter { count, since, ..entry });
    }
    for entry in other.iter() {
        let count = entry.count.saturating_add(least.0);
        all.entry(entry.digest).or_insert(HeavyHitter { count, ..entry });
    }
    let mut all: Vec<_> = all.into_values().collect();
    all.sort_by_key(|entry| entry.count);
    let smaller = all.len().saturating_sub(summary.capacity());
    all.drain(..smaller);
    let sum = all.iter().fold(0_u64, |sum, entry| sum.saturating_add(entry.count));
    summary.refill(all);
    sum
}
