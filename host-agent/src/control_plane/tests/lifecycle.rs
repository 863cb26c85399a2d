//! Creation and removal of LMAPs.

use super::super::testing::{counter, gauge, histogram};
use super::*;

#[test]
fn the_first_replica_allocates_and_the_last_one_frees() {
    let mut node = Node::new(settings());
    node.worker(50, 0, 1);

    let first = node.replica(1, "cart", &[counter("a")]);
    let lmap = node.only_lmap();
    let second = node.replica(2, "cart", &[counter("a")]);
    assert_eq!(node.only_lmap(), lmap);
    node.settle();
    let set = node.set(50);
    assert_eq!(set.last().unwrap().1.replicas.len(), 2);

    node.gone(1);
    node.settle();
    let (epoch, set) = node.set(50).pop().unwrap();
    assert_eq!(set.replicas.len(), 1);
    assert!(!node.did(&Action::DropRegion(first)));
    node.acknowledge(50, epoch);
    assert!(node.did(&Action::DropRegion(first)));

    node.gone(2);
    let sent = node.sent(50);
    let (epoch, Message::RemoveLmap(removed)) = &sent[0] else { panic!("{sent:?}") };
    assert_eq!(removed.lmap, lmap.0);
    assert!(node.plane.list().lmaps.is_empty());
    node.acknowledge(50, *epoch);
    assert!(node.did(&Action::DropRegion(second)));
    assert_eq!(node.plane.pending_releases(), 0);
    assert_eq!(node.plane.counters().created_lmaps, node.plane.counters().deleted_lmaps);
}

#[test]
fn a_service_that_comes_back_gets_a_new_lmap() {
    let mut node = Node::new(settings());
    node.replica(1, "cart", &[counter("a")]);
    let first = node.only_lmap();
    node.gone(1);
    node.replica(2, "cart", &[counter("a")]);

    assert_ne!(node.only_lmap(), first);
}

#[test]
fn a_replica_without_a_series_makes_no_lmap() {
    let mut node = Node::new(settings());
    let region = node.replica(1, "cart", &[]);

    assert!(node.plane.list().lmaps.is_empty());
    node.gone(1);
    assert!(node.did(&Action::DropRegion(region)));
}

#[test]
fn without_a_worker_lmaps_wait_unplaced_and_nothing_is_lost() {
    let mut node = Node::new(settings());
    node.replica(1, "cart", &[counter("a")]);
    node.settle();
    assert_eq!(node.plane.status().lmaps[0].state, "waiting");
    assert_eq!(node.plane.sizes()[3], ("unplaced_lmaps", 1));

    node.worker(50, 0, 1);
    node.settle();

    assert_eq!(node.set(50).len(), 1);
    assert_eq!(node.plane.status().lmaps[0].state, "starting");
}

#[test]
fn many_small_changes_are_sent_as_one() {
    let mut node = Node::new(settings());
    node.worker(50, 0, 1);
    let all: Vec<_> = (0..100).map(|number| counter(&format!("a{number}"))).collect();
    node.replica(1, "cart", &all);

    node.settle();

    let set = node.set(50);
    assert_eq!(set.len(), 1);
    assert_eq!(set[0].1.metrics.len(), 100);
    assert_eq!(set[0].1.replicas[0].places.len(), 100);
}

#[test]
fn a_configuration_is_one_that_a_worker_takes() {
    let mut node = Node::new(settings());
    node.worker(50, 0, 1);
    node.replica(1, "cart", &[gauge("g"), counter("c"), histogram("h")]);
    node.region(1, 1);
    node.settle();

    let (_, lmap) = node.set(50).pop().unwrap();
    let spec = wire::control::LmapSpec::decode(&lmap).unwrap();

    assert_eq!(spec.replicas[0].regions.len(), 1, "a region with nothing in it is not fetched");
    assert!(spec.replicas[0].regions[0].heartbeat);
    assert_eq!(spec.metrics.len(), 3);
    assert_eq!(spec.interval.length(), Nanos::from_millis(100));
}

