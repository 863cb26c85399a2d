//! LMAPs that move between workers, and what their detectors have learnt.

use super::super::testing::counter;
use super::*;

/// A message to a worker, in short.
#[derive(Debug, PartialEq)]
pub(super) enum Sent {
    Set { lmap: u32, learnt: Vec<u8>, continues: bool },
    Remove(u32),
    GiveModel(u32),
    Goodbye,
}

impl Node {
    /// Takes what was sent to the worker, and acknowledges it.
    pub(super) fn obeyed(&mut self, connection: u64) -> Vec<Sent> {
        let sent = self.sent(connection);
        let last = sent.iter().filter(|(_, message)| has_epoch(message)).map(|(epoch, _)| *epoch).max();
        if let Some(epoch) = last {
            self.acknowledge(connection, epoch);
        }
        sent.into_iter().filter_map(|(_, message)| in_short(message)).collect()
    }

    pub(super) fn learnt(&mut self, connection: u64, lmap: u32, model: &[u8]) {
        let learnt = proto::LearntModel { lmap, epoch: 0, model: model.to_vec(), interval_us: 0 };
        self.receive(connection, FromWorker::LearntModel(learnt));
    }

    /// The worker's detectors of these LMAPs are armed.
    pub(super) fn armed(&mut self, connection: u64, lmaps: &[u32]) {
        let of = |lmap: &u32| {
            let epoch = self.plane.lmaps[&LmapId(*lmap)].sent.as_ref().map_or(0, |sent| sent.epoch.0);
            proto::LmapSummary { lmap: *lmap, epoch, state: proto::State::Armed.into(), ..Default::default() }
        };
        let summary = proto::Summary { lmaps: lmaps.iter().map(of).collect(), ..Default::default() };
        self.receive(connection, FromWorker::Summary(summary));
    }

    /// The worker reports that it has rows of the LMAP, in the epoch of what it was sent last.
    pub(super) fn has_rows(&mut self, connection: u64, lmap: u32) {
        self.has_rows_without(connection, lmap, 0, proto::State::Armed);
    }

    /// The same in this state, with so many regions that it has not attached yet.
    fn has_rows_without(&mut self, connection: u64, lmap: u32, pending_regions: u32, state: proto::State) {
        let worker = self.plane.worker_at(ConnectionId(connection)).unwrap();
        let sent = self.plane.workers[&worker].session.as_ref().unwrap().lmaps_sent[&LmapId(lmap)];
        let summary = proto::LmapSummary {
            lmap,
            epoch: sent.epoch.0,
            samples: 1,
            state: state.into(),
            pending_regions,
            ..Default::default()
        };
        self.receive(connection, FromWorker::Summary(proto::Summary { lmaps: vec![summary], ..Default::default() }));
    }

    pub(super) fn worker_of(&self, lmap: u32) -> Option<u32> {
        self.plane.lmaps[&LmapId(lmap)].worker.map(|worker| worker.0)
    }

    fn leaves(&mut self, connection: u64) {
        self.receive(connection, FromWorker::Leaving(proto::Leaving {}));
    }

    pub(super) fn worker_gone(&mut self, connection: u64) {
        self.plane.worker_gone(self.now, ConnectionId(connection));
        self.step();
    }
}

fn has_epoch(message: &Message) -> bool {
    matches!(message, Message::SetLmap(_) | Message::RemoveLmap(_) | Message::FitAgain(_))
}

fn in_short(message: Message) -> Option<Sent> {
    Some(match message {
        Message::SetLmap(lmap) => Sent::Set { lmap: lmap.lmap, learnt: lmap.learnt, continues: lmap.continues },
        Message::RemoveLmap(remove) => Sent::Remove(remove.lmap),
        Message::GiveModel(give) => Sent::GiveModel(give.lmap),
        Message::Goodbye(_) => Sent::Goodbye,
        _ => return None,
    })
}

pub(super) fn set(lmap: u32, learnt: &[u8]) -> Sent {
    Sent::Set { lmap, learnt: learnt.to_vec(), continues: !learnt.is_empty() }
}

