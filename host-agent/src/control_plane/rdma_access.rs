//! What is wrong with the access of workers that read by RDMA.

use std::collections::BTreeMap;

use wire::id::{LmapId, RegionId, WorkerId};

/// Regions that workers cannot read by RDMA, and workers that are not fenced.
#[derive(Debug, Default)]
pub(super) struct RdmaAccess {
    /// Regions without a key in the configuration last sent, by worker and LMAP, with the reason.
    unregistered: BTreeMap<(WorkerId, LmapId), Vec<(RegionId, String)>>,
    /// Workers that their devices did not fence, and why.
    unfenced: BTreeMap<WorkerId, String>,
}

impl RdmaAccess {
    /// The regions of an LMAP were registered for a worker, except those in `but`, for the given reasons.
    pub(super) fn registered(&mut self, worker: WorkerId, lmap: LmapId, but: Vec<(RegionId, String)>) {
        if but.is_empty() {
            self.forget(worker, lmap);
        } else {
            self.unregistered.insert((worker, lmap), but);
        }
    }

    /// Sets the workers that their devices did not fence, with the reasons.
    pub(super) fn set_unfenced(&mut self, unfenced: BTreeMap<WorkerId, String>) {
        self.unfenced = unfenced;
    }

    /// Number of regions without a key.
    pub(super) fn unregistered(&self) -> usize {
        self.unregistered.values().map(Vec::len).sum()
    }

    /// The regions without a key, by worker and LMAP, with the reasons.
    pub(super) fn unregistered_regions(&self) -> impl Iterator<Item = (WorkerId, LmapId, &(RegionId, String))> {
        let all = self.unregistered.iter();
        all.flat_map(|(&(worker, lmap), but)| but.iter().map(move |region| (worker, lmap, region)))
    }

    /// Number of workers that are not fenced.
    pub(super) fn unfenced(&self) -> usize {
        self.unfenced.len()
    }

    /// The workers that are not fenced, with the reasons.
    pub(super) fn unfenced_workers(&self) -> impl Iterator<Item = (&WorkerId, &String)> {
        self.unfenced.iter()
    }

    /// The LMAP runs nowhere any more.
    pub(super) fn forget_lmap(&mut self, lmap: LmapId) {
        self.unregistered.retain(|(_, of), _| *of != lmap);
    }

    /// The LMAP does not run on the worker any more.
    pub(super) fn forget(&mut self, worker: WorkerId, lmap: LmapId) {
        self.unregistered.remove(&(worker, lmap));
    }

    /// The worker was fenced.
    pub(super) fn forget_worker(&mut self, worker: WorkerId) {
        self.unregistered.retain(|(of, _), _| *of != worker);
    }
}
