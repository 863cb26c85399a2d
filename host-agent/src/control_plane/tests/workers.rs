//! Epochs, slots and fencing.

use super::super::testing::{counter, gauge, labelled};
use super::*;

fn reasons(sent: &[(u64, Message)]) -> Vec<&str> {
    sent.iter()
        .filter_map(|(_, message)| match message {
            Message::Refusal(refusal) => Some(refusal.reason.as_str()),
            _ => None,
        })
        .collect()
}

/// A node with one LMAP of two series on worker 0, over connection 50, acknowledged.
fn running() -> (Node, LmapId, u64) {
    let mut node = Node::new(settings());
    node.worker(50, 0, 1);
    node.replica(1, "cart", &[counter("a"), gauge("b")]);
    node.settle();
    let (epoch, lmap) = node.set(50).pop().unwrap();
    node.acknowledge(50, epoch);
    (node, LmapId(lmap.lmap), epoch)
}

#[test]
fn a_worker_is_welcomed_with_the_run_of_the_host_agent_and_its_lease() {
    let mut node = Node::new(settings());
    node.worker(50, 0, 1);

    let sent = node.sent(50);
    let (_, Message::Welcome(welcome)) = &sent[0] else { panic!("{sent:?}") };
    assert_eq!((welcome.host_incarnation, welcome.lease_ms), (9, 5000));
}

#[test]
fn epochs_of_a_worker_rise_by_one() {
    let (mut node, lmap, epoch) = running();
    node.series(1, counter("c"), 2);
    node.settle();
    node.plane.fit_again(node.now, lmap).unwrap();
    node.step();

    let epochs: Vec<_> = node.sent(50).into_iter().map(|(epoch, _)| epoch).collect();
    assert_eq!(epochs, [epoch + 1, epoch + 2]);
}

#[test]
fn a_retired_slot_is_released_when_the_worker_acknowledged_an_epoch_without_it() {
    let (mut node, _, epoch) = running();
    node.retire(1, 0, 1);
    node.acknowledge(50, epoch);
    assert_eq!(node.released(1), 0, "the worker was not sent yet");

    node.settle();
    let (sent, lmap) = node.set(50).pop().unwrap();
    assert_eq!(lmap.metrics.len(), 1);
    assert_eq!(node.released(1), 0);
    node.series(1, counter("new"), 0);
    assert!(node.refusals(1)[0].contains("retired and not yet released"));

    node.acknowledge(50, sent);
    assert_eq!(node.released(1), 1);
    node.series(1, counter("new"), 0);
    assert!(node.refusals(1).is_empty());
    assert_eq!(node.plane.pending_releases(), 0);
}

#[test]
fn releases_wait_for_deleted_lmaps_too() {
    let (mut node, lmap, epoch) = running();
    node.plane.delete_lmap(node.now, lmap).unwrap();
    node.retire(1, 0, 1);
    assert_eq!(node.released(1), 0);

    node.acknowledge(50, epoch + 1);

    assert_eq!(node.released(1), 1);
}

#[test]
fn a_slot_that_no_worker_knows_is_released_at_once() {
    let mut node = Node::new(settings());
    node.replica(1, "cart", &[counter("a")]);
    node.settle();

    node.retire(1, 0, 1);
    node.settle();

    assert_eq!(node.released(1), 1);
}

#[test]
fn retiring_half_a_series_is_refused() {
    let (mut node, ..) = running();
    node.retire(1, 0, 1);
    node.retire(1, 0, 1);

    assert!(node.refusals(1)[0].contains("already retired"));
    assert_eq!(node.plane.counters().refused_retirements, 1);
}

#[test]
fn a_worker_that_dies_with_slots_unacknowledged_is_fenced_after_its_lease() {
    let (mut node, ..) = running();
    node.worker(51, 1, 2);
    node.retire(1, 0, 1);
    node.settle();
    node.plane.worker_gone(node.now, ConnectionId(50));
    node.step();
    assert_eq!(node.released(1), 0, "it may still be reading");

    node.pass(Nanos::from_secs(4));
    node.receive(51, FromWorker::Summary(proto::Summary::default()));
    node.pass(Nanos::from_secs(1));

    assert_eq!(node.released(1), 1);
    assert_eq!(node.plane.counters().expired_leases, 1);
    let (_, moved) = node.set(51).pop().unwrap();
    assert_eq!(moved.metrics.len(), 1, "its LMAP runs elsewhere");
}

