//! The regions of one LMAP: what each fetch says of their headers and of their replicas' lives.

use std::collections::BTreeMap;

use transport::{FetchStatus, RegionBuffer, RegionError};
use wire::control::{LmapSpec, RegionSpec};
use wire::id::{Generation, RegionId, ReplicaId};
use wire::layout::{Header, Slot};
use wire::time::Nanos;

use crate::liveness::{Change, Liveness};
use crate::outbox::Outbox;
use crate::reading::Look;

/// Samples of regions that were not used, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Discarded {
    /// The layout changed since the fetch before.
    pub(crate) generation: u64,
    /// The header is none.
    pub(crate) header: u64,
    /// Not attached, not fetched, or the whole batch failed.
    pub(crate) unread: u64,
}

impl Discarded {
    /// What was discarded between `before` and `self`.
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

/// Whether the reader knows a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    /// It has not said so yet: the replica is not judged by this region.
    Waiting,
    Attached,
    /// It could not attach it so far: from now on the replica's silence counts.
    Failed,
}

/// What is known of one region.
#[derive(Clone, Copy, Debug)]
struct Region {
    spec: RegionSpec,
    replica: usize,
    access: Access,
    generation: Option<Generation>,
    heartbeat: Option<u64>,
    /// Its layout changed while nobody could say how: not to be read until it is configured anew.
    stale: bool,
    /// The last fetch failed.
    failing: bool,
    /// Its heartbeat word has changed, so that it tells when the region is written.
    beats: bool,
}

#[derive(Clone, Copy, Debug)]
struct Replica {
    id: ReplicaId,
    liveness: Liveness,
}

/// The regions of one LMAP, with a buffer for each.
#[derive(Debug)]
pub(crate) struct Regions {
    all: Vec<Region>,
    replicas: Vec<Replica>,
    signs: Vec<Option<bool>>,
    looks: Vec<Look>,
    pub(crate) buffers: Vec<RegionBuffer>,
    pub(crate) discarded: Discarded,
    /// A replica without a heartbeat for so long is silent.
    limit: Nanos,
}

/// Words of a header.
const HEADER_WORDS: usize = Slot(0).word();

/// Where the last slot in use of each region ends, in words from its start: nothing behind it needs to be fetched, and a page has 504 slots.
fn ends(spec: &LmapSpec) -> BTreeMap<RegionId, usize> {
    let slots: BTreeMap<_, _> = spec.metrics.iter().map(|metric| (metric.id, metric.series.kind.slots())).collect();
    let mut ends = BTreeMap::new();
    for place in spec.replicas.iter().flat_map(|replica| &replica.places) {
        let Some(slots) = slots.get(&place.metric) else { continue };
        let end = ends.entry(place.region).or_insert(HEADER_WORDS);
        *end = (place.first.word() + *slots as usize).max(*end);
    }
    ends
}

/// What a tick found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// At least one region brought values.
    pub(crate) fresh: bool,
    /// A replica fell silent or speaks again.
    pub(crate) changed: bool,
}

impl Regions {
    /// The regions of `spec`. Allocates their buffers.
    pub(crate) fn new(spec: &LmapSpec, silent_heartbeats: u32) -> Self {
        let mut regions = Vec::new();
        for (replica, of) in spec.replicas.iter().enumerate() {
            regions.extend(of.regions.iter().map(|spec| Region {
                spec: *spec,
                replica,
                access: Access::Waiting,
                generation: None,
                heartbeat: None,
                stale: false,
                failing: false,
                beats: false,
            }));
        }
        let ends = ends(spec);
        let buffer = |region: &Region| {
            RegionBuffer::for_first(region.spec.id, ends.get(&region.spec.id).copied().unwrap_or(HEADER_WORDS))
        };
        let replica = |id| Replica { id, liveness: Liveness::default() };
        Self {
            buffers: regions.iter().map(buffer).collect(),
            looks: vec![Look::Unread; regions.len()],
            signs: vec![None; spec.replicas.len()],
            replicas: spec.replicas.iter().map(|of| replica(of.id)).collect(),
            all: regions,
            discarded: Discarded::default(),
            limit: Nanos(spec.heartbeat.0.saturating_mul(u64::from(silent_heartbeats))),
        }
    }

    /// Goes on with what `old` knew of the regions and replicas that are still there.
    pub(crate) fn take_over(&mut self, old: &Self) {
        self.discarded = old.discarded;
        let regions: BTreeMap<_, _> = old.all.iter().map(|region| (region.spec.id, region)).collect();
        for region in &mut self.all {
            if let Some(old) = regions.get(&region.spec.id) {
                *region = Region { spec: region.spec, replica: region.replica, stale: false, ..**old };
            }
        }
        let replicas: BTreeMap<_, _> = old.replicas.iter().map(|replica| (replica.id, replica.liveness)).collect();
        for replica in &mut self.replicas {
            if let Some(liveness) = replicas.get(&replica.id) {
                replica.liveness = *liveness;
            }
        }
    }

    /// Whether these replicas are those of `other`.
    pub(crate) fn same_replicas(&self, other: &Self) -> bool {
        self.replicas.iter().map(|replica| replica.id).eq(other.replicas.iter().map(|replica| replica.id))
    }

    /// Which region is which, for [`Columns`](crate::columns::Columns).
    pub(crate) fn places(&self) -> BTreeMap<RegionId, usize> {
        self.all.iter().enumerate().map(|(at, region)| (region.spec.id, at)).collect()
    }

