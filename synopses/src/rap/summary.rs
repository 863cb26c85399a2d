//! Stream-Summary: entries with counts, of which the least is found in O(1) (Metwally, Agrawal, El Abbadi 2005).
//!
//! Entries of one count are a bucket, and buckets form a list in ascending order. In a bucket the entry that has had
//! this count for longest comes first.

use alloc::boxed::Box;
use alloc::vec;

use super::heavy_hitters::HeavyHitter;
use super::index::Index;
use crate::digest::{Digest, Mixer};

/// No entry, or no bucket.
const NONE: u32 = u32::MAX;

/// A key. 32 bytes.
#[derive(Clone, Copy, Debug)]
struct Entry {
    digest: Digest,
    since: u64,
    bucket: u32,
    /// The entries before and after it in its bucket.
    older: u32,
    newer: u32,
}

/// The entries of one count. 24 bytes.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    count: u64,
    oldest: u32,
    newest: u32,
    below: u32,
    /// The next bucket; the next free one for a bucket that is not in use.
    above: u32,
}

/// A fixed number of entries.
#[derive(Clone, Debug)]
pub(super) struct StreamSummary {
    entries: Box<[Entry]>,
    used: usize,
    buckets: Box<[Bucket]>,
    lowest: u32,
    free: u32,
    index: Index,
    mixer: Mixer,
}

impl StreamSummary {
    /// An empty summary of `entries` entries, from 1 to below 2²⁴.
    pub(super) fn new(entries: usize, seed: u64) -> Self {
        let entry = Entry { digest: Digest(0), since: 0, bucket: NONE, older: NONE, newer: NONE };
        let bucket = Bucket { count: 0, oldest: NONE, newest: NONE, below: NONE, above: NONE };
        let mut summary = Self {
            entries: vec![entry; entries].into_boxed_slice(),
            used: 0,
            buckets: vec![bucket; entries].into_boxed_slice(),
            lowest: NONE,
            free: NONE,
            index: Index::new(entries),
            mixer: Mixer::new(seed, 1),
        };
        summary.clear();
        summary
    }

    pub(super) fn clear(&mut self) {
        for (bucket, next) in self.buckets.iter_mut().zip(1..) {
            bucket.above = next;
        }
        if let Some(last) = self.buckets.last_mut() {
            last.above = NONE;
        }
        (self.used, self.lowest, self.free) = (0, NONE, 0);
        self.index.clear();
    }

    /// Empties it, and places digests in its index by another seed.
    pub(super) fn reseed(&mut self, seed: u64) {
        self.clear();
        self.mixer = Mixer::new(seed, 1);
    }

    pub(super) const fn capacity(&self) -> usize {
        self.entries.len()
    }

    pub(super) const fn len(&self) -> usize {
        self.used
    }

    /// The least count, 0 while an entry is free.
    #[inline]
    pub(super) fn least(&self) -> u64 {
        if self.used < self.entries.len() { 0 } else { self.buckets[self.lowest as usize].count }
    }

    /// The entry of a digest.
    #[inline]
    pub(super) fn find(&self, digest: Digest) -> Option<usize> {
        self.index.find(self.mixer.mix(digest), |entry| self.entries[entry].digest == digest)
    }

    /// What an entry says.
    pub(super) fn get(&self, entry: usize) -> HeavyHitter {
        let Entry { digest, since, bucket, .. } = self.entries[entry];
        HeavyHitter { digest, count: self.buckets[bucket as usize].count, since }
    }

