//! PRECISION and d-way RAP: a key has d places, and only these are compared.

use alloc::boxed::Box;
use alloc::vec;
use core::marker::PhantomData;
use core::num::NonZeroU64;

use super::coins::Coins;
use super::heavy_hitters::{HeavyHitter, HeavyHitters, MergeError, Tally};
use super::settings::{SettingsError, WaySettings};
use crate::digest::{Digest, Mixer, place};

/// Where the d places of a key lie among d W entries.
pub trait Layout {
    /// The place of a key in way `way` of `ways`, with `rows` rows. `hash` is the key's hash.
    fn place(hash: u64, way: usize, ways: usize, rows: usize) -> usize;
}

/// One row of each of d stages, by a hash of its own.
#[derive(Clone, Copy, Debug)]
pub enum Stages {}

impl Layout for Stages {
    #[inline]
    fn place(hash: u64, way: usize, _ways: usize, rows: usize) -> usize {
        // Two hashes make any number of them (Kirsch, Mitzenmacher: Less Hashing, Same Performance, 2006).
        let random = (hash as u32).wrapping_add((way as u32).wrapping_mul((hash >> 32) as u32 | 1));
        way * rows + place(random, rows as u32) as usize
    }
}

/// The d entries of one set.
#[derive(Clone, Copy, Debug)]
pub enum Sets {}

impl Layout for Sets {
    #[inline]
    fn place(hash: u64, way: usize, ways: usize, rows: usize) -> usize {
        place((hash >> 32) as u32, rows as u32) as usize * ways + way
    }
}

/// PRECISION(d, W): d stages of W entries. With d = m and W = 1 it is RAP(m).
pub type Precision = Ways<Stages>;
/// d-way RAP: RAP within W sets of d entries.
pub type DWayRap = Ways<Sets>;

/// A table in which a key has d places. See the [module](super).
#[derive(Clone, Debug)]
pub struct Ways<L> {
    pub(super) settings: WaySettings,
    /// A count of 0 means empty.
    pub(super) cells: Box<[HeavyHitter]>,
    pub(super) coins: Coins,
    pub(super) tally: Tally,
    mixer: Mixer,
    layout: PhantomData<L>,
}

const EMPTY: HeavyHitter = HeavyHitter { digest: Digest(0), count: 0, since: 0 };

impl<L: Layout> Ways<L> {
    /// An empty table.
    ///
    /// # Errors
    ///
    /// [`SettingsError`] if the number of ways or rows is invalid.
    pub fn new(settings: WaySettings) -> Result<Self, SettingsError> {
        Ok(Self {
            cells: vec![EMPTY; settings.entries()?].into_boxed_slice(),
            coins: Coins::new(settings.seed),
            tally: Tally::default(),
            mixer: Mixer::new(settings.seed, 1),
            settings,
            layout: PhantomData,
        })
    }

    /// The table's settings.
    #[must_use]
    pub const fn settings(&self) -> &WaySettings {
        &self.settings
    }

    /// What a data plane combines keys with by XOR before it mixes them (`p4/`), and numbers of coins.
    #[must_use]
    pub const fn mixers(&self) -> [u64; 2] {
        [self.mixer.constant(), self.coins.constant()]
    }

    pub(super) fn places(&self, digest: Digest) -> impl Iterator<Item = usize> + use<L> {
        let (hash, WaySettings { ways, rows, .. }) = (self.mixer.mix(digest), self.settings);
        (0..ways).map(move |way| L::place(hash, way, ways, rows))
    }

    /// Puts an entry of another table into a free place, or in place of the least of its places if that is smaller.
    fn take(&mut self, entry: HeavyHitter) {
        let least = self.places(entry.digest).min_by_key(|at| self.cells[*at].count);
        if let Some(cell) = least.map(|at| &mut self.cells[at])
            && cell.count < entry.count
        {
            *cell = entry;
        }
    }

    fn counts(&self) -> u64 {
        self.cells.iter().fold(0, |sum: u64, cell| sum.saturating_add(cell.count))
    }
}

impl<L: Layout> HeavyHitters for Ways<L> {
    #[inline]
    fn insert_weighted(&mut self, digest: Digest, weight: NonZeroU64) {
        let weight = weight.get();
        self.tally.inserted = self.tally.inserted.saturating_add(weight);
        let (mut least, mut at_least) = (u64::MAX, None);
        for at in self.places(digest) {
            let cell = &mut self.cells[at];
            if cell.count == 0 {
                *cell = HeavyHitter { digest, count: weight, since: weight };
                return;
            }
            if cell.digest == digest {
                (cell.count, cell.since) = (cell.count.saturating_add(weight), cell.since.saturating_add(weight));
                return;
            }
            if cell.count < least {
                (least, at_least) = (cell.count, Some(at));
            }
        }
        match at_least {
            Some(at) if self.coins.admit(self.settings.admission, least, weight) => {
                self.cells[at] = HeavyHitter { digest, count: least.saturating_add(weight), since: weight };
            }
            _ => self.tally.rejected = self.tally.rejected.saturating_add(weight),
        }
    }

    fn estimate(&self, digest: Digest) -> Option<HeavyHitter> {
        let cells = self.places(digest).map(|at| self.cells[at]);
        cells.into_iter().find(|cell| cell.count > 0 && cell.digest == digest)
    }

    fn entries(&self) -> impl Iterator<Item = HeavyHitter> {
        self.cells.iter().copied().filter(|cell| cell.count > 0)
    }

    fn least(&self) -> u64 {
        self.cells.iter().map(|cell| cell.count).min().unwrap_or_default()
    }

    fn tally(&self) -> Tally {
        self.tally
    }

    fn reset(&mut self) {
        self.cells.fill(EMPTY);
        self.tally = Tally::default();
    }

    fn halve(&mut self) {
        for cell in &mut self.cells {
            (cell.count, cell.since) = (cell.count.div_ceil(2), cell.since / 2);
        }
        self.tally = Tally { inserted: self.counts(), rejected: 0 };
    }

    fn merge(&mut self, other: &Self) -> Result<(), MergeError> {
        if self.settings != other.settings {
            return Err(MergeError);
        }
        // Common keys first, so that none is replaced before it was added.
        for entry in other.entries() {
            if let Some(at) = self.places(entry.digest).find(|at| self.cells[*at].digest == entry.digest) {
                let cell = &mut self.cells[at];
                if cell.count > 0 {
                    cell.count = cell.count.saturating_add(entry.count);
                    cell.since = cell.since.saturating_add(entry.since);
                }
            }
        }
        for entry in other.entries() {
            if self.estimate(entry.digest).is_none() {
                self.take(entry);
            }
        }
        self.tally.inserted = self.tally.inserted.saturating_add(other.tally.inserted);
        self.tally.rejected = self.tally.inserted.saturating_sub(self.counts());
        Ok(())
    }

    fn memory_bytes(&self) -> usize {
        size_of_val(&*self.cells)
    }
}
