//! Messages of the host agent, and the loss of the host agent.

use super::*;

fn acknowledged(messages: &[ToHost]) -> Vec<u64> {
    let epochs = messages.iter().filter_map(|message| match message {
        ToHost::Acknowledgement(acknowledge) => Some(acknowledge.epoch),
        _ => None,
    });
    epochs.collect()
}

fn armed() -> (Node, LmapSpec) {
    let mut node = Node::new(quick());
    let spec = lmap(metrics(4), 1);
    node.set(&spec);
    for tick in 0..60 {
        node.healthy(4, tick);
    }
    node.take_messages();
    (node, spec)
}

#[test]
fn every_change_is_acknowledged() {
    let mut node = Node::new(WorkerSettings::default());
    node.set(&lmap(metrics(2), 1));
    node.change(FromHost::FitAgain(proto::FitAgain { lmap: 1 })).unwrap();
    node.change(FromHost::RemoveLmap(proto::RemoveLmap { lmap: 1 })).unwrap();

    assert_eq!(acknowledged(&node.take_messages()), [1, 2, 3]);
}

#[test]
fn a_change_waits_for_the_batch_that_is_out() {
    let mut node = Node::new(WorkerSettings::default());
    node.set(&lmap(metrics(2), 1));
    node.take_messages();
    assert_eq!(node.worker.poll(node.now), Step::Fetch);

    node.change(FromHost::RemoveLmap(proto::RemoveLmap { lmap: 1 })).unwrap();
    assert_eq!(acknowledged(&node.take_messages()), [] as [u64; 0], "a READ of the earlier epoch is in flight");
    node.fetch();

    assert_eq!(acknowledged(&node.take_messages()), [2]);
    assert_eq!(node.worker.status().regions, 0);
}

#[test]
fn a_lost_or_repeated_epoch_closes_the_connection_and_is_not_acknowledged() {
    for wrong in [0, 1, 3, u64::MAX] {
        let mut node = Node::new(WorkerSettings::default());
        node.set(&lmap(metrics(2), 1));
        node.take_messages();

        let refused = node.receive(wrong, FromHost::RemoveLmap(proto::RemoveLmap { lmap: 1 })).unwrap_err();
        let after = node.receive(2, FromHost::RemoveLmap(proto::RemoveLmap { lmap: 1 })).unwrap_err();

        assert!(matches!(refused, UnexpectedMessage::Epoch { last: Epoch(1), .. }), "{refused}");
        assert!(matches!(after, UnexpectedMessage::TooEarly), "{after}");
        assert!(node.closed);
        assert_eq!(acknowledged(&node.take_messages()), [] as [u64; 0]);
        assert_eq!(node.worker.status().counters.unexpected_messages, 2);
    }
}

#[test]
fn messages_before_the_welcome_and_without_content_are_counted() {
    let mut node = Node::new(WorkerSettings::default());
    node.worker.disconnected(node.now);
    node.worker.connected(node.now);

    assert!(matches!(node.change(FromHost::SetLmap(proto::Lmap::default())), Err(UnexpectedMessage::TooEarly)));
    node.welcome(1);
    let empty = HostMessage { epoch: 2, message: None };
    assert!(matches!(node.worker.on_host(node.now, empty), Err(UnexpectedMessage::Unknown)));
    let unknown = node.receive(3, FromHost::FitAgain(proto::FitAgain { lmap: 9 }));

    assert!(
        matches!(unknown, Err(UnexpectedMessage::UnknownLmap(LmapId(9)))),
        "the epoch after it is taken: {unknown:?}"
    );
    assert_eq!(node.worker.status().counters.unexpected_messages, 3);
}

