//! What every worker may read, what could not be registered, and when to try again.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

use region::AcceptedRegion;
use transport::verbs::Exposed;
use wire::id::{LmapId, RegionId, WorkerId};
use wire::proto::control as proto;
use wire::rdma::{Endpoint, PacketSequence};
use wire::time::Nanos;

use super::{Expose, Open, Unconnected};

/// The first and the longest pause before a device is opened again.
const REOPEN: (Nanos, Nanos) = (Nanos::from_millis(100), Nanos::from_secs(5));
/// The first and the longest pause before regions that could not be registered are tried again.
const REGISTER: (Nanos, Nanos) = (Nanos::from_millis(500), Nanos::from_secs(30));
/// Regions of one worker that are tried again at a time: each may cost a system call that fails late.
const ROUND: usize = 64;
/// The first and the longest pause before a worker that cannot be shut out is shut out again.
const FENCE: (Nanos, Nanos) = (Nanos::from_millis(100), Nanos::from_secs(30));
/// A worker that cannot be connected so often in succession may be refused for what this end has become.
const REFUSALS: u32 = 4;

/// A region that could not be registered, and why.
pub type Unregistered = (RegionId, String);

/// Which LMAPs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lmaps {
    /// All of the worker.
    All,
    /// These of them.
    These(BTreeSet<LmapId>),
}

/// A worker that is to be told LMAPs again: what it was told of their regions holds no more, or there is more to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renewal {
    /// Which worker.
    pub worker: WorkerId,
    /// Which of its LMAPs.
    pub lmaps: Lmaps,
}

/// Pauses, each twice as long as the one before up to a bound.
#[derive(Clone, Copy, Debug)]
struct Pause {
    bounds: (Nanos, Nanos),
    next: Nanos,
}

impl Pause {
    const fn new(bounds: (Nanos, Nanos)) -> Self {
        Self { bounds, next: bounds.0 }
    }

    fn take(&mut self) -> Nanos {
        let pause = self.next;
        self.next = self.bounds.1.min(pause.plus(pause));
        pause
    }

    fn reset(&mut self) {
        self.next = self.bounds.0;
    }
}

/// A region that could not be registered.
#[derive(Debug)]
struct Missing {
    lmap: LmapId,
    memory: Arc<AcceptedRegion>,
}

/// The device's part.
#[derive(Debug)]
enum Access {
    Given(Box<dyn Expose>),
    /// There is none until then at least, and this is why.
    Lost {
        why: String,
        again: Nanos,
    },
}

/// One worker's.
#[derive(Debug)]
struct Exposing {
    access: Access,
    reopen: Pause,
    /// What the worker knows is worth nothing since the device was opened again: it is not connected until it was told anew.
    is_stale: bool,
    /// Answers in succession that were none.
    refusals: u32,
    missing: BTreeMap<RegionId, Missing>,
    register: Pause,
    /// When what is missing is tried again, and behind which region that round begins.
    again: Nanos,
    after: RegionId,
}

/// What a worker may still read, since its device does not shut it out.
#[derive(Debug)]
struct Unfenced {
    exposure: Box<dyn Expose>,
    why: String,
    fence: Pause,
    again: Nanos,
}

/// What every worker that reads by RDMA may read.
pub struct Exposures {
    open: Open,
    workers: BTreeMap<WorkerId, Exposing>,
    /// At most one part of each worker: until it is shut out there is no other one.
    unfenced: BTreeMap<WorkerId, Unfenced>,
    /// How often a worker's part was lost with its device, and how often one was given again.
    lost: u64,
    renewed: u64,
}

impl std::fmt::Debug for Exposures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exposures").field("workers", &self.workers).finish_non_exhaustive()
    }
}

impl Exposures {
    /// Nothing so far; `open` makes it for each worker.
    #[must_use]
    pub fn new(open: Open) -> Self {
        Self { open, workers: BTreeMap::new(), unfenced: BTreeMap::new(), lost: 0, renewed: 0 }
    }

    /// Puts addresses and keys into what `worker` is to be told at `now`. A region that cannot be registered stays without: it is named in
    /// the result, the others are not touched, and it is tried again by itself.
    #[must_use]
    pub fn fill(
        &mut self,
        now: Nanos,
        worker: WorkerId,
        lmap: &mut proto::Lmap,
        memories: &BTreeMap<RegionId, Arc<AcceptedRegion>>,
    ) -> Vec<Unregistered> {
        self.of(now, worker).fill(now, lmap, memories)
    }

    /// A worker is to be told that it has an LMAP no more.
    pub fn forget(&mut self, worker: WorkerId, lmap: LmapId) {
        if let Some(exposing) = self.workers.get_mut(&worker) {
            exposing.missing.retain(|_, missing| missing.lmap != lmap);
        }
    }

    /// Connects a worker's queue pair; our own end.
    ///
    /// # Errors
    ///
    /// Why not, for the worker to be told. It asks again by itself.
    pub fn answer(
        &mut self,
        now: Nanos,
        worker: WorkerId,
        psn: PacketSequence,
        peer: &Endpoint,
    ) -> Result<Endpoint, String> {
        let answer = self.of(now, worker).answer(psn, peer);
        if let Err(Unconnected { why, is_own_device: true }) = &answer {
            self.lose(now, worker, why);
        }
        answer.map_err(|unconnected| unconnected.why)
    }