#[test]
fn lmaps_are_spread_over_workers_by_load_and_stay_where_they_are() {
    let mut node = Node::new(settings());
    let wide: Vec<_> = (0..50).map(|number| counter(&format!("a{number}"))).collect();
    node.replica(1, "wide", &wide);
    for number in 0..4 {
        node.replica(10 + number, &format!("narrow-{number}"), &wide[..10]);
    }
    node.worker(50, 0, 1);
    node.worker(51, 1, 2);
    node.settle();

    let (first, second) = (node.set(50), node.set(51));
    assert_eq!(first.len(), 1, "the wide one alone");
    assert_eq!(second.len(), 4);

    node.worker(52, 2, 3);
    node.settle();
    assert!(node.set(52).is_empty());
    node.replica(20, "new", &wide[..10]);
    node.settle();
    assert_eq!(node.set(52).len(), 1);
}

#[test]
fn process_metrics_are_of_the_same_lmap_and_their_region_has_no_heartbeat() {
    let mut node = Node::new(settings());
    node.worker(50, 0, 1);
    node.replica(1, "cart", &[counter("a")]);
    let own = vec![placed(counter("process.cpu.time"), 0, 0)];
    node.plane.agent_region(node.now, ConnectionId(1), RegionId(77), RegionSize::ONE_PAGE, own);
    node.settle();

    let (_, lmap) = node.set(50).pop().unwrap();
    let names: Vec<_> = lmap.metrics.iter().map(|metric| metric.name.as_str()).collect();
    assert_eq!(names, ["a", "process.cpu.time"]);
    let regions: Vec<_> = lmap.replicas[0].regions.iter().map(|region| (region.region, region.heartbeat)).collect();
    assert_eq!(regions, [(1, true), (77, false)]);

    node.gone(1);
    node.plane.agent_region(node.now, ConnectionId(1), RegionId(78), RegionSize::ONE_PAGE, Vec::new());
    node.step();
    assert!(node.did(&Action::DropRegion(RegionId(78))), "a region that came too late is dropped");
}

#[test]
fn what_is_measured_every_second_is_watched_every_second_and_read_when_it_has_changed() {
    let mut node = Node::new(settings());
    node.worker(50, 0, 1);
    node.connect(1);
    node.hello_of_measured(1, "network.way", Nanos::from_secs(1));
    let _ = node.region(1, 0);
    node.series(1, gauge("network.loss"), 0);
    node.settle();

    assert!(node.welcomed(1).awaits_changes);
    let (_, lmap) = node.set(50).pop().unwrap();
    let spec = wire::control::LmapSpec::decode(&lmap).unwrap();
    assert_eq!(spec.interval.length(), Nanos::from_secs(1));
    assert!(spec.replicas[0].regions.iter().all(|region| !region.heartbeat));

    // Values that change more often than rows come are watched at the default interval; other services are not
    // affected.
    node.connect(2);
    node.hello_of_measured(2, "network.fast", Nanos::from_millis(20));
    let _ = node.region(2, 0);
    node.series(2, gauge("network.loss"), 0);
    let _ = node.replica(3, "cart", &[gauge("a")]);
    node.settle();
    for (_, lmap) in node.set(50) {
        let spec = wire::control::LmapSpec::decode(&lmap).unwrap();
        assert_eq!(spec.interval.length(), Nanos::from_millis(100));
        assert_eq!(spec.replicas[0].regions[0].heartbeat, spec.service == service("cart"));
    }
    assert!(!node.welcomed(3).awaits_changes);
}

#[test]
fn values_of_the_agent_that_change_less_often_than_rows_come_hold_between_them() {
    let mut node = Node::new(settings());
    node.worker(50, 0, 1);
    let _ = node.replica(1, "cart", &[counter("requests")]);
    let (id, instance) = (ConnectionId(2), InstanceName::new("127.0.0.1:9121").unwrap());
    node.plane.agent_replica(id, service("cart"), instance);
    node.plane.agent_changes_every(id, Some(Interval::new(Nanos::from_millis(250)).unwrap()));
    let series = vec![placed(counter("scraped"), 0, 0)];
    node.plane.agent_region(node.now, id, RegionId(77), RegionSize::ONE_PAGE, series);
    node.settle();

    let (_, lmap) = node.set(50).pop().unwrap();
    let spec = wire::control::LmapSpec::decode(&lmap).unwrap();
    let every: Vec<_> = spec.metrics.iter().map(|of| (of.series.name.as_str(), of.every.get())).collect();
    assert_eq!(spec.interval.length(), Nanos::from_millis(100));
    assert_eq!(every, [("requests", 1), ("scraped", 3)]);
}

