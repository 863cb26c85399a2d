//! One NIC worker in the control plane: its session, its epochs, and the LMAPs that it may know.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use agent_runtime::access::Identity;
use wire::id::{Epoch, Incarnation, LmapId};
use wire::name::ServiceName;
use wire::proto::control as proto;
use wire::time::Nanos;

use super::action::ConnectionId;

/// The latest message about an LMAP to a session, and its epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentLmap {
    pub epoch: Epoch,
    /// True: a configuration. False: its removal.
    pub set: bool,
}

/// An operator's order to take all LMAPs off a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drain {
    /// The operator who gave it.
    pub by: String,
    /// Whether LMAPs move that lose what they have learnt by it, or end if no other worker takes them.
    pub forced: bool,
}

/// Whether a worker is about to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departure {
    /// It is not.
    No,
    /// It said so: its LMAPs move to other workers, and it gets no others.
    Announced,
    /// It was told that it may.
    Granted,
}

/// What a worker takes the heartbeat words of regions for that are sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampledWords {
    /// Counts of samples, at a pace that does not change.
    Counts,
    /// When they were taken.
    Times,
}

/// A run of a worker, from its hello until it is fenced. It may lose its connection and reconnect.
#[derive(Debug)]
pub struct Session {
    pub incarnation: Incarnation,
    /// Who runs it.
    pub identity: Identity,
    pub transport: String,
    /// Whether the lowest share can be changed while it is connected.
    pub takes_lowest_share: bool,
    /// Whether it hands over what its detectors have learnt.
    pub hands_over_models: bool,
    /// Whether it can be told which streams of packets to measure.
    pub takes_streams: bool,
    /// Interfaces that it reads for such streams at most.
    pub stream_interfaces: u32,
    /// What it makes of values that are sampled.
    pub sampled_words: SampledWords,
    /// The list of streams that it was told last, over this connection.
    pub streams_sent: Option<u64>,
    /// The release that it is of.
    pub version: String,
    /// What it says that its configuration leaves open: printable, and bounded.
    pub warnings: Vec<String>,
    /// The protocol of the session.
    pub protocol: u32,
    /// Whether it is about to end.
    pub departure: Departure,
    pub connection: Option<ConnectionId>,
    /// Time of its latest message.
    pub last_message: Nanos,
    pub acknowledged: Epoch,
    pub lmaps_sent: BTreeMap<LmapId, SentLmap>,
    /// Services that it could go on with, from before it was welcomed; at most as many as a worker has LMAPs.
    pub retained: BTreeSet<ServiceName>,
    pub counters: proto::WorkerCounters,
    /// What it said last of its memory; `None`: nothing yet.
    pub account: Option<proto::MemoryAccount>,
}

/// A worker number, and its runs.
#[derive(Debug)]
pub struct Worker {
    /// The last epoch given out. Continues over sessions, so that epochs are unique.
    pub epoch: Epoch,
    pub session: Option<Session>,
    /// An operator's order, for all runs.
    pub drain: Option<Drain>,
    fenced: VecDeque<Incarnation>,
}

impl Worker {
    /// Number of fenced runs remembered.
    const FENCED: usize = 16;

    pub const fn new() -> Self {
        Self { epoch: Epoch::NONE, session: None, drain: None, fenced: VecDeque::new() }
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

    /// Whether it has a connection.
    pub fn is_connected(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.connection.is_some())
    }

    /// Whether LMAPs may be placed on it.
    pub fn takes_lmaps(&self) -> bool {
        self.is_connected() && !self.leaves() && self.drain.is_none()
    }

