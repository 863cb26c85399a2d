//! The receiving end: intervals, and the packets near their ends.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::comb::Comb;
use super::settings::{Settings, SettingsError};

use crate::digest::Digest;

/// A sampled packet near an end of an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stashed {
    pub(super) digest: u64,
    pub(super) time_ns: u64,
    pub(super) row: u32,
    /// How many packets came before it, by which one that is near both ends is known again.
    pub(super) number: u64,
}

/// The sampled packets around one end of an interval, in one bank: the last ones before it, the first ones after it.
#[derive(Clone, Debug)]
pub(super) struct Boundary {
    /// In no order, once it is full: the next one takes the place of the oldest.
    ring: Box<[Stashed]>,
    next: usize,
    wrapped: bool,
    after: Vec<Stashed>,
}

impl Boundary {
    fn new(most: usize) -> Self {
        let ring = core::iter::repeat_n(Stashed::default(), most).collect();
        Self { ring, next: 0, wrapped: false, after: Vec::with_capacity(most) }
    }

    /// The last packets before the end.
    pub(super) fn before(&self) -> &[Stashed] {
        if self.wrapped { &self.ring } else { &self.ring[..self.next] }
    }

    /// The first packets after it.
    pub(super) fn after(&self) -> &[Stashed] {
        &self.after
    }

    #[inline]
    fn came_before(&mut self, packet: Stashed) {
        if let Some(place) = self.ring.get_mut(self.next) {
            *place = packet;
            self.next += 1;
            if self.next == self.ring.len() {
                (self.next, self.wrapped) = (0, true);
            }
        }
    }

    fn came_after(&mut self, packet: Stashed) {
        if !self.full() {
            self.after.push(packet);
        }
    }

    fn full(&self) -> bool {
        self.after.len() == self.ring.len()
    }
}

/// One interval as the receiver saw it, with the packets around its ends.
#[derive(Clone, Debug)]
pub struct Interval {
    pub(super) comb: Comb,
    pub(super) start: Box<[Boundary]>,
    pub(super) end: Box<[Boundary]>,
}

impl Interval {
    /// An interval of which nothing is known but its buckets: nothing can be put right.
    #[must_use]
    pub fn without_stash(comb: Comb) -> Self {
        let none = || comb.settings.banks.iter().map(|_| Boundary::new(0)).collect();
        Self { start: none(), end: none(), comb }
    }

    /// Its buckets.
    #[must_use]
    pub const fn comb(&self) -> &Comb {
        &self.comb
    }
}

fn boundaries(settings: &Settings) -> Box<[Boundary]> {
    settings.banks.iter().map(|bank| Boundary::new(bank.stash)).collect()
}

/// The receiving end of a stream. An interval is ready some time after its end, when as many sampled packets have come as could have been
/// late; the one before the last has to be taken before the next one ends.
#[derive(Clone, Debug)]
pub struct Receiver {
    current: Comb,
    /// Around the start of the current interval, which is the end of the one before.
    start: Box<[Boundary]>,
    /// Some of its lists of packets after it are not full.
    start_open: bool,
    /// Around the end to come: what was before it, so far.
    end: Box<[Boundary]>,
    /// The interval before, with its start; its end is still to be filled.
    ended: Option<(Comb, Box<[Boundary]>)>,
    number: u64,
}

impl Receiver {
    /// The receiving end before the first packet. The first interval is whole only if it begins with a [`Self::sync`], whose result is empty.
    ///
    /// # Errors
    ///
    /// [`SettingsError`] says what is impossible.
    pub fn new(settings: &Settings) -> Result<Self, SettingsError> {
        let current = Comb::new(settings)?;
        Ok(Self {
            current,
            start: boundaries(settings),
            end: boundaries(settings),
            start_open: true,
            ended: None,
            number: 0,
        })
    }

