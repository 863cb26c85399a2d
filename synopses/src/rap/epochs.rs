//! PRECISION of epochs, in which nobody has to end one.

use core::num::NonZeroU64;

use super::heavy_hitters::HeavyHitters as _;
use super::settings::{EpochSettings, MAX_EPOCH_SHIFT, SettingsError};
use super::ways::Precision;
use crate::digest::Digest;

/// PRECISION of epochs: the heaviest keys of the epoch that goes on, and of the one before it, which is at rest.
///
/// What is of another epoch is empty. So a key has to win against those of its own epoch only, however long the table
/// is used, as in a [`Precision`] that is [reset](super::HeavyHitters::reset) whenever an epoch ends. In a switch,
/// which cannot empty a table at once, each entry has its epoch (`p4/precision`). Twice the memory of one table.
#[derive(Clone, Debug)]
pub struct EpochPrecision {
    epoch_shift: u32,
    /// Of even epochs, and of odd ones.
    tables: [EpochTable; 2],
    dropped: u64,
}

/// The table of an epoch.
#[derive(Clone, Debug)]
struct EpochTable {
    epoch: u64,
    table: Precision,
}

impl EpochPrecision {
    /// Empty tables.
    ///
    /// # Errors
    ///
    /// [`SettingsError`] if the number of ways or rows, or the length of an epoch is invalid.
    pub fn new(settings: EpochSettings) -> Result<Self, SettingsError> {
        let EpochSettings { table, epoch_shift } = settings;
        if epoch_shift > MAX_EPOCH_SHIFT {
            return Err(SettingsError::Epoch(epoch_shift));
        }
        let table = EpochTable { epoch: 0, table: Precision::new(table)? };
        Ok(Self { epoch_shift, tables: [table.clone(), table], dropped: 0 })
    }

    /// The same if so many coins were drawn before.
    #[must_use]
    pub fn after_coins(mut self, drawn: u64) -> Self {
        for of in &mut self.tables {
            of.table.coins.drawn = drawn;
        }
        self
    }

    /// What a data plane combines keys with by XOR before it mixes them (`p4/precision`), and numbers of coins.
    #[must_use]
    pub const fn mixers(&self) -> [u64; 2] {
        self.tables[0].table.mixers()
    }

    /// The epoch of a time.
    #[must_use]
    pub const fn epoch(&self, now_ns: u64) -> u64 {
        now_ns >> self.epoch_shift
    }

    /// Adds one occurrence of a key at `now_ns`. One that is late counts in its own epoch, as long as nothing of the
    /// next but one has come; it is dropped then. O(d), or the size of a table where it begins an epoch.
    #[inline]
    pub fn insert(&mut self, digest: Digest, now_ns: u64) {
        let epoch = self.epoch(now_ns);
        let [even, odd] = &mut self.tables;
        let (of, other) = if epoch & 1 == 0 { (even, odd) } else { (odd, even) };
        if epoch < of.epoch {
            self.dropped = self.dropped.saturating_add(1);
            return;
        }
        if epoch > of.epoch {
            of.epoch = epoch;
            of.table.reset();
        }
        of.table.insert_weighted(digest, NonZeroU64::MIN);
        // No coin is drawn twice.
        other.table.coins = of.table.coins;
    }

    /// The table of an epoch; `None` if no key of it has come, or it has made room for a later one.
    #[must_use]
    pub fn of_epoch(&self, epoch: u64) -> Option<&Precision> {
        let of = &self.tables[(epoch & 1) as usize];
        (of.epoch == epoch && of.table.tally().inserted > 0).then_some(&of.table)
    }

    /// Latest epoch and table of even epochs, then of odd ones. Both epochs are 0 before the first key.
    #[must_use]
    pub fn tables(&self) -> [(u64, &Precision); 2] {
        self.tables.each_ref().map(|of| (of.epoch, &of.table))
    }

