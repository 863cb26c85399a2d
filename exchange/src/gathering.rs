//! Packets as they come, in intervals of the clock.

use synopses::digest::{Digest, DigestKey};
use synopses::finecomb::{self, Comb};
use synopses::rda::{Cache, Capture, FlowSampling, SettingsError};
use thiserror::Error;

use crate::Sampling;
use crate::buckets::Buckets;
use crate::message::Seen;
use crate::names::Names;
use crate::plan::{Plan, Synopsis};

/// Intervals whose packets are remembered at a time, those that are compared among them.
pub const GENERATIONS: usize = 6;
/// After a jump of the clock over more intervals than this, those between are left out.
const MOST_BEHIND: u64 = 4;

/// Which end of the stream packets are gathered at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Where they are sent.
    Sender,
    /// Where they arrive.
    Receiver,
}

/// How packets are gathered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GatheringSettings {
    /// At which end.
    pub end: End,
    /// RDA: packets of an interval that are remembered, 32 bytes each, six intervals at a time; in the last interval of a key a sender has 16 more for each.
    pub packets: usize,
    /// So long after its end packets of an interval may be handed over, in nanoseconds.
    pub grace_ns: u64,
}

/// Why packets cannot be gathered by a plan.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum GatheringError {
    /// RDA.
    #[error(transparent)]
    Rda(#[from] SettingsError),
    /// FineComb or LDA.
    #[error(transparent)]
    Comb(#[from] finecomb::SettingsError),
}

/// The packets of an interval that is over.
#[derive(Clone, Debug)]
pub struct Gathered {
    /// Which one.
    pub interval: u64,
    /// What stands beside them.
    pub seen: Seen,
    /// They.
    pub packets: Packets,
    /// RDA, of a sender, in the last interval of a key: their ids, each with the one that it would have in the next interval, in any order.
    pub renamed: Vec<(u64, u64)>,
}

/// Packets of one interval, in one of the ways in which ends remember them.
#[derive(Clone, Debug)]
pub enum Packets {
    /// One by one; `None` if none came.
    Each(Option<Cache>),
    /// What a sender keeps of them.
    Sent(Comb),
    /// What a receiver does.
    Received(Box<finecomb::Interval>),
}

#[derive(Debug)]
enum Kept {
    Each(Box<Capture>),
    /// Intervals and their buckets, a few.
    Sent(Vec<(u64, Comb)>),
    Received(Box<Buckets>),
}

/// One end's packets of one run.
#[derive(Debug)]
pub struct Gathering {
    plan: Plan,
    names: Names,
    /// With what flows are named, for the whole run: a packet that is on its way when keys turn is of a flow that both intervals look at.
    flows: DigestKey,
    /// Packets of the last interval of a key, by both names, and those for which there was no room.
    renamed: Option<Vec<(u64, u64)>>,
    unnamed: u64,
    /// When that interval begins, where packets are named twice; it ends where the keys turn.
    renames_ns: u64,
    settings: GatheringSettings,
    kept: Kept,
    /// The interval that ends next.
    next: u64,
    /// Which flows, from which interval on. The last one that has begun counts.
    samplings: Vec<(u64, u32, FlowSampling)>,
    samples: bool,
    /// When the interval that ends next begins: whatever passed earlier comes too late.
    open_ns: u64,
    missed: u64,
    late: u64,
    oversized: u64,
    /// Of the capture, so far.
    outside: u64,
}

impl Gathering {
    /// Takes all memory.
    ///
    /// # Errors
    ///
    /// [`GatheringError`] says what is impossible.
    pub fn new(plan: Plan, settings: GatheringSettings) -> Result<Self, GatheringError> {
        let kept = match (&plan.synopsis, settings.end) {
            (Synopsis::Rda { ids, .. }, _) => {
                Kept::Each(Box::new(Capture::new(plan.begins_ns, plan.length_ns, GENERATIONS, settings.packets, *ids)?))
            }
            (Synopsis::Comb { .. }, End::Sender) => {
                drop(Comb::new(&plan.buckets())?);
                Kept::Sent(Vec::with_capacity(GENERATIONS))
            }
            (Synopsis::Comb { .. }, End::Receiver) => Kept::Received(Box::new(Buckets::new(&plan, 0)?)),
        };
        let mut gathering = Self {
            names: Names::new(&plan),
            flows: DigestKey::new(plan.key),
            renamed: None,
            unnamed: 0,
            renames_ns: u64::MAX,
            settings,
            kept,
            next: 0,
            samplings: vec![(0, u32::MAX, FlowSampling::new(1.0, plan.seed))],
            samples: false,
            open_ns: plan.begins_ns,
            missed: 0,
            late: 0,
            oversized: 0,
            outside: 0,
            plan,
        };
        gathering.go_on(0);
        Ok(gathering)
    }

    /// A packet of the stream that passed at `now_ns`, which `name` names: once, and around a turn of keys by both. `flow` names what all packets of
    /// its flow have alike; it is asked for only where not all flows are looked at.
    #[inline]
    pub fn insert(
        &mut self,
        now_ns: u64,
        name: impl Fn(&DigestKey) -> Digest,
        flow: impl FnOnce(&DigestKey) -> Digest,
    ) {
        if now_ns < self.open_ns {
            return self.too_late(now_ns);
        }
        if self.samples && !self.sampling_at(now_ns).1.admits(flow(&self.flows)) {
            return;
        }
        match &mut self.kept {
            Kept::Each(capture) => {
                let digest = self.names.at(now_ns, &name);
                capture.insert(digest, now_ns);
                if now_ns >= self.renames_ns && now_ns < self.names.turns_ns {
                    self.rename(digest, name(self.names.keys()[1]));
                }
            }
            Kept::Sent(combs) => {
                let digest = self.names.at(now_ns, name);
                let interval = (now_ns - self.plan.begins_ns) / self.plan.length_ns;
                match combs.iter_mut().find(|(there, _)| *there == interval) {
                    Some((_, comb)) => comb.insert(digest, now_ns),
                    None => self.insert_new(interval, digest, now_ns),
                }
            }
            Kept::Received(buckets) => {
                let interval = (now_ns - self.plan.begins_ns) / self.plan.length_ns;
                let is_in = buckets.insert((interval, self.next), now_ns, &self.names, name);
                self.missed += u64::from(!is_in);
            }
        }
    }

    /// A packet of the last interval of a key, by both.
    fn rename(&mut self, now: Digest, then: Digest) {
        let Synopsis::Rda { ids, .. } = self.plan.synopsis else { return };
        match &mut self.renamed {
            Some(renamed) if renamed.len() < renamed.capacity() => renamed.push((ids.id(now), ids.id(then))),
            _ => self.unnamed += 1,
        }
    }

    /// A packet whose interval was given out. The one before the next is still in question: it is for that one's flags.
    #[cold]
    const fn too_late(&mut self, now_ns: u64) {
        let before_ns = self.plan.begin_of(self.next.saturating_sub(1));
        if now_ns >= before_ns && matches!(self.kept, Kept::Each(_)) {
            self.late += 1;
        } else if now_ns >= self.plan.begins_ns {
            self.missed += 1;
        }
    }

    #[cold]
    fn insert_new(&mut self, interval: u64, digest: Digest, now_ns: u64) {
        let settings = self.plan.buckets();
        let Kept::Sent(combs) = &mut self.kept else { return };
        match Comb::new(&settings) {
            Ok(mut comb) if interval >= self.next && combs.len() < GENERATIONS => {
                comb.insert(digest, now_ns);
                combs.push((interval, comb));
            }
            _ => self.missed += 1,
        }
    }

    fn sampling_at(&self, now_ns: u64) -> (u32, FlowSampling) {
        let interval = self.plan.interval_of(now_ns).unwrap_or(0);
        let begun = self.samplings.iter().rev().find(|(from, ..)| *from <= interval);
        begun
            .or(self.samplings.first())
            .map_or((u32::MAX, FlowSampling::new(1.0, 0)), |(_, share, flows)| (*share, *flows))
    }

    /// Looks at another share of flows. One that would have begun already begins with the next interval that nothing is known of: the other end
    /// will see that this one did otherwise.
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

    /// So many packets of the interface, perhaps of this stream, were dropped before anybody saw them.
    pub const fn missed(&mut self, packets: u64) {
        self.missed += packets;
    }

    /// A packet of the stream is larger than the link carries.
    pub const fn oversized(&mut self) {
        self.oversized += 1;
    }

    /// When an interval ends that [`Self::poll`] will give out.
    #[must_use]
    pub const fn due_ns(&self) -> u64 {
        self.plan.begin_of(self.next + 1).saturating_add(self.settings.grace_ns)
    }

    /// The next interval that is over, with its grace, at `now_ns`; each in its turn, also those without packets.
    pub fn poll(&mut self, now_ns: u64) -> Option<Gathered> {
        if now_ns < self.due_ns() {
            return None;
        }
        let over = self.plan.interval_of(now_ns.saturating_sub(self.settings.grace_ns)).unwrap_or(0).saturating_sub(1);
        if over > self.next + MOST_BEHIND {
            self.leap(over);
        }
        let interval = self.next;
        let sampled = self.sampling_at(self.plan.begin_of(interval)).0;
        let closed = self.close(interval);
        let is_last = self.names.until_turn(interval) == 1;
        let renamed = if is_last { self.renamed.take().unwrap_or_default() } else { Vec::new() };
        // What looks lost of those, nobody will find again.
        self.missed += if is_last { core::mem::take(&mut self.unnamed) } else { 0 };
        self.go_on(interval + 1);
        self.forget_samplings();
        let (packets, seen) = closed?;
        let (missed, oversized) = (core::mem::take(&mut self.missed), core::mem::take(&mut self.oversized));
        let (missed, late) = (missed + seen.missed, core::mem::take(&mut self.late));
        Some(Gathered { interval, seen: Seen { missed, late, oversized, sampled, ..seen }, packets, renamed })
    }

    /// The interval `to` ends next: what its key, and the next one, need.
    fn go_on(&mut self, to: u64) {
        (self.next, self.open_ns) = (to, self.plan.begin_of(to));
        let has_turned = self.names.go_on(&self.plan, to);
        let until_turn = self.names.until_turn(to);
        match &mut self.kept {
            Kept::Each(_) if self.settings.end == End::Sender && self.plan.rotates > 0 => {
                self.renames_ns = self.names.turns_ns.saturating_sub(self.plan.length_ns);
                // One interval ahead, and not while packets pass.
                if until_turn <= 2 && self.renamed.is_none() {
                    self.renamed = Some(Vec::with_capacity(self.settings.packets));
                }
            }
            Kept::Received(buckets) => {
                if has_turned {
                    buckets.turn();
                }
                if until_turn == 1 {
                    buckets.prepare(&self.plan);
                }
            }
            Kept::Each(_) | Kept::Sent(_) => {}
        }
    }

    fn close(&mut self, interval: u64) -> Option<(Packets, Seen)> {
        let seen = Seen::default();
        match &mut self.kept {
            Kept::Each(capture) => {
                let cache = capture.close(interval);
                let outside = capture.outside();
                let late = outside - core::mem::replace(&mut self.outside, outside);
                let (packets, duplicates, refused) =
                    cache.as_ref().map_or((0, 0, 0), |cache| (cache.packets(), cache.duplicates(), cache.refused()));
                Some((Packets::Each(cache), Seen { packets, duplicates, refused, missed: late, ..seen }))
            }
            Kept::Sent(combs) => {
                let at = combs.iter().position(|(there, _)| *there == interval);
                let comb = at.map(|at| combs.swap_remove(at).1);
                combs.retain(|(there, _)| *there > interval);
                // A plan that was checked has settings that are possible.
                let comb = comb.or_else(|| Comb::new(&self.plan.buckets()).ok())?;
                let seen = Seen { packets: comb.packets(), ..seen };
                Some((Packets::Sent(comb), seen))
            }
            Kept::Received(buckets) => {
                let ended = buckets.close(interval)?;
                let seen = Seen { packets: ended.comb().packets(), ..seen };
                Some((Packets::Received(Box::new(ended)), seen))
            }
        }
    }

    /// The clock jumped: what was gathered before is of no use to anybody.
    fn leap(&mut self, to: u64) {
        match &mut self.kept {
            Kept::Each(capture) => {
                if let Some(cache) = to.checked_sub(1).and_then(|before| capture.close(before)) {
                    capture.give_back(cache);
                }
            }
            Kept::Sent(combs) => combs.retain(|(there, _)| *there >= to),
            Kept::Received(buckets) => {
                if let Ok(new) = Buckets::new(&self.plan, to) {
                    **buckets = new;
                }
            }
        }
        (self.renamed, self.unnamed) = (None, 0);
        self.go_on(to);
    }

    /// Memory of an interval that was compared, to be used again.
    pub fn give_back(&mut self, cache: Cache) {
        if let Kept::Each(capture) = &mut self.kept
            && matches!(self.plan.synopsis, Synopsis::Rda { ids, .. } if ids == cache.ids())
        {
            capture.give_back(cache);
        }
    }

    /// The plan.
    #[must_use]
    pub const fn plan(&self) -> &Plan {
        &self.plan
    }
}