#[test]
fn an_invalid_configuration_ends_the_one_before() {
    let mut node = Node::new(WorkerSettings::default());
    let spec = lmap(metrics(2), 1);
    node.set(&spec);
    node.take_messages();
    let mut wrong = proto::Lmap::from(&spec);
    wrong.replicas[0].places[0].first_slot = 504;

    let refused = node.change(FromHost::SetLmap(wrong)).unwrap_err();

    assert!(matches!(refused, UnexpectedMessage::Lmap { lmap: LmapId(1), .. }), "{refused}");
    assert_eq!(node.worker.status().regions, 0, "slots may belong to others by now");
    assert_eq!(acknowledged(&node.take_messages()), [2]);
    node.set(&spec);
    assert_eq!(node.worker.status().attached, 1);
}

#[test]
fn a_worker_that_is_refused_lets_everything_go_and_comes_back_as_another() {
    let (mut node, _) = armed();
    let before = node.worker.hello().incarnation;

    let refused = node.receive(0, FromHost::Refusal(proto::Refusal { reason: "fenced".into() }));

    assert!(matches!(refused, Err(UnexpectedMessage::Refused(reason)) if reason == "fenced"));
    assert!(node.closed);
    assert_eq!(node.worker.status().regions, 0);
    assert_ne!(node.worker.hello().incarnation, before);
}

#[test]
fn ticks_that_were_missed_in_a_stop_longer_than_the_lease_are_counted() {
    let (mut node, _) = armed();
    let before = node.worker.status().counters;

    node.now = node.now.plus(Nanos(300 * INTERVAL.0));
    let refused = node.receive(0, FromHost::Refusal(proto::Refusal { reason: "fenced".into() }));

    assert!(refused.is_err());
    let after = node.worker.status().counters;
    assert_eq!((after.ticks - before.ticks, after.late_ticks - before.late_ticks), (0, 299));
}

#[test]
fn regions_that_stay_are_not_attached_again() {
    let mut node = Node::new(WorkerSettings::default());
    let mut spec = lmap(metrics(2), 2);
    node.set(&spec);
    spec.replicas.remove(0);

    node.epoch += 1;
    let set = HostMessage { epoch: node.epoch, message: Some(FromHost::SetLmap((&spec).into())) };
    node.worker.on_host(node.now, set).unwrap();

    assert_eq!(node.worker.take_effects(), [Effect::Detach(RegionId(1))]);
    assert_eq!(node.worker.status().attached, 1);
    assert_eq!(node.summary().0.pending_regions, 0);
}

#[test]
fn a_late_answer_for_an_earlier_run_of_the_host_agent_is_not_expected() {
    let mut node = Node::new(WorkerSettings::default());
    let spec = lmap(metrics(2), 1);
    let set = HostMessage { epoch: 1, message: Some(FromHost::SetLmap((&spec).into())) };
    node.worker.on_host(node.now, set.clone()).unwrap();
    let Some(Effect::Attach(old)) = node.worker.take_effects().pop() else { panic!("nothing to attach") };
    assert!(node.worker.expects(&old));

    node.worker.disconnected(node.now);
    node.welcome(2);
    node.worker.on_host(node.now, set).unwrap();

    assert!(!node.worker.expects(&old));
}

#[test]
fn learning_survives_a_host_agents_restart() {
    let (mut node, spec) = armed();
    node.worker.disconnected(node.now);
    for tick in 60..70 {
        node.healthy(4, tick);
    }
    node.welcome(2);
    assert_eq!(node.worker.status().regions, 0, "the old run's configuration is gone");
    assert_eq!(node.worker.status().retained_detectors, 1);

    // The new run assigns other ids.
    node.epoch = 100;
    let mut again = LmapSpec { id: LmapId(77), ..spec };
    for metric in &mut again.metrics {
        metric.id.0 += 10;
    }
    for place in &mut again.replicas[0].places {
        place.metric.0 += 10;
    }
    node.set(&again);
    node.healthy(4, 70);

    assert_eq!(node.worker.status().lmaps, [0, 1, 0, 0]);
    let verdict = &node.verdicts()[0];
    assert_eq!((verdict.lmap, verdict.epoch, verdict.state), (LmapId(77), Epoch(101), State::Armed));
}

