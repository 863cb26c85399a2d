//! The receiving end: buckets of intervals, and a stash of the packets near their ends.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::aggregator::FineComb;
use super::settings::{Settings, SettingsError};

use crate::digest::Digest;
use crate::encoding::DecodeError;

/// A sampled packet near an end of an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StashedPacket {
    /// What it adds to its bucket's XOR.
    pub digest: u64,
    /// When it arrived, in nanoseconds of the clock that both ends share.
    pub time_ns: u64,
    /// Row of its bucket.
    pub row: u32,
    /// Sequence number of its arrival, which identifies a packet that is near both ends of an interval.
    pub number: u64,
}

/// The packets that one bank stashed near an end of an interval: the last ones before it, in the order of the ring that
/// holds them, and the first ones after it.
#[derive(Clone, Copy, Debug)]
pub struct Stash<'a> {
    /// Packets before the end.
    pub before: &'a [StashedPacket],
    /// Packets after the end.
    pub after: &'a [StashedPacket],
}

/// The packets that a data plane stashed near an end of an interval, in one bank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndStash {
    /// Packets before the end.
    pub before: Vec<StashedPacket>,
    /// Packets after the end.
    pub after: Vec<StashedPacket>,
}

impl From<EndStash> for Boundary {
    fn from(stash: EndStash) -> Self {
        Self { ring: stash.before.into_boxed_slice(), next: 0, wrapped: true, after: stash.after }
    }
}

/// The stash of one bank at one end of an interval: the last sampled packets before it, and the first ones after it.
#[derive(Clone, Debug)]
pub(super) struct Boundary {
    /// The last packets. Once full, the next packet replaces the oldest.
    ring: Box<[StashedPacket]>,
    next: usize,
    wrapped: bool,
    after: Vec<StashedPacket>,
}

impl Boundary {
    fn new(most: usize) -> Self {
        let ring = core::iter::repeat_n(StashedPacket::default(), most).collect();
        Self { ring, next: 0, wrapped: false, after: Vec::with_capacity(most) }
    }

    fn stash(&self) -> Stash<'_> {
        Stash { before: self.before(), after: &self.after }
    }

    /// The last packets before the end.
    pub(super) fn before(&self) -> &[StashedPacket] {
        if self.wrapped { &self.ring } else { &self.ring[..self.next] }
    }

    /// The first packets after it.
    pub(super) fn after(&self) -> &[StashedPacket] {
        &self.after
    }

    #[inline]
    fn push_before(&mut self, packet: StashedPacket) {
        if let Some(place) = self.ring.get_mut(self.next) {
            *place = packet;
            self.next += 1;
            if self.next == self.ring.len() {
                (self.next, self.wrapped) = (0, true);
            }
        }
    }

    fn push_after(&mut self, packet: StashedPacket) {
        if !self.is_full() {
            self.after.push(packet);
        }
    }

    fn is_full(&self) -> bool {
        self.after.len() == self.ring.len()
    }
}

/// One interval of the receiver: its buckets, and the stashes at its ends.
#[derive(Clone, Debug)]
pub struct Interval {
    pub(super) finecomb: FineComb,
    pub(super) start: Box<[Boundary]>,
    pub(super) end: Box<[Boundary]>,
}

impl Interval {
    /// An interval without stashes. Displaced packets cannot be recovered.
    #[must_use]
    pub fn without_stash(finecomb: FineComb) -> Self {
        let none = || finecomb.settings.banks.iter().map(|_| Boundary::new(0)).collect();
        Self { start: none(), end: none(), finecomb }
    }

    /// An interval of a data plane that did the same (`p4/`): its buckets, and for each bank what was stashed at its
    /// start and at its end.
    ///
    /// # Errors
    ///
    /// [`DecodeError::Field`] if there is not one stash for each bank, or a packet is of a row that there is not.
    pub fn of_stashes(finecomb: FineComb, [start, end]: [Vec<EndStash>; 2]) -> Result<Self, DecodeError> {
        let Settings { banks, buckets, .. } = &finecomb.settings;
        if [&start, &end].iter().any(|stashes| stashes.len() != banks.len()) {
            return Err(DecodeError::Field("a number of stashes"));
        }
        let stashes = start.iter().chain(&end);
        let mut packets = stashes.flat_map(|stash| stash.before.iter().chain(&stash.after));
        if packets.any(|packet| packet.row as usize >= *buckets) {
            return Err(DecodeError::Field("a row of a stashed packet"));
        }
        let boundaries = |stashes: Vec<EndStash>| stashes.into_iter().map(Boundary::from).collect();
        Ok(Self { start: boundaries(start), end: boundaries(end), finecomb })
    }

    /// The interval's buckets.
    #[must_use]
    pub const fn finecomb(&self) -> &FineComb {
        &self.finecomb
    }

    /// The stashes of each bank at the start of the interval.
    pub fn start(&self) -> impl Iterator<Item = Stash<'_>> {
        self.start.iter().map(Boundary::stash)
    }

    /// The stashes of each bank at the end of the interval.
    pub fn end(&self) -> impl Iterator<Item = Stash<'_>> {
        self.end.iter().map(Boundary::stash)
    }
}

