//! Workers that read by RDMA: choice of transport, connection and fencing.

use wire::rdma::Endpoint;

use super::super::testing::counter;
use super::*;

fn with_verbs() -> Settings {
    Settings { transports: vec!["verbs".into(), "shm".into()], ..settings() }
}

fn end() -> proto::QueuePair {
    proto::QueuePair { qpn: 17, psn: 5, gid: vec![1; 16], lid: 0, mtu: 1024, reads: 16 }
}

fn asks(attempt: u32) -> FromWorker {
    let connect = proto::ConnectQueuePair { attempt, worker: Some(end()), problem: String::new() };
    FromWorker::ConnectQueuePair(connect)
}

fn welcomed(node: &mut Node, connection: u64) -> String {
    let sent = node.sent(connection);
    let Some((_, Message::Welcome(welcome))) = sent.first() else { panic!("{sent:?}") };
    welcome.transport.clone()
}

fn stop(worker: u32, for_good: bool) -> Action {
    Action::StopReading { worker: WorkerId(worker), for_good }
}

/// A worker with number 0 that reads by RDMA over connection 50.
fn reading() -> Node {
    let mut node = Node::new(with_verbs());
    node.worker_with(50, 0, 1, &["verbs", "shm"]);
    node
}

#[test]
fn the_first_transport_that_the_worker_likes_and_the_host_agent_has_is_chosen() {
    for (theirs, chosen) in
        [(&["verbs", "shm"][..], "verbs"), (&["shm", "verbs"], "shm"), (&["carrier-pigeon", "shm"], "shm")]
    {
        let mut node = Node::new(with_verbs());
        node.worker_with(50, 0, 1, theirs);
        assert_eq!(welcomed(&mut node, 50), chosen);
        assert_eq!(node.plane.uses_verbs(WorkerId(0)), chosen == "verbs");
    }
    let mut node = Node::new(settings());
    node.worker_with(50, 0, 1, &["verbs", "shm"]);
    assert_eq!(welcomed(&mut node, 50), "shm", "a host agent without a device has no verbs");
}

