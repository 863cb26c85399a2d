//! Messages of NIC workers, leases and fencing.

use std::collections::{BTreeMap, BTreeSet};

use agent_runtime::access::Identity;
use wire::control::{OLDEST_PROTOCOL, PROTOCOL, common_protocol};
use wire::id::{Epoch, Incarnation, LmapId, WorkerId};
use wire::printable;
use wire::proto::control as proto;
use wire::proto::control::host_message::Message;
use wire::proto::control::worker_message::Message as FromWorker;
use wire::rdma::{Endpoint, TRANSPORT};
use wire::time::Nanos;

use super::action::{Action, ConnectionId};
use super::state::ControlPlane;
use super::worker::{Acknowledgement, Departure, SampledWords, Session, Worker};

/// Most lines about what a worker leaves open, and most characters of each.
const WARNINGS: (usize, usize) = (16, 256);

/// What a worker says that its configuration leaves open, as far as it is shown.
fn printable_warnings(hello: &proto::WorkerHello) -> Vec<String> {
    let (lines, characters) = WARNINGS;
    let cut = |text: &String| printable::line(&text.chars().take(characters).collect::<String>()).into_owned();
    hello.warnings.iter().take(lines).map(cut).collect()
}

/// Why a worker is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum WorkerRefusal {
    #[error(
        "the worker speaks protocols {0} to {1}, this host agent speaks {OLDEST_PROTOCOL} to {PROTOCOL}: install releases \
         that are closer together"
    )]
    Protocol(u32, u32),
    #[error("worker number {0} is not below the limit of {1}")]
    Number(u32, u32),
    #[error("this run of the worker was fenced: restart the worker")]
    Fenced,
    #[error("worker {0} runs already, as {1}: stop it first, or take another number")]
    Identity(u32, Identity),
    #[error("another run of this worker connected")]
    Superseded,
    #[error("silent for {0}")]
    Lease(Nanos),
    #[error("it left")]
    Left,
    #[error("acknowledged epoch {found}, but the last one sent is {last}")]
    Epoch { found: u64, last: u64 },
    #[error("no common transport: the worker has {0:?}, this host agent has {1:?}")]
    Transport(Vec<String>, Vec<String>),
    #[error("the first message, and only the first, must be a hello")]
    Hello,
}

impl ControlPlane {
    /// The stream of a worker that `identity` runs began with `hello`. A run that is connected, or may come back, is
    /// superseded by its own identity only.
    pub fn worker_connected(
        &mut self,
        now: Nanos,
        connection: ConnectionId,
        identity: &Identity,
        hello: &proto::WorkerHello,
    ) {
        let id = WorkerId(hello.worker);
        if let Err(refusal) = self.check_hello(identity, hello) {
            self.counters.refused_workers += 1;
            return self.refuse_worker(connection, id, &refusal);
        }
        let incarnation = Incarnation(hello.incarnation);
        let worker = self.workers.entry(id).or_insert_with(Worker::new);
        let resumed = worker.session.as_ref().is_some_and(|session| session.incarnation == incarnation);
        let mut taken_over = Vec::new();
        if resumed {
            if let Some(old) = worker.session.as_mut().and_then(|session| session.connection.replace(connection)) {
                self.actions.push(Action::CloseWorker { connection: old });
            }
        } else {
            taken_over = self.fence(id, &WorkerRefusal::Superseded);
            let transport = hello.transports.iter().find(|name| self.settings.transports.contains(name));
            let session = Session {
                incarnation,
                identity: identity.clone(),
                transport: transport.cloned().unwrap_or_default(),
                takes_lowest_share: hello.takes_lowest_share,
                hands_over_models: hello.hands_over_models,
                takes_streams: hello.takes_streams,
                stream_interfaces: hello.stream_interfaces,
                sampled_words: if hello.reads_sample_times { SampledWords::Times } else { SampledWords::Counts },
                streams_sent: None,
                version: hello.version.chars().take(32).collect(),
                warnings: printable_warnings(hello),
                protocol: common_protocol(hello.protocol, hello.oldest_protocol).unwrap_or(PROTOCOL),
                departure: Departure::No,
                connection: Some(connection),
                last_message: now,
                acknowledged: Epoch::NONE,
                lmaps_sent: BTreeMap::new(),
                retained: BTreeSet::new(),
                counters: proto::WorkerCounters::default(),
                account: None,
            };
            self.workers.entry(id).or_insert_with(Worker::new).session = Some(session);
            self.counters.worker_sessions += 1;
        }
        self.renew_lease(id, now);
        self.welcome(id);
        if let Some(session) = self.workers.get_mut(&id).and_then(|worker| worker.session.as_mut()) {
            // What was in flight may be lost.
            session.streams_sent = None;
        }
        self.resend_all(id, &taken_over, now);
        self.share_streams();
        if self.workers.get(&id).is_some_and(|worker| worker.drain.is_some()) {
            // What its earlier run had goes elsewhere now; what this run has follows.
            self.place_unplaced(now);
            self.drain_on(Some(id), now);
        }
        let gathered = now.plus(self.settings.gather);
        self.place_unplaced(gathered);
        if !resumed {
            self.rebalance_at(gathered);
        }
    }

