//! Replicas that are added, removed, or fall silent.

use super::*;
use crate::region_limits::RegionLimits;

/// A node whose LMAP of four metrics is armed, without earlier messages.
fn armed(replicas: u32) -> (Node, LmapSpec) {
    let mut node = Node::new(quick());
    let spec = lmap(metrics(4), replicas);
    node.set(&spec);
    for tick in 0..60 {
        node.healthy(4, tick);
    }
    let verdicts = node.verdicts();
    assert!(verdicts.iter().any(|verdict| verdict.state == State::Armed), "{verdicts:?}");
    (node, spec)
}

#[test]
fn a_silent_service_is_an_alarm_of_its_own_that_begins_once_and_ends() {
    let (mut node, _) = armed(1);

    let verdicts: Vec<Verdict> = (0..6)
        .flat_map(|_| {
            node.tick();
            node.verdicts()
        })
        .collect();
    let samples = node.worker.status().lmaps;
    let mut after = Vec::new();
    for tick in 100..120 {
        node.healthy(4, tick);
        after.extend(node.verdicts());
    }

    // The detector may notice first that nothing changes. It is one alarm all the same.
    let began = verdicts.iter().filter(|verdict| verdict.episode == Episode::Began).count();
    let silent: Vec<_> = verdicts.iter().filter(|verdict| verdict.state == State::Silent).collect();
    assert_eq!(began, 1, "{verdicts:?}");
    assert!(silent[1..].iter().all(|verdict| verdict.episode == Episode::On));
    assert_eq!(silent.len(), 4, "three periods without a heartbeat, and the rest of the six: {verdicts:?}");
    assert_eq!(silent[0].silent, [ReplicaId(1)]);
    assert_eq!(samples, [0, 0, 0, 1]);
    assert_eq!(after[0].state, State::Armed, "it speaks");
    assert!(after[0].silent.is_empty());
    assert_eq!(after.iter().filter(|verdict| verdict.episode == Episode::Ended).count(), 1);
}

#[test]
fn a_detector_is_not_fed_while_all_are_silent() {
    let (mut node, _) = armed(1);
    for _ in 0..5 {
        node.tick();
    }
    let before = node.worker.runtimes[&LmapId(1)].summarised_samples();

    for _ in 0..50 {
        node.tick();
    }

    assert_eq!(node.worker.runtimes[&LmapId(1)].summarised_samples(), before);
}

#[test]
fn one_silent_replica_does_not_stop_the_others() {
    let (mut node, _) = armed(3);
    node.watch_rows();

    for tick in 100..110 {
        for region in [1, 2] {
            node.regions[&RegionId(region)].beat();
            node.add(region, 0, 1000);
            node.store(region, 1, (50.0 + noise(tick) as f64 / 10.0).to_bits());
        }
        node.tick();
    }

    let messages = node.take_messages();
    node.messages = messages.clone();
    let verdict = node.verdicts().pop().unwrap();
    assert_eq!((verdict.state, verdict.silent), (State::Silent, vec![ReplicaId(3)]));
    node.messages = messages;
    let rows = node.rows();
    assert_eq!(rows.len(), 10);
    assert_eq!(rows[9][0], 2000.0, "the sum is that of the two that speak");
}

#[test]
fn what_a_silent_replica_did_does_not_come_as_one_increment() {
    let (mut node, _) = armed(1);
    node.watch_rows();
    for _ in 0..20 {
        node.tick();
    }

    node.add(1, 0, 1_000_000);
    node.alive();
    node.add(1, 0, 1000);
    node.alive();

    let rows = node.rows();
    let increments: Vec<f64> = rows.iter().rev().take(2).map(|row| row[0]).collect();
    assert_eq!(increments[0], 1000.0);
    assert!(increments[1].is_nan());
}

#[test]
fn a_replica_that_comes_or_goes_brings_and_takes_no_cumulative_value() {
    let (mut node, spec) = armed(2);
    node.watch_rows();
    let grown = LmapSpec { replicas: (1..=3).map(|id| replica(id, &spec.metrics)).collect(), ..spec.clone() };
    node.regions.insert(RegionId(3), Region::new(RegionSize::ONE_PAGE));
    node.store(3, 0, 5_000_000_000);

    let mut last = Vec::new();
    for (tick, spec) in [(100, &grown), (101, &grown), (102, &spec), (103, &spec)] {
        if tick % 2 == 0 {
            node.set(spec);
        }
        node.healthy(4, tick);
        last.extend(node.rows().pop().map(|row| row[0]));
    }

    assert!((2000.0..2200.0).contains(&last[0]), "the third has no increment yet: {last:?}");
    assert!((3000.0..3300.0).contains(&last[1]), "{last:?}");
    assert!((2000.0..2200.0).contains(&last[2]), "{last:?}");
    assert!((2000.0..2200.0).contains(&last[3]), "{last:?}");
}