#[test]
fn a_faster_source_makes_rows_faster_whoever_came_first_and_a_slower_one_holds_between_them() {
    let mut node = Node::new(settings());
    node.worker(50, 0, 1);
    let source = |node: &mut Node, connection: u64, name: &str, millis: u64| {
        let (id, instance) = (ConnectionId(connection), InstanceName::new(name).unwrap());
        node.plane.agent_replica(id, service("cart"), instance);
        node.plane.agent_changes_every(id, Some(Interval::new(Nanos::from_millis(millis)).unwrap()));
        let series = vec![placed(counter(name), 0, 0)];
        node.plane.agent_region(node.now, id, RegionId(70 + connection), RegionSize::ONE_PAGE, series);
        node.settle();
    };
    let configured = |node: &mut Node| {
        let spec = wire::control::LmapSpec::decode(&node.set(50).pop().unwrap().1).unwrap();
        let mut every: Vec<_> =
            spec.metrics.iter().map(|of| (of.series.name.as_str().to_owned(), of.every.get())).collect();
        every.sort_unstable();
        (spec.interval.length().as_millis(), every)
    };
    let every = |all: &[(&str, u32)]| all.iter().map(|(name, every)| ((*name).to_owned(), *every)).collect::<Vec<_>>();

    source(&mut node, 1, "exported", 6_000);
    assert_eq!(configured(&mut node), (6_000, every(&[("exported", 1)])), "nothing changes between exports");
    // Somebody who has registered nothing yet asks for nothing.
    node.connect(2);
    node.hello(2, "cart");
    source(&mut node, 3, "scraped", 1_000);
    assert_eq!(configured(&mut node), (1_000, every(&[("exported", 6), ("scraped", 1)])));

    let _ = node.region(2, 0);
    node.series(2, counter("counted"), 0);
    node.settle();
    assert_eq!(configured(&mut node), (100, every(&[("counted", 1), ("exported", 60), ("scraped", 10)])));

    // It stays where it is for now: the fast one may come back.
    node.gone(2);
    node.settle();
    assert_eq!(configured(&mut node), (100, every(&[("exported", 60), ("scraped", 10)])));
    let default = IntervalChange { interval: Some(IntervalChoice::Default), ..IntervalChange::default() };
    let id = node.only_lmap();
    node.plane.set_interval(node.now, id, &default).unwrap();
    node.settle();
    assert_eq!(configured(&mut node).0, 1_000, "unless an operator says so");
}

#[test]
fn a_replica_without_process_metrics_is_announced_as_such() {
    let mut node = Node::new(settings());
    node.connect(1);
    node.hello_of_measured(1, "network.way", Nanos::from_secs(1));

    let joined = node.actions.iter().filter_map(|action| match action {
        Action::ReplicaJoined { process_metrics, .. } => Some(*process_metrics),
        _ => None,
    });
    assert_eq!(joined.collect::<Vec<_>>(), [false]);
}

#[test]
fn a_replica_that_is_taken_is_announced_for_its_process_to_be_measured() {
    let mut node = Node::new(settings());
    node.connect(1);
    node.hello(1, "cart");

    let joined = Action::ReplicaJoined {
        connection: ConnectionId(1),
        replica: wire::id::ReplicaId(1),
        service: service("cart"),
        instance: InstanceName::new("cart-1").unwrap(),
        pid: 101,
        process_metrics: true,
    };
    assert!(node.did(&joined));
    node.gone(1);
    assert!(node.did(&Action::ReplicaLeft { connection: ConnectionId(1) }));
}