fn boundaries(settings: &Settings) -> Box<[Boundary]> {
    settings.banks.iter().map(|bank| Boundary::new(bank.stash)).collect()
}

/// The receiving end of a stream. An interval is ready some time after its end, when the stash after it is full. It has
/// to be taken before the next interval ends.
#[derive(Clone, Debug)]
pub struct Receiver {
    current: FineComb,
    /// Stashes at the start of the current interval, which is the end of the one before.
    start: Box<[Boundary]>,
    /// Whether a stash after the start is not full.
    start_open: bool,
    /// Stashes of the latest packets, for the end of the current interval.
    end: Box<[Boundary]>,
    /// The previous interval with the stashes at its start. The stash after its end is still being filled.
    ended: Option<(FineComb, Box<[Boundary]>)>,
    number: u64,
}

impl Receiver {
    /// A receiver before its first packet. Call [`Self::sync`] at the start of the first interval, or that interval is
    /// incomplete.
    ///
    /// # Errors
    ///
    /// [`SettingsError`] if a setting is invalid.
    pub fn new(settings: &Settings) -> Result<Self, SettingsError> {
        let current = FineComb::new(settings)?;
        Ok(Self {
            current,
            start: boundaries(settings),
            end: boundaries(settings),
            start_open: true,
            ended: None,
            number: 0,
        })
    }

    /// Adds a packet that arrived at `now_ns`, of a clock that both ends share.
    #[inline]
    pub fn insert(&mut self, digest: Digest, now_ns: u64) {
        self.current.packets += 1;
        self.number += 1;
        let FineComb { sampler, buckets, settings, .. } = &mut self.current;
        let hash = sampler.hash(digest);
        let mut sampled = None;
        for ((bank, share), end) in sampler.shares.iter().enumerate().zip(&mut self.end) {
            if !share.has(hash) {
                continue;
            }
            let packet = *sampled.get_or_insert_with(|| sampler.packet(digest));
            buckets[bank * settings.buckets + packet.row as usize].add(now_ns, packet.digest);
            let stashed =
                StashedPacket { digest: packet.digest, time_ns: now_ns, row: packet.row, number: self.number };
            end.push_before(stashed);
            if self.start_open {
                self.start[bank].push_after(stashed);
            }
        }
        // Most packets are far from the start of the interval.
        if self.start_open {
            self.start_open = !self.start.iter().all(Boundary::is_full);
        }
    }

    /// Ends the current interval and begins the next one. Returns the previous interval if it has not been taken yet.
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

    /// Whether the stash after the end of the last interval is full. At low rates use a timeout instead: twice the
    /// difference of path delays.
    #[must_use]
    pub fn ready(&self) -> bool {
        self.ended.is_some() && self.start.iter().all(Boundary::is_full)
    }

    /// Takes the interval that ended last; `None` if it has been taken.
    pub fn take(&mut self) -> Option<Interval> {
        let (finecomb, start) = self.ended.take()?;
        Some(Interval { finecomb, start, end: self.start.clone() })
    }

    /// Bytes of the buckets and stashes of two intervals.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let stashed: usize = self.current.settings.banks.iter().map(|bank| bank.stash).sum();
        // At three ends, before and after each.
        2 * self.current.memory_bytes() + 3 * 2 * stashed * size_of::<StashedPacket>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers<'a>(stashed: impl IntoIterator<Item = &'a StashedPacket>) -> Vec<u64> {
        let mut numbers: Vec<u64> = stashed.into_iter().map(|packet| packet.number).collect();
        numbers.sort_unstable();
        numbers
    }

    #[test]
    fn the_last_packets_before_an_end_and_the_first_after_it_are_stashed() {
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
        let second = receiver.sync().expect("it was not taken");

        assert_eq!((first.finecomb.packets, second.finecomb.packets), (5, 5));
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

    #[test]
    fn an_interval_of_a_data_plane_has_the_stashes_that_it_was_made_with() {
        let settings = Settings::one_bank(8, 1.0, 2, 0);
        let mut receiver = Receiver::new(&settings).expect("possible");
        (1..=5).for_each(|number| receiver.insert(Digest(number), number));
        assert!(receiver.sync().is_none());
        receiver.insert(Digest(6), 6);
        let first = receiver.take().expect("it has ended");
        let owned = |stash: Stash<'_>| EndStash { before: stash.before.to_vec(), after: stash.after.to_vec() };
        let ends = || [first.start().map(owned).collect(), first.end().map(owned).collect::<Vec<_>>()];

        let loaded = Interval::of_stashes(first.finecomb.clone(), ends()).expect("the same stashes");
        for (one, other) in first.start().chain(first.end()).zip(loaded.start().chain(loaded.end())) {
            assert_eq!((one.before, one.after), (other.before, other.after));
        }
        let missing = Interval::of_stashes(first.finecomb.clone(), [Vec::new(), Vec::new()]).err();
        assert_eq!(missing, Some(DecodeError::Field("a number of stashes")));
        let mut beyond = ends();
        beyond[1][0].before[0].row = 8;
        let beyond = Interval::of_stashes(first.finecomb.clone(), beyond).err();
        assert_eq!(beyond, Some(DecodeError::Field("a row of a stashed packet")));
    }
}