#[test]
fn a_replica_whose_region_cannot_be_attached_is_reported_tried_again_and_silent_meanwhile() {
    let mut node = Node::new(WorkerSettings::default());
    let spec = lmap(metrics(2), 1);
    node.change(FromHost::SetLmap((&spec).into())).unwrap();

    for _ in 0..20 {
        node.tick();
    }
    let messages = node.take_messages();
    let problems = messages.iter().filter(|message| matches!(message, ToHost::RegionProblem(_))).count();
    assert!((3..8).contains(&problems), "{problems} tries in two seconds");
    node.messages = messages;
    assert!(node.verdicts().iter().any(|verdict| verdict.state == State::Silent));

    node.regions.insert(RegionId(1), Region::new(RegionSize::ONE_PAGE));
    for _ in 0..150 {
        node.alive();
    }

    assert_eq!(node.worker.status().attached, 1);
    let ended: Vec<_> = node.verdicts().into_iter().filter(|verdict| verdict.episode == Episode::Ended).collect();
    assert!(matches!(&ended[..], [verdict] if verdict.state != State::Silent), "{ended:?}");
}

#[test]
fn a_region_that_is_slow_to_attach_is_not_silence() {
    let mut node = Node::new(WorkerSettings::default());
    let spec = lmap(metrics(2), 1);
    node.regions.insert(RegionId(1), Region::new(RegionSize::ONE_PAGE));
    node.epoch += 1;
    let set = HostMessage { epoch: node.epoch, message: Some(FromHost::SetLmap((&spec).into())) };
    node.worker.on_host(node.now, set).unwrap();
    let effects = node.worker.take_effects();

    for _ in 0..30 {
        node.tick();
    }

    assert!(matches!(effects[..], [Effect::Attach(_)]));
    assert!(node.verdicts().iter().all(|verdict| verdict.state == State::Learning));
    assert_eq!(node.summary().0.pending_regions, 1);
}

#[test]
fn process_metrics_are_read_as_they_are_sampled() {
    let mut node = Node::new(WorkerSettings::default());
    let mut spec = lmap(Vec::new(), 1);
    let process = RegionSpec { id: RegionId(50), heartbeat: false, ..spec.replicas[0].regions[0] };
    let every = NonZeroU32::new(3).unwrap();
    spec.metrics.push(metric(3, "process.cpu.time", Kind::Counter));
    spec.metrics.push(MetricSpec { every, ..metric(4, "process.io", Kind::Counter) });
    spec.replicas[0].regions.push(process);
    for metric in [3, 4] {
        spec.replicas[0].places.push(MetricPlace {
            metric: MetricId(metric),
            region: RegionId(50),
            first: Slot(metric),
        });
    }
    node.set(&spec);
    node.watch_rows();

    // The sampler's clock drifts against the worker's: no sample in some ticks, two in others.
    for samples in [1, 1, 1, 0, 2, 1, 0, 2, 1, 1] {
        for _ in 0..samples {
            node.regions[&RegionId(50)].beat();
            node.add(50, 3, 100);
            node.add(50, 4, 100);
        }
        node.regions[&RegionId(1)].beat();
        node.tick();
    }

    let rows = node.rows();
    let quick: Vec<f64> = rows.iter().map(|row| row[0]).collect();
    assert!(quick.iter().all(|increment| increment.is_nan() || *increment == 100.0), "{quick:?}");
    assert_eq!(quick.iter().filter(|increment| increment.is_nan()).count(), 3, "{quick:?}");
    let slow: Vec<f64> = rows.iter().map(|row| row[1]).skip(3).collect();
    assert!(
        slow.iter().all(|increment| (66.0..=134.0).contains(increment)),
        "what was written between looks: {slow:?}"
    );
}

