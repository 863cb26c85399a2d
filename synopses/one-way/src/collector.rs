//! Collects the packets of one end by intervals of the clock.

use synopses::digest::{Digest, DigestKey};
use synopses::finecomb::{self, FineComb};
use synopses::rda::{Cache, Capture, FlowSampling, SettingsError};
use thiserror::Error;
use wire::time::{Nanos, UnixNanos};

use crate::Sampling;
use crate::bucket_receiver::BucketReceiver;
use crate::end_counters::EndCounters;
use crate::keys::KeySchedule;
use crate::plan::{Plan, Synopsis};
use crate::unplaced_count::UnplacedCount;

/// Number of intervals whose packets are stored at a time, including those that are being compared.
pub const GENERATIONS: usize = 6;
/// If the clock jumps over more intervals than this, they are skipped.
const MAX_BEHIND: u64 = 4;

/// An end of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Where packets are sent.
    Sender,
    /// Where packets arrive.
    Receiver,
}

/// How packets are collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CollectorSettings {
    /// The end of the stream.
    pub end: End,
    /// RDA only: memory budget in packets for each of six intervals. A packet takes 32 bytes, and 16 more at a sender
    /// in the last interval of a key.
    pub packets: usize,
    /// Grace period after an interval's end in which its packets may still be inserted.
    pub grace: Nanos,
}

