//! RAP: the global minimum is replaced at random.

use core::num::NonZeroU64;

use super::coins::Coins;
use super::heavy_hitters::{HeavyHitter, HeavyHitters, MergeError, Tally};
use super::settings::{Settings, SettingsError, entries};
use super::space_saving::{added, halved};
use super::summary::StreamSummary;
use crate::digest::Digest;

/// RAP(m): m entries, of which the one with the least count is replaced at random. See the [module](super).
#[derive(Clone, Debug)]
pub struct Rap {
    pub(super) settings: Settings,
    pub(super) summary: StreamSummary,
    pub(super) coins: Coins,
    pub(super) tally: Tally,
}

impl Rap {
    /// An empty table.
    ///
    /// # Errors
    ///
    /// [`SettingsError`] if the number of entries is invalid.
    pub fn new(settings: Settings) -> Result<Self, SettingsError> {
        Ok(Self {
            summary: StreamSummary::new(entries(settings.entries)?, settings.seed),
            coins: Coins::new(settings.seed),
            settings,
            tally: Tally::default(),
        })
    }

    /// The table's settings.
    #[must_use]
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Number of coins drawn: none while an entry is free.
    #[must_use]
    pub const fn coins_drawn(&self) -> u64 {
        self.coins.drawn
    }

    /// Begins an epoch with an empty table and another seed. Coins go on.
    pub(crate) fn reseed(&mut self, seed: u64) {
        self.summary.reseed(seed);
        self.coins.reseed(seed);
        self.settings.seed = seed;
        self.tally = Tally::default();
    }

    /// The number of a key's entry.
    pub(crate) fn find(&self, digest: Digest) -> Option<usize> {
        self.summary.find(digest)
    }

    /// Adds a key, and returns the number of its entry if it has one now, and whether it is new there.
    #[inline]
    pub(crate) fn place(&mut self, digest: Digest, weight: u64) -> Option<(usize, Arrival)> {
        self.tally.inserted = self.tally.inserted.saturating_add(weight);
        if let Some(entry) = self.summary.find(digest) {
            self.summary.raise(entry, weight);
            return Some((entry, Arrival::Present));
        }
        if let Some(entry) = self.summary.push(digest, weight) {
            return Some((entry, Arrival::Free));
        }
        if self.coins.admit(self.settings.admission, self.summary.least(), weight) {
            return Some((self.summary.replace(digest, weight), Arrival::Replaced));
        }
        self.tally.rejected = self.tally.rejected.saturating_add(weight);
        None
    }
}

/// How a key came to its entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    Present,
    Free,
    Replaced,
}

impl HeavyHitters for Rap {
    #[inline]
    fn insert_weighted(&mut self, digest: Digest, weight: NonZeroU64) {
        let _ = self.place(digest, weight.get());
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
        if self.settings != other.settings {
            return Err(MergeError);
        }
        let counts = added(&mut self.summary, &other.summary, (0, 0));
        self.tally.inserted = self.tally.inserted.saturating_add(other.tally.inserted);
        self.tally.rejected = self.tally.inserted.saturating_sub(counts);
        Ok(())
    }

    fn memory_bytes(&self) -> usize {
        self.summary.memory_bytes()
    }
}

#[cfg(test)]
mod tests;