    /// Keys that came too late for any table.
    #[must_use]
    pub const fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Allocated bytes of both tables.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.tables.iter().map(|of| of.table.memory_bytes()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rap::{Admission, HeavyHitter, WaySettings};
    use alloc::vec::Vec;

    const SHIFT: u32 = 20;

    fn settings(rows: usize) -> EpochSettings {
        let table = WaySettings { ways: 2, rows, admission: Admission::PowerOfTwo, seed: 5 };
        EpochSettings { table, epoch_shift: SHIFT }
    }

    /// Keys that are hashed.
    fn key(number: u64) -> Digest {
        Digest(number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn all(table: Option<&Precision>) -> Vec<HeavyHitter> {
        table.map(|table| table.entries().collect()).unwrap_or_default()
    }

    #[test]
    fn each_epoch_has_what_a_table_has_that_was_emptied_before_it() {
        let mut epochs = EpochPrecision::new(settings(4)).expect("possible");
        let mut single = Precision::new(settings(4).table).expect("possible");
        for epoch in 1..200_u64 {
            single.reset();
            for number in 0..60 {
                let digest = key(epoch * 7 + number * number % 23);
                epochs.insert(digest, (epoch << SHIFT) + number);
                single.insert(digest);
            }

            let of = epochs.of_epoch(epoch).expect("it has keys");
            assert_eq!((all(Some(of)), of.tally()), (all(Some(&single)), single.tally()), "epoch {epoch}");
            assert!(of.tally().rejected > 0, "coins are drawn");
            // That of the epoch before is at rest.
            assert_eq!(epochs.of_epoch(epoch - 1).map(|table| table.tally().inserted), (epoch > 1).then_some(60));
        }
        assert_eq!(epochs.memory_bytes(), 2 * single.memory_bytes());
    }

    #[test]
    fn a_heavy_key_is_forgotten_with_its_epoch_and_wins_no_later_one() {
        let mut epochs = EpochPrecision::new(settings(1)).expect("possible");
        for number in 0..1_000 {
            epochs.insert(key(1 + number % 2), 0);
        }
        epochs.insert(key(7), 1 << SHIFT);
        epochs.insert(key(8), 2 << SHIFT);

        assert_eq!(epochs.of_epoch(0).map(|table| table.tally().inserted), None, "it made room");
        let of = all(epochs.of_epoch(2));
        assert_eq!(of, [HeavyHitter { digest: key(8), count: 1, since: 1 }]);
        assert_eq!(all(epochs.of_epoch(1)).len(), 1);
        assert!(epochs.of_epoch(3).is_none() && epochs.of_epoch(4).is_none());
    }

    #[test]
    fn a_late_key_counts_in_its_own_epoch_or_not_at_all() {
        let mut epochs = EpochPrecision::new(settings(8)).expect("possible");
        for epoch in [5, 6, 5, 7, 5, 4, 6] {
            epochs.insert(key(1), epoch << SHIFT);
        }

        assert_eq!(epochs.tables().map(|(epoch, table)| (epoch, table.tally().inserted)), [(6, 2), (7, 1)]);
        assert_eq!(epochs.dropped(), 2);
    }

    #[test]
    fn coins_go_on_in_the_next_epoch() {
        let mut epochs = EpochPrecision::new(settings(1)).expect("possible").after_coins(100);
        for number in 0..30 {
            epochs.insert(key(number), (number / 10) << SHIFT);
        }

        // Two keys of each epoch find room.
        assert_eq!(epochs.tables().map(|(_, table)| table.coins.drawn), [100 + 3 * 8; 2]);
    }

    #[test]
    fn too_long_epochs_are_refused() {
        let long = EpochSettings { epoch_shift: 41, ..settings(8) };

        assert_eq!(EpochPrecision::new(long).err(), Some(SettingsError::Epoch(41)));
        assert!(EpochPrecision::new(EpochSettings { epoch_shift: 40, ..long }).is_ok());
        assert!(EpochPrecision::new(settings(0)).is_err());
    }
}