#[test]
fn nothing_for_one_run_is_sent_to_another_and_the_loss_is_counted() {
    let (mut node, _) = armed();
    node.worker.disconnected(node.now);
    for tick in 60..80 {
        node.store(1, 1, 9e9_f64.to_bits());
        node.regions.values().for_each(Region::beat);
        node.add(1, 0, 1000 + noise(tick));
        node.add(1, 2, 1000 + noise(tick));
        node.tick();
    }
    assert_eq!(node.verdicts(), [], "no host agent is connected");

    node.welcome(2);
    node.act();

    assert_eq!(node.verdicts(), []);
    assert!(node.worker.status().counters.lost_verdicts > 10);
}

#[test]
fn verdicts_wait_for_the_same_run_of_the_host_agent() {
    let (mut node, _) = armed();
    node.worker.disconnected(node.now);
    for _ in 0..10 {
        node.tick();
    }

    node.welcome(1);
    node.act();

    let episodes: Vec<_> = node.verdicts().iter().map(|verdict| verdict.episode).collect();
    assert!(episodes.contains(&Episode::Began), "{episodes:?}");
}

#[test]
fn a_worker_without_a_host_agent_scrapes_on_for_a_bounded_time() {
    let (mut node, _) = armed();
    node.worker.disconnected(node.now);
    let gone = node.now;
    let ticks = node.worker.status().counters.ticks;

    while node.now < gone.plus(Nanos::from_secs(70)) {
        match node.worker.poll(node.now) {
            Step::SleepUntil(deadline) => node.now = deadline,
            Step::Fetch => node.fetch(),
        }
        node.act();
    }

    let status = node.worker.status();
    assert_eq!(status.counters.ticks - ticks, 599);
    assert_eq!((status.regions, status.retained_detectors), (0, 1));
}

#[test]
fn retained_detectors_are_dropped_in_the_end() {
    let (mut node, _) = armed();
    node.worker.disconnected(node.now);
    let gone = node.now;

    while node.now < gone.plus(Nanos::from_secs(700)) {
        match node.worker.poll(node.now) {
            Step::SleepUntil(deadline) => node.now = deadline,
            Step::Fetch => node.fetch(),
        }
        node.act();
    }

    assert_eq!(node.worker.status().retained_detectors, 0);
}

#[test]
fn retained_detectors_that_take_too_much_become_models_the_oldest_first() {
    let (kept, _) = armed();
    let most = kept.worker.runtimes.values().map(LmapRuntime::used_bytes).sum::<u64>() / 2;
    for (most, detectors, models) in [(u64::MAX, 1, 0), (most, 0, 1)] {
        let (mut node, _) = armed();
        node.worker.settings.max_retained_detector_bytes = most;
        node.worker.disconnected(node.now);
        node.worker.retain_all(node.now);

        let status = node.worker.status();

        assert_eq!((status.retained_detectors, status.retained_models), (detectors, models));
        assert_eq!(status.evicted_detectors, models as u64);
        assert_eq!(status.retained_detector_bytes > 0, detectors > 0);
    }
}

#[test]
fn a_layout_that_changes_without_a_host_agent_is_not_read_by_the_old_one() {
    let (mut node, _) = armed();
    node.worker.disconnected(node.now);

    node.regions[&RegionId(1)].set_generation(wire::id::Generation(9));
    let samples = node.worker.runtimes[&LmapId(1)].summarised_samples();
    for tick in 60..80 {
        node.healthy(4, tick);
    }

    assert_eq!(node.worker.runtimes[&LmapId(1)].summarised_samples(), samples);
}

