//! The regions of one LMAP: checks their headers and their replicas' heartbeats after each fetch.

use std::collections::BTreeMap;

use lmap::prefetch;
use transport::{FetchStatus, RegionBuffer, RegionError, Runs};
use wire::control::{LmapSpec, RegionSpec};
use wire::id::{Generation, RegionId, ReplicaId};
use wire::layout::{Header, UNSAMPLED};
use wire::time::Nanos;

use crate::liveness::{Change, Liveness};
use crate::observation::Observation;
use crate::outbox::Outbox;
use crate::region_claim::{RegionClaim, histogram_bytes, runs};

/// Region samples that were not used, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DiscardCounts {
    /// The layout has changed since the last fetch.
    pub(crate) generation: u64,
    /// The header is invalid.
    pub(crate) header: u64,
    /// The region was not attached or not fetched, or the whole batch failed.
    pub(crate) unread: u64,
}

impl DiscardCounts {
    /// The counts between `before` and `self`.
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            generation: self.generation - before.generation,
            header: self.header - before.header,
            unread: self.unread - before.unread,
        }
    }

    pub(crate) fn add(&mut self, more: Self) {
        self.generation += more.generation;
        self.header += more.header;
        self.unread += more.unread;
    }
}

/// Whether the reader has attached a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    /// The outcome is not known yet. The region does not count for its replica's liveness.
    Pending,
    Attached,
    /// Attaching has failed so far. From now on the replica's silence counts.
    Failed,
}

/// The state of one region.
#[derive(Clone, Copy, Debug)]
struct Region {
    claim: RegionClaim,
    replica: usize,
    access: Access,
    generation: Option<Generation>,
    heartbeat: Option<u64>,
    /// Its layout changed while no host agent was connected. It is not read until it is configured anew.
    stale: bool,
    /// Whether the last fetch failed.
    failing: bool,
    /// Whether its heartbeat word has ever changed, so that it shows when the region is written.
    beats: bool,
}

#[derive(Clone, Copy, Debug)]
struct Replica {
    id: ReplicaId,
    liveness: Liveness,
    /// Whether it was alive in the last check; `None`: its regions say nothing about that.
    alive: Option<bool>,
}

/// The regions of one LMAP, with a buffer for each.
#[derive(Debug)]
pub(crate) struct Regions {
    all: Vec<Region>,
    replicas: Vec<Replica>,
    observations: Vec<Observation>,
    pub(crate) buffers: Vec<RegionBuffer>,
    pub(crate) discarded: DiscardCounts,
    /// A replica without a heartbeat for this long is silent.
    limit: Nanos,
    /// The replicas are of several services.
    pub(crate) several_services: bool,
}

/// The outcome of checking all regions after a fetch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CheckOutcome {
    /// At least one region could be read.
    pub(crate) fresh: bool,
    /// At least one of these may have other values than at the fetch before: its replica writes it at any time, or its
    /// sampler has written it since.
    pub(crate) news: bool,
    /// A replica fell silent, or recovered.
    pub(crate) changed: bool,
}

impl Regions {
    /// Creates the regions of `spec`, and allocates their buffers.
    pub(crate) fn new(spec: &LmapSpec, silent_heartbeats: u32) -> Self {
        let (mut regions, mut buffers) = (Vec::new(), Vec::new());
        let (mut runs, histograms) = (runs(spec), histogram_bytes(spec));
        for (replica, of) in spec.replicas.iter().enumerate() {
            for region in &of.regions {
                let runs = runs.remove(&region.id).unwrap_or_default();
                let bytes = runs.page_bytes() + histograms.get(&region.id).copied().unwrap_or(0);
                let claim = RegionClaim { spec: *region, owner: of.owner, bytes };
                buffers.push(RegionBuffer::for_runs(region.id, runs));
                regions.push(Region {
                    claim,
                    replica,
                    access: Access::Pending,
                    generation: None,
                    heartbeat: None,
                    stale: false,
                    failing: false,
                    beats: false,
                });
            }
        }
        let replica = |id| Replica { id, liveness: Liveness::default(), alive: None };
        Self {
            buffers,
            observations: vec![Observation::Unread; regions.len()],
            replicas: spec.replicas.iter().map(|of| replica(of.id)).collect(),
            all: regions,
            discarded: DiscardCounts::default(),
            limit: Nanos(spec.heartbeat.0.saturating_mul(u64::from(silent_heartbeats))),
            several_services: spec.several_services,
        }
    }