    /// A worker sent `message`. Dropped and counted if the connection is unknown.
    pub fn worker_message(&mut self, now: Nanos, connection: ConnectionId, message: proto::WorkerMessage) {
        let Some(id) = self.worker_at(connection) else {
            self.counters.unexpected_messages += 1;
            return;
        };
        self.renew_lease(id, now);
        match message.message {
            Some(FromWorker::Acknowledgement(acknowledge)) => self.acknowledge(id, Epoch(acknowledge.epoch), now),
            Some(FromWorker::Verdicts(verdicts)) => self.verdicts(id, &verdicts),
            Some(FromWorker::Summary(summary)) => self.summary(id, summary, now),
            Some(FromWorker::Rows(rows)) => self.rows(id, rows),
            Some(FromWorker::RegionProblem(problem)) => {
                self.counters.region_problems += 1;
                let text: String = problem.problem.chars().take(256).collect();
                self.problems.push(&format!("{id}: region-{}: {text}", problem.region));
            }
            Some(FromWorker::LmapProblem(problem)) => self.lmap_problem(id, &problem, now),
            Some(FromWorker::LearntModel(learnt)) => self.take_model(id, learnt, now),
            Some(FromWorker::Retained(retained)) => self.take_retained(id, &retained, now),
            Some(FromWorker::Leaving(_)) => self.leave(id, now),
            Some(FromWorker::StreamStates(states)) => self.take_stream_states(id, states),
            Some(FromWorker::ConnectQueuePair(connect)) => self.connect_queue_pair(id, connection, &connect),
            Some(FromWorker::Hello(_)) | None => {
                self.counters.unexpected_messages += 1;
                self.fence_and_move(id, &WorkerRefusal::Hello, now);
            }
        }
    }

    /// A worker's stream ended. It keeps its LMAPs until its lease runs out, unless it said that it leaves.
    pub fn worker_gone(&mut self, now: Nanos, connection: ConnectionId) {
        let Some(id) = self.worker_at(connection) else {
            return;
        };
        let Some(session) = self.workers.get_mut(&id).and_then(|worker| worker.session.as_mut()) else {
            return;
        };
        session.connection = None;
        if session.departure != Departure::No {
            self.fence_and_move(id, &WorkerRefusal::Left, now);
        } else if session.transport == TRANSPORT {
            // A worker without a connection must not read by RDMA. It gets a new queue pair when it reconnects.
            self.actions.push(Action::StopReading { worker: id, for_good: false });
        }
    }

    /// The worker whose session has this connection. O(workers).
    pub(super) fn worker_at(&self, connection: ConnectionId) -> Option<WorkerId> {
        let has =
            |worker: &Worker| worker.session.as_ref().is_some_and(|session| session.connection == Some(connection));
        self.workers.iter().find(|(_, worker)| has(worker)).map(|(&id, _)| id)
    }

    /// Whether this worker reads by RDMA.
    #[must_use]
    pub fn uses_verbs(&self, worker: WorkerId) -> bool {
        let session = self.workers.get(&worker).and_then(|worker| worker.session.as_ref());
        session.is_some_and(|session| session.transport == TRANSPORT)
    }

    /// The edge could not connect a worker's queue pair.
    pub fn queue_pair_refused(&mut self, worker: WorkerId, why: &str) {
        self.counters.refused_queue_pairs += 1;
        self.problems.push(&format!("{worker}: no queue pair: {why}"));
    }

    fn lmap_problem(&mut self, id: WorkerId, problem: &proto::LmapProblem, now: Nanos) {
        let Some(lmap) = self.lmaps.get(&LmapId(problem.lmap)).filter(|lmap| lmap.is_on(id)) else {
            self.counters.unexpected_messages += 1;
            return;
        };
        self.counters.lmap_problems += 1;
        let text: String = problem.problem.chars().take(256).collect();
        self.problems.push(&format!("{} ({}) on {id}: {text}", lmap.service, lmap.id));
        if lmap.worker != Some(id) {
            // It stays where it runs.
            self.cancel_move(LmapId(problem.lmap), now);
        }
    }