#[test]
fn a_subscriber_gets_the_history_first_and_then_every_nth_row() {
    let (mut node, _) = armed();

    node.receive(
        0,
        FromHost::SubscribeRows(proto::SubscribeRows { lmap: 1, every: 5, features: false, columns: false }),
    )
    .unwrap();
    let before = node.rows();
    for tick in 60..80 {
        node.healthy(4, tick);
    }
    let after = node.rows();
    node.receive(
        0,
        FromHost::SubscribeRows(proto::SubscribeRows { lmap: 1, every: 0, features: false, columns: false }),
    )
    .unwrap();
    for tick in 80..90 {
        node.healthy(4, tick);
    }

    assert_eq!((before.len(), after.len()), (60, 4));
    assert_eq!(node.rows().len(), 0);
}

#[test]
fn buffered_rows_are_sent_with_the_epoch_of_their_configuration() {
    let mut node = Node::new(WorkerSettings::default());
    let mut spec = lmap(metrics(2), 1);
    spec.interval = Interval::new(Nanos::from_millis(10)).unwrap();
    node.set(&spec);
    node.watch_rows();
    node.alive();
    node.alive();

    spec.metrics.push(metric(3, "more", Kind::Gauge));
    spec.replicas[0] = replica(1, &spec.metrics);
    node.set(&spec);
    for _ in 0..20 {
        node.alive();
    }

    for message in node.take_messages() {
        if let ToHost::Rows(rows) = message {
            assert!(rows.rows.iter().all(|row| row.values.len() as u64 == rows.epoch + 1), "{rows:?}");
        }
    }
}

#[test]
fn a_short_lease_is_kept_by_frequent_summaries() {
    let mut node = Node::new(WorkerSettings::default());
    node.worker.disconnected(node.now);
    node.worker.connected(node.now);
    let welcome = proto::HostWelcome {
        host_incarnation: 1,
        lowest_share: f64::NAN,
        lease_ms: 300,
        ..proto::HostWelcome::default()
    };
    node.receive(0, FromHost::Welcome(welcome)).unwrap();

    while node.now < Nanos::from_secs(1) {
        let Step::SleepUntil(deadline) = node.worker.poll(node.now) else { panic!("nothing to fetch") };
        node.act();
        node.now = deadline;
    }

    let summaries = node.take_messages().iter().filter(|message| matches!(message, ToHost::Summary(_))).count();
    assert!(summaries >= 9, "{summaries} in a second with a lease of 300 ms");
}

#[test]
fn a_flood_of_messages_while_a_batch_is_out_closes_the_connection() {
    let mut node = Node::new(WorkerSettings::default());
    node.set(&lmap(metrics(2), 1));
    assert_eq!(node.worker.poll(node.now), Step::Fetch);
    let subscribe =
        || FromHost::SubscribeRows(proto::SubscribeRows { lmap: 1, every: 1, features: false, columns: false });

    let refused = (0..5000).find_map(|_| node.receive(0, subscribe()).err()).unwrap();

    assert!(matches!(refused, UnexpectedMessage::Flood(_)), "{refused}");
    assert!(node.closed);
}

#[test]
fn what_is_read_without_a_host_agent_is_not_learnt() {
    let mut node = Node::new(quick());
    let spec = lmap(metrics(4), 1);
    node.set(&spec);
    for tick in 0..10 {
        node.healthy(4, tick);
    }

    node.worker.disconnected(node.now);
    for tick in 10..60 {
        node.healthy(4, tick);
    }
    node.welcome(1);
    node.set(&spec);

    assert_eq!(node.worker.status().lmaps, [1, 0, 0, 0], "fifty rows without a host agent do not arm it");
    for tick in 60..120 {
        node.healthy(4, tick);
    }
    assert_eq!(node.worker.status().lmaps, [0, 1, 0, 0]);
}