#[test]
fn a_region_without_heartbeat_does_not_keep_a_dead_replica_alive() {
    let mut node = Node::new(WorkerSettings::default());
    let mut spec = lmap(metrics(2), 1);
    let process = RegionSpec { id: RegionId(50), heartbeat: false, ..spec.replicas[0].regions[0] };
    spec.metrics.push(metric(3, "process.cpu.time", Kind::Counter));
    spec.replicas[0].regions.push(process);
    spec.replicas[0].places.push(MetricPlace { metric: MetricId(3), region: RegionId(50), first: Slot(0) });
    node.set(&spec);
    node.alive();

    for _ in 0..5 {
        node.regions[&RegionId(50)].beat();
        node.tick();
    }

    assert_eq!(node.verdicts().pop().map(|verdict| verdict.state), Some(State::Silent));
}

#[test]
fn a_strangers_replica_does_not_cost_a_service_its_lmap() {
    let limits = RegionLimits { regions: 8, ..WorkerSettings::default().regions };
    let mut node = Node::new(WorkerSettings { regions: limits, ..quick() });
    let mut spec = lmap(metrics(4), 7);
    // More than three times what would be free.
    spec.replicas[1..].iter_mut().for_each(|replica| replica.owner = Owner::User(65_534));
    // One of its metrics is the stranger's only.
    spec.replicas[0].places.truncate(3);
    let mut other = spec.clone();
    spec.replicas.iter().flat_map(|replica| &replica.regions).for_each(|region| {
        node.regions.insert(region.id, Region::new(region.size));
    });

    let refused = node.change(FromHost::SetLmap((&spec).into())).unwrap_err();
    assert!(refused.to_string().contains("monitored without the replicas of user 65534"), "{refused}");
    assert_eq!(node.worker.status().lmaps.iter().sum::<usize>(), 1);
    assert_eq!(node.worker.runtimes[&LmapId(1)].regions.claims().count(), 1);
    let problem = node.take_messages().into_iter().find_map(|message| match message {
        ToHost::LmapProblem(problem) => Some(problem.problem),
        _ => None,
    });
    assert!(problem.is_some_and(|text| text.contains("would have 6 of 8 regions of this worker")));

    for _ in 0..3 {
        node.alive();
    }
    assert!(node.worker.status().counters.fetched_regions >= 3);

    // Alone, it has no LMAP.
    other.id = LmapId(2);
    other.replicas.remove(0);
    let refused = node.change(FromHost::SetLmap((&other).into())).unwrap_err();
    assert!(matches!(refused, UnexpectedMessage::Regions { .. }), "{refused}");
    assert_eq!(node.worker.status().lmaps.iter().sum::<usize>(), 1);
}

#[test]
fn a_silent_service_of_several_takes_its_columns_only_and_all_of_them_are_an_alarm() {
    let mut node = Node::new(quick());
    let mut spec = LmapSpec { several_services: true, ..lmap(metrics(4), 2) };
    for (replica, own) in spec.replicas.iter_mut().zip([[1, 2], [3, 4]]) {
        replica.places.retain(|place| own.contains(&place.metric.0));
    }
    node.set(&spec);
    for tick in 0..60 {
        node.healthy(4, tick);
    }
    node.watch_rows();

    for tick in 100..110 {
        node.regions[&RegionId(1)].beat();
        node.add(1, 0, 1000);
        node.store(1, 1, (50.0 + noise(tick) as f64 / 10.0).to_bits());
        node.tick();
    }

    let messages = node.take_messages();
    node.messages = messages.clone();
    let verdicts = node.verdicts();
    assert!(verdicts.iter().all(|verdict| verdict.state != State::Silent && verdict.silent.is_empty()), "{verdicts:?}");
    node.messages = messages;
    let last = node.rows().pop().unwrap();
    assert_eq!(last[0], 1000.0, "the other service is judged");
    assert!(last[2].is_nan() && last[3].is_nan(), "{last:?}");

    for _ in 0..5 {
        node.tick();
    }
    let verdict = node.verdicts().pop().unwrap();
    assert_eq!((verdict.state, verdict.silent), (State::Silent, vec![ReplicaId(1), ReplicaId(2)]));
}