    /// A packet that arrived at `now_ns`, of a clock that both ends share.
    #[inline]
    pub fn insert(&mut self, digest: Digest, now_ns: u64) {
        self.current.packets += 1;
        self.number += 1;
        let Comb { sampler, buckets, settings, .. } = &mut self.current;
        let hash = sampler.hash(digest);
        let mut sampled = None;
        for ((bank, share), end) in sampler.shares.iter().enumerate().zip(&mut self.end) {
            if !share.has(hash) {
                continue;
            }
            let packet = *sampled.get_or_insert_with(|| sampler.packet(digest));
            buckets[bank * settings.buckets + packet.row as usize].add(now_ns, packet.digest);
            let stashed = Stashed { digest: packet.digest, time_ns: now_ns, row: packet.row, number: self.number };
            end.came_before(stashed);
            if self.start_open {
                self.start[bank].came_after(stashed);
            }
        }
        // Most packets are far from the start, and need not look.
        if self.start_open {
            self.start_open = !self.start.iter().all(Boundary::full);
        }
    }

    /// The sender's mark came: an interval ends, another one begins. Gives out the interval before, if nobody has taken it yet.
    pub fn sync(&mut self) -> Option<Interval> {
        let before = self.take();
        let settings = self.current.settings.clone();
        let mut next = self.current.clone();
        next.clear();
        let ended = core::mem::replace(&mut self.current, next);
        let end = core::mem::replace(&mut self.end, boundaries(&settings));
        let start = core::mem::replace(&mut self.start, end);
        self.ended = Some((ended, start));
        self.start_open = true;
        before
    }

    /// Whether enough packets have come after the end of the last interval. Where few come, a time says so instead: twice what paths differ by.
    #[must_use]
    pub fn ready(&self) -> bool {
        self.ended.is_some() && self.start.iter().all(Boundary::full)
    }

    /// The interval that ended last, once.
    pub fn take(&mut self) -> Option<Interval> {
        let (comb, start) = self.ended.take()?;
        Some(Interval { comb, start, end: self.start.clone() })
    }

    /// Bytes of all buckets and stashes, of two intervals.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let stashed: usize = self.current.settings.banks.iter().map(|bank| bank.stash).sum();
        // Around three ends, before and after.
        2 * self.current.memory_bytes() + 3 * 2 * stashed * size_of::<Stashed>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers<'a>(stashed: impl IntoIterator<Item = &'a Stashed>) -> Vec<u64> {
        let mut numbers: Vec<u64> = stashed.into_iter().map(|packet| packet.number).collect();
        numbers.sort_unstable();
        numbers
    }

    #[test]
    fn the_last_packets_before_an_end_and_the_first_after_it_are_kept() {
        let mut receiver = Receiver::new(&Settings::one_bank(8, 1.0, 2, 0)).expect("possible");
        (1..=5).for_each(|number| receiver.insert(Digest(number), number));
        assert!(receiver.sync().is_none());
        receiver.insert(Digest(6), 6);
        assert!(!receiver.ready());
        receiver.insert(Digest(7), 7);
        assert!(receiver.ready());
        receiver.insert(Digest(8), 8);

        let first = receiver.take().expect("it has ended");
        assert!(receiver.take().is_none());
        (9..=10).for_each(|number| receiver.insert(Digest(number), number));
        assert!(receiver.sync().is_none());
        receiver.insert(Digest(11), 11);
        let second = receiver.sync().expect("nobody took it");

        assert_eq!((first.comb.packets, second.comb.packets), (5, 5));
        assert_eq!(
            (numbers(first.end[0].before()), numbers(first.end[0].after())),
            (Vec::from([4, 5]), Vec::from([6, 7]))
        );
        assert_eq!(
            (numbers(second.start[0].before()), numbers(second.start[0].after())),
            (Vec::from([4, 5]), Vec::from([6, 7]))
        );
        assert_eq!(
            (numbers(second.end[0].before()), numbers(second.end[0].after())),
            (Vec::from([9, 10]), Vec::from([11]))
        );
    }
}