/// A node with the armed LMAPs 1 and 2 on worker 0, over connection 50.
pub(super) fn two_lmaps() -> Node {
    let mut node = Node::new(settings());
    node.worker(50, 0, 1);
    for (connection, name) in [(1, "cart"), (2, "store")] {
        node.replica(connection, name, &[counter("a")]);
    }
    node.settle();
    assert_eq!(node.obeyed(50), [set(1, &[]), set(2, &[])]);
    node.armed(50, &[1, 2]);
    node
}

#[test]
fn a_worker_that_joins_takes_its_share_with_what_was_learnt_and_without_a_gap() {
    let mut node = two_lmaps();

    node.worker(51, 1, 2);
    node.settle();
    let [Sent::GiveModel(moved)] = node.obeyed(50)[..] else { panic!("one of two LMAPs moves") };
    assert_eq!(node.obeyed(51), [], "nothing before the model is there");
    node.learnt(50, moved, b"model");
    let (epoch, config) = node.set(51).pop().unwrap();
    assert_eq!((config.lmap, &config.learnt[..], config.continues), (moved, &b"model"[..], true));
    // Worker 0 is the one that counts until worker 1 has it in effect.
    assert_eq!(node.worker_of(moved), Some(0));
    assert_eq!(node.obeyed(50), []);
    let own = node.plane.lmaps[&LmapId(moved)].sent.as_ref().unwrap().epoch.0;
    node.verdict(50, LmapId(moved), own);
    assert_eq!(node.plane.counters().verdicts, 1);

    node.acknowledge(51, epoch);
    assert_eq!((node.worker_of(moved), node.obeyed(50)), (Some(0), vec![]), "it has not read yet");
    node.has_rows(51, moved);

    assert_eq!(node.worker_of(moved), Some(1));
    assert_eq!(node.obeyed(50), [Sent::Remove(moved)]);
    node.verdict(51, LmapId(moved), epoch);
    node.verdict(50, LmapId(moved), own);
    let counters = node.plane.counters();
    assert_eq!((counters.verdicts, counters.unexpected_verdicts, counters.moved_lmaps), (2, 1, 1));
    node.pass(Nanos::from_secs(4));
    assert_eq!((node.obeyed(50), node.obeyed(51)), (vec![], vec![]), "the loads are equal now");
}

#[test]
fn an_lmap_moves_when_all_its_regions_are_read_there_or_have_had_their_time() {
    let mut node = two_lmaps();
    node.worker(51, 1, 2);
    node.settle();
    let [Sent::GiveModel(moved)] = node.obeyed(50)[..] else { panic!("one of two LMAPs moves") };
    node.learnt(50, moved, b"model");
    node.obeyed(51);

    node.has_rows_without(51, moved, 1, proto::State::Armed);
    assert_eq!(node.worker_of(moved), Some(0), "a replica is missing there");
    node.has_rows_without(51, moved, 0, proto::State::Silent);
    assert_eq!(node.worker_of(moved), Some(0), "nobody is silent here");
    for _ in 0..3 {
        node.pass(Nanos::from_secs(3));
        node.armed(50, &[1, 2]);
        node.armed(51, &[]);
    }
    assert_eq!(node.worker_of(moved), Some(0));
    node.has_rows_without(51, moved, 1, proto::State::Armed);

    assert_eq!(node.worker_of(moved), Some(1), "it waited for long enough");
}

#[test]
fn an_lmap_that_learns_or_is_in_alarm_stays_until_it_can_move() {
    let mut node = two_lmaps();
    for lmap in [1, 2] {
        let epoch = node.plane.lmaps[&LmapId(lmap)].sent.as_ref().unwrap().epoch.0;
        node.verdict(50, LmapId(lmap), epoch);
    }
    node.worker(51, 1, 2);
    node.settle();
    assert_eq!((node.obeyed(50), node.obeyed(51)), (vec![], vec![]));

    for lmap in [1, 2] {
        node.plane.lmaps.get_mut(&LmapId(lmap)).unwrap().health.alarm = false;
    }
    for _ in 0..5 {
        node.pass(Nanos::from_secs(3));
        node.armed(50, &[1, 2]);
        node.armed(51, &[]);
    }

    assert!(matches!(node.obeyed(50)[..], [Sent::GiveModel(_), ..]), "it was tried again");
}