/// The verdicts of 20 ticks of a counter that runs away, with or without rows asked for. The last of nine metrics never
/// changes.
fn of_a_fault(asks: bool) -> Vec<Verdict> {
    let mut node = Node::new(quick());
    node.set(&lmap(metrics(9), 1));
    for tick in 0..60 {
        node.healthy(8, tick);
    }
    node.take_messages();
    let subscribe = proto::SubscribeRows { lmap: 1, every: 0, features: asks, columns: false };
    node.receive(0, FromHost::SubscribeRows(subscribe)).unwrap();
    for tick in 60..80 {
        node.add(1, 0, 500_000);
        node.healthy(8, tick);
    }
    node.verdicts()
}

#[test]
fn verdicts_carry_their_row_and_its_residuals_only_while_somebody_asks() {
    let (with, without) = (of_a_fault(true), of_a_fault(false));

    assert!(without.iter().all(|verdict| verdict.features.is_none()) && !without.is_empty());
    assert_eq!(with.len(), without.len());
    let above = with.iter().find(|verdict| verdict.episode == Episode::Began).unwrap();
    let features = above.features.as_ref().unwrap();
    assert!(features.values[0] > 500_000.0 && features.has(9), "{features:?}");
    let (changing, constant) = features.residuals.split_at(8);
    assert!(constant[0].is_nan() && changing.iter().all(|of| of.is_finite()), "{features:?}");
    // Healthy rows leave less than one standard deviation per column.
    assert!(changing.iter().map(|of| of.powi(2)).sum::<f32>().sqrt() > 10.0, "{features:?}");
}

#[test]
fn a_summary_carries_each_column_only_while_somebody_asks() {
    let mut node = Node::new(quick());
    node.set(&lmap(metrics(9), 1));
    let subscribe =
        |columns| FromHost::SubscribeRows(proto::SubscribeRows { lmap: 1, every: 0, features: false, columns });
    let each = |node: &mut Node, from: u64| {
        (from..from + 60).for_each(|tick| node.healthy(8, tick));
        node.summary().0.each
    };
    assert_eq!(each(&mut node, 0).len(), 0);

    node.receive(0, subscribe(true)).unwrap();
    let judged = each(&mut node, 60);
    node.receive(0, subscribe(false)).unwrap();

    assert_eq!(judged.len(), 9, "also the one that never changes");
    assert!(judged.iter().all(|of| of.seen.is_finite() && of.expected.is_finite()), "{judged:?}");
    // Counters stood still for the last second, gauges did not move.
    let gauge = |of: &proto::Reason| (of.seen - of.expected).abs() < 0.5 * of.expected;
    assert!(judged[0].seen == 0.0 && judged[0].expected > 500.0 && gauge(&judged[1]), "{judged:?}");
    let shares: f64 = judged.iter().map(|of| of.share).sum();
    assert!((shares - 1.0).abs() < 1e-6, "{shares}");
    assert_eq!(each(&mut node, 120).len(), 0);
}

#[test]
fn rows_of_many_verdicts_travel_in_messages_of_bounded_size() {
    let mut node = Node::new(WorkerSettings::default());
    for id in 1..=8 {
        let mut spec = lmap(metrics(400), 1);
        spec.id = LmapId(id);
        spec.service = ServiceName::new(&format!("cart-{id}")).unwrap();
        node.set(&spec);
        node.receive(
            0,
            FromHost::SubscribeRows(proto::SubscribeRows { lmap: id, every: 0, features: true, columns: false }),
        )
        .unwrap();
    }
    node.take_messages();
    let messages: Vec<proto::Verdicts> = (0..4)
        .flat_map(|tick| {
            node.healthy(400, tick);
            node.take_messages()
        })
        .filter_map(|message| if let ToHost::Verdicts(verdicts) = message { Some(verdicts) } else { None })
        .collect();

    let with_rows = messages.iter().flat_map(|message| &message.verdicts).filter(|of| of.features.is_some()).count();
    assert!(with_rows >= 8, "{with_rows}");
    let largest = messages.iter().map(prost::Message::encoded_len).max().unwrap();
    assert!(largest < 2 * crate::outbox::ROWS_BYTES, "{largest}");
}