    /// Takes over the state that `old` has of regions and replicas that still exist.
    pub(crate) fn take_over(&mut self, old: &Self) {
        self.discarded = old.discarded;
        let regions: BTreeMap<_, _> = old.all.iter().map(|region| (region.claim.spec.id, region)).collect();
        for region in &mut self.all {
            if let Some(old) = regions.get(&region.claim.spec.id) {
                *region = Region { claim: region.claim, replica: region.replica, stale: false, ..**old };
            }
        }
        let replicas: BTreeMap<_, _> = old.replicas.iter().map(|replica| (replica.id, replica.liveness)).collect();
        for replica in &mut self.replicas {
            if let Some(liveness) = replicas.get(&replica.id) {
                replica.liveness = *liveness;
            }
        }
    }

    /// Whether the replicas are those of `other`, in the same order.
    pub(crate) fn same_replicas(&self, other: &Self) -> bool {
        self.replicas.iter().map(|replica| replica.id).eq(other.replicas.iter().map(|replica| replica.id))
    }

    /// The index of each region, and what its buffer holds, for [`Columns`](crate::columns::Columns).
    pub(crate) fn indices(&self) -> BTreeMap<RegionId, (usize, Runs)> {
        self.buffers.iter().enumerate().map(|(at, buffer)| (buffer.region, (at, buffer.runs.clone()))).collect()
    }

    pub(crate) fn claims(&self) -> impl Iterator<Item = &RegionClaim> {
        self.all.iter().map(|region| &region.claim)
    }

    /// Sets whether the reader has attached `id`, without counting a failure.
    pub(crate) fn set_attached(&mut self, id: RegionId, attached: bool) {
        for region in self.all.iter_mut().filter(|region| region.claim.spec.id == id) {
            region.access = match region.access {
                _ if attached => Access::Attached,
                Access::Attached => Access::Pending,
                before => before,
            };
        }
    }

    /// The outcome of an attempt to attach `id`.
    pub(crate) fn attached(&mut self, id: RegionId, attached: bool) {
        for region in self.all.iter_mut().filter(|region| region.claim.spec.id == id) {
            region.access = if attached { Access::Attached } else { Access::Failed };
        }
    }

    /// The indices of the regions that can be fetched.
    pub(crate) fn to_fetch(&self) -> impl Iterator<Item = usize> {
        self.all.iter().enumerate().filter(|(_, region)| region.access == Access::Attached).map(|(at, _)| at)
    }

    /// How many regions are not attached yet.
    pub(crate) fn pending(&self) -> usize {
        self.all.iter().filter(|region| region.access == Access::Pending).count()
    }

    /// Checks headers and liveness after a fetch. `batch` is false if the batch failed as a whole; then liveness is not
    /// judged. `alone` is true if no host agent was connected to announce a new layout. Never allocates, unless a
    /// region fails for the first time.
    pub(crate) fn check(&mut self, now: Nanos, batch: bool, alone: bool, outbox: &mut Outbox) -> CheckOutcome {
        self.replicas.iter_mut().for_each(|replica| replica.alive = None);
        let mut outcome = CheckOutcome::default();
        for ((region, buffer), observation) in self.all.iter_mut().zip(&self.buffers).zip(&mut self.observations) {
            let before = region.heartbeat;
            let (state, alive) = region.check(buffer, batch, alone, &mut self.discarded, outbox);
            *observation = state;
            outcome.news |= match state {
                Observation::Fresh => true,
                Observation::Sampled(_) | Observation::Timed(_) => before != region.heartbeat,
                Observation::Unsampled | Observation::Unread | Observation::Discarded | Observation::Silent => false,
            };
            let counts = batch && region.shows_liveness(buffer);
            if let Some(replica) = self.replicas.get_mut(region.replica).filter(|_| counts) {
                replica.alive = Some(replica.alive.unwrap_or(false) | alive);
            }
        }
        self.without_heartbeat();
        for replica in &mut self.replicas {
            let change = replica.alive.map_or(Change::None, |alive| replica.liveness.observe(now, alive, self.limit));
            outcome.changed |= change != Change::None;
        }
        for (region, observation) in self.all.iter().zip(&mut self.observations) {
            let silent = self.replicas.get(region.replica).is_some_and(|replica| replica.liveness.is_silent());
            if silent && region.claim.spec.heartbeat {
                *observation = Observation::Silent;
            }
            outcome.fresh |= observation.is_read();
        }
        outcome
    }