#[test]
fn without_a_common_transport_both_lists_are_named() {
    let mut node = Node::new(settings());
    node.worker_with(50, 0, 1, &["verbs"]);

    let sent = node.sent(50);
    let Some((_, Message::Refusal(refusal))) = sent.first() else { panic!("{sent:?}") };
    assert!(refusal.reason.contains(r#"["verbs"]"#) && refusal.reason.contains(r#""shm""#), "{}", refusal.reason);
}

#[test]
fn a_workers_queue_pair_is_connected_by_the_edge() {
    let mut node = reading();
    node.receive(50, asks(7));

    let peer = Endpoint::decode(Some(&end())).unwrap();
    let connection = ConnectionId(50);
    assert!(node.did(&Action::ConnectQueuePair { connection, worker: WorkerId(0), attempt: 7, peer }));
    assert_eq!(node.plane.counters().requested_queue_pairs, 1);
}

#[test]
fn an_absurd_queue_pair_is_answered_with_a_problem_and_reaches_no_device() {
    let mut node = reading();
    node.sent(50);
    let connect = proto::ConnectQueuePair { attempt: 7, worker: None, problem: String::new() };
    for (worker, why) in [
        (None, "the message has no queue pair"),
        (Some(proto::QueuePair { qpn: u32::MAX, ..end() }), "queue pair number 4294967295"),
        (Some(proto::QueuePair { mtu: 9000, ..end() }), "path MTU 9000 is not one of"),
        (Some(proto::QueuePair { gid: vec![0; 16], ..end() }), "is not the address of a single port"),
    ] {
        node.receive(50, FromWorker::ConnectQueuePair(proto::ConnectQueuePair { worker, ..connect.clone() }));
        let sent = node.sent(50);
        let [(_, Message::QueuePair(answer))] = &sent[..] else { panic!("{sent:?}") };
        assert!(answer.attempt == 7 && answer.problem.contains(why), "{answer:?}");
    }
    assert_eq!(node.plane.counters().refused_queue_pairs, 4);
    assert!(!node.actions.iter().any(|action| matches!(action, Action::ConnectQueuePair { .. })));
}

#[test]
fn a_worker_that_fetches_otherwise_has_no_queue_pair() {
    let mut node = Node::new(with_verbs());
    node.worker(50, 0, 1);
    node.receive(50, asks(1));

    assert_eq!(node.plane.counters().unexpected_messages, 1);
    assert!(!node.actions.iter().any(|action| matches!(action, Action::ConnectQueuePair { .. })));
}

#[test]
fn a_problem_of_a_workers_own_device_is_in_the_status() {
    let mut node = reading();
    let problem = "the device is gone".to_owned();
    node.receive(50, FromWorker::ConnectQueuePair(proto::ConnectQueuePair { attempt: 1, worker: None, problem }));

    let status = node.plane.status();
    assert!(status.problems.iter().any(|line| line.contains("worker-0") && line.contains("the device is gone")));
    assert_eq!(node.plane.counters().missing_queue_pairs, 1);
}

#[test]
fn an_rdma_worker_is_stopped_when_its_stream_ends_and_for_good_when_its_lease_expires() {
    let mut node = reading();
    node.plane.worker_gone(node.now, ConnectionId(50));
    node.step();
    assert!(node.did(&stop(0, false)));
    assert!(!node.did(&stop(0, true)));

    node.pass(Nanos::from_secs(6));
    assert!(node.did(&stop(0, true)), "its lease ran out");
}

#[test]
fn another_run_of_a_worker_fences_the_first_one() {
    let mut node = reading();
    node.worker_with(51, 0, 2, &["verbs"]);

    assert!(node.did(&stop(0, true)));
    node.plane.worker_gone(node.now, ConnectionId(50));
    node.step();
    assert!(!node.did(&stop(0, false)), "the end of the old stream is nothing to the new one");
}

#[test]
fn a_worker_is_fenced_before_its_regions_are_released() {
    let mut node = reading();
    node.replica(1, "cart", &[counter("a"), counter("b")]);
    node.settle();
    let (epoch, _) = node.set(50).pop().unwrap();
    node.acknowledge(50, epoch);
    node.retire(1, 0, 1);
    node.gone(1);
    node.settle();
    node.actions.clear();

    node.pass(Nanos::from_secs(6));

    let at = |wanted: &dyn Fn(&Action) -> bool| node.actions.iter().position(wanted);
    let stopped = at(&|action| *action == stop(0, true)).expect("it is fenced");
    let dropped = at(&|action| matches!(action, Action::DropRegion(_))).expect("nobody knows the region any more");
    assert!(stopped < dropped);
}

#[test]
fn shared_memory_needs_no_fence() {
    let mut node = Node::new(with_verbs());
    node.worker(50, 0, 1);
    node.plane.worker_gone(node.now, ConnectionId(50));
    node.pass(Nanos::from_secs(6));

    assert!(!node.actions.iter().any(|action| matches!(action, Action::StopReading { .. })));
}

fn unreadable(node: &Node) -> usize {
    let (name, regions) = node.plane.sizes()[4];
    assert_eq!(name, "unreadable_regions");
    regions
}

#[test]
fn regions_that_cannot_be_read_stand_in_the_status_as_long_as_that_is_so() {
    let mut node = reading();
    let region = node.replica(1, "cart", &[counter("a")]);
    node.settle();
    let lmap = node.only_lmap();
    let but = || vec![(region, "raise RLIMIT_MEMLOCK".to_owned())];

    node.plane.regions_registered(WorkerId(0), lmap, but());
    let problems = node.plane.status().problems;
    assert_eq!(problems.first().unwrap(), "worker-0: region-1 of cart cannot be read: raise RLIMIT_MEMLOCK");
    assert_eq!((unreadable(&node), node.plane.counters().unregistered_regions), (1, 1));
    node.plane.regions_registered(WorkerId(0), lmap, Vec::new());
    assert_eq!(unreadable(&node), 0);
    assert!(!node.plane.status().problems.iter().any(|line| line.contains("cannot be read")));

    node.plane.regions_registered(WorkerId(7), lmap, but());
    assert_eq!(unreadable(&node), 0, "that worker does not run it any more");
    node.plane.regions_registered(WorkerId(0), lmap, but());
    node.pass(Nanos::from_secs(6));
    assert_eq!(unreadable(&node), 0, "the worker is fenced");
    node.worker_with(51, 0, 2, &["verbs"]);
    node.settle();
    node.plane.regions_registered(WorkerId(0), lmap, but());
    assert_eq!(unreadable(&node), 1);
    node.gone(1);
    node.settle();
    assert_eq!(unreadable(&node), 0, "the service is gone");
}

#[test]
fn of_many_regions_that_cannot_be_read_some_are_named_and_all_are_counted() {
    let mut node = reading();
    node.replica(1, "cart", &[counter("a")]);
    node.settle();
    let but = (1..=100).map(|id| (RegionId(id), "no".to_owned())).collect();

    node.plane.regions_registered(WorkerId(0), node.only_lmap(), but);

    let problems = node.plane.status().problems;
    assert_eq!((problems.len(), problems[16].as_str()), (17, "84 more regions cannot be read"));
    assert_eq!(unreadable(&node), 100);
}

#[test]
fn lmaps_are_sent_again_with_new_epochs() {
    let mut node = reading();
    node.replica(1, "cart", &[counter("a")]);
    node.replica(2, "store", &[counter("a")]);
    node.settle();
    let sent = node.set(50);
    assert_eq!(sent.len(), 2);
    let (last, first) = (sent[1].0, LmapId(sent[0].1.lmap));
    let mut again = |worker, lmaps: Option<&std::collections::BTreeSet<LmapId>>| {
        node.plane.resend(node.now, WorkerId(worker), lmaps);
        node.step();
        node.set(50).into_iter().map(|(epoch, lmap)| (epoch, LmapId(lmap.lmap))).collect::<Vec<_>>()
    };

    assert_eq!(again(0, Some(&[first].into())), [(last + 1, first)]);
    assert_eq!(again(0, None).len(), 2);
    assert_eq!(again(1, None), []);
}