/// Verdicts of five ticks in which the gauge of metric 4 is far off in the regions that are `faulty`.
fn fault(node: &mut Node, from: u64, faulty: &[u64]) -> Vec<Verdict> {
    node.take_messages();
    for tick in from..from + 5 {
        for region in node.regions.keys().map(|region| region.0).collect::<Vec<_>>() {
            for id in 1..=4 {
                let noise = noise(tick << 16 | region << 8 | u64::from(id));
                match id {
                    4 if faulty.contains(&region) => node.store(region, 3, 5000.0_f64.to_bits()),
                    _ if id % 2 == 1 => node.add(region, id - 1, 1000 + noise),
                    _ => node.store(region, id - 1, (50.0 + noise as f64 / 10.0).to_bits()),
                }
            }
        }
        node.alive();
    }
    node.verdicts()
}

/// A node whose LMAP of `service` is armed: three replicas, whose containers' memory, metric 2, is added up, and
/// nothing else is.
fn armed_with_memory(service: &str) -> (Node, LmapSpec) {
    let detector = lmap::Settings { latch_rows: Some(30), ..quick().detector };
    let mut node = Node::new(WorkerSettings { detector, ..quick() });
    let mut metrics = metrics(4);
    for metric in &mut metrics {
        metric.aggregation = Aggregation::Mean;
    }
    metrics[1].series.name = MetricName::new("container.memory.usage").unwrap();
    metrics[1].aggregation = Aggregation::Sum;
    let spec = LmapSpec { service: ServiceName::new(service).unwrap(), ..lmap(metrics, 3) };
    node.set(&spec);
    for tick in 0..60 {
        node.healthy(4, tick);
    }
    node.take_messages();
    (node, spec)
}

/// Whether an alarm begins within 20 ticks, in each of which `change` happens after healthy load.
fn begins(node: &mut Node, from: u64, change: impl Fn(&Node)) -> bool {
    for tick in from..from + 20 {
        node.healthy_with(4, tick, &change);
    }
    node.verdicts().iter().any(|verdict| verdict.episode == Episode::Began)
}

#[test]
fn a_pod_that_goes_takes_its_memory_along_without_an_alarm_and_more_than_twice_as_much_is_one() {
    for (service, is_alarm) in [("shop/cart", false), ("cart", true)] {
        let (mut node, spec) = armed_with_memory(service);
        let fewer = LmapSpec { replicas: spec.replicas[..2].to_vec(), ..spec.clone() };

        node.set(&fewer);

        assert_eq!(begins(&mut node, 100, |_| ()), is_alarm, "{service}, two of three");
        if !is_alarm {
            node.set(&spec);
            assert!(!begins(&mut node, 200, |_| ()), "all three, as before");
            node.set(&fewer);
            assert!(begins(&mut node, 300, |node| node.store(2, 1, 500_f64.to_bits())), "a leak in one of two");
        }
    }
}

/// The replica that the first reason of the alarm names.
fn named(verdicts: &[Verdict]) -> Option<ReplicaId> {
    let began = verdicts.iter().find(|verdict| verdict.episode == Episode::Began).unwrap();
    assert_eq!(began.reasons[0].metric, MetricId(4), "{began:?}");
    began.reasons[0].replica
}

#[test]
fn an_alarm_names_the_replica_that_goes_wrong_and_none_if_all_do_alike() {
    for (replicas, faulty, expected) in [
        (2, &[2][..], Some(ReplicaId(2))),
        (3, &[1][..], Some(ReplicaId(1))),
        (1, &[1][..], Some(ReplicaId(1))),
        (2, &[1, 2][..], None),
        (3, &[1, 2, 3][..], None),
    ] {
        let (mut node, _) = armed(replicas);

        assert_eq!(named(&fault(&mut node, 60, faulty)), expected, "{faulty:?} of {replicas}");
    }
}

#[test]
fn a_summary_names_the_replica_of_its_worst_row() {
    let (mut node, _) = armed(2);
    // From one summary to the middle of a period.
    for tick in 60..71 {
        node.healthy(4, tick);
    }
    fault(&mut node, 71, &[2]);
    for tick in 76..87 {
        node.healthy(4, tick);
    }

    let summaries = node.take_messages().into_iter().filter_map(|message| match message {
        ToHost::Summary(summary) => Some(summary.lmaps),
        _ => None,
    });
    let reasons: Vec<_> = summaries.flatten().flat_map(|summary| summary.reasons).collect();
    let named = reasons.iter().find(|reason| reason.metric == 4 && reason.seen > 1000.0);
    assert_eq!(named.map(|reason| reason.replica), Some(Some(2)), "{reasons:?}");
}
