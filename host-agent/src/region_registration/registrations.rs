//! Registered regions of all workers, failed registrations, and retries with back-off.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

use agent_runtime::chain;
use region::AcceptedRegion;
use transport::verbs::{FenceError, RegisteredRegion};
use wire::backoff::Backoff;
use wire::id::{LmapId, RegionId, WorkerId};
use wire::proto::control as proto;
use wire::rdma::{Endpoint, PacketSequence};
use wire::time::Nanos;

use super::{ConnectFailure, OpenDevice, OpenError, WorkerDevice};

/// No other process tries the same device at the same time.
const NO_JITTER: f64 = 0.0;
/// Back-off before a device is opened again.
const REOPEN: Backoff = Backoff::new(Nanos::from_millis(100), Nanos::from_secs(5));
/// Back-off before failed registrations are retried.
const REGISTER: Backoff = Backoff::new(Nanos::from_millis(500), Nanos::from_secs(30));
/// Regions of one worker retried per round: each may be a system call that fails late.
const ROUND: usize = 64;
/// Back-off before a fence is retried.
const FENCE: Backoff = Backoff::new(Nanos::from_millis(100), Nanos::from_secs(30));
/// After this many failed connections in a row the device is reopened: its address may have changed.
const REFUSALS: u32 = 4;

/// A region that could not be registered, with the reason.
pub type FailedRegistration = (RegionId, String);

/// A set of LMAPs of one worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AffectedLmaps {
    /// All its LMAPs.
    All,
    /// Only these LMAPs.
    These(BTreeSet<LmapId>),
}

/// LMAPs to be sent to a worker again: addresses or keys of their regions changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renewal {
    /// The worker's number.
    pub worker: WorkerId,
    /// The affected LMAPs.
    pub lmaps: AffectedLmaps,
}

/// The device's side of a worker.
#[derive(Debug)]
enum Access {
    Open(Box<dyn WorkerDevice>),
    /// No device until `again` at least.
    Lost {
        why: String,
        again: Nanos,
    },
}

/// Registrations of one worker.
#[derive(Debug)]
struct WorkerRegistrations {
    access: Access,
    reopen: Backoff,
    /// The device was reopened, and the worker still has the old keys. It is not connected until it was sent the new
    /// ones.
    is_stale: bool,
    /// Failed connections in a row.
    refusals: u32,
    /// Regions that wait for another attempt, and the LMAPs that need them: several may need the same one.
    missing: BTreeMap<(RegionId, LmapId), Arc<AcceptedRegion>>,
    register: Backoff,
    /// When missing regions are retried, and after which one that round starts.
    again: Nanos,
    after: (RegionId, LmapId),
}

/// A worker that its device does not fence. It may still read.
#[derive(Debug)]
struct UnfencedWorker {
    device: Box<dyn WorkerDevice>,
    why: String,
    fence: Backoff,
    again: Nanos,
}

/// Registered regions of all workers that read by RDMA.
pub struct Registrations {
    open: OpenDevice,
    workers: BTreeMap<WorkerId, WorkerRegistrations>,
    /// At most one per worker: nothing else is opened for a worker until it is fenced.
    unfenced: BTreeMap<WorkerId, UnfencedWorker>,
    /// How often a worker's device was lost, and how often it was reopened.
    lost: u64,
    renewed: u64,
}

impl std::fmt::Debug for Registrations {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registrations").field("workers", &self.workers).finish_non_exhaustive()
    }
}

impl Registrations {
    /// No workers yet; `open` opens the device for each worker.
    #[must_use]
    pub fn new(open: OpenDevice) -> Self {
        Self { open, workers: BTreeMap::new(), unfenced: BTreeMap::new(), lost: 0, renewed: 0 }
    }