    fn connect_queue_pair(&mut self, id: WorkerId, connection: ConnectionId, connect: &proto::ConnectQueuePair) {
        if !self.uses_verbs(id) {
            self.counters.unexpected_messages += 1;
            return;
        }
        if !connect.problem.is_empty() {
            self.counters.missing_queue_pairs += 1;
            let text: String = connect.problem.chars().take(256).collect();
            return self.problems.push(&format!("{id}: no queue pair: {text}"));
        }
        self.counters.requested_queue_pairs += 1;
        let attempt = connect.attempt;
        match Endpoint::decode(connect.worker.as_ref()) {
            Ok(peer) => {
                self.actions.push(Action::ConnectQueuePair { connection, worker: id, attempt, peer });
            }
            Err(error) => {
                self.queue_pair_refused(id, &error.to_string());
                let answer = proto::QueuePairReply { attempt, host: None, problem: error.to_string() };
                self.send(id, 0, Message::QueuePair(answer));
            }
        }
    }

    pub(super) fn lease_deadline(&self) -> Option<Nanos> {
        let sessions = self.workers.values().filter_map(|worker| worker.session.as_ref());
        sessions.map(|session| session.last_message.plus(self.settings.lease)).min()
    }

    /// Fences workers whose lease expired, and places their LMAPs elsewhere.
    pub(super) fn expire_leases(&mut self, now: Nanos) {
        let lease = self.settings.lease;
        let expired = |worker: &Worker| worker.session.as_ref().is_some_and(|s| s.last_message.plus(lease) <= now);
        let expired: Vec<WorkerId> =
            self.workers.iter().filter(|(_, worker)| expired(worker)).map(|(&id, _)| id).collect();
        for id in expired {
            self.counters.expired_leases += 1;
            self.fence_and_move(id, &WorkerRefusal::Lease(lease), now);
        }
    }

    fn check_hello(&self, identity: &Identity, hello: &proto::WorkerHello) -> Result<(), WorkerRefusal> {
        let limit = self.settings.limits.workers;
        if common_protocol(hello.protocol, hello.oldest_protocol).is_none() {
            let oldest = if hello.oldest_protocol == 0 { hello.protocol } else { hello.oldest_protocol };
            return Err(WorkerRefusal::Protocol(oldest, hello.protocol));
        }
        if hello.worker >= limit {
            return Err(WorkerRefusal::Number(hello.worker, limit));
        }
        if !hello.transports.iter().any(|name| self.settings.transports.contains(name)) {
            let offered = hello.transports.iter().take(8).map(|name| name.chars().take(16).collect()).collect();
            return Err(WorkerRefusal::Transport(offered, self.settings.transports.clone()));
        }
        let worker = self.workers.get(&WorkerId(hello.worker));
        if worker.is_some_and(|worker| worker.was_fenced(Incarnation(hello.incarnation))) {
            return Err(WorkerRefusal::Fenced);
        }
        let running = worker.and_then(|worker| worker.session.as_ref());
        if let Some(session) = running.filter(|session| !session.identity.is_same(identity)) {
            return Err(WorkerRefusal::Identity(hello.worker, session.identity.clone()));
        }
        Ok(())
    }

    fn renew_lease(&mut self, id: WorkerId, now: Nanos) {
        if let Some(session) = self.workers.get_mut(&id).and_then(|worker| worker.session.as_mut()) {
            session.last_message = session.last_message.max(now);
        }
    }

    fn welcome(&mut self, id: WorkerId) {
        let session = self.workers.get(&id).and_then(|worker| worker.session.as_ref());
        let welcome = proto::HostWelcome {
            host_incarnation: self.settings.incarnation.0,
            lowest_share: session.map_or(self.settings.lowest_share, |session| self.lowest_share_for(session)),
            lease_ms: self.settings.lease.as_millis() as u32,
            transport: session.map(|session| session.transport.clone()).unwrap_or_default(),
            protocol: session.map_or(0, |session| session.protocol),
            models_every_s: (self.settings.models_every.as_millis() / 1000) as u32,
            takes_retained: true,
        };
        let epoch = self.workers.get(&id).map_or(0, |worker| worker.epoch.0);
        self.send(id, epoch, Message::Welcome(welcome));
    }