#[test]
fn a_worker_that_leaves_hands_its_lmaps_over_and_goes_when_they_have_moved() {
    let mut node = two_lmaps();
    node.worker(51, 1, 2);
    node.settle();
    let [Sent::GiveModel(moved)] = node.obeyed(50)[..] else { panic!() };
    node.learnt(50, moved, b"old");
    node.obeyed(51);
    node.has_rows(51, moved);
    node.obeyed(50);
    let stays = 3 - moved;

    node.learnt(50, stays, b"new");
    node.leaves(50);

    assert_eq!(node.obeyed(50), [], "it has to go on until the LMAP has moved");
    assert_eq!(node.obeyed(51), [set(stays, b"new")]);
    node.has_rows(51, stays);
    assert_eq!(node.worker_of(stays), Some(1));
    assert_eq!(node.obeyed(50), [Sent::Remove(stays), Sent::Goodbye]);
    node.worker_gone(50);
    let counters = node.plane.counters();
    assert_eq!((counters.left_workers, counters.fenced_workers, counters.moved_lmaps), (1, 0, 2));
    assert!(node.plane.status().problems.is_empty(), "{:?}", node.plane.status().problems);
    assert!(node.sent(50).is_empty(), "it is not refused");
}

#[test]
fn the_only_worker_may_go_at_once_and_its_next_run_goes_on_with_what_was_learnt() {
    let mut node = two_lmaps();
    node.learnt(50, 1, b"one");
    node.learnt(50, 2, b"two");

    node.leaves(50);
    assert_eq!(node.obeyed(50), [Sent::Goodbye]);
    node.worker_gone(50);
    assert_eq!(node.worker_of(1), None, "not after the lease only");

    node.worker(51, 0, 2);
    node.settle();
    assert_eq!(node.obeyed(51), [set(1, b"one"), set(2, b"two")]);
}

#[test]
fn a_worker_that_died_is_followed_with_the_model_of_before_and_a_resumed_run_needs_none() {
    let mut node = two_lmaps();
    node.learnt(50, 1, b"one");
    node.worker_gone(50);
    node.worker(51, 0, 1);
    node.settle();
    assert_eq!(node.obeyed(51), [set(1, &[]), set(2, &[])], "the same run has its detectors still");

    node.worker_gone(51);
    node.worker(52, 0, 2);
    node.settle();

    assert_eq!(node.obeyed(52), [set(1, b"one"), set(2, &[])]);
}

#[test]
fn a_model_of_a_service_that_ended_is_for_its_next_start() {
    let mut node = two_lmaps();
    node.learnt(50, 1, b"one");
    node.gone(1);
    node.settle();
    node.obeyed(50);

    node.worker(51, 0, 2);
    node.replica(3, "cart", &[counter("a")]);
    node.settle();

    let sent = node.obeyed(51);
    assert!(sent.contains(&Sent::Set { lmap: 3, learnt: b"one".to_vec(), continues: false }), "{sent:?}");
}

#[test]
fn what_an_operator_or_the_settings_say_goes_before_a_kept_model() {
    let mut node = two_lmaps();
    node.learnt(50, 1, b"one");
    node.learnt(50, 2, b"two");
    node.plane.fit_again(node.now, LmapId(1)).unwrap();
    let lmap = node.plane.lmaps.get_mut(&LmapId(2)).unwrap();
    (lmap.interval, lmap.usual_interval) = (Interval::new(Nanos::from_secs(7)).unwrap(), None);

    node.worker(51, 0, 2);
    node.settle();

    assert_eq!(node.obeyed(51), [set(1, &[]), set(2, &[])]);
}

#[test]
fn a_move_ends_where_it_can_when_one_of_its_workers_dies() {
    for (dies, at) in [(50, 1), (51, 0)] {
        let mut node = two_lmaps();
        node.worker(51, 1, 2);
        node.settle();
        let [Sent::GiveModel(moved)] = node.obeyed(50)[..] else { panic!() };
        node.learnt(50, moved, b"model");
        node.set(51);

        // The other one is heard of; this one is silent for longer than its lease.
        node.worker_gone(dies);
        for _ in 0..6 {
            node.armed(101 - dies, &[]);
            node.pass(Nanos::from_secs(1));
        }

        assert_eq!(node.worker_of(moved), Some(at), "{dies}");
        if dies == 50 {
            assert_eq!(node.worker_of(3 - moved), Some(1));
        }
        assert!(node.plane.lmaps.values().all(|lmap| lmap.moving.is_none()));
    }
}

