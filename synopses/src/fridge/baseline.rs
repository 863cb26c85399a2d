//! Baselines for fridges: tables of the same size without weights, and a table of unlimited size.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec;

use super::settings::{Duplicates, SettingsError, slots, tick};
use super::slot::{Prints, Slot, ticks_since};
use crate::digest::{Digest, Mixer, place};

/// A table that always overwrites. Biased, since requests with long delays are evicted before their response.
#[derive(Clone, Debug)]
pub struct NaiveOverwrite {
    table: NaiveExpiry,
}

impl NaiveOverwrite {
    /// A table of `slots` slots.
    ///
    /// # Errors
    ///
    /// [`SettingsError`] if a setting is invalid.
    pub fn new(slots: usize, tick_shift: u32, seed: u64) -> Result<Self, SettingsError> {
        Ok(Self { table: NaiveExpiry::new(slots, 1, 0, tick_shift, seed)? })
    }

    /// Adds a request at `now_ns`.
    #[inline]
    pub fn insert(&mut self, digest: Digest, now_ns: u64) {
        let (index, print) = (self.table.index(digest, 0), self.table.print(digest));
        self.table.slots[index] = Slot { print, tick: self.table.tick(now_ns), stamp: 0 };
    }

    /// Matches a response at `now_ns`. Returns the delay in nanoseconds if its request is pending.
    #[inline]
    pub fn match_response(&mut self, digest: Digest, now_ns: u64) -> Option<u64> {
        self.table.match_response(digest, now_ns)
    }

    /// Bytes of the slots.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.table.memory_bytes()
    }
}

/// Tables whose entries stay until they expire: the first table with an empty or expired slot takes the request; if
/// there is none, the request is dropped. The expiry has to be guessed, and unanswered requests fill the tables.
#[derive(Clone, Debug)]
pub struct NaiveExpiry {
    slots: Box<[Slot]>,
    tables: u32,
    per_table: u32,
    limit: u32,
    tick_shift: u32,
    mixer: Mixer,
    prints: Prints,
}

impl NaiveExpiry {
    /// `tables` tables that share `slots_in_all` slots. Entries older than `limit_ns` are expired.
    ///
    /// # Errors
    ///
    /// [`SettingsError`] if a setting is invalid.
    pub fn new(
        slots_in_all: usize,
        tables: usize,
        limit_ns: u64,
        tick_shift: u32,
        seed: u64,
    ) -> Result<Self, SettingsError> {
        tick(tick_shift)?;
        if !(1..=16).contains(&tables) {
            return Err(SettingsError::Fridges(tables));
        }
        let per_table = slots(slots_in_all / tables)?;
        Ok(Self {
            slots: vec![Slot::default(); per_table as usize * tables].into_boxed_slice(),
            tables: tables as u32,
            per_table,
            limit: u32::try_from(limit_ns >> tick_shift).unwrap_or(u32::MAX),
            tick_shift,
            mixer: Mixer::new(seed, 4),
            prints: Prints::new(Duplicates::Overwrite),
        })
    }

    /// Adds a request at `now_ns`. False if it was dropped.
    pub fn insert(&mut self, digest: Digest, now_ns: u64) -> bool {
        let (print, tick) = (self.print(digest), self.tick(now_ns));
        for table in 0..self.tables {
            let index = self.index(digest, table);
            let slot = &mut self.slots[index];
            if slot.print == 0 || tick.wrapping_sub(slot.tick) > self.limit {
                *slot = Slot { print, tick, stamp: 0 };
                return true;
            }
        }
        false
    }

    /// Matches a response at `now_ns`. Returns the delay in nanoseconds if its request is pending.
    #[inline]
    pub fn match_response(&mut self, digest: Digest, now_ns: u64) -> Option<u64> {
        let (print, tick) = (self.print(digest), self.tick(now_ns));
        let indexes = 0..self.tables;
        let index = indexes.map(|table| self.index(digest, table)).find(|index| self.slots[*index].print == print)?;
        let slot = core::mem::take(&mut self.slots[index]);
        ticks_since(slot.tick, tick).map(|ticks| u64::from(ticks) << self.tick_shift)
    }

    /// Bytes of the slots.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        size_of_val(&*self.slots)
    }

    #[inline]
    fn index(&self, digest: Digest, table: u32) -> usize {
        let random = self.mixer.mix(Digest(digest.0.wrapping_add(u64::from(table))));
        (table * self.per_table + place((random >> 32) as u32, self.per_table)) as usize
    }

    #[inline]
    fn print(&self, digest: Digest) -> u32 {
        self.prints.of(self.mixer.fingerprint(digest))
    }

    const fn tick(&self, now_ns: u64) -> u32 {
        (now_ns >> self.tick_shift) as u32
    }
}

/// A table of unlimited size, which samples every pair.
#[derive(Clone, Debug, Default)]
pub struct Oracle {
    pending: BTreeMap<Digest, u64>,
}

impl Oracle {
    /// Adds a request at `now_ns`. The last copy of a request counts.
    pub fn insert(&mut self, digest: Digest, now_ns: u64) {
        self.pending.insert(digest, now_ns);
    }

    /// Matches a response at `now_ns`. Returns the delay in nanoseconds if its request is pending.
    pub fn match_response(&mut self, digest: Digest, now_ns: u64) -> Option<u64> {
        self.pending.remove(&digest).and_then(|requested_ns| now_ns.checked_sub(requested_ns))
    }

    /// Approximate bytes of the pending requests.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.pending.len() * size_of::<(Digest, u64)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_returns_the_delay_of_a_pending_request() {
        let mut overwrite = NaiveOverwrite::new(64, 0, 1).expect("possible");
        let mut expiry = NaiveExpiry::new(64, 4, 100, 0, 1).expect("possible");
        let mut oracle = Oracle::default();
        overwrite.insert(Digest(1), 5);
        assert!(expiry.insert(Digest(1), 5));
        oracle.insert(Digest(1), 5);

        let delays = [
            overwrite.match_response(Digest(1), 9),
            expiry.match_response(Digest(1), 9),
            oracle.match_response(Digest(1), 9),
        ];

        assert_eq!(delays, [Some(4); 3]);
        assert_eq!(
            [
                overwrite.match_response(Digest(1), 9),
                expiry.match_response(Digest(1), 9),
                oracle.match_response(Digest(1), 9)
            ],
            [None; 3]
        );
        assert_eq!([overwrite.memory_bytes(), expiry.memory_bytes(), oracle.memory_bytes()], [768, 768, 0]);
    }

    #[test]
    fn full_tables_drop_requests_until_entries_expire() {
        let mut expiry = NaiveExpiry::new(4, 2, 100, 0, 1).expect("possible");
        let taken = (0..100).filter(|number| expiry.insert(Digest(*number), 0)).count();

        assert_eq!(taken, 4);
        assert!(!expiry.insert(Digest(1_000), 100));
        assert!(expiry.insert(Digest(1_000), 101));
        assert!(NaiveExpiry::new(4, 0, 1, 0, 0).is_err() && NaiveExpiry::new(4, 4, 1, 0, 0).is_err());
    }
}