    /// Fills addresses and keys into the configuration of an LMAP for `worker`. A region that cannot be registered gets
    /// none; it is returned with the reason and retried later.
    #[must_use]
    pub fn fill(
        &mut self,
        now: Nanos,
        worker: WorkerId,
        lmap: &mut proto::Lmap,
        memories: &BTreeMap<RegionId, Arc<AcceptedRegion>>,
    ) -> Vec<FailedRegistration> {
        self.of(now, worker).fill(now, lmap, memories)
    }

    /// The LMAP is removed from the worker.
    pub fn forget(&mut self, worker: WorkerId, lmap: LmapId) {
        if let Some(worker_registrations) = self.workers.get_mut(&worker) {
            worker_registrations.missing.retain(|(_, needs_it), _| *needs_it != lmap);
        }
    }

    /// Connects a worker's queue pair. Returns our end.
    ///
    /// # Errors
    ///
    /// [`ConnectFailure`]; its text is the reply to the worker. The worker retries.
    pub fn connect(
        &mut self,
        now: Nanos,
        worker: WorkerId,
        psn: PacketSequence,
        peer: &Endpoint,
    ) -> Result<Endpoint, ConnectFailure> {
        let connected = self.of(now, worker).connect(psn, peer);
        if let Err(ConnectFailure { why, is_own_device: true }) = &connected {
            self.lose(now, worker, why);
        }
        connected
    }

    /// The worker was sent its configuration again, as [`Registrations::poll`] asked.
    pub fn resent(&mut self, worker: WorkerId) {
        if let Some(worker_registrations) = self.workers.get_mut(&worker) {
            worker_registrations.is_stale = false;
        }
    }

    /// Deregisters a region for all workers. Afterwards no READ sees it, except those of workers in
    /// [`Registrations::unfenced`]. Returns the number of devices that refused; their workers are fenced until they
    /// comply.
    pub fn deregister(&mut self, now: Nanos, region: RegionId) -> usize {
        let (mut kept, mut failed) = (0, Vec::new());
        for (&worker, worker_registrations) in &mut self.workers {
            let (is_kept, fenced) = worker_registrations.deregister(region);
            kept += usize::from(is_kept);
            failed.extend(fenced.err().map(|error| (worker, chain(&error))));
        }
        for (worker, why) in failed {
            self.lose(now, worker, &why);
        }
        kept
    }

    /// Fences a worker; on failure it is in [`Registrations::unfenced`] afterwards. `for_good` drops its registrations;
    /// otherwise it keeps its keys for the next connection.
    pub fn stop(&mut self, now: Nanos, worker: WorkerId, for_good: bool) {
        if for_good {
            if let Some(WorkerRegistrations { access: Access::Open(device), .. }) = self.workers.remove(&worker) {
                self.end(now, worker, device);
            }
        } else if let Some(WorkerRegistrations { access: Access::Open(device), .. }) = self.workers.get_mut(&worker)
            && let Err(error) = device.fence()
        {
            self.lose(now, worker, &chain(&error));
        }
    }

    /// Workers that may still read, with the reasons. While there are any, nothing that they could read may be reused.
    pub fn unfenced(&self) -> impl Iterator<Item = (WorkerId, &str)> {
        self.unfenced.iter().map(|(&worker, unfenced)| (worker, unfenced.why.as_str()))
    }

    /// Carries out the retries due at `now`. Returns the LMAPs to be sent again.
    #[must_use]
    pub fn poll(&mut self, now: Nanos) -> Vec<Renewal> {
        self.unfenced.retain(|_, unfenced| unfenced.again > now || !unfenced.is_over(now));
        let mut renewals = Vec::new();
        for (&worker, worker_registrations) in &mut self.workers {
            let unfenced = self.unfenced.get(&worker).map(|unfenced| unfenced.why.clone());
            let mut open = || match &unfenced {
                Some(why) => Err(OpenError::Unfenced(why.clone())),
                None => (self.open)(true),
            };
            if let Some(lmaps) = worker_registrations.poll(now, &mut open) {
                self.renewed += u64::from(lmaps == AffectedLmaps::All);
                renewals.push(Renewal { worker, lmaps });
            }
        }
        renewals
    }

