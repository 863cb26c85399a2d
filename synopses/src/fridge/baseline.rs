//! What a fridge is compared with: tables of the same memory that count every sample as one, and one of unlimited memory.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec;

use super::settings::{Duplicates, SettingsError, slots, tick};
use super::slot::{Prints, Slot, ticks_since};
use crate::digest::{Digest, Mixer, place};

/// Always overwrites, and corrects nothing: long delays are evicted before they are answered.
#[derive(Clone, Debug)]
pub struct NaiveOverwrite {
    table: NaiveExpiry,
}

impl NaiveOverwrite {
    /// A table of `slots` slots.
    ///
    /// # Errors
    ///
    /// [`SettingsError`] says what is impossible.
    pub fn new(slots: usize, tick_shift: u32, seed: u64) -> Result<Self, SettingsError> {
        Ok(Self { table: NaiveExpiry::new(slots, 1, 0, tick_shift, seed)? })
    }

    /// A request at `now_ns`.
    #[inline]
    pub fn insert(&mut self, digest: Digest, now_ns: u64) {
        let (index, print) = (self.table.index(digest, 0), self.table.print(digest));
        self.table.slots[index] = Slot { print, tick: self.table.tick(now_ns), stamp: 0 };
    }

    /// A response at `now_ns`: the delay in nanoseconds, if its request is still there.
    #[inline]
    pub fn answer(&mut self, digest: Digest, now_ns: u64) -> Option<u64> {
        self.table.answer(digest, now_ns)
    }

    /// Bytes of the slots.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.table.memory_bytes()
    }
}

/// Keeps what is there until it is too old: the first of a few tables with an empty or expired slot takes the request, or nobody does. The
/// limit has to be guessed, and requests that nobody answers fill the tables.
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
    /// `tables` tables that share `slots_in_all` slots; what is older than `limit_ns` may be overwritten.
    ///
    /// # Errors
    ///
    /// [`SettingsError`] says what is impossible.
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

    /// A request at `now_ns`; whether there was room for it.
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

    /// A response at `now_ns`: the delay in nanoseconds, if its request is there.
    #[inline]
    pub fn answer(&mut self, digest: Digest, now_ns: u64) -> Option<u64> {
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

/// Every pair, in as much memory as it takes: the truth.
#[derive(Clone, Debug, Default)]
pub struct Oracle {
    waiting: BTreeMap<Digest, u64>,
}

impl Oracle {
    /// A request at `now_ns`; of copies the last counts.
    pub fn insert(&mut self, digest: Digest, now_ns: u64) {
        self.waiting.insert(digest, now_ns);
    }

    /// A response at `now_ns`: the delay in nanoseconds, if there was a request before it.
    pub fn answer(&mut self, digest: Digest, now_ns: u64) -> Option<u64> {
        self.waiting.remove(&digest).and_then(|asked| now_ns.checked_sub(asked))
    }

    /// About how many bytes the requests that wait take.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.waiting.len() * size_of::<(Digest, u64)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_gives_the_delay_of_what_is_there() {
        let mut overwrite = NaiveOverwrite::new(64, 0, 1).expect("possible");
        let mut expiry = NaiveExpiry::new(64, 4, 100, 0, 1).expect("possible");
        let mut oracle = Oracle::default();
        overwrite.insert(Digest(1), 5);
        assert!(expiry.insert(Digest(1), 5));
        oracle.insert(Digest(1), 5);

        let answers = [overwrite.answer(Digest(1), 9), expiry.answer(Digest(1), 9), oracle.answer(Digest(1), 9)];

        assert_eq!(answers, [Some(4); 3]);
        assert_eq!(
            [overwrite.answer(Digest(1), 9), expiry.answer(Digest(1), 9), oracle.answer(Digest(1), 9)],
            [None; 3]
        );
        assert_eq!([overwrite.memory_bytes(), expiry.memory_bytes(), oracle.memory_bytes()], [768, 768, 0]);
    }

    #[test]
    fn full_tables_take_nobody_until_what_is_there_is_too_old() {
        let mut expiry = NaiveExpiry::new(4, 2, 100, 0, 1).expect("possible");
        let taken = (0..100).filter(|number| expiry.insert(Digest(*number), 0)).count();

        assert_eq!(taken, 4);
        assert!(!expiry.insert(Digest(1_000), 100));
        assert!(expiry.insert(Digest(1_000), 101));
        assert!(NaiveExpiry::new(4, 0, 1, 0, 0).is_err() && NaiveExpiry::new(4, 4, 1, 0, 0).is_err());
    }
}