#[test]
fn a_silent_worker_is_fenced_and_disconnected() {
    let (mut node, ..) = running();
    let lease = node.plane.poll(node.now);

    node.pass(lease.since(node.now).unwrap());

    assert!(node.did(&Action::CloseWorker { connection: ConnectionId(50) }));
    let sent = node.sent(50);
    assert_eq!(reasons(&sent), ["silent for 5s"]);
    assert_eq!(node.plane.status().lmaps[0].state, "waiting");
}

#[test]
fn a_fenced_run_is_not_taken_again_but_a_new_one_is() {
    let (mut node, ..) = running();
    node.pass(Nanos::from_secs(10));
    node.worker(60, 0, 1);
    assert!(reasons(&node.sent(60))[0].contains("was fenced"));
    assert!(node.did(&Action::CloseWorker { connection: ConnectionId(60) }));
    assert_eq!(node.plane.counters().refused_workers, 1);

    node.worker(61, 0, 2);
    node.settle();
    assert_eq!(node.set(61).len(), 1);
}

#[test]
fn a_worker_of_another_run_fences_the_old_one_and_takes_over() {
    let (mut node, lmap, epoch) = running();
    node.retire(1, 0, 1);
    node.settle();
    node.sent(50);

    node.worker(51, 0, 2);

    assert!(node.did(&Action::CloseWorker { connection: ConnectionId(50) }));
    assert_eq!(node.released(1), 1, "the old run can send nothing any more");
    let (new_epoch, set) = node.set(51).pop().unwrap();
    assert_eq!(set.lmap, lmap.0);
    assert!(new_epoch > epoch + 1, "an epoch is never given out twice");

    node.verdict(50, lmap, epoch);
    assert!(node.dispatched().is_empty());
    assert_eq!(node.plane.counters().unexpected_messages, 1);
    node.plane.worker_gone(node.now, ConnectionId(50));
    assert!(node.plane.status().workers[0].connected, "the end of the old stream does not touch the new one");
}

#[test]
fn a_worker_that_lost_its_connection_is_sent_everything_again() {
    let (mut node, lmap, epoch) = running();
    node.replica(2, "store", &[counter("a")]);
    node.settle();
    node.plane.worker_gone(node.now, ConnectionId(50));
    node.gone(2);
    node.sent(50);

    node.worker(51, 0, 1);

    let sent = node.sent(51);
    assert!(matches!(sent[0].1, Message::Welcome(_)));
    let removed: Vec<_> = sent.iter().filter(|(_, message)| matches!(message, Message::RemoveLmap(_))).collect();
    let set: Vec<_> = sent.iter().filter(|(_, message)| matches!(message, Message::SetLmap(_))).collect();
    assert_eq!((removed.len(), set.len()), (1, 1));
    assert!(sent[1..].windows(2).all(|pair| pair[0].0 + 1 == pair[1].0));
    assert!(sent[1].0 > epoch);
    assert_eq!(node.plane.counters().fenced_workers, 0);

    node.verdict(51, lmap, epoch);
    assert_eq!(node.plane.counters().stale_verdicts, 1);
    node.acknowledge(51, sent.last().unwrap().0);
    assert_eq!(node.plane.pending_releases(), 0);
}

#[test]
fn a_worker_that_acknowledges_an_unknown_epoch_is_fenced_and_no_other_one() {
    let (mut node, _, epoch) = running();
    node.worker(51, 1, 7);

    node.acknowledge(50, epoch + 1);

    assert_eq!(node.plane.counters().unknown_epochs, 1);
    assert!(node.did(&Action::CloseWorker { connection: ConnectionId(50) }));
    assert!(!node.did(&Action::CloseWorker { connection: ConnectionId(51) }));
    assert_eq!(node.set(51).len(), 1, "its LMAP runs elsewhere");
}