    /// When [`Registrations::poll`] has something to do.
    #[must_use]
    pub fn next_deadline(&self) -> Nanos {
        let fences = self.unfenced.values().map(|unfenced| unfenced.again);
        self.workers.values().map(WorkerRegistrations::next_deadline).chain(fences).min().unwrap_or(Nanos::NEVER)
    }

    /// How often a worker's device was lost since the start, and how often it was reopened.
    #[must_use]
    pub const fn counts(&self) -> (u64, u64) {
        (self.lost, self.renewed)
    }

    fn of(&mut self, now: Nanos, worker: WorkerId) -> &mut WorkerRegistrations {
        let Self { open, workers, unfenced, .. } = self;
        let unfenced = unfenced.get(&worker);
        workers.entry(worker).or_insert_with(|| {
            let given = match unfenced {
                Some(unfenced) => Err(OpenError::Unfenced(unfenced.why.clone())),
                None => open(false),
            };
            WorkerRegistrations::new(now, given)
        })
    }

    /// Gives up a worker's device with all its registrations. A device is opened again later.
    fn lose(&mut self, now: Nanos, worker: WorkerId, why: &str) {
        self.lost += 1;
        if let Some(device) =
            self.workers.get_mut(&worker).and_then(|worker_registrations| worker_registrations.lose(now, why))
        {
            self.end(now, worker, device);
        }
    }

    /// Fences a worker for good, now or as soon as its device complies.
    fn end(&mut self, now: Nanos, worker: WorkerId, mut device: Box<dyn WorkerDevice>) {
        if let Err(error) = device.revoke() {
            let why = chain(&error);
            let mut fence = FENCE;
            let again = now.plus(fence.pause(NO_JITTER));
            self.unfenced.insert(worker, UnfencedWorker { device, why, fence, again });
        }
    }
}

impl UnfencedWorker {
    /// Retries the fence.
    fn is_over(&mut self, now: Nanos) -> bool {
        match self.device.revoke() {
            Ok(()) => true,
            Err(error) => {
                (self.why, self.again) = (chain(&error), now.plus(self.fence.pause(NO_JITTER)));
                false
            }
        }
    }
}

impl WorkerRegistrations {
    fn new(now: Nanos, given: Result<Box<dyn WorkerDevice>, OpenError>) -> Self {
        let mut reopen = REOPEN;
        let access = match given {
            Ok(device) => Access::Open(device),
            Err(error) => Access::Lost { why: chain(&error), again: now.plus(reopen.pause(NO_JITTER)) },
        };
        Self {
            access,
            reopen,
            is_stale: false,
            refusals: 0,
            missing: BTreeMap::new(),
            register: REGISTER,
            again: Nanos::NEVER,
            after: (RegionId(0), LmapId(0)),
        }
    }

    fn fill(
        &mut self,
        now: Nanos,
        lmap: &mut proto::Lmap,
        memories: &BTreeMap<RegionId, Arc<AcceptedRegion>>,
    ) -> Vec<FailedRegistration> {
        let id = LmapId(lmap.lmap);
        self.missing.retain(|(_, lmap), _| *lmap != id);
        let mut failed = Vec::new();
        for described in lmap.replicas.iter_mut().flat_map(|replica| &mut replica.regions) {
            let region = RegionId(described.region);
            // Already dropped: the change that says so follows.
            let Some(memory) = memories.get(&region) else { continue };
            let registered_region = match &mut self.access {
                Access::Open(device) => device.register(region, memory),
                // All LMAPs are sent again when the device is reopened.
                Access::Lost { why, .. } => {
                    failed.push((region, why.clone()));
                    continue;
                }
            };
            match registered_region {
                Ok(RegisteredRegion { address, rkey }) => (described.address, described.rkey) = (address, rkey),
                Err(error) => {
                    self.missing.insert((region, id), Arc::clone(memory));
                    failed.push((region, chain(&error)));
                }
            }
        }
        if !self.missing.is_empty() && self.again == Nanos::NEVER {
            self.again = now.plus(self.register.pause(NO_JITTER));
        }
        failed
    }

