//! Sorts packets into intervals of the clock by their timestamps.

use alloc::vec::Vec;

use super::cache::Cache;
use super::settings::{Ids, SettingsError};
use crate::digest::Digest;

/// Maximum number of open intervals.
const MAX_GENERATIONS: usize = 16;

/// A cache for each open interval, that is, one being filled or evaluated. Interval i is \[start + i length, start + (i
/// + 1) length).
#[derive(Clone, Debug)]
pub struct Capture {
    start_ns: u64,
    length_ns: u64,
    /// Interval of the previous packet, and its start. Saves a division per packet.
    recent: (u64, u64),
    live: Vec<(u64, Cache)>,
    free: Vec<Cache>,
    /// Intervals before this one are closed.
    first_open: u64,
    generations: usize,
    outside: u64,
    dropped: u64,
}

impl Capture {
    /// Intervals of `length_ns` from `start_ns` on. At most `generations` are open at a time, each with a cache for
    /// `packets` packets. Allocates all memory.
    ///
    /// # Errors
    ///
    /// [`SettingsError`] if a setting is invalid.
    pub fn new(
        start_ns: u64,
        length_ns: u64,
        generations: usize,
        packets: usize,
        ids: Ids,
    ) -> Result<Self, SettingsError> {
        if length_ns == 0 || !(1..=MAX_GENERATIONS).contains(&generations) {
            return Err(SettingsError::Intervals { length_ns, generations });
        }
        let free = (0..generations).map(|_| Cache::new(packets, ids)).collect::<Result<Vec<_>, _>>()?;
        let live = Vec::with_capacity(generations);
        Ok(Self {
            start_ns,
            length_ns,
            recent: (0, start_ns),
            live,
            free,
            first_open: 0,
            generations,
            outside: 0,
            dropped: 0,
        })
    }

    /// Adds a packet with timestamp `now_ns` to the interval of that timestamp. A packet before the start, or of a
    /// closed interval, is only counted.
    #[inline]
    pub fn insert(&mut self, digest: Digest, now_ns: u64) {
        if now_ns < self.recent.1 || now_ns - self.recent.1 >= self.length_ns {
            match self.interval_of(now_ns) {
                Some(interval) => self.recent = (interval, self.start_ns + interval * self.length_ns),
                None => return self.outside += 1,
            }
        }
        match self.cache(self.recent.0) {
            Some(cache) => cache.insert(digest, now_ns),
            None => self.outside += 1,
        }
    }

    #[inline]
    fn cache(&mut self, interval: u64) -> Option<&mut Cache> {
        match self.live.iter().position(|(stored, _)| *stored == interval) {
            Some(at) => Some(&mut self.live[at].1),
            None => self.begin(interval),
        }
    }

    #[cold]
    fn begin(&mut self, interval: u64) -> Option<&mut Cache> {
        if interval < self.first_open {
            return None;
        }
        let free = match self.free.pop() {
            Some(free) => free,
            None => self.drop_oldest(interval)?,
        };
        self.live.push((interval, free));
        self.live.last_mut().map(|(_, cache)| cache)
    }

    /// Evicts the oldest interval, if it is older than `than`, and returns its cache. It has not been evaluated.
    fn drop_oldest(&mut self, than: u64) -> Option<Cache> {
        let (at, oldest) = self.live.iter().map(|(stored, _)| *stored).enumerate().min_by_key(|(_, stored)| *stored)?;
        if oldest > than {
            return None;
        }
        self.first_open = self.first_open.max(oldest + 1);
        self.dropped += 1;
        let (_, mut cache) = self.live.swap_remove(at);
        cache.clear();
        Some(cache)
    }

    /// Closes an interval and all before it, and returns its cache. Later packets of them are only counted. `None` if
    /// the interval has no packets or is already closed.
    pub fn close(&mut self, interval: u64) -> Option<Cache> {
        self.first_open = self.first_open.max(interval.saturating_add(1));
        let at = self.live.iter().position(|(stored, _)| *stored == interval);
        let closed = at.map(|at| self.live.swap_remove(at).1);
        while self.live.iter().any(|(stored, _)| *stored < interval) {
            let older = self.drop_oldest(interval);
            self.free.extend(older);
        }
        closed
    }