    /// A replica without any heartbeat word is alive as long as it can be read.
    fn without_heartbeat(&mut self) {
        for (at, replica) in self.replicas.iter_mut().enumerate().filter(|(_, of)| of.alive == Some(false)) {
            let of = |region: &&Region| region.replica == at;
            if !self.all.iter().filter(of).any(|region| region.claim.spec.heartbeat) {
                let observations = self.all.iter().zip(&self.observations);
                let read = observations.filter(|(region, _)| of(region)).any(|(_, observation)| observation.is_read());
                replica.alive = Some(read);
            }
        }
    }

    /// Asks for the memory of the next check, of the first regions.
    pub(crate) fn prefetch(&self) {
        const LINES: usize = 4;
        prefetch(&self.all, LINES);
        prefetch(&self.buffers, LINES);
        prefetch(&self.observations, LINES);
        prefetch(&self.replicas, LINES);
    }

    /// The outcome of each region in the last check.
    pub(crate) fn observations(&self) -> &[Observation] {
        &self.observations
    }

    /// The replicas that are silent.
    pub(crate) fn silent(&self) -> impl Iterator<Item = ReplicaId> {
        self.replicas.iter().filter(|replica| replica.liveness.is_silent()).map(|replica| replica.id)
    }

    /// Whether silence is the state of the LMAP: one replica of its service is silent; or of several services, all
    /// replicas of all. The LMAP of a silent service says so itself.
    pub(crate) fn are_silent(&self) -> bool {
        if self.several_services { self.all_silent() } else { self.silent().next().is_some() }
    }

    /// Whether a heartbeat of a replica is overdue at the last check, and it is not called silent.
    pub(crate) fn misses_heartbeat(&self) -> bool {
        self.replicas.iter().any(|replica| replica.liveness.is_overdue())
    }

    /// Whether fetches between rows may show something: a replica writes a region itself, or a sampler says when it has
    /// written. Others change no faster than rows are due.
    pub(crate) fn may_change_between_rows(&self) -> bool {
        self.all.iter().any(|region| region.claim.spec.heartbeat || region.claim.spec.sample_times)
    }

    /// Whether there are replicas, and all of them are silent.
    pub(crate) fn all_silent(&self) -> bool {
        !self.replicas.is_empty() && self.replicas.iter().all(|replica| replica.liveness.is_silent())
    }
}

impl Region {
    /// Whether the fetch says anything about the replica's liveness. A lost connection does not.
    fn shows_liveness(&self, buffer: &RegionBuffer) -> bool {
        self.access != Access::Pending && buffer.status != FetchStatus::Failed(RegionError::Interrupted)
    }

    /// The outcome of the region's fetch, and whether its heartbeat has changed.
    fn check(
        &mut self,
        buffer: &RegionBuffer,
        batch: bool,
        alone: bool,
        discarded: &mut DiscardCounts,
        outbox: &mut Outbox,
    ) -> (Observation, bool) {
        let was_requested = batch && self.access == Access::Attached;
        if !(was_requested && matches!(buffer.status, FetchStatus::Fetched)) {
            if let (FetchStatus::Failed(error), true, false) = (&buffer.status, was_requested, self.failing) {
                outbox.problem(self.claim.spec.id, error.to_string());
                self.failing = true;
            }
            discarded.unread += 1;
            return (Observation::Unread, false);
        }
        self.failing = false;
        let Ok(header) = Header::decode(&buffer.words) else {
            discarded.header += 1;
            return (Observation::Discarded, false);
        };
        let before = self.heartbeat.replace(header.heartbeat);
        let beat = before != Some(header.heartbeat);
        let alive = self.claim.spec.heartbeat && beat;
        self.beats |= beat && before.is_some();
        let changed = self.generation.replace(header.generation).is_some_and(|before| before != header.generation);
        self.stale |= changed && alone;
        if changed || self.stale {
            discarded.generation += 1;
            return (Observation::Discarded, alive);
        }
        // In a region without the replica's own heartbeat, its sampler tells by the heartbeat word when it wrote, or
        // counts.
        let RegionSpec { heartbeat, sample_times, .. } = self.claim.spec;
        let observation = match (heartbeat, sample_times) {
            (false, true) if header.heartbeat == UNSAMPLED => Observation::Unsampled,
            (false, true) => Observation::Timed(header.heartbeat),
            (false, false) if self.beats => Observation::Sampled(header.heartbeat),
            _ => Observation::Fresh,
        };
        (observation, alive)
    }
}