#[test]
fn an_acknowledgement_that_comes_late_changes_nothing() {
    let (mut node, _, epoch) = running();
    node.series(1, counter("c"), 2);
    node.settle();
    node.acknowledge(50, epoch + 1);

    node.acknowledge(50, epoch);

    assert_eq!(node.plane.status().workers[0].acknowledged_epoch, epoch + 1);
}

#[test]
fn a_verdict_of_the_present_epoch_is_dispatched_with_names() {
    let (mut node, lmap, epoch) = running();
    let verdict = proto::Verdict {
        lmap: lmap.0,
        epoch,
        score: 9.0,
        reasons: vec![proto::Reason {
            metric: 2,
            statistic: 1,
            share: 0.9,
            seen: 5.0,
            expected: 1.0,
            since_us: 300_000,
            replica: Some(1),
        }],
        silent_replicas: vec![1],
        ..proto::Verdict::default()
    };
    node.receive(50, FromWorker::Verdicts(proto::Verdicts { at_unix_ns: 5, verdicts: vec![verdict] }));

    let events = node.dispatched();
    assert_eq!(events[0].service, service("cart"));
    assert_eq!(events[0].reasons[0].column(), "b");
    assert_eq!(events[0].reasons[0].since, Nanos::from_millis(300));
    assert_eq!(events[0].reasons[0].replica, "cart-1");
    assert_eq!(events[0].silent[0].as_str(), "cart-1");
}

#[test]
fn services_in_alarm_together_are_ranked_for_hooks_and_operators() {
    let mut node = Node::new(settings());
    node.worker(50, 0, 1);
    node.replica(1, "payment", &[labelled(counter("calls"), "peer", "store")]);
    node.replica(2, "store", &[counter("work")]);
    node.settle();
    let sent = node.set(50);
    let says = |node: &mut Node, at_ms: u64, name: &str, score, episode: proto::Episode| {
        let (epoch, lmap) = sent.iter().find(|(_, lmap)| lmap.service == name).unwrap();
        let reason = proto::Reason {
            metric: 1,
            statistic: proto::Statistic::Increment.into(),
            share: 1.0,
            ..Default::default()
        };
        let verdict = proto::Verdict {
            lmap: lmap.lmap,
            epoch: *epoch,
            score,
            gamma: 4.0,
            state: proto::State::Armed.into(),
            episode: episode.into(),
            reasons: vec![reason],
            ..proto::Verdict::default()
        };
        let (at_unix_ns, verdicts) = (at_ms * 1_000_000, vec![verdict]);
        node.receive(50, FromWorker::Verdicts(proto::Verdicts { at_unix_ns, verdicts }));
        node.dispatched().pop().unwrap().suspicion
    };
    let places = |node: &Node| {
        let lmaps = node.plane.status().lmaps.into_iter();
        lmaps.map(|lmap| (lmap.service, lmap.rank, lmap.points_at)).collect::<Vec<_>>()
    };
    let place = |service: &str, rank, points_at: &str| (service.to_owned(), rank, points_at.to_owned());

    let alone = says(&mut node, 1000, "payment", 80.0, proto::Episode::Began).unwrap();
    let cause = says(&mut node, 1300, "store", 12.0, proto::Episode::Began).unwrap();
    let victim = says(&mut node, 1400, "payment", 80.0, proto::Episode::On).unwrap();

    assert_eq!((alone.rank, alone.points_at), (1, None));
    assert_eq!((cause.rank, victim.rank, victim.points_at), (1, 2, Some(service("store"))));
    assert_eq!(places(&node), [place("payment", 2, "store"), place("store", 1, "")]);
    assert_eq!(says(&mut node, 2000, "payment", 1.0, proto::Episode::Ended), None);
    assert_eq!(places(&node), [place("payment", 2, "store"), place("store", 1, "")], "until all are quiet");
    says(&mut node, 2100, "store", 1.0, proto::Episode::Ended);
    assert_eq!(places(&node), [place("payment", 0, ""), place("store", 0, "")]);
}