#[test]
fn a_change_during_a_move_reaches_both_workers_and_slots_wait_for_both() {
    let mut node = two_lmaps();
    node.worker(51, 1, 2);
    node.settle();
    let [Sent::GiveModel(moved)] = node.obeyed(50)[..] else { panic!() };
    node.learnt(50, moved, b"model");
    node.set(51);
    let connection = u64::from(moved);
    node.series(connection, counter("b"), 1);
    node.retire(connection, 0, 1);

    node.settle();

    let [old, new] = [50, 51].map(|worker| node.set(worker).pop().unwrap());
    assert_eq!((old.1.metrics.len(), new.1.metrics.len()), (1, 1));
    node.acknowledge(50, old.0);
    assert_eq!(node.released(connection), 0, "worker 1 may read the slot still");
    node.acknowledge(51, new.0);
    assert_eq!(node.released(connection), 1);
    node.has_rows(51, moved);
    assert_eq!(node.worker_of(moved), Some(1));
}

#[test]
fn a_move_goes_on_without_a_model_and_is_given_up_with_its_lmap() {
    let mut node = two_lmaps();
    node.worker(51, 1, 2);
    node.settle();
    let [Sent::GiveModel(moved)] = node.obeyed(50)[..] else { panic!() };
    node.pass(Nanos::from_millis(1900));
    assert_eq!(node.obeyed(51), []);
    node.pass(Nanos::from_millis(200));
    assert_eq!(node.obeyed(51), [set(moved, &[])], "the worker did not answer");

    let mut node = two_lmaps();
    node.worker(51, 1, 2);
    node.settle();
    let [Sent::GiveModel(moved)] = node.obeyed(50)[..] else { panic!() };
    node.learnt(50, moved, b"model");
    node.sent(51);
    node.plane.delete_lmap(node.now, LmapId(moved)).unwrap();
    node.settle();
    assert_eq!((node.obeyed(50), node.obeyed(51)), (vec![Sent::Remove(moved)], vec![Sent::Remove(moved)]));
}

#[test]
fn a_worker_that_cannot_run_an_lmap_does_not_get_it() {
    for refuses in [true, false] {
        let mut node = two_lmaps();
        node.worker(51, 1, 2);
        node.settle();
        let [Sent::GiveModel(moved)] = node.obeyed(50)[..] else { panic!() };
        node.learnt(50, moved, b"model");
        node.obeyed(51);

        if refuses {
            let problem = proto::LmapProblem { lmap: moved, problem: "too many regions".into() };
            node.receive(51, FromWorker::LmapProblem(problem));
        } else {
            // It never reads a row.
            for _ in 0..12 {
                node.armed(50, &[1, 2]);
                node.armed(51, &[]);
                node.pass(Nanos::from_secs(1));
            }
        }

        assert_eq!(node.obeyed(51)[0], Sent::Remove(moved), "{refuses}");
        assert_eq!(node.worker_of(moved), Some(0));
        assert_eq!(node.plane.status().problems.iter().any(|problem| problem.contains("too many regions")), refuses);
    }
}

#[test]
fn what_operators_and_watchers_ask_for_during_a_move_holds_after_it() {
    let mut node = two_lmaps();
    node.worker(51, 1, 2);
    node.settle();
    let [Sent::GiveModel(moved)] = node.obeyed(50)[..] else { panic!() };
    node.learnt(50, moved, b"before");
    node.obeyed(51);

    node.plane.subscribe_rows(LmapId(moved), 3).unwrap();
    node.step();
    let subscribed = node.sent(51);
    assert!(matches!(subscribed[..], [(_, Message::SubscribeRows(proto::SubscribeRows { every: 3, .. }))]));

    node.sent(50);
    node.plane.fit_again(node.now, LmapId(moved)).unwrap();
    node.step();
    assert_eq!(node.obeyed(51), [Sent::Remove(moved)], "it would go on with what was normal before");
    let epoch =
        node.sent(50).iter().find_map(|(epoch, message)| matches!(message, Message::FitAgain(_)).then_some(*epoch));
    let learnt = |epoch, model: &[u8]| proto::LearntModel { lmap: moved, epoch, model: model.to_vec(), interval_us: 0 };
    node.receive(50, FromWorker::LearntModel(learnt(epoch.unwrap() - 1, b"under way")));
    assert_eq!(node.plane.counters().taken_models, 1, "only the one before");
    node.receive(50, FromWorker::LearntModel(learnt(epoch.unwrap(), b"after")));
    assert_eq!(node.plane.counters().taken_models, 2);
}

