//! Releases of slots and regions. Each waits until every worker has acknowledged an epoch without it, or was fenced.

use std::collections::BTreeMap;

use wire::id::{Epoch, Owner, RegionId, WorkerId};
use wire::layout::RegionSize;
use wire::registration::SlotRun;

use super::action::ConnectionId;

/// Something to be released.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Release {
    /// Slot runs to give back to a service.
    Runs(ConnectionId, Vec<SlotRun>),
    /// A region to be dropped by the agent, and whose share it is in until then; `None` for a region of the agent.
    Region(RegionId, Option<(Owner, RegionSize)>),
}

#[derive(Debug)]
struct PendingRelease {
    release: Release,
    /// The epoch that each worker has to acknowledge.
    workers: BTreeMap<WorkerId, Epoch>,
}

/// All releases that workers have yet to acknowledge.
#[derive(Debug, Default)]
pub struct Releases(Vec<PendingRelease>);

impl Releases {
    /// Keeps `release` until each of `workers` has acknowledged its epoch. With no workers, returns it at once.
    pub fn add(&mut self, release: Release, workers: BTreeMap<WorkerId, Epoch>) -> Option<Release> {
        if workers.is_empty() {
            return Some(release);
        }
        self.0.push(PendingRelease { release, workers });
        None
    }

    /// `worker` acknowledged `epoch`. Returns what is released by that.
    #[must_use]
    pub fn acknowledged(&mut self, worker: WorkerId, epoch: Epoch) -> Vec<Release> {
        self.settle(|workers| workers.retain(|&waited, &mut until| waited != worker || until > epoch))
    }

    /// `worker` was fenced and is not waited for. Returns what is released by that.
    #[must_use]
    pub fn fenced(&mut self, worker: WorkerId) -> Vec<Release> {
        self.settle(|workers| {
            workers.remove(&worker);
        })
    }

    /// Number of pending releases.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    fn settle(&mut self, forget: impl Fn(&mut BTreeMap<WorkerId, Epoch>)) -> Vec<Release> {
        self.0
            .extract_if(.., |waiting| {
                forget(&mut waiting.workers);
                waiting.workers.is_empty()
            })
            .map(|waiting| waiting.release)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REGION: Release = Release::Region(RegionId(7), None);

    fn both(epoch: u64) -> BTreeMap<WorkerId, Epoch> {
        BTreeMap::from([(WorkerId(0), Epoch(epoch)), (WorkerId(1), Epoch(epoch))])
    }

    #[test]
    fn nothing_is_released_before_every_worker_has_acknowledged() {
        let mut releases = Releases::default();
        assert_eq!(releases.add(REGION, both(5)), None);

        assert_eq!(releases.acknowledged(WorkerId(0), Epoch(5)), []);
        assert_eq!(releases.acknowledged(WorkerId(1), Epoch(4)), []);
        assert_eq!(releases.len(), 1);
        assert_eq!(releases.acknowledged(WorkerId(1), Epoch(6)), [REGION]);
        assert_eq!(releases.len(), 0);
    }

    #[test]
    fn a_fenced_worker_is_not_waited_for() {
        let mut releases = Releases::default();
        assert_eq!(releases.add(REGION, both(5)), None);

        assert_eq!(releases.fenced(WorkerId(1)), []);
        assert_eq!(releases.acknowledged(WorkerId(0), Epoch(5)), [REGION]);
    }

    #[test]
    fn what_no_worker_knows_is_released_at_once() {
        assert_eq!(Releases::default().add(REGION, BTreeMap::new()), Some(REGION));
    }
}
