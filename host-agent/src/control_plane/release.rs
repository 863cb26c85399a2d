//! Slots and regions that wait until every worker has forgotten them: each has acknowledged an epoch without them, or was fenced.

use std::collections::BTreeMap;

use wire::id::{Epoch, RegionId, WorkerId};
use wire::registration::SlotRun;

use super::action::ConnectionId;

/// What is released.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Held {
    /// A service gets these slots back.
    Runs(ConnectionId, Vec<SlotRun>),
    /// The agent lets go of a region.
    Region(RegionId),
}

#[derive(Debug)]
struct Waiting {
    held: Held,
    /// The epoch that each worker has yet to acknowledge.
    workers: BTreeMap<WorkerId, Epoch>,
}

/// Everything that waits.
#[derive(Debug, Default)]
pub struct Releases(Vec<Waiting>);

impl Releases {
    /// Holds `held` until each of `workers` has acknowledged its epoch. Nothing may be waited for: then it comes out at once.
    pub fn hold(&mut self, held: Held, workers: BTreeMap<WorkerId, Epoch>) -> Option<Held> {
        if workers.is_empty() {
            return Some(held);
        }
        self.0.push(Waiting { held, workers });
        None
    }

    /// `worker` has acknowledged `epoch`.
    #[must_use]
    pub fn acknowledged(&mut self, worker: WorkerId, epoch: Epoch) -> Vec<Held> {
        self.settle(|workers| workers.retain(|&waited, &mut until| waited != worker || until > epoch))
    }

    /// `worker` was fenced: whatever it was told, it can say nothing any more.
    #[must_use]
    pub fn fenced(&mut self, worker: WorkerId) -> Vec<Held> {
        self.settle(|workers| {
            workers.remove(&worker);
        })
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    fn settle(&mut self, forget: impl Fn(&mut BTreeMap<WorkerId, Epoch>)) -> Vec<Held> {
        self.0
            .extract_if(.., |waiting| {
                forget(&mut waiting.workers);
                waiting.workers.is_empty()
            })
            .map(|waiting| waiting.held)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REGION: Held = Held::Region(RegionId(7));

    fn both(epoch: u64) -> BTreeMap<WorkerId, Epoch> {
        BTreeMap::from([(WorkerId(0), Epoch(epoch)), (WorkerId(1), Epoch(epoch))])
    }

    #[test]
    fn nothing_is_released_before_every_worker_has_acknowledged() {
        let mut releases = Releases::default();
        assert_eq!(releases.hold(REGION, both(5)), None);

        assert_eq!(releases.acknowledged(WorkerId(0), Epoch(5)), []);
        assert_eq!(releases.acknowledged(WorkerId(1), Epoch(4)), []);
        assert_eq!(releases.len(), 1);
        assert_eq!(releases.acknowledged(WorkerId(1), Epoch(6)), [REGION]);
        assert_eq!(releases.len(), 0);
    }

    #[test]
    fn a_fenced_worker_is_not_waited_for() {
        let mut releases = Releases::default();
        assert_eq!(releases.hold(REGION, both(5)), None);

        assert_eq!(releases.fenced(WorkerId(1)), []);
        assert_eq!(releases.acknowledged(WorkerId(0), Epoch(5)), [REGION]);
    }

    #[test]
    fn what_nobody_knows_is_released_at_once() {
        assert_eq!(Releases::default().hold(REGION, BTreeMap::new()), Some(REGION));
    }
}
