//! Regions that workers cannot read by RDMA, and workers that are not fenced. Both are listed in the status.

use std::collections::{BTreeMap, BTreeSet};

use wire::id::{LmapId, RegionId, WorkerId};
use wire::time::Nanos;

use super::state::ControlPlane;

/// Regions listed one by one in the status.
const NAMED: usize = 16;

impl ControlPlane {
    /// The edge registered the regions of an LMAP for a worker that reads by RDMA, except those in `but`, for the given
    /// reasons. The edge retries them and then calls [`ControlPlane::resend`].
    pub fn regions_registered(&mut self, worker: WorkerId, lmap: LmapId, but: Vec<(RegionId, String)>) {
        self.counters.unregistered_regions += but.len() as u64;
        // By now the LMAP may run elsewhere, or nowhere.
        let runs = self.lmaps.get(&lmap).is_some_and(|known| known.is_on(worker));
        if runs {
            self.rdma.registered(worker, lmap, but);
        } else {
            self.rdma.forget(worker, lmap);
        }
    }

    /// Sends the configuration of a worker's LMAPs again with the next poll (`lmaps`; all if `None`): addresses or keys
    /// of their regions changed.
    pub fn resend(&mut self, now: Nanos, worker: WorkerId, lmaps: Option<&BTreeSet<LmapId>>) {
        let its = self.lmaps.values().filter(|lmap| lmap.is_on(worker)).map(|lmap| lmap.id);
        let its: Vec<LmapId> = its.filter(|id| lmaps.is_none_or(|lmaps| lmaps.contains(id))).collect();
        for id in its {
            self.changed_now(id, now);
        }
    }

    /// Sets the workers that their devices did not fence, with the reasons. They may still read their regions, so the
    /// edge gives no slots back meanwhile.
    pub fn set_unfenced(&mut self, unfenced: BTreeMap<WorkerId, String>) {
        self.rdma.set_unfenced(unfenced);
    }

    /// A status line for each worker that is not fenced.
    pub(super) fn unfenced(&self) -> impl Iterator<Item = String> {
        self.rdma.unfenced_workers().map(|(worker, why)| {
            format!(
                "{worker} cannot be fenced from RDMA, so no service gets slots back: {why}; retrying; a restart of the host agent fences it"
            )
        })
    }

    /// Status lines for unreadable regions, up to [`NAMED`].
    pub(super) fn unreadable(&self) -> Vec<String> {
        let all = self.rdma.unregistered_regions().map(|(worker, lmap, (region, why))| {
            let service = self.lmaps.get(&lmap).map(|lmap| lmap.service.to_string()).unwrap_or_default();
            format!("{worker}: {region} of {service} cannot be read: {why}")
        });
        let mut lines: Vec<String> = all.take(NAMED).collect();
        let more = self.rdma.unregistered() - lines.len();
        if more > 0 {
            lines.push(format!("{more} more regions cannot be read"));
        }
        lines
    }
}
