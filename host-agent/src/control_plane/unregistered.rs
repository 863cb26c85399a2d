//! Regions that cannot be read by RDMA, and those that can and must not: shown as long as that is so, and told again when it may be otherwise.

use std::collections::{BTreeMap, BTreeSet};

use wire::id::{LmapId, RegionId, WorkerId};
use wire::time::Nanos;

use super::ControlPlane;

/// So many of them are named in the status.
const NAMED: usize = 16;

/// Those that each worker was told of without a key, by LMAP, and why.
#[derive(Debug, Default)]
pub(super) struct Unregistered(BTreeMap<(WorkerId, LmapId), Vec<(RegionId, String)>>);

impl Unregistered {
    pub(super) fn len(&self) -> usize {
        self.0.values().map(Vec::len).sum()
    }

    /// Nobody reads for this LMAP any more.
    pub(super) fn forget_lmap(&mut self, lmap: LmapId) {
        self.0.retain(|(_, of), _| *of != lmap);
    }

    /// This worker reads nothing any more.
    pub(super) fn forget_worker(&mut self, worker: WorkerId) {
        self.0.retain(|(of, _), _| *of != worker);
    }
}

impl ControlPlane {
    /// The edge has registered the regions of an LMAP for a worker that reads by RDMA, all but these, for the reasons given. It tries them
    /// again by itself, and then calls [`ControlPlane::tell_again`].
    pub fn regions_registered(&mut self, worker: WorkerId, lmap: LmapId, but: Vec<(RegionId, String)>) {
        self.counters.unregistered_regions += but.len() as u64;
        // It may run elsewhere, or nowhere, by now.
        let runs = self.lmaps.get(&lmap).is_some_and(|known| known.worker == Some(worker));
        if but.is_empty() || !runs {
            self.unregistered.0.remove(&(worker, lmap));
        } else {
            self.unregistered.0.insert((worker, lmap), but);
        }
    }

    /// What a worker was told of the regions of its LMAPs (of these, or of all if `None`) holds no more, or there is more to be told: it is
    /// told again with the next poll.
    pub fn tell_again(&mut self, now: Nanos, worker: WorkerId, lmaps: Option<&BTreeSet<LmapId>>) {
        let its = self.lmaps.values().filter(|lmap| lmap.worker == Some(worker)).map(|lmap| lmap.id);
        let its: Vec<LmapId> = its.filter(|id| lmaps.is_none_or(|lmaps| lmaps.contains(id))).collect();
        for id in its {
            self.changed_now(id, now);
        }
    }

    /// All workers that their devices do not shut out, and why: they may still read what they had. The edge gives no slots back meanwhile.
    pub fn set_unfenced(&mut self, unfenced: BTreeMap<WorkerId, String>) {
        self.unfenced = unfenced;
    }

    /// A line for each worker that cannot be shut out.
    pub(super) fn unfenced(&self) -> impl Iterator<Item = String> {
        self.unfenced.iter().map(|(worker, why)| {
            format!(
                "{worker} cannot be shut out from RDMA, so that no service gets slots back: {why}; it is tried again, and a restart of the host agent ends it"
            )
        })
    }

    /// A line for each region that cannot be read, up to a bound.
    pub(super) fn unreadable(&self) -> Vec<String> {
        let all = self.unregistered.0.iter().flat_map(|((worker, lmap), but)| {
            let service = self.lmaps.get(lmap).map(|lmap| lmap.service.to_string()).unwrap_or_default();
            but.iter().map(move |(region, why)| format!("{worker}: {region} of {service} cannot be read: {why}"))
        });
        let mut lines: Vec<String> = all.take(NAMED).collect();
        let more = self.unregistered.len() - lines.len();
        if more > 0 {
            lines.push(format!("{more} more regions cannot be read"));
        }
        lines
    }
}