    pub(crate) fn specs(&self) -> impl Iterator<Item = &RegionSpec> {
        self.all.iter().map(|region| &region.spec)
    }

    /// Whether the reader knows `id` already.
    pub(crate) fn set_attached(&mut self, id: RegionId, attached: bool) {
        for region in self.all.iter_mut().filter(|region| region.spec.id == id) {
            region.access = match region.access {
                _ if attached => Access::Attached,
                Access::Attached => Access::Waiting,
                before => before,
            };
        }
    }

    /// The reader has attached `id`, or has failed to.
    pub(crate) fn attached(&mut self, id: RegionId, attached: bool) {
        for region in self.all.iter_mut().filter(|region| region.spec.id == id) {
            region.access = if attached { Access::Attached } else { Access::Failed };
        }
    }

    /// The places of the regions that can be fetched.
    pub(crate) fn to_fetch(&self) -> impl Iterator<Item = usize> {
        self.all.iter().enumerate().filter(|(_, region)| region.access == Access::Attached).map(|(at, _)| at)
    }

    /// Judges headers and lives after a fetch. `batch` is false if it failed as a whole, which says nothing of anyone's life; `alone` true if
    /// no host agent could say that a layout has changed. Never allocates, unless a region fails for the first time.
    pub(crate) fn check(&mut self, now: Nanos, batch: bool, alone: bool, outbox: &mut Outbox) -> Found {
        self.signs.fill(None);
        for ((region, buffer), look) in self.all.iter_mut().zip(&self.buffers).zip(&mut self.looks) {
            let (found, sign) = region.check(buffer, batch, alone, &mut self.discarded, outbox);
            *look = found;
            let tells = batch && region.tells_of_life(buffer);
            if let Some(known) = self.signs.get_mut(region.replica).filter(|_| tells) {
                *known = Some(known.unwrap_or(false) | sign);
            }
        }
        self.without_heartbeat();
        let mut found = Found::default();
        for (replica, sign) in self.replicas.iter_mut().zip(&self.signs) {
            let change = sign.map_or(Change::None, |sign| replica.liveness.look(now, sign, self.limit));
            found.changed |= change != Change::None;
        }
        for (region, look) in self.all.iter().zip(&mut self.looks) {
            let silent = self.replicas.get(region.replica).is_some_and(|replica| replica.liveness.is_silent());
            if silent && region.spec.heartbeat {
                *look = Look::Silent;
            }
            found.fresh |= matches!(look, Look::Fresh | Look::Sampled(_));
        }
        found
    }

    /// A replica without any heartbeat word lives as long as it can be read.
    fn without_heartbeat(&mut self) {
        for (replica, sign) in self.signs.iter_mut().enumerate().filter(|(_, sign)| **sign == Some(false)) {
            let of = |region: &&Region| region.replica == replica;
            if !self.all.iter().filter(of).any(|region| region.spec.heartbeat) {
                let looks = self.all.iter().zip(&self.looks);
                *sign = Some(
                    looks
                        .filter(|(region, _)| of(region))
                        .any(|(_, look)| matches!(look, Look::Fresh | Look::Sampled(_))),
                );
            }
        }
    }

    /// How each region came out of the last check.
    pub(crate) fn looks(&self) -> &[Look] {
        &self.looks
    }

    /// The replicas that are silent.
    pub(crate) fn silent(&self) -> impl Iterator<Item = ReplicaId> {
        self.replicas.iter().filter(|replica| replica.liveness.is_silent()).map(|replica| replica.id)
    }

    /// Whether there is a replica, and all of them are silent.
    pub(crate) fn all_silent(&self) -> bool {
        !self.replicas.is_empty() && self.replicas.iter().all(|replica| replica.liveness.is_silent())
    }
}

impl Region {
    /// Whether the fetch can have told if the replica lives: what was lost on the way there is no silence.
    fn tells_of_life(&self, buffer: &RegionBuffer) -> bool {
        self.access != Access::Waiting && buffer.status != FetchStatus::Failed(RegionError::Interrupted)
    }

    /// How the region came out of the fetch, and whether its heartbeat has changed.
    fn check(
        &mut self,
        buffer: &RegionBuffer,
        batch: bool,
        alone: bool,
        discarded: &mut Discarded,
        outbox: &mut Outbox,
    ) -> (Look, bool) {
        let asked = batch && self.access == Access::Attached;
        if !(asked && matches!(buffer.status, FetchStatus::Fetched)) {
            if let (FetchStatus::Failed(error), true, false) = (&buffer.status, asked, self.failing) {
                outbox.problem(self.spec.id, error.to_string());
                self.failing = true;
            }
            discarded.unread += 1;
            return (Look::Unread, false);
        }
        self.failing = false;
        let Ok(header) = Header::decode(&buffer.words) else {
            discarded.header += 1;
            return (Look::Discarded, false);
        };
        let before = self.heartbeat.replace(header.heartbeat);
        let beat = before != Some(header.heartbeat);
        let sign = self.spec.heartbeat && beat;
        self.beats |= beat && before.is_some();
        let changed = self.generation.replace(header.generation).is_some_and(|before| before != header.generation);
        self.stale |= changed && alone;
        if changed || self.stale {
            discarded.generation += 1;
            return (Look::Discarded, sign);
        }
        // The heartbeat word of a region that is not the replica's own counts how often the host agent has written it.
        let is_sampled = !self.spec.heartbeat && self.beats;
        (if is_sampled { Look::Sampled(header.heartbeat) } else { Look::Fresh }, sign)
    }
}