    /// A worker was told anew of what it may read, after [`Exposures::poll`] wanted all of it.
    pub fn told(&mut self, worker: WorkerId) {
        if let Some(exposing) = self.workers.get_mut(&worker) {
            exposing.is_stale = false;
        }
    }

    /// Takes a region away from every worker: when this has returned, no READ sees it but those of [`Exposures::unfenced`]. Returns how many
    /// devices have not let go of it; their workers are shut out until they do.
    pub fn withdraw(&mut self, now: Nanos, region: RegionId) -> usize {
        let (mut kept, mut failed) = (0, Vec::new());
        for (&worker, exposing) in &mut self.workers {
            let (is_kept, fenced) = exposing.withdraw(region);
            kept += usize::from(is_kept);
            failed.extend(fenced.err().map(|why| (worker, why)));
        }
        for (worker, why) in failed {
            self.lose(now, worker, &why);
        }
        kept
    }

    /// Shuts a worker out, unless it is one of [`Exposures::unfenced`] afterwards. For good, everything that it had is let go; else it keeps its
    /// keys for when it connects again.
    pub fn stop(&mut self, now: Nanos, worker: WorkerId, for_good: bool) {
        if for_good {
            if let Some(Exposing { access: Access::Given(exposure), .. }) = self.workers.remove(&worker) {
                self.end(now, worker, exposure);
            }
        } else if let Some(Exposing { access: Access::Given(exposure), .. }) = self.workers.get_mut(&worker)
            && let Err(why) = exposure.fence()
        {
            self.lose(now, worker, &why);
        }
    }

    /// Workers that may still read what they had, and why. As long as there are any, nothing of it may be given to others.
    pub fn unfenced(&self) -> impl Iterator<Item = (WorkerId, &str)> {
        self.unfenced.iter().map(|(&worker, unfenced)| (worker, unfenced.why.as_str()))
    }

    /// Tries again what is due at `now`. Who has to be told what anew.
    #[must_use]
    pub fn poll(&mut self, now: Nanos) -> Vec<Renewal> {
        self.unfenced.retain(|_, unfenced| unfenced.again > now || !unfenced.is_over(now));
        let mut renewals = Vec::new();
        for (&worker, exposing) in &mut self.workers {
            let unfenced = self.unfenced.get(&worker).map(|unfenced| unfenced.why.clone());
            let mut open = || unfenced.clone().map_or_else(|| (self.open)(true), Err);
            if let Some(lmaps) = exposing.poll(now, &mut open) {
                self.renewed += u64::from(lmaps == Lmaps::All);
                renewals.push(Renewal { worker, lmaps });
            }
        }
        renewals
    }

    /// When [`Exposures::poll`] has something to do.
    #[must_use]
    pub fn next(&self) -> Nanos {
        let fences = self.unfenced.values().map(|unfenced| unfenced.again);
        self.workers.values().map(Exposing::next).chain(fences).min().unwrap_or(Nanos::NEVER)
    }

    /// How often a worker's part was lost with its device since the start, and how often one was given again.
    #[must_use]
    pub const fn counts(&self) -> (u64, u64) {
        (self.lost, self.renewed)
    }

    fn of(&mut self, now: Nanos, worker: WorkerId) -> &mut Exposing {
        let Self { open, workers, unfenced, .. } = self;
        let unfenced = unfenced.get(&worker);
        workers.entry(worker).or_insert_with(|| {
            let given = unfenced.map_or_else(|| open(false), |unfenced| Err(unfenced.why.clone()));
            Exposing::new(now, given)
        })
    }

    /// Gives up what a worker has: all that was registered for it goes, and a device is opened for it again later.
    fn lose(&mut self, now: Nanos, worker: WorkerId, why: &str) {
        self.lost += 1;
        if let Some(exposure) = self.workers.get_mut(&worker).and_then(|exposing| exposing.lose(now, why)) {
            self.end(now, worker, exposure);
        }
    }

    /// Shuts a worker out for good, now or as soon as its device does it.
    fn end(&mut self, now: Nanos, worker: WorkerId, mut exposure: Box<dyn Expose>) {
        if let Err(why) = exposure.end() {
            let mut fence = Pause::new(FENCE);
            let again = now.plus(fence.take());
            self.unfenced.insert(worker, Unfenced { exposure, why, fence, again });
        }
    }
}

impl Unfenced {
    /// Tries again.
    fn is_over(&mut self, now: Nanos) -> bool {
        match self.exposure.end() {
            Ok(()) => true,
            Err(why) => {
                (self.why, self.again) = (why, now.plus(self.fence.take()));
                false
            }
        }
    }
}