#[test]
fn verdicts_of_another_epoch_lmap_or_worker_are_dropped_and_counted() {
    let (mut node, lmap, epoch) = running();
    node.worker(51, 1, 7);

    node.verdict(50, lmap, epoch - 1);
    node.verdict(50, lmap, epoch + 1);
    node.verdict(50, LmapId(99), epoch);
    node.verdict(51, lmap, epoch);

    assert!(node.dispatched().is_empty());
    assert_eq!(node.plane.counters().stale_verdicts, 2);
    assert_eq!(node.plane.counters().unexpected_verdicts, 2);
    node.verdict(50, lmap, epoch);
    assert_eq!(node.dispatched().len(), 1);
}

#[test]
fn workers_of_another_protocol_number_or_transport_are_refused() {
    let mut node = Node::new(settings());
    let good = proto::WorkerHello {
        protocol: 1,
        worker: 0,
        incarnation: 1,
        version: String::new(),
        transports: vec!["shm".into()],
        takes_lowest_share: true,
        ..proto::WorkerHello::default()
    };
    let bad = [
        proto::WorkerHello { protocol: 2, ..good.clone() },
        proto::WorkerHello { worker: 256, ..good.clone() },
        proto::WorkerHello { transports: vec!["pigeon".into()], ..good.clone() },
    ];
    for (connection, hello) in (70..).zip(&bad) {
        node.plane.worker_connected(node.now, ConnectionId(connection), &OWNER, hello);
        node.step();
        assert_eq!(reasons(&node.sent(connection)).len(), 1);
    }

    assert_eq!(node.plane.counters().refused_workers, 3);
    assert!(node.plane.status().workers.is_empty());
}

#[test]
fn a_run_of_a_worker_is_superseded_by_its_own_identity_only() {
    let mut node = Node::new(settings());
    node.worker(50, 0, 1);
    let hello = proto::WorkerHello {
        protocol: wire::control::PROTOCOL,
        incarnation: 2,
        transports: vec!["shm".into()],
        ..proto::WorkerHello::default()
    };
    let stranger = Identity::User { uid: 65_534, groups: vec![65_534] };

    node.plane.worker_connected(node.now, ConnectionId(51), &stranger, &hello);
    node.step();

    assert_eq!(reasons(&node.sent(51)), ["worker 0 runs already, as user 1000: stop it first, or take another number"]);
    assert!(node.plane.status().workers[0].connected);
    // Neither while it may come back, …
    node.plane.worker_gone(node.now, ConnectionId(50));
    node.plane.worker_connected(node.now, ConnectionId(52), &stranger, &hello);
    node.step();
    assert_eq!(reasons(&node.sent(52)).len(), 1);
    // … but the same user with another run, whatever its groups.
    let owner = Identity::User { uid: 1000, groups: vec![7] };
    node.plane.worker_connected(node.now, ConnectionId(53), &owner, &hello);
    node.step();
    assert!(reasons(&node.sent(53)).is_empty());
}

#[test]
fn what_connected_workers_leave_open_is_said_with_their_names_printable_and_bounded() {
    let mut node = Node::new(Settings { warnings: vec!["of its own".to_owned()], ..settings() });
    let hello = |worker: u32, warnings: Vec<String>| proto::WorkerHello {
        protocol: wire::control::PROTOCOL,
        worker,
        incarnation: u64::from(worker) + 1,
        transports: vec!["shm".into()],
        warnings,
        ..proto::WorkerHello::default()
    };
    let open = vec!["metrics.listen 0.0.0.0:9703 has no TLS".to_owned(), "a\u{1b}[2J\nINSECURE: b".to_owned()];
    let many = vec!["x".repeat(1000); 100];

    for (connection, hello) in (50..).zip([hello(0, open), hello(1, many), hello(2, Vec::new())]) {
        node.plane.worker_connected(node.now, ConnectionId(connection), &OWNER, &hello);
        node.step();
    }

    let said = node.plane.status().warnings;
    let expected =
        ["of its own", "worker-0: metrics.listen 0.0.0.0:9703 has no TLS", "worker-0: a\\u{1b}[2J\\u{a}INSECURE: b"];
    assert_eq!(said[..3], expected);
    let longest = format!("worker-1: {}", "x".repeat(256));
    assert!(said.len() == 3 + 16 && said[3..].iter().all(|line| *line == longest), "{said:?}");
    // Of one that is gone, nobody knows.
    node.plane.worker_gone(node.now, ConnectionId(51));
    assert_eq!(node.plane.status().warnings, expected);
}