    /// Our end; or why there is none, and whether to give up the device.
    fn connect(&mut self, psn: PacketSequence, peer: &Endpoint) -> Result<Endpoint, ConnectFailure> {
        let not_now = |why| Err(ConnectFailure { why, is_own_device: false });
        let device = match &mut self.access {
            Access::Lost { why, .. } => return not_now(format!("{why}; retrying")),
            Access::Open(_) if self.is_stale => {
                return not_now("the device was reopened, and regions are still being registered".to_owned());
            }
            Access::Open(device) => device,
        };
        match device.connect(psn, peer) {
            Ok(own) => {
                self.refusals = 0;
                self.reopen.reset();
                Ok(own)
            }
            Err(refused) => {
                self.refusals += 1;
                let is_own_device = refused.is_of_own_device() || self.refusals >= REFUSALS;
                Err(ConnectFailure { why: chain(&refused), is_own_device })
            }
        }
    }

    /// The device to be revoked. There is none until a device is opened again.
    fn lose(&mut self, now: Nanos, why: &str) -> Option<Box<dyn WorkerDevice>> {
        self.refusals = 0;
        self.missing.clear();
        let lost = Access::Lost { why: why.to_owned(), again: now.plus(self.reopen.pause(NO_JITTER)) };
        match core::mem::replace(&mut self.access, lost) {
            Access::Open(device) => Some(device),
            Access::Lost { .. } => None,
        }
    }

    /// Whether the device refused to deregister, and the result of the fence in that case.
    fn deregister(&mut self, region: RegionId) -> (bool, Result<(), FenceError>) {
        self.missing.retain(|(missing, _), _| *missing != region);
        let Access::Open(device) = &mut self.access else { return (false, Ok(())) };
        let before = device.refused_deregistrations();
        let fenced = device.deregister(region);
        (device.refused_deregistrations() > before, fenced)
    }

    fn poll(
        &mut self,
        now: Nanos,
        open: &mut dyn FnMut() -> Result<Box<dyn WorkerDevice>, OpenError>,
    ) -> Option<AffectedLmaps> {
        match &mut self.access {
            Access::Lost { again, .. } if *again > now => None,
            Access::Lost { .. } => match open() {
                Ok(device) => {
                    (self.access, self.is_stale) = (Access::Open(device), true);
                    Some(AffectedLmaps::All)
                }
                Err(error) => {
                    self.access = Access::Lost { why: chain(&error), again: now.plus(self.reopen.pause(NO_JITTER)) };
                    None
                }
            },
            Access::Open(device) if self.again <= now => {
                let mut registered = BTreeSet::new();
                let behind =
                    self.missing.range((Excluded(self.after), Unbounded)).chain(self.missing.range(..=self.after));
                for (&needed, memory) in behind.take(ROUND) {
                    self.after = needed;
                    if device.register(needed.0, memory).is_ok() {
                        registered.insert(needed.0);
                    }
                }
                let gone = self.missing.extract_if(.., |(region, _), _| registered.contains(region));
                let lmaps: BTreeSet<_> = gone.map(|((_, lmap), _)| lmap).collect();
                if !lmaps.is_empty() {
                    self.register.reset();
                }
                self.again =
                    if self.missing.is_empty() { Nanos::NEVER } else { now.plus(self.register.pause(NO_JITTER)) };
                (!lmaps.is_empty()).then_some(AffectedLmaps::These(lmaps))
            }
            Access::Open(_) => None,
        }
    }

    fn next_deadline(&self) -> Nanos {
        match &self.access {
            Access::Lost { again, .. } => *again,
            Access::Open(_) if self.missing.is_empty() => Nanos::NEVER,
            Access::Open(_) => self.again,
        }
    }
}