/// Invalid settings of a plan's synopsis.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum CollectorError {
    /// Invalid settings of RDA.
    #[error(transparent)]
    Rda(#[from] SettingsError),
    /// Invalid settings of FineComb or LDA.
    #[error(transparent)]
    FineComb(#[from] finecomb::SettingsError),
}

/// The packets of an interval that has ended.
#[derive(Clone, Debug)]
pub struct IntervalPackets {
    /// Number of the interval.
    pub interval: u64,
    /// Counters of the packets at this end.
    pub counters: EndCounters,
    /// The packets, or their synopsis.
    pub packets: Packets,
    /// RDA senders only, in the last interval of a key: pairs of each packet's id and its id under the next key, in any
    /// order.
    pub rekeyed: Vec<(u64, u64)>,
}

/// Packets of one interval, in the form that the synopsis and the end need.
#[derive(Clone, Debug)]
pub enum Packets {
    /// RDA: each packet. `None` if there were none.
    Each(Option<Cache>),
    /// FineComb and LDA at the sender: buckets.
    Sent(FineComb),
    /// FineComb and LDA at the receiver: buckets, and packets near the interval's ends.
    Received(Box<finecomb::Interval>),
    /// Unknown: they are in a switch that was not read in time.
    Unread,
}

#[derive(Debug)]
enum Storage {
    Each(Box<Capture>),
    /// A few intervals with their buckets.
    Sent(Vec<(u64, FineComb)>),
    Received(Box<BucketReceiver>),
}

/// Collects one end's packets in one run.
#[derive(Debug)]
pub struct Collector {
    plan: Plan,
    keys: KeySchedule,
    /// Key for digests of flows, one for the whole run: when the digest key rotates, both intervals sample the same
    /// flows.
    flow_key: DigestKey,
    /// In the last interval of a key: pairs of packet ids under the current and the next key.
    rekeyed: Option<Vec<(u64, u64)>>,
    /// Packets of that interval over the memory budget of `rekeyed`.
    rekey_overflow: u64,
    /// When that interval begins. It ends when the key rotates.
    rekeyed_from: UnixNanos,
    settings: CollectorSettings,
    storage: Storage,
    /// The interval that ends next.
    next: u64,
    /// First interval, share and sampled flows of each change. The last one that has begun is in effect.
    samplings: Vec<(u64, u32, FlowSampling)>,
    /// Whether a share below 1 is in effect or pending.
    samples: bool,
    /// When the interval that ends next begins. Earlier packets are too late.
    open: UnixNanos,
    missed: UnplacedCount,
    late: u64,
    oversized: UnplacedCount,
    /// The capture's count of packets outside open intervals, at the last close.
    outside: u64,
}

impl Collector {
    /// Allocates all memory.
    ///
    /// # Errors
    ///
    /// [`CollectorError`] if the plan's synopsis has invalid settings.
    pub fn new(plan: Plan, settings: CollectorSettings) -> Result<Self, CollectorError> {
        let storage = match (&plan.synopsis, settings.end) {
            (Synopsis::Rda { ids, .. }, _) => Storage::Each(Box::new(Capture::new(
                plan.begins.0,
                plan.length.0,
                GENERATIONS,
                settings.packets,
                *ids,
            )?)),
            (Synopsis::FineComb { .. }, End::Sender) => {
                drop(FineComb::new(&plan.buckets())?);
                Storage::Sent(Vec::with_capacity(GENERATIONS))
            }
            (Synopsis::FineComb { .. }, End::Receiver) => Storage::Received(Box::new(BucketReceiver::new(&plan, 0)?)),
        };
        let mut collector = Self {
            keys: KeySchedule::new(&plan),
            flow_key: DigestKey::new(plan.key),
            rekeyed: None,
            rekey_overflow: 0,
            rekeyed_from: UnixNanos(u64::MAX),
            settings,
            storage,
            next: 0,
            samplings: vec![(0, u32::MAX, FlowSampling::new(1.0, plan.seed))],
            samples: false,
            open: plan.begins,
            missed: UnplacedCount::default(),
            late: 0,
            oversized: UnplacedCount::default(),
            outside: 0,
            plan,
        };
        collector.advance(0);
        Ok(collector)
    }

    /// Adds a packet of the stream that passed at `at`. `digest` computes its digest: once, or around a key
    /// rotation with both keys. `flow` computes the digest of its flow; it is called only while a sample of flows is
    /// measured.
    #[inline]
    pub fn insert(
        &mut self,
        at: UnixNanos,
        digest: impl Fn(&DigestKey) -> Digest,
        flow: impl FnOnce(&DigestKey) -> Digest,
    ) {
        if at < self.open {
            return self.too_late(at);
        }
        if self.samples && !self.sampling_at(at).1.admits(flow(&self.flow_key)) {
            return;
        }
        match &mut self.storage {
            Storage::Each(capture) => {
                let current = self.keys.digest_at(at, &digest);
                capture.insert(current, at.0);
                if at >= self.rekeyed_from && at < self.keys.next_begins {
                    self.rekey(current, digest(self.keys.keys()[1]));
                }
            }
            Storage::Sent(finecombs) => {
                let digest = self.keys.digest_at(at, digest);
                let interval = at.since(self.plan.begins).0 / self.plan.length.0;
                match finecombs.iter_mut().find(|(stored, _)| *stored == interval) {
                    Some((_, finecomb)) => finecomb.insert(digest, at.0),
                    None => self.insert_new(interval, digest, at),
                }
            }
            Storage::Received(buckets) => {
                let interval = at.since(self.plan.begins).0 / self.plan.length.0;
                let inserted = buckets.insert((interval, self.next), at, &self.keys, digest);
                if !inserted {
                    self.miss_at(at);
                }
            }
        }
    }

    /// Stores a packet's ids under the current and the next key.
    fn rekey(&mut self, current: Digest, next: Digest) {
        let Synopsis::Rda { ids, .. } = self.plan.synopsis else { return };
        match &mut self.rekeyed {
            Some(rekeyed) if rekeyed.len() < rekeyed.capacity() => rekeyed.push((ids.id(current), ids.id(next))),
            _ => self.rekey_overflow += 1,
        }
    }

    /// Counts a packet whose interval is closed. A packet of the last closed interval still affects that one's flags.
    #[cold]
    fn too_late(&mut self, at: UnixNanos) {
        let before = self.plan.begin_of(self.next.saturating_sub(1));
        if at >= before && matches!(self.storage, Storage::Each(_)) {
            self.late += 1;
        } else if at >= self.plan.begins {
            self.miss_at(at);
        }
    }

    /// Counts a packet that passed at `at` and is not collected.
    #[cold]
    fn miss_at(&mut self, at: UnixNanos) {
        let until = self.latest_of(at);
        self.missed.add(1, until);
    }

    /// The interval of a packet. Of a false timestamp, the latest that is open at a time: no flag stays for ever.
    fn latest_of(&self, at: UnixNanos) -> u64 {
        self.plan.interval_of(at).unwrap_or(0).min(self.next + GENERATIONS as u64)
    }

    #[cold]
    fn insert_new(&mut self, interval: u64, digest: Digest, at: UnixNanos) {
        let settings = self.plan.buckets();
        let Storage::Sent(finecombs) = &mut self.storage else { return };
        match FineComb::new(&settings) {
            Ok(mut finecomb) if interval >= self.next && finecombs.len() < GENERATIONS => {
                finecomb.insert(digest, at.0);
                finecombs.push((interval, finecomb));
            }
            _ => self.miss_at(at),
        }
    }

    fn sampling_at(&self, at: UnixNanos) -> (u32, FlowSampling) {
        let interval = self.plan.interval_of(at).unwrap_or(0);
        let begun = self.samplings.iter().rev().find(|(from, ..)| *from <= interval);
        begun
            .or(self.samplings.first())
            .map_or((u32::MAX, FlowSampling::new(1.0, 0)), |(_, share, flows)| (*share, *flows))
    }

    /// Changes the sampled share of flows. If its first interval has already begun, the change starts with the next
    /// untouched interval; the other end then sees that the shares differed.
    pub fn sample(&mut self, sampling: Sampling) {
        let probability = (f64::from(sampling.share) + 1.0) / 4_294_967_296.0;
        self.samplings.retain(|(from, ..)| *from < sampling.from);
        self.samplings.push((
            sampling.from.max(self.next + 1),
            sampling.share,
            FlowSampling::new(probability, self.plan.seed),
        ));
        self.forget_samplings();
    }

    fn forget_samplings(&mut self) {
        let next = self.next;
        let last = self.samplings.iter().rposition(|(from, ..)| *from <= next).unwrap_or(0);
        self.samplings.drain(..last);
        self.samples = self.samplings.iter().any(|(_, share, _)| *share != u32::MAX);
    }

    /// Counts packets of the interface, perhaps of this stream, that were dropped before they could be captured. That
    /// was noticed at `noticed`.
    ///
    /// When they passed is not known: after the last interval was closed, if counts are read right before
    /// [`Self::poll`], and until they were noticed. So they count for each interval from the one that ends next to the
    /// one that contains `noticed`. Within the grace period after an interval's end these are that interval and the
    /// next one; after a pause of whoever reads them, as many as it took.
    pub fn missed(&mut self, packets: u64, noticed: UnixNanos) {
        self.missed.add(packets, self.plan.interval_of(noticed).unwrap_or(0));
    }

    /// Counts a packet of the stream that passed at `at` and is larger than the link's MTU. It counts for each interval
    /// from the one that ends next to its own.
    pub fn oversized(&mut self, at: UnixNanos) {
        let until = self.latest_of(at);
        self.oversized.add(1, until);
    }

    /// When [`Self::poll`] will next return an interval.
    #[must_use]
    pub const fn due(&self) -> UnixNanos {
        self.plan.begin_of(self.next + 1).plus(self.settings.grace)
    }

    /// The next interval whose grace period is over at `now`. Intervals come in order, also those without packets.
    pub fn poll(&mut self, now: UnixNanos) -> Option<IntervalPackets> {
        if now < self.due() {
            return None;
        }
        let last = self.plan.interval_of(now.minus(self.settings.grace)).unwrap_or(0).saturating_sub(1);
        if last > self.next + MAX_BEHIND {
            self.skip_to(last);
        }
        let interval = self.next;
        let sampled = self.sampling_at(self.plan.begin_of(interval)).0;
        let closed = self.close(interval, now);
        let is_last = self.keys.until_rotation(interval) == 1;
        let rekeyed = if is_last { self.rekeyed.take().unwrap_or_default() } else { Vec::new() };
        // Without a new id they cannot be found in the next interval if they are late.
        self.missed.add(if is_last { core::mem::take(&mut self.rekey_overflow) } else { 0 }, interval);
        self.advance(interval + 1);
        self.forget_samplings();
        let (packets, counters) = closed?;
        let (missed, oversized) = (self.missed.close(interval), self.oversized.close(interval));
        let late = core::mem::take(&mut self.late);
        let counters = EndCounters { missed, late, oversized, sampled, ..counters };
        Some(IntervalPackets { interval, counters, packets, rekeyed })
    }

    /// Makes `to` the interval that ends next, and prepares its key and the next one.
    fn advance(&mut self, to: u64) {
        (self.next, self.open) = (to, self.plan.begin_of(to));
        let rotated = self.keys.advance(&self.plan, to);
        let until_rotation = self.keys.until_rotation(to);
        match &mut self.storage {
            Storage::Each(_) if self.settings.end == End::Sender && self.plan.intervals_per_key > 0 => {
                self.rekeyed_from = self.keys.next_begins.minus(self.plan.length);
                // Allocates one interval ahead, not on a packet's path.
                if until_rotation <= 2 && self.rekeyed.is_none() {
                    self.rekeyed = Some(Vec::with_capacity(self.settings.packets));
                }
            }
            Storage::Received(buckets) => {
                if rotated {
                    buckets.rotate_key();
                }
                if until_rotation == 1 {
                    buckets.prepare_next_key(&self.plan);
                }
            }
            Storage::Each(_) | Storage::Sent(_) => {}
        }
    }

    /// Takes the packets of an interval, at `now`, with their counters.
    fn close(&mut self, interval: u64, now: UnixNanos) -> Option<(Packets, EndCounters)> {
        let counters = EndCounters::default();
        match &mut self.storage {
            Storage::Each(capture) => {
                // Without a free cache, an interval gives way to a later one.
                let is_evicted = capture.first_open() > interval;
                let cache = capture.close(interval);
                let outside = capture.outside();
                let missed = outside - core::mem::replace(&mut self.outside, outside);
                self.missed.add(missed, self.plan.interval_of(now).unwrap_or(0));
                self.missed.add(u64::from(is_evicted), interval);
                let (packets, duplicates, overflowed) =
                    cache.as_ref().map_or((0, 0, 0), |cache| (cache.packets(), cache.duplicates(), cache.overflowed()));
                Some((Packets::Each(cache), EndCounters { packets, duplicates, overflowed, ..counters }))
            }
            Storage::Sent(finecombs) => {
                let at = finecombs.iter().position(|(stored, _)| *stored == interval);
                let finecomb = at.map(|at| finecombs.swap_remove(at).1);
                finecombs.retain(|(stored, _)| *stored > interval);
                // A checked plan has valid settings.
                let finecomb = finecomb.or_else(|| FineComb::new(&self.plan.buckets()).ok())?;
                let counters = EndCounters { packets: finecomb.packets(), ..counters };
                Some((Packets::Sent(finecomb), counters))
            }
            Storage::Received(buckets) => {
                let ended = buckets.close(interval)?;
                let counters = EndCounters { packets: ended.finecomb().packets(), ..counters };
                Some((Packets::Received(Box::new(ended)), counters))
            }
        }
    }

    /// The clock jumped: drops what was collected before interval `to`.
    fn skip_to(&mut self, to: u64) {
        match &mut self.storage {
            Storage::Each(capture) => {
                if let Some(cache) = to.checked_sub(1).and_then(|before| capture.close(before)) {
                    capture.give_back(cache);
                }
            }
            Storage::Sent(finecombs) => finecombs.retain(|(stored, _)| *stored >= to),
            Storage::Received(buckets) => {
                if let Ok(new) = BucketReceiver::new(&self.plan, to) {
                    **buckets = new;
                }
            }
        }
        (self.rekeyed, self.rekey_overflow) = (None, 0);
        self.advance(to);
    }

    /// Takes back the memory of a compared interval, to reuse it.
    pub fn give_back(&mut self, cache: Cache) {
        if let Storage::Each(capture) = &mut self.storage
            && matches!(self.plan.synopsis, Synopsis::Rda { ids, .. } if ids == cache.ids())
        {
            capture.give_back(cache);
        }
    }

    /// The plan of the run.
    #[must_use]
    pub const fn plan(&self) -> &Plan {
        &self.plan
    }
}