#[test]
fn a_leaving_worker_may_go_when_a_move_from_it_was_given_up() {
    let mut node = two_lmaps();
    node.worker(51, 1, 2);
    node.settle();
    node.obeyed(50);
    node.obeyed(51);
    node.leaves(50);
    assert_eq!(node.obeyed(50), []);

    node.leaves(51);
    node.worker_gone(51);

    assert_eq!(node.obeyed(50), [Sent::Goodbye]);
}

fn retained(services: &[&str]) -> FromWorker {
    FromWorker::Retained(proto::Retained { services: services.iter().map(ToString::to_string).collect() })
}

#[test]
fn a_worker_gets_what_it_ran_for_an_earlier_run_of_the_host_agent() {
    let mut node = Node::new(settings());
    node.worker(50, 0, 1);
    node.worker(51, 1, 2);
    node.receive(51, retained(&["cart", "store", "\u{1b}", "gone"]));
    for (connection, name) in [(1, "cart"), (2, "store"), (3, "other")] {
        node.replica(connection, name, &[counter("a")]);
    }
    node.settle();

    assert_eq!([1, 2, 3].map(|lmap| node.worker_of(lmap)), [Some(1), Some(1), Some(0)]);
}

#[test]
fn an_lmap_that_another_worker_has_hardly_begun_moves_to_the_one_that_ran_it_and_an_armed_one_stays() {
    let mut node = two_lmaps();
    node.replica(3, "late", &[counter("a")]);
    node.settle();
    node.obeyed(50);

    node.worker(51, 1, 2);
    node.receive(51, retained(&["cart", "late"]));

    assert_eq!(node.obeyed(50), [Sent::GiveModel(3)]);
    node.learnt(50, 3, b"");
    assert_eq!(node.obeyed(51), [set(3, &[])]);
    node.has_rows(51, 3);
    assert_eq!([1, 2, 3].map(|lmap| node.worker_of(lmap)), [Some(0), Some(0), Some(1)]);
}

#[test]
fn what_the_next_worker_goes_on_with_is_kept_although_the_move_has_not_ended() {
    let mut node = two_lmaps();
    node.replica(3, "late", &[counter("a")]);
    node.settle();
    node.obeyed(50);
    node.worker(51, 1, 2);
    node.receive(51, retained(&["late"]));
    node.obeyed(50);
    node.learnt(50, 3, b"");
    node.obeyed(51);

    // It says so at once, before it has rows, and not again for minutes.
    node.learnt(51, 3, b"learnt before");
    node.has_rows(51, 3);

    let kept: Vec<_> = node.plane.kept_models().map(|((name, _), _, model)| (name.as_str(), &*model.bytes)).collect();
    assert_eq!(kept, [("late", b"learnt before".as_slice())]);
}

#[test]
fn workers_of_releases_whose_protocols_overlap_are_welcome() {
    let mut node = Node::new(settings());
    let newer = proto::WorkerHello {
        protocol: wire::control::PROTOCOL + 1,
        oldest_protocol: wire::control::PROTOCOL,
        transports: vec!["shm".into()],
        incarnation: 1,
        ..proto::WorkerHello::default()
    };
    node.plane.worker_connected(node.now, ConnectionId(50), &OWNER, &newer);
    node.step();
    let [(_, Message::Welcome(welcome))] = &node.sent(50)[..] else { panic!("not welcomed") };
    assert_eq!((welcome.protocol, welcome.models_every_s), (wire::control::PROTOCOL, 300));

    let far = proto::WorkerHello { oldest_protocol: wire::control::PROTOCOL + 1, worker: 1, ..newer };
    node.plane.worker_connected(node.now, ConnectionId(51), &OWNER, &far);
    node.step();
    let [(_, Message::Refusal(refusal))] = &node.sent(51)[..] else { panic!("not refused") };
    assert!(refusal.reason.contains("protocols 2 to 2") && refusal.reason.contains("1 to 1"), "{}", refusal.reason);
}
