//! Fetching over a queue pair: connected, lost, connected again; revoked regions; invalid announcements.

use transport::verbs::{LostReason, Status};
use transport::{BatchError, Loss, RegionError};
use wire::rdma::{PacketSequence, PathMtu, QueuePairNumber};

use super::*;
use crate::queue_pair::QueuePairReplyError;
use crate::region_limits::{RegionLimits, RegionsError};

fn end(qpn: u32) -> Endpoint {
    Endpoint {
        qpn: QueuePairNumber::new(qpn).unwrap(),
        psn: PacketSequence::new(1).unwrap(),
        gid: Some([1; 16]),
        lid: 0,
        mtu: PathMtu::B1024,
        reads: None,
    }
}

fn verbs() -> WorkerSettings {
    WorkerSettings { transports: vec!["verbs".into(), "shm".into()], ..WorkerSettings::default() }
}

impl Node {
    /// A worker with a device and a session over verbs.
    fn with_verbs(settings: WorkerSettings) -> Self {
        let mut node = Self::new(settings);
        node.device = Some(end(5));
        node.welcome_to(2, "verbs").unwrap();
        node
    }

    /// The next request to connect the queue pair.
    fn next_request(&mut self) -> proto::ConnectQueuePair {
        for _ in 0..100 {
            let asked = self.take_messages().into_iter().find_map(|message| match message {
                ToHost::ConnectQueuePair(connect) => Some(connect),
                _ => None,
            });
            match asked {
                Some(asked) => return asked,
                None => match self.worker.poll(self.now) {
                    Step::Fetch => self.fetch(),
                    Step::SleepUntil(deadline) => {
                        self.act();
                        self.now = if self.messages.is_empty() { deadline } else { self.now };
                    }
                },
            }
        }
        panic!("the host agent is not asked");
    }

    fn reply(&mut self, attempt: u32) {
        let answer = proto::QueuePairReply { attempt, host: Some((&end(9)).into()), problem: String::new() };
        self.receive(0, FromHost::QueuePair(answer)).unwrap();
    }

    fn connect(&mut self) {
        let request = self.next_request();
        assert_eq!(request.problem, "");
        self.reply(request.attempt);
        assert!(self.worker.status().connected);
    }

    fn counters(&self) -> proto::WorkerCounters {
        self.worker.status().counters
    }
}

#[test]
fn a_worker_welcomed_to_verbs_connects_before_it_fetches() {
    let mut node = Node::with_verbs(verbs());

    assert_eq!(node.used, [Fetching::Memory, Fetching::Verbs]);
    assert!(!node.worker.status().connected);
    node.connect();

    assert_eq!(node.worker.status().transport, "verbs");
    assert_eq!(node.counters().connections, 1);
}

#[test]
fn a_transport_that_was_not_offered_is_refused() {
    let mut node = Node::new(WorkerSettings::default());
    node.worker.disconnected(node.now);

    let refused = node.welcome_to(2, "verbs");

    assert!(matches!(&refused, Err(UnexpectedMessage::Transport(name)) if name == "verbs"), "{refused:?}");
    assert!(node.closed);
}

#[test]
fn a_host_agent_that_knows_of_no_transports_means_memory() {
    let mut node = Node::new(verbs());

    node.welcome_to(2, "").unwrap();

    assert_eq!(node.worker.status().transport, "shm");
    assert_eq!(node.used, [Fetching::Memory]);
}

#[test]
fn a_lost_batch_is_counted_and_connects_the_queue_pair_anew() {
    let mut node = Node::with_verbs(verbs());
    node.connect();
    node.set(&lmap(metrics(2), 2));
    node.alive();
    let fetched = node.counters().fetched_regions;

    node.reader.link().cut(1);
    node.alive();

    assert!(!node.worker.status().connected);
    assert_eq!((node.counters().failed_batches, node.counters().failed_regions), (1, 2));
    node.connect();
    node.alive();
    assert_eq!(node.counters().connections, 2);
    assert!(node.counters().fetched_regions > fetched);
}

