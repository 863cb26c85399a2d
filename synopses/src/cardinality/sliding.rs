//! Sliding HLL: each register lists the items that may be its largest rank in some window.

use alloc::boxed::Box;
use alloc::vec;

use super::distinct::{Cardinality, Estimate, EstimateError, MergeError, Tally, alike, within};
use super::hash::Splitter;
use super::ranges::hyper_log_log;
use super::settings::{Settings, SettingsError};
use crate::digest::Digest;

/// Entries of a register. Ranks saturate here, so that a list of falling ranks is never longer.
pub(super) const MAX_ENTRIES: usize = 32;

/// A list of possible future maxima: oldest first, times never fall, ranks always do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Maxima {
    times_ns: [u64; MAX_ENTRIES],
    ranks: [u8; MAX_ENTRIES],
    length: u8,
}

impl Maxima {
    const EMPTY: Self = Self { times_ns: [0; MAX_ENTRIES], ranks: [0; MAX_ENTRIES], length: 0 };

    const fn len(&self) -> usize {
        self.length as usize
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, u8)> + '_ {
        self.times_ns.iter().copied().zip(self.ranks.iter().copied()).take(self.len())
    }

    /// Drops `many` entries from place `at` on, and puts `new` there.
    fn replace(&mut self, at: usize, many: usize, new: (u64, u8)) {
        let end = self.len();
        if many == 0 {
            // There is room, since ranks differ and this one was not there.
            self.times_ns.copy_within(at..end.min(MAX_ENTRIES - 1), at + 1);
            self.ranks.copy_within(at..end.min(MAX_ENTRIES - 1), at + 1);
            self.length = (end + 1).min(MAX_ENTRIES) as u8;
        } else {
            self.times_ns.copy_within(at + many..end, at + 1);
            self.ranks.copy_within(at + many..end, at + 1);
            self.length = (end + 1 - many) as u8;
        }
        (self.times_ns[at], self.ranks[at]) = new;
    }

    /// Drops entries before this time.
    fn expire(&mut self, before_ns: u64) {
        let end = self.len();
        let stale = self.times_ns[..end].partition_point(|time| *time < before_ns);
        if stale > 0 {
            self.times_ns.copy_within(stale..end, 0);
            self.ranks.copy_within(stale..end, 0);
            self.length = (end - stale) as u8;
        }
    }

    /// Adds an entry at its place in time, unless one that is as new has as large a rank; drops those that are no newer
    /// and no larger.
    #[inline]
    fn insert(&mut self, time_ns: u64, rank: u8) {
        let end = self.len();
        let mut later = end;
        while later > 0 && self.times_ns[later - 1] > time_ns {
            later -= 1;
        }
        // Ranks fall, so that the first later one is the largest.
        if later < end && self.ranks[later] >= rank {
            return;
        }
        let mut first = later;
        while first > 0 && self.ranks[first - 1] <= rank {
            first -= 1;
        }
        // One of the same time with a larger rank.
        if first > 0 && self.times_ns[first - 1] == time_ns {
            return;
        }
        self.replace(first, later - first, (time_ns, rank));
    }

    /// The largest rank from a time on, 0 if there is none.
    fn rank(&self, from_ns: u64) -> u8 {
        let times = &self.times_ns[..self.len()];
        let first = times.partition_point(|time| *time < from_ns);
        if first < self.len() { self.ranks[first] } else { 0 }
    }
}

/// Sliding HLL (LPFM), for every window up to W. See the [module](super).
#[derive(Clone, Debug)]
pub struct SlidingHll {
    pub(super) settings: Settings,
    splitter: Splitter,
    pub(super) lists: Box<[Maxima]>,
    pub(super) latest_ns: u64,
    pub(super) tally: Tally,
}

impl SlidingHll {
    /// An empty synopsis.
    ///
    /// # Errors
    ///
    /// [`SettingsError`] if registers or window are impossible.
    pub fn new(settings: Settings) -> Result<Self, SettingsError> {
        let settings = settings.checked()?;
        Ok(Self {
            splitter: Splitter::new(&settings),
            lists: vec![Maxima::EMPTY; settings.registers].into_boxed_slice(),
            latest_ns: settings.start_ns,
            tally: Tally::default(),
            settings,
        })
    }

    /// Number of entries in use, stale ones included. Published memory is 5 bytes for each.
    #[must_use]
    pub fn entries(&self) -> usize {
        self.lists.iter().map(Maxima::len).sum()
    }

    /// The largest rank of an entry.
    pub(super) fn most(&self) -> u8 {
        self.splitter.most().min(MAX_ENTRIES as u8)
    }

    /// First time of the window that ends with the latest item.
    pub(super) const fn oldest_ns(&self) -> u64 {
        self.latest_ns.saturating_sub(self.settings.window_ns)
    }

    /// Adds an entry to a register.
    pub(super) fn put(&mut self, register: usize, (time_ns, rank): (u64, u8)) {
        self.lists[register].insert(time_ns, rank);
    }

    /// The ranks that a plain HLL would have, had it seen only the items from a time on.
    pub(super) fn ranks(&self, from_ns: u64) -> impl Iterator<Item = u8> + '_ {
        self.lists.iter().map(move |list| list.rank(from_ns))
    }
}

impl Cardinality for SlidingHll {
    #[inline]
    fn insert(&mut self, digest: Digest, now_ns: u64) {
        if now_ns < self.latest_ns {
            if now_ns < self.oldest_ns() {
                self.tally.dropped = self.tally.dropped.saturating_add(1);
                return;
            }
            self.tally.late = self.tally.late.saturating_add(1);
        } else {
            self.latest_ns = now_ns;
        }
        self.tally.inserted = self.tally.inserted.saturating_add(1);
        let (register, rank) = self.splitter.split(digest);
        let before_ns = self.oldest_ns();
        let list = &mut self.lists[register];
        list.expire(before_ns);
        list.insert(now_ns, rank.min(MAX_ENTRIES as u8));
    }

    fn estimate(&self, now_ns: u64, window_ns: u64) -> Result<Estimate, EstimateError> {
        within(window_ns, 1, self.settings.window_ns)?;
        let now_ns = now_ns.max(self.latest_ns);
        let count = hyper_log_log(self.ranks(now_ns.saturating_sub(window_ns)), &self.settings);
        Ok(Estimate {
            count: count.items,
            rate: count.items * 1e9 / window_ns as f64,
            range: count.range,
            saturated: count.saturated,
            warm: now_ns.saturating_sub(self.settings.start_ns) >= window_ns,
        })
    }

    fn settings(&self) -> &Settings {
        &self.settings
    }

    fn tally(&self) -> Tally {
        self.tally
    }

    fn reset(&mut self, now_ns: u64) {
        (self.settings.start_ns, self.latest_ns) = (now_ns, now_ns);
        self.lists.fill(Maxima::EMPTY);
        self.tally = Tally::default();
    }

    fn merge(&mut self, other: &Self) -> Result<(), MergeError> {
        alike(&self.settings, &other.settings)?;
        self.latest_ns = self.latest_ns.max(other.latest_ns);
        let before_ns = self.oldest_ns();
        for (ours, theirs) in self.lists.iter_mut().zip(&other.lists) {
            ours.expire(before_ns);
            theirs.iter().filter(|(time, _)| *time >= before_ns).for_each(|(time, rank)| ours.insert(time, rank));
        }
        self.settings.start_ns = self.settings.start_ns.max(other.settings.start_ns);
        self.tally.add(other.tally);
        Ok(())
    }

    fn memory_bytes(&self) -> usize {
        size_of_val(&*self.lists)
    }
}

#[cfg(test)]
mod tests;