    /// Whether it is about to end.
    pub fn leaves(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.departure != Departure::No)
    }

    /// Whether it hands over what its detectors have learnt, and goes on with what others have.
    pub fn hands_over_models(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.hands_over_models)
    }

    /// Whether it could go on with a service where it was when it was welcomed.
    pub fn retains(&self, service: &ServiceName) -> bool {
        self.session.as_ref().is_some_and(|session| session.retained.contains(service))
    }

    /// Whether it may have the configuration of `lmap`.
    pub fn knows(&self, lmap: LmapId) -> bool {
        let sent = self.session.as_ref().and_then(|session| session.lmaps_sent.get(&lmap));
        sent.is_some_and(|sent| sent.set)
    }

    /// Whether it was sent the configuration of `lmap`, and has not acknowledged its removal.
    pub fn may_know(&self, lmap: LmapId) -> bool {
        self.session.as_ref().is_some_and(|session| session.lmaps_sent.contains_key(&lmap))
    }

    /// The connection of its session.
    pub fn connection(&self) -> Option<ConnectionId> {
        self.session.as_ref()?.connection
    }

    /// Gives out the next epoch, for a configuration (`set`) or the removal of `lmap`.
    pub fn next_epoch(&mut self, lmap: LmapId, set: bool) -> Option<Epoch> {
        let session = self.session.as_mut()?;
        self.epoch = self.epoch.next();
        session.lmaps_sent.insert(lmap, SentLmap { epoch: self.epoch, set });
        Some(self.epoch)
    }

    /// The epoch of the latest message about `lmap`, if it is not acknowledged yet.
    pub fn outstanding(&self, lmap: LmapId) -> Option<Epoch> {
        let session = self.session.as_ref()?;
        session.lmaps_sent.get(&lmap).map(|known| known.epoch).filter(|&epoch| epoch > session.acknowledged)
    }
}

/// Result of an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acknowledgement {
    /// A new epoch is in effect.
    New,
    /// The epoch was acknowledged before.
    Repeated,
    /// The epoch was never given out.
    Unknown,
}

impl Worker {
    /// The worker acknowledges all epochs up to `epoch`.
    pub fn acknowledge(&mut self, epoch: Epoch) -> Acknowledgement {
        let last = self.epoch;
        let Some(session) = &mut self.session else {
            return Acknowledgement::Unknown;
        };
        if epoch > last {
            return Acknowledgement::Unknown;
        }
        if epoch <= session.acknowledged {
            return Acknowledgement::Repeated;
        }
        session.acknowledged = epoch;
        session.lmaps_sent.retain(|_, known| known.set || known.epoch > epoch);
        Acknowledgement::New
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker() -> Worker {
        let mut worker = Worker::new();
        worker.session = Some(Session {
            incarnation: Incarnation(1),
            identity: Identity::Anyone,
            takes_lowest_share: true,
            hands_over_models: true,
            takes_streams: true,
            stream_interfaces: 0,
            sampled_words: SampledWords::Times,
            streams_sent: None,
            version: String::new(),
            warnings: Vec::new(),
            protocol: 1,
            departure: Departure::No,
            transport: "shm".into(),
            connection: Some(ConnectionId(1)),
            last_message: Nanos::ZERO,
            acknowledged: Epoch::NONE,
            lmaps_sent: BTreeMap::new(),
            retained: BTreeSet::new(),
            counters: proto::WorkerCounters::default(),
            account: None,
        });
        worker
    }

    #[test]
    fn a_removed_lmap_is_known_until_its_removal_is_acknowledged() {
        let mut worker = worker();
        worker.next_epoch(LmapId(1), true);
        worker.next_epoch(LmapId(1), false);

        assert_eq!(worker.acknowledge(Epoch(1)), Acknowledgement::New);
        assert_eq!(worker.outstanding(LmapId(1)), Some(Epoch(2)));

        assert_eq!(worker.acknowledge(Epoch(2)), Acknowledgement::New);
        assert_eq!(worker.outstanding(LmapId(1)), None);
        assert!(worker.session.unwrap().lmaps_sent.is_empty());
    }

    #[test]
    fn an_epoch_that_was_never_given_out_cannot_be_acknowledged() {
        let mut worker = worker();
        worker.next_epoch(LmapId(1), true);

        assert_eq!(worker.acknowledge(Epoch(2)), Acknowledgement::Unknown);
        assert_eq!(worker.acknowledge(Epoch(1)), Acknowledgement::New);
        assert_eq!(worker.acknowledge(Epoch(1)), Acknowledgement::Repeated);
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