    /// Takes back the cache of an evaluated interval, to reuse its memory. Frees a surplus one.
    pub fn give_back(&mut self, mut cache: Cache) {
        if self.live.len() + self.free.len() < self.generations {
            cache.clear();
            self.free.push(cache);
        }
    }

    /// The first interval that is neither closed nor evicted. One before it has no packets, or not all of them.
    #[must_use]
    pub const fn first_open(&self) -> u64 {
        self.first_open
    }

    /// Packets before the start, or of closed intervals.
    #[must_use]
    pub const fn outside(&self) -> u64 {
        self.outside
    }

    /// Intervals that were evicted before they were evaluated.
    #[must_use]
    pub const fn dropped(&self) -> u64 {
        self.dropped
    }

    /// The interval that contains a timestamp; `None` before the start.
    #[must_use]
    pub const fn interval_of(&self, now_ns: u64) -> Option<u64> {
        match now_ns.checked_sub(self.start_ns) {
            Some(since) => Some(since / self.length_ns),
            None => None,
        }
    }

    /// Bytes of the caches in use and free.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.live.iter().map(|(_, cache)| cache).chain(&self.free).map(Cache::memory_bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capture() -> Capture {
        Capture::new(1_000, 100, 3, 8, Ids::Plain).expect("possible")
    }

    #[test]
    fn a_packet_belongs_to_the_interval_of_its_own_timestamp() {
        let mut capture = capture();
        for now in [999, 1_000, 1_099, 1_100, 1_050, 1_199, 1_200] {
            capture.insert(Digest(now), now);
        }

        let first = capture.close(0).expect("packets came");
        // Too late: only counted, though a cache is free.
        capture.give_back(first.clone());
        capture.insert(Digest(5), 1_001);
        let second = capture.close(1).expect("packets came");

        assert_eq!((first.packets(), second.packets(), capture.outside()), (3, 2, 2));
        assert_eq!((capture.close(1).is_none(), capture.close(7).is_none()), (true, true));
        assert_eq!([999, 1_000, 1_100].map(|now| capture.interval_of(now)), [None, Some(0), Some(1)]);
    }

    #[test]
    fn an_interval_that_is_not_evaluated_is_evicted_for_a_new_one() {
        let mut capture = capture();
        let bytes = capture.memory_bytes();
        for interval in [0, 1, 2, 5] {
            capture.insert(Digest(interval), 1_000 + 100 * interval);
        }
        // Older than all open intervals, and evicted before: only counted.
        capture.insert(Digest(9), 1_000);

        assert_eq!((capture.dropped(), capture.outside(), capture.memory_bytes()), (1, 1, bytes));
        assert_eq!(capture.first_open(), 1);
        assert!(capture.close(2).is_some_and(|cache| cache.packets() == 1), "interval 1 is dropped with it");
        assert_eq!(capture.dropped(), 2);
        assert!(capture.close(5).is_some());
    }

    #[test]
    fn memory_that_is_given_back_is_used_again() {
        let mut capture = capture();
        for interval in 0..50 {
            capture.insert(Digest(interval), 1_000 + 100 * interval);
            let cache = capture.close(interval).expect("a packet came");
            assert_eq!((cache.packets(), cache.time_of(interval)), (1, Some(1_000 + 100 * interval)));
            capture.give_back(cache.clone());
            capture.give_back(cache);
        }

        assert_eq!((capture.dropped(), capture.outside()), (0, 0));
        assert_eq!(capture.memory_bytes(), Capture::memory_bytes(&self::capture()));
        assert!(Capture::new(0, 0, 3, 8, Ids::Plain).is_err() && Capture::new(0, 1, 17, 8, Ids::Plain).is_err());
    }
}
