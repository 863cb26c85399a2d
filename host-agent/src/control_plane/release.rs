//! Releases of slots and regions. Each waits until every worker has acknowledged an epoch without it, or was fenced.

use std::collections::BTreeMap;

use wire::id::{Epoch, LmapId, Owner, RegionId, WorkerId};
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

/// A release that waits until the changes of these LMAPs are sent. Only then the epochs to be acknowledged are known.
#[derive(Debug)]
struct UnsentRelease {
    lmaps: Vec<LmapId>,
    release: Release,
}

/// All releases that workers have yet to hear of, or to acknowledge.
#[derive(Debug, Default)]
pub struct Releases {
    unsent: Vec<UnsentRelease>,
    sent: Vec<PendingRelease>,
}

impl Releases {
    /// Keeps `release` until every worker that may know one of `lmaps` has forgotten it.
    pub fn defer(&mut self, release: Release, lmaps: Vec<LmapId>) {
        self.unsent.push(UnsentRelease { lmaps, release });
    }

    /// Changes were sent, but those of LMAPs that are `due`. `outstanding` says which epochs of which workers are to be
    /// acknowledged for some LMAPs. Returns what no worker knows.
    #[must_use]
    pub fn changes_sent(
        &mut self,
        due: impl Fn(LmapId) -> bool,
        outstanding: impl Fn(&[LmapId]) -> BTreeMap<WorkerId, Epoch>,
    ) -> Vec<Release> {
        let is_sent = |unsent: &mut UnsentRelease| !unsent.lmaps.iter().any(|&lmap| due(lmap));
        let sent: Vec<UnsentRelease> = self.unsent.extract_if(.., is_sent).collect();
        sent.into_iter().filter_map(|UnsentRelease { lmaps, release }| self.add(release, outstanding(&lmaps))).collect()
    }

    /// Keeps `release` until each of `workers` has acknowledged its epoch. With no workers, returns it at once.
    fn add(&mut self, release: Release, workers: BTreeMap<WorkerId, Epoch>) -> Option<Release> {
        if workers.is_empty() {
            return Some(release);
        }
        self.sent.push(PendingRelease { release, workers });
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
        self.unsent.len() + self.sent.len()
    }

    fn settle(&mut self, forget: impl Fn(&mut BTreeMap<WorkerId, Epoch>)) -> Vec<Release> {
        self.sent
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
    fn nothing_is_released_before_the_changes_of_its_lmaps_are_sent() {
        let mut releases = Releases::default();
        releases.defer(REGION, vec![LmapId(1), LmapId(2)]);
        let known = |lmaps: &[LmapId]| lmaps.iter().map(|lmap| (WorkerId(0), Epoch(lmap.0.into()))).collect();

        assert_eq!(releases.changes_sent(|lmap| lmap == LmapId(2), known), []);
        assert_eq!(releases.changes_sent(|_| false, known), []);
        assert_eq!(releases.len(), 1, "now the worker has to acknowledge");
        assert_eq!(releases.acknowledged(WorkerId(0), Epoch(2)), [REGION]);

        releases.defer(REGION, vec![LmapId(3)]);
        assert_eq!(releases.changes_sent(|_| false, |_| BTreeMap::new()), [REGION], "no worker knows it");
    }

    #[test]
    fn what_no_worker_knows_is_released_at_once() {
        assert_eq!(Releases::default().add(REGION, BTreeMap::new()), Some(REGION));
    }
}