#[test]
fn workers_get_the_lowest_share_that_a_hook_wants_and_those_without_support_send_all() {
    let mut node = Node::new(settings());
    let lowest = node.plane.settings.lowest_share;
    let shares = |node: &mut Node, connection| -> Vec<f64> {
        let share = |(_, message): (u64, Message)| match message {
            Message::Welcome(welcome) => Some(welcome.lowest_share),
            Message::SetLowestShare(set) => Some(set.share),
            _ => None,
        };
        node.sent(connection).into_iter().filter_map(share).collect()
    };
    node.worker(50, 0, 1);
    let older = proto::WorkerHello {
        protocol: wire::control::PROTOCOL,
        worker: 1,
        incarnation: 2,
        transports: vec!["shm".into()],
        ..proto::WorkerHello::default()
    };
    node.plane.worker_connected(node.now, ConnectionId(51), &OWNER, &older);
    node.step();
    assert_eq!((shares(&mut node, 50), shares(&mut node, 51)), (vec![1.0], vec![lowest]));

    for wanted in [0.8, 0.8, 0.0, f64::INFINITY] {
        node.plane.want_verdicts_from(wanted);
    }
    node.step();
    assert_eq!((shares(&mut node, 50), shares(&mut node, 51)), (vec![0.8, lowest, 1.0], vec![]));

    node.plane.want_verdicts_from(0.9);
    node.worker(52, 2, 3);
    assert_eq!(shares(&mut node, 52), [0.9]);
}

#[test]
fn a_second_hello_on_a_stream_is_unexpected_and_fences_the_worker() {
    let (mut node, ..) = running();
    node.receive(50, FromWorker::Hello(proto::WorkerHello::default()));

    assert_eq!(node.plane.counters().unexpected_messages, 1);
    assert_eq!(node.plane.counters().fenced_workers, 1);
}

#[test]
fn lmap_problems_are_accepted_from_the_worker_that_runs_the_lmap_only() {
    let (mut node, lmap, _) = running();
    node.worker(60, 1, 1);
    let problem = |lmap: u32| {
        FromWorker::LmapProblem(proto::LmapProblem { lmap, problem: format!("the model: {}", "x".repeat(1000)) })
    };

    node.receive(60, problem(lmap.0));
    node.receive(50, problem(lmap.0 + 1));
    assert_eq!((node.plane.counters().lmap_problems, node.plane.counters().unexpected_messages), (0, 2));
    node.receive(50, problem(lmap.0));

    assert_eq!(node.plane.counters().lmap_problems, 1);
    let problems = node.plane.status().problems;
    assert!(problems.iter().any(|line| line.starts_with("cart (lmap-1) on worker-0: the model: x")), "{problems:?}");
    assert!(problems.iter().all(|line| line.len() < 300), "what a worker says is cut");
}

#[test]
fn what_a_nic_agent_says_of_its_memory_is_known_while_it_is_connected() {
    let mut node = Node::new(settings());
    node.worker(50, 3, 7);
    let account = |bytes| {
        let row = proto::MemoryRow { what: "rows".to_owned(), bytes, ..Default::default() };
        proto::MemoryAccount { services: 600, columns: 100, rows: vec![row], resident_bytes: 5 }
    };
    assert!(node.plane.memory_accounts().is_empty(), "one of an earlier release says nothing");
    for bytes in [8, 9] {
        node.receive(50, FromWorker::Summary(proto::Summary { account: Some(account(bytes)), ..Default::default() }));
    }
    // Most summaries have none.
    node.receive(50, FromWorker::Summary(proto::Summary::default()));

    assert_eq!(node.plane.memory_accounts(), [(WorkerId(3), account(9))]);
    node.worker_gone(50);
    assert!(node.plane.memory_accounts().is_empty());
}
