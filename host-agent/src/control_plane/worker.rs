//! What the control plane knows of one NIC worker: its session, its epochs, and which LMAPs it may still know.

use std::collections::{BTreeMap, VecDeque};

use wire::id::{Epoch, Incarnation, LmapId};
use wire::proto::control as proto;
use wire::time::Nanos;

use super::action::ConnectionId;

/// What a session was last told of an LMAP, and in which epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    pub epoch: Epoch,
    /// False: that it is to be forgotten.
    pub set: bool,
}

/// A run of a worker, from its hello until it is fenced; it may lose its connection and come back.
#[derive(Debug)]
pub struct Session {
    pub incarnation: Incarnation,
    pub transport: String,
    /// Whether it can be told another lowest share while it is connected.
    pub takes_lowest_share: bool,
    pub connection: Option<ConnectionId>,
    /// When it was last heard of.
    pub heard: Nanos,
    pub acknowledged: Epoch,
    pub knows: BTreeMap<LmapId, Known>,
    pub counters: proto::WorkerCounters,
}

/// One worker number and the runs behind it.
#[derive(Debug)]
pub struct Worker {
    /// The last epoch that was given out; goes on over sessions, so that an epoch is never ambiguous.
    pub epoch: Epoch,
    pub session: Option<Session>,
    fenced: VecDeque<Incarnation>,
}

impl Worker {
    /// How many fenced runs are remembered.
    const FENCED: usize = 16;

    pub const fn new() -> Self {
        Self { epoch: Epoch::NONE, session: None, fenced: VecDeque::new() }
    }

    pub fn was_fenced(&self, incarnation: Incarnation) -> bool {
        self.fenced.contains(&incarnation)
    }

    /// Ends the session for good.
    pub fn fence(&mut self) -> Option<Session> {
        let session = self.session.take()?;
        if self.fenced.len() == Self::FENCED {
            self.fenced.pop_front();
        }
        self.fenced.push_back(session.incarnation);
        Some(session)
    }

    /// Whether it is there and can be told something.
    pub fn is_connected(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.connection.is_some())
    }

    /// The connection of its session.
    pub fn connection(&self) -> Option<ConnectionId> {
        self.session.as_ref()?.connection
    }

    /// Gives out the next epoch, for telling the session that `lmap` is set or removed.
    pub fn next_epoch(&mut self, lmap: LmapId, set: bool) -> Option<Epoch> {
        let session = self.session.as_mut()?;
        self.epoch = self.epoch.next();
        session.knows.insert(lmap, Known { epoch: self.epoch, set });
        Some(self.epoch)
    }

    /// The epoch in which the session was last told of `lmap`, if it has not acknowledged it yet.
    pub fn outstanding(&self, lmap: LmapId) -> Option<Epoch> {
        let session = self.session.as_ref()?;
        session.knows.get(&lmap).map(|known| known.epoch).filter(|&epoch| epoch > session.acknowledged)
    }
}

/// What an acknowledgement was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acknowledged {
    /// Something new is in effect.
    Now,
    /// Nothing new.
    Before,
    /// An epoch that was never given out.
    Unknown,
}

impl Worker {
    /// Everything up to `epoch` is in effect at the worker.
    pub fn acknowledge(&mut self, epoch: Epoch) -> Acknowledged {
        let last = self.epoch;
        let Some(session) = &mut self.session else {
            return Acknowledged::Unknown;
        };
        if epoch > last {
            return Acknowledged::Unknown;
        }
        if epoch <= session.acknowledged {
            return Acknowledged::Before;
        }
        session.acknowledged = epoch;
        session.knows.retain(|_, known| known.set || known.epoch > epoch);
        Acknowledged::Now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker() -> Worker {
        let mut worker = Worker::new();
        worker.session = Some(Session {
            incarnation: Incarnation(1),
            takes_lowest_share: true,
            transport: "shm".into(),
            connection: Some(ConnectionId(1)),
            heard: Nanos::ZERO,
            acknowledged: Epoch::NONE,
            knows: BTreeMap::new(),
            counters: proto::WorkerCounters::default(),
        });
        worker
    }

    #[test]
    fn a_removed_lmap_is_known_until_its_removal_is_acknowledged() {
        let mut worker = worker();
        worker.next_epoch(LmapId(1), true);
        worker.next_epoch(LmapId(1), false);

        assert_eq!(worker.acknowledge(Epoch(1)), Acknowledged::Now);
        assert_eq!(worker.outstanding(LmapId(1)), Some(Epoch(2)));

        assert_eq!(worker.acknowledge(Epoch(2)), Acknowledged::Now);
        assert_eq!(worker.outstanding(LmapId(1)), None);
        assert!(worker.session.unwrap().knows.is_empty());
    }

    #[test]
    fn an_epoch_that_was_never_given_out_cannot_be_acknowledged() {
        let mut worker = worker();
        worker.next_epoch(LmapId(1), true);

        assert_eq!(worker.acknowledge(Epoch(2)), Acknowledged::Unknown);
        assert_eq!(worker.acknowledge(Epoch(1)), Acknowledged::Now);
        assert_eq!(worker.acknowledge(Epoch(1)), Acknowledged::Before);
    }

    #[test]
    fn a_fenced_run_is_remembered_and_epochs_go_on() {
        let mut worker = worker();
        worker.next_epoch(LmapId(1), true);

        assert!(worker.fence().is_some());

        assert!(worker.was_fenced(Incarnation(1)));
        assert!(!worker.was_fenced(Incarnation(2)));
        assert_eq!(worker.epoch, Epoch(1));
        assert_eq!(worker.next_epoch(LmapId(1), true), None);
    }
}