    /// Hooks want verdicts from `share` of γ on. Workers send changes of alarms and states in any case. Ordinary scores
    /// of LMAPs with many columns reach 0.9 γ, so without this limit workers would send every verdict.
    pub fn want_verdicts_from(&mut self, share: f64) {
        if share.max(0.0) == self.wanted_share {
            return;
        }
        self.wanted_share = share.max(0.0);
        let sessions = self.workers.iter().filter_map(|(id, worker)| Some((*id, worker.session.as_ref()?)));
        let updates: Vec<_> = sessions
            .filter(|(_, session)| session.takes_lowest_share)
            .map(|(id, session)| (id, self.lowest_share_for(session)))
            .collect();
        for (id, share) in updates {
            let epoch = self.workers.get(&id).map_or(0, |worker| worker.epoch.0);
            self.send(id, epoch, Message::SetLowestShare(proto::SetLowestShare { share }));
        }
    }

    /// The share that hooks want, but at least the configured one and at most 1: the agent itself acts on scores above
    /// γ. A worker without support for changes gets the configured share.
    fn lowest_share_for(&self, session: &Session) -> f64 {
        let lowest = self.settings.lowest_share;
        if session.takes_lowest_share { self.wanted_share.clamp(lowest, lowest.max(1.0)) } else { lowest }
    }

    /// A worker connected (again): sends it everything, since messages in flight may be lost.
    fn resend_all(&mut self, id: WorkerId, taken_over: &[LmapId], now: Nanos) {
        let session = self.workers.get(&id).and_then(|worker| worker.session.as_ref());
        let known: Vec<(LmapId, bool)> =
            session.into_iter().flat_map(|s| &s.lmaps_sent).map(|(&lmap, known)| (lmap, known.set)).collect();
        for (lmap, set) in known {
            if set {
                self.changed_now(lmap, now);
            } else if let Some(epoch) = self.workers.get_mut(&id).and_then(|worker| worker.next_epoch(lmap, false)) {
                self.counters.sent_changes += 1;
                self.send(id, epoch.0, Message::RemoveLmap(proto::RemoveLmap { lmap: lmap.0 }));
            }
        }
        let is_drained = self.workers.get(&id).is_some_and(|worker| worker.drain.is_some());
        for &lmap in taken_over.iter().filter(|_| !is_drained) {
            if let Some(entry) = self.lmaps.get_mut(&lmap) {
                entry.worker = Some(id);
                self.changed_now(lmap, now);
            }
        }
    }

    fn acknowledge(&mut self, id: WorkerId, epoch: Epoch, now: Nanos) {
        let Some(worker) = self.workers.get_mut(&id) else {
            return;
        };
        let last = worker.epoch.0;
        match worker.acknowledge(epoch) {
            Acknowledgement::New => {
                for release in self.releases.acknowledged(id, epoch) {
                    self.release(release);
                }
            }
            Acknowledgement::Repeated => {}
            Acknowledgement::Unknown => {
                self.counters.unknown_epochs += 1;
                self.fence_and_move(id, &WorkerRefusal::Epoch { found: epoch.0, last }, now);
            }
        }
    }

    fn fence_and_move(&mut self, id: WorkerId, why: &WorkerRefusal, now: Nanos) {
        self.fence(id, why);
        // Another one may measure its streams.
        self.share_streams();
        self.place_unplaced(now);
    }

    /// Fences the current run of a worker: its messages no longer count, and no release waits for it. Returns its
    /// LMAPs, which are unplaced now.
    fn fence(&mut self, id: WorkerId, why: &WorkerRefusal) -> Vec<LmapId> {
        let Some(session) = self.workers.get_mut(&id).and_then(Worker::fence) else {
            return Vec::new();
        };
        match why {
            WorkerRefusal::Left => self.counters.left_workers += 1,
            _ => self.counters.fenced_workers += 1,
        }
        self.rdma.forget_worker(id);
        // Before anything that it may read is released.
        if session.transport == TRANSPORT {
            self.actions.push(Action::StopReading { worker: id, for_good: true });
        }
        if let Some(connection) = session.connection {
            self.refuse_worker(connection, id, why);
        } else if !matches!(why, WorkerRefusal::Left) {
            self.problems.push(&format!("{id}: {why}"));
        }
        self.end_moves(id);
        let mut ran = Vec::new();
        for lmap in self.lmaps.values_mut().filter(|lmap| lmap.worker == Some(id)) {
            lmap.unplace();
            ran.push(lmap.id);
        }
        for release in self.releases.fenced(id) {
            self.release(release);
        }
        ran
    }

    fn refuse_worker(&mut self, connection: ConnectionId, worker: WorkerId, why: &WorkerRefusal) {
        let reason = why.to_string();
        self.problems.push(&format!("{worker}: {reason}"));
        let message = proto::HostMessage { epoch: 0, message: Some(Message::Refusal(proto::Refusal { reason })) };
        self.actions.push(Action::ToWorker { connection, worker, message });
        self.actions.push(Action::CloseWorker { connection });
    }
}