impl Exposing {
    fn new(now: Nanos, given: Result<Box<dyn Expose>, String>) -> Self {
        let mut reopen = Pause::new(REOPEN);
        let access = match given {
            Ok(exposure) => Access::Given(exposure),
            Err(why) => Access::Lost { why, again: now.plus(reopen.take()) },
        };
        Self {
            access,
            reopen,
            is_stale: false,
            refusals: 0,
            missing: BTreeMap::new(),
            register: Pause::new(REGISTER),
            again: Nanos::NEVER,
            after: RegionId(0),
        }
    }

    fn fill(
        &mut self,
        now: Nanos,
        lmap: &mut proto::Lmap,
        memories: &BTreeMap<RegionId, Arc<AcceptedRegion>>,
    ) -> Vec<Unregistered> {
        let id = LmapId(lmap.lmap);
        self.missing.retain(|_, missing| missing.lmap != id);
        let mut failed = Vec::new();
        for told in lmap.replicas.iter_mut().flat_map(|replica| &mut replica.regions) {
            let region = RegionId(told.region);
            // It is dropped already: the change that says so comes next.
            let Some(memory) = memories.get(&region) else { continue };
            let exposed = match &mut self.access {
                Access::Given(exposure) => exposure.expose(region, memory),
                // With the device everything is told anew.
                Access::Lost { why, .. } => {
                    failed.push((region, why.clone()));
                    continue;
                }
            };
            match exposed {
                Ok(Exposed { address, rkey }) => (told.address, told.rkey) = (address, rkey),
                Err(why) => {
                    self.missing.insert(region, Missing { lmap: id, memory: Arc::clone(memory) });
                    failed.push((region, why));
                }
            }
        }
        if !self.missing.is_empty() && self.again == Nanos::NEVER {
            self.again = now.plus(self.register.take());
        }
        failed
    }

    /// Our own end; or why there is none, and whether to give up the device.
    fn answer(&mut self, psn: PacketSequence, peer: &Endpoint) -> Result<Endpoint, Unconnected> {
        let not_now = |why| Err(Unconnected { why, is_own_device: false });
        let exposure = match &mut self.access {
            Access::Lost { why, .. } => return not_now(format!("{why}; it is tried again")),
            Access::Given(_) if self.is_stale => {
                return not_now("the device was opened again, and regions are still being registered".to_owned());
            }
            Access::Given(exposure) => exposure,
        };
        match exposure.answer(psn, peer) {
            Ok(own) => {
                self.refusals = 0;
                self.reopen.reset();
                Ok(own)
            }
            Err(refused) => {
                self.refusals += 1;
                let is_own_device = refused.is_own_device || self.refusals >= REFUSALS;
                Err(Unconnected { is_own_device, ..refused })
            }
        }
    }

    /// What was given, to be ended. There is none until a device is opened again.
    fn lose(&mut self, now: Nanos, why: &str) -> Option<Box<dyn Expose>> {
        self.refusals = 0;
        self.missing.clear();
        let lost = Access::Lost { why: why.to_owned(), again: now.plus(self.reopen.take()) };
        match core::mem::replace(&mut self.access, lost) {
            Access::Given(exposure) => Some(exposure),
            Access::Lost { .. } => None,
        }
    }

    /// Whether the device has kept it, and whether the worker is shut out then.
    fn withdraw(&mut self, region: RegionId) -> (bool, Result<(), String>) {
        self.missing.remove(&region);
        let Access::Given(exposure) = &mut self.access else { return (false, Ok(())) };
        let before = exposure.kept();
        let fenced = exposure.withdraw(region);
        (exposure.kept() > before, fenced)
    }

    fn poll(&mut self, now: Nanos, open: &mut dyn FnMut() -> Result<Box<dyn Expose>, String>) -> Option<Lmaps> {
        match &mut self.access {
            Access::Lost { again, .. } if *again > now => None,
            Access::Lost { .. } => match open() {
                Ok(exposure) => {
                    (self.access, self.is_stale) = (Access::Given(exposure), true);
                    Some(Lmaps::All)
                }
                Err(why) => {
                    self.access = Access::Lost { why, again: now.plus(self.reopen.take()) };
                    None
                }
            },
            Access::Given(exposure) if self.again <= now => {
                let mut registered = BTreeSet::new();
                let behind =
                    self.missing.range((Excluded(self.after), Unbounded)).chain(self.missing.range(..=self.after));
                for (&region, missing) in behind.take(ROUND) {
                    self.after = region;
                    if exposure.expose(region, &missing.memory).is_ok() {
                        registered.insert(region);
                    }
                }
                let gone = self.missing.extract_if(.., |region, _| registered.contains(region));
                let lmaps: BTreeSet<_> = gone.map(|(_, missing)| missing.lmap).collect();
                if !lmaps.is_empty() {
                    self.register.reset();
                }
                self.again = if self.missing.is_empty() { Nanos::NEVER } else { now.plus(self.register.take()) };
                (!lmaps.is_empty()).then_some(Lmaps::These(lmaps))
            }
            Access::Given(_) => None,
        }
    }

    fn next(&self) -> Nanos {
        match &self.access {
            Access::Lost { again, .. } => *again,
            Access::Given(_) if self.missing.is_empty() => Nanos::NEVER,
            Access::Given(_) => self.again,
        }
    }
}