    /// All entries by ascending count, of equal counts the oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = HeavyHitter> {
        let first = |bucket: u32| self.buckets.get(bucket as usize).map_or(NONE, |bucket| bucket.oldest);
        let mut next = first(self.lowest);
        core::iter::from_fn(move || {
            let entry = self.entries.get(next as usize)?;
            let found = self.get(next as usize);
            next = if entry.newer == NONE { first(self.buckets[entry.bucket as usize].above) } else { entry.newer };
            Some(found)
        })
    }

    /// Adds `weight` to an entry's count, which saturates.
    #[inline]
    pub(super) fn raise(&mut self, entry: usize, weight: u64) {
        let Entry { bucket: from, since, .. } = self.entries[entry];
        self.entries[entry].since = since.saturating_add(weight);
        let Bucket { count, oldest, newest, below, above } = self.buckets[from as usize];
        let raised = count.saturating_add(weight);
        if raised == count {
            return;
        }
        let alone = oldest == newest;
        if alone && (above == NONE || self.buckets[above as usize].count > raised) {
            self.buckets[from as usize].count = raised;
            return;
        }
        self.leave(entry);
        self.settle(entry, if alone { below } else { from }, raised);
    }

    /// Gives a new digest a free entry, if there is one.
    pub(super) fn push(&mut self, digest: Digest, weight: u64) -> Option<usize> {
        let entry = (self.used < self.entries.len()).then_some(self.used)?;
        self.used += 1;
        self.name(entry, digest, weight);
        self.settle(entry, NONE, weight);
        Some(entry)
    }

    /// Gives the entry with the least count to a new digest, which inherits the count. The summary must be full.
    #[inline]
    pub(super) fn replace(&mut self, digest: Digest, weight: u64) -> usize {
        let entry = self.buckets[self.lowest as usize].oldest as usize;
        self.index.remove(self.mixer.mix(self.entries[entry].digest), entry);
        self.name(entry, digest, 0);
        self.raise(entry, weight);
        entry
    }

    /// Empties it, and fills it with at most as many distinct digests as it has entries, in ascending order of counts.
    pub(super) fn refill(&mut self, ascending: impl IntoIterator<Item = HeavyHitter>) {
        self.clear();
        let mut top = NONE;
        for HeavyHitter { digest, count, since } in ascending {
            let entry = self.used;
            self.used += 1;
            self.name(entry, digest, since);
            self.settle(entry, top, count);
            // The bucket below, so that an equal count is found above it.
            let bucket = self.entries[entry].bucket;
            top = self.buckets[bucket as usize].below;
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.entries) + size_of_val(&*self.buckets) + self.index.memory_bytes()
    }

    fn name(&mut self, entry: usize, digest: Digest, since: u64) {
        (self.entries[entry].digest, self.entries[entry].since) = (digest, since);
        self.index.add(self.mixer.mix(digest), entry);
    }

    /// Takes an entry out of its bucket, and the bucket out of the list if it is empty then.
    fn leave(&mut self, entry: usize) {
        let Entry { bucket: from, older, newer, .. } = self.entries[entry];
        match older {
            NONE => self.buckets[from as usize].oldest = newer,
            older => self.entries[older as usize].newer = newer,
        }
        match newer {
            NONE => self.buckets[from as usize].newest = older,
            newer => self.entries[newer as usize].older = older,
        }
        if older == NONE && newer == NONE {
            let Bucket { below, above, .. } = self.buckets[from as usize];
            self.join(below, above);
            self.buckets[from as usize].above = self.free;
            self.free = from;
        }
    }

    /// Puts an entry into the bucket of `count`, which is above the bucket `below`.
    fn settle(&mut self, entry: usize, mut below: u32, count: u64) {
        let mut above = if below == NONE { self.lowest } else { self.buckets[below as usize].above };
        while above != NONE && self.buckets[above as usize].count < count {
            below = above;
            above = self.buckets[above as usize].above;
        }
        if above == NONE || self.buckets[above as usize].count != count {
            above = self.open(below, above, count);
        }
        let bucket = &mut self.buckets[above as usize];
        let older = bucket.newest;
        bucket.newest = entry as u32;
        match older {
            NONE => bucket.oldest = entry as u32,
            older => self.entries[older as usize].newer = entry as u32,
        }
        let entry = &mut self.entries[entry];
        (entry.bucket, entry.older, entry.newer) = (above, older, NONE);
    }

    /// A new bucket between two others. One is free, since no bucket in use is empty.
    fn open(&mut self, below: u32, above: u32, count: u64) -> u32 {
        let new = self.free;
        self.free = self.buckets[new as usize].above;
        self.buckets[new as usize] = Bucket { count, oldest: NONE, newest: NONE, below, above };
        self.join(below, new);
        self.join(new, above);
        new
    }

    /// Makes two buckets neighbours.
    fn join(&mut self, below: u32, above: u32) {
        match below {
            NONE => self.lowest = above,
            below => self.buckets[below as usize].above = above,
        }
        if above != NONE {
            self.buckets[above as usize].below = below;
        }
    }
}