#[test]
fn while_the_queue_pair_is_down_regions_are_not_read_and_no_question_is_asked_twice() {
    let mut node = Node::with_verbs(verbs());
    node.connect();
    node.set(&lmap(metrics(2), 2));
    node.alive();

    node.reader.link().cut(3);
    node.alive();
    let request = node.next_request();
    node.alive();
    node.alive();

    assert_eq!((node.counters().failed_batches, node.counters().failed_regions), (3, 6));
    assert!(!node.take_messages().iter().any(|message| matches!(message, ToHost::ConnectQueuePair(_))));
    node.reply(request.attempt);
    node.alive();
    assert_eq!((node.counters().failed_batches, node.counters().connections), (3, 2));
}

#[test]
fn a_lost_connection_makes_no_replica_silent() {
    let mut node = Node::with_verbs(verbs());
    node.connect();
    node.set(&lmap(metrics(2), 2));
    for _ in 0..5 {
        node.alive();
    }
    node.take_messages();

    node.reader.link().cut(50);
    for _ in 0..50 {
        node.alive();
    }
    let request = node.messages.iter().rev().find_map(|message| match message {
        ToHost::ConnectQueuePair(connect) => Some(connect.attempt),
        _ => None,
    });
    node.reply(request.unwrap());
    for _ in 0..5 {
        node.alive();
    }

    assert_eq!(node.counters().failed_batches, 50);
    let silent = node.verdicts().into_iter().filter(|verdict| !verdict.silent.is_empty());
    assert_eq!(silent.count(), 0);
}

#[test]
fn a_replica_that_dies_while_nothing_is_read_is_silent_afterwards() {
    let mut node = Node::with_verbs(verbs());
    node.connect();
    node.set(&lmap(metrics(2), 2));
    for _ in 0..5 {
        node.alive();
    }

    node.reader.link().cut(10);
    for _ in 0..13 {
        node.regions[&RegionId(1)].beat();
        node.tick();
    }

    let messages = node.verdicts();
    assert_eq!(messages.last().map(|verdict| verdict.silent.clone()), Some(vec![ReplicaId(2)]), "{messages:?}");
}

#[test]
fn a_revoked_region_is_left_out_reported_and_costs_the_others_a_tick_only() {
    let mut node = Node::with_verbs(verbs());
    node.connect();
    node.set(&lmap(metrics(2), 3));
    node.alive();
    node.take_messages();

    node.regions[&RegionId(2)].fail(Some(RegionError::Revoked));
    node.alive();
    let messages = node.take_messages();
    let problems = messages.iter().filter(|message| matches!(message, ToHost::RegionProblem(p) if p.region == 2));
    assert_eq!(problems.count(), 1);
    node.messages = messages;
    node.connect();
    let before = node.counters();
    node.alive();
    node.alive();

    let after = node.counters();
    assert_eq!((after.revoked_regions, after.connections), (1, 2));
    for _ in 0..10 {
        node.alive();
    }
    assert!(
        node.verdicts().iter().all(|verdict| verdict.silent.is_empty()),
        "a replica that cannot be read is not silent"
    );
    assert_eq!(after.fetched_regions - before.fetched_regions, 4, "the two others, twice");
    assert_eq!(after.failed_batches, 0);
}

#[test]
fn a_revoked_region_comes_back_with_a_configuration_that_has_another_key() {
    let mut node = Node::with_verbs(verbs());
    node.connect();
    let mut spec = lmap(metrics(2), 1);
    node.set(&spec);
    node.alive();
    node.regions[&RegionId(1)].fail(Some(RegionError::Revoked));
    node.alive();
    node.connect();
    assert_eq!(node.worker.status().attached, 0);

    node.regions[&RegionId(1)].fail(None);
    (spec.replicas[0].regions[0].address, spec.replicas[0].regions[0].rkey) = (4096, 7);
    node.set(&spec);
    let before = node.counters().fetched_regions;
    node.alive();

    assert_eq!(node.counters().fetched_regions, before + 1);
}

