//! The cells of one end for one interval.

use alloc::boxed::Box;
use alloc::vec;

use super::settings::{Hashes, Layout, Settings, SettingsError};
use crate::digest::Digest;

/// The packets of one cell. 24 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cell {
    /// XOR of their ids.
    pub(super) id: u64,
    /// Sum of their timestamps, modulo 2⁶⁴.
    pub(super) sum: u64,
    pub(super) count: u64,
}

/// The cells of one end. Either computed from a cache after the interval (late binding), so that their number can
/// follow the number of differences, or filled packet by packet where there is no memory for a cache.
#[derive(Clone, Debug)]
pub struct Rda {
    pub(super) settings: Settings,
    pub(super) hashes: Hashes,
    /// Bank after bank.
    pub(super) cells: Box<[Cell]>,
    /// XORs of hashed ids, in a flat layout only.
    pub(super) checks: Box<[u64]>,
    pub(super) packets: u64,
    pub(super) duplicates: u64,
    pub(super) truncated: bool,
}

impl Rda {
    /// Empty cells.
    ///
    /// # Errors
    ///
    /// [`SettingsError`] if a setting is invalid.
    pub fn new(settings: &Settings) -> Result<Self, SettingsError> {
        settings.checked()?;
        let checks = if settings.layout == Layout::Flat { settings.all_cells() } else { 0 };
        Ok(Self {
            hashes: Hashes::new(settings),
            cells: vec![Cell::default(); settings.all_cells()].into_boxed_slice(),
            checks: vec![0; checks].into_boxed_slice(),
            settings: settings.clone(),
            packets: 0,
            duplicates: 0,
            truncated: false,
        })
    }

    /// Adds a packet with timestamp `now_ns`, of a clock that both ends share. A duplicate is counted twice: its id
    /// cancels out, and its cells become useless. A [`super::Cache`] skips duplicates.
    #[inline]
    pub fn insert(&mut self, digest: Digest, now_ns: u64) {
        self.add(self.settings.ids.id(digest), now_ns);
    }

    #[inline]
    pub(super) fn add(&mut self, id: u64, now_ns: u64) {
        self.packets += 1;
        for place in self.hashes.places(id).iter() {
            let cell = &mut self.cells[place];
            cell.id ^= id;
            cell.sum = cell.sum.wrapping_add(now_ns);
            cell.count = cell.count.wrapping_add(1);
        }
        self.check(id);
    }

    #[inline]
    fn check(&mut self, id: u64) {
        if self.settings.layout == Layout::Flat {
            for place in self.hashes.places(id).iter() {
                self.checks[place] ^= self.hashes.check(id);
            }
        }
    }

    /// Adds the cells of another core for the same stream and interval. Cores must have different packets, distributed
    /// by digest.
    ///
    /// # Errors
    ///
    /// [`MergeError`] if its settings differ.
    pub fn merge(&mut self, other: &Self) -> Result<(), MergeError> {
        if self.settings != other.settings {
            return Err(MergeError);
        }
        for (cell, more) in self.cells.iter_mut().zip(&other.cells) {
            cell.id ^= more.id;
            cell.sum = cell.sum.wrapping_add(more.sum);
            cell.count = cell.count.saturating_add(more.count);
        }
        for (check, more) in self.checks.iter_mut().zip(&other.checks) {
            *check ^= more;
        }
        self.packets = self.packets.saturating_add(other.packets);
        self.duplicates = self.duplicates.saturating_add(other.duplicates);
        self.truncated |= other.truncated;
        Ok(())
    }

    /// The settings, the same at both ends.
    #[must_use]
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Number of packets in the cells.
    #[must_use]
    pub const fn packets(&self) -> u64 {
        self.packets
    }

    /// Number of skipped duplicates.
    #[must_use]
    pub const fn duplicates(&self) -> u64 {
        self.duplicates
    }

    /// Whether packets are missing because the cache was full.
    #[must_use]
    pub const fn truncated(&self) -> bool {
        self.truncated
    }

    /// Bytes of the cells.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        size_of_val(&*self.cells) + size_of_val(&*self.checks)
    }
}

/// Two instances with different settings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cells with different settings cannot be combined")]
pub struct MergeError;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rda::Ids;
    use proptest::prelude::*;

    #[test]
    fn memory_is_what_the_settings_say() {
        for layout in [Layout::Banks, Layout::Flat] {
            let settings = Settings { layout, ..Settings::default() };
            assert_eq!(Rda::new(&settings).expect("possible").memory_bytes(), settings.memory_bytes());
        }
    }

    proptest! {
        #[test]
        fn parts_merged_are_the_whole(
            packets in prop::collection::vec(any::<(u64, u64)>(), 0..60), at in 0_usize..60, flat: bool
        ) {
            let layout = if flat { Layout::Flat } else { Layout::Banks };
            let settings = Settings { cells: 4, layout, ids: Ids::Checked16, ..Settings::default() };
            let fill = |packets: &[(u64, u64)]| {
                let mut rda = Rda::new(&settings).expect("possible");
                for (digest, now) in packets {
                    rda.insert(Digest(*digest), *now);
                }
                rda
            };
            let (first, second) = packets.split_at(at.min(packets.len()));
            let (mut merged, all) = (fill(first), fill(&packets));
            merged.merge(&fill(second)).expect("one kind");
            prop_assert_eq!(&merged.cells, &all.cells);
            prop_assert_eq!(&merged.checks, &all.checks);
            prop_assert_eq!(merged.packets, all.packets);
            prop_assert!(merged.merge(&Rda::new(&settings.again()).expect("possible")).is_err());
        }
    }
}