#[test]
fn an_answer_with_a_problem_is_counted_and_tried_again() {
    let mut node = Node::with_verbs(verbs());
    let request = node.next_request();

    let problem = proto::QueuePairReply { attempt: request.attempt, host: None, problem: "no device".into() };
    let refused = node.receive(0, FromHost::QueuePair(problem));

    assert!(matches!(refused, Err(UnexpectedMessage::QueuePair(QueuePairReplyError::Problem(_)))), "{refused:?}");
    assert_eq!(node.counters().unexpected_messages, 1);
    node.connect();
}

#[test]
fn a_missing_device_is_reported_until_it_is_back() {
    let mut node = Node::new(verbs());
    node.welcome_to(2, "verbs").unwrap();

    for _ in 0..3 {
        assert_eq!(node.next_request().problem, "no device");
    }
    node.device = Some(end(5));
    node.connect();
}

#[test]
fn a_restarted_host_agent_is_connected_to_at_once() {
    let mut node = Node::with_verbs(verbs());
    node.connect();

    node.worker.disconnected(node.now);
    assert!(node.worker.status().connected, "a hung agent does not stop the reading");
    node.welcome_to(3, "verbs").unwrap();

    assert!(!node.worker.status().connected);
    let Step::SleepUntil(_) = node.worker.poll(node.now) else { panic!("there is nothing to fetch") };
    node.act();
    assert!(node.take_messages().iter().any(|message| matches!(message, ToHost::ConnectQueuePair(_))));
}

#[test]
fn regions_in_one_place_are_refused_with_their_lmap() {
    let mut node = Node::with_verbs(verbs());
    let mut spec = lmap(metrics(2), 2);
    for (replica, address) in spec.replicas.iter_mut().zip([4096, 4096 + 8]) {
        replica.regions[0].address = address;
    }

    let refused = node.change(FromHost::SetLmap((&spec).into()));

    let overlap = RegionsError::Overlap { region: RegionId(2), other: RegionId(1) };
    assert!(matches!(&refused, Err(UnexpectedMessage::Regions { source, .. }) if *source == overlap), "{refused:?}");
    assert_eq!((node.worker.status().regions, node.counters().unexpected_messages), (0, 1));
}

#[test]
fn more_regions_than_a_worker_takes_are_refused_and_what_was_taken_goes_on() {
    let limits = RegionLimits { regions: 3, bytes: u64::MAX };
    let mut node = Node::new(WorkerSettings { regions: limits, ..WorkerSettings::default() });
    node.set(&lmap(metrics(2), 2));
    let mut other = lmap(metrics(2), 4);
    (other.id, other.service) = (LmapId(2), ServiceName::new("store").unwrap());

    let refused = node.change(FromHost::SetLmap((&other).into()));

    assert!(matches!(&refused, Err(UnexpectedMessage::Regions { .. })), "{refused:?}");
    node.alive();
    assert_eq!(node.counters().fetched_regions, 2);
}

#[test]
fn batches_are_counted_by_why_they_were_lost() {
    let mut node = Node::with_verbs(verbs());
    node.connect();
    node.set(&lmap(metrics(2), 1));
    node.alive();
    let lost = |reason| Err(BatchError::Lost(Some(std::io::Error::other(reason))));

    for outcome in [
        lost(LostReason::GaveUp(Status::RETRIES_EXCEEDED)),
        lost(LostReason::NotConnected),
        lost(LostReason::NotConnected),
        lost(LostReason::Silent(std::time::Duration::from_secs(1))),
        Err(BatchError::Lost(None)),
    ] {
        while let Step::SleepUntil(deadline) = node.worker.poll(node.now) {
            node.act();
            node.now = deadline;
        }
        assert_eq!(node.worker.fetched(node.now, UnixNanos(WALL_START), &outcome).len(), 0);
    }

    let status = node.worker.status();
    let named: Vec<_> = Loss::ALL.into_iter().map(Loss::name).zip(status.lost_batches).collect();
    assert_eq!(named, [("unconnected", 2), ("unanswered", 1), ("broken", 1), ("silent", 1), ("device", 0)]);
    assert_eq!(status.counters.failed_batches, 5, "each once");
}
