//! What services may not do. It harms no other service.

use wire::registration::{PlacedSeries, Shards};

use super::super::testing::{counter, gauge, labelled};
use super::*;

#[test]
fn a_series_of_another_kind_is_refused_in_a_second_replica_and_the_rest_is_taken() {
    let mut node = Node::new(settings());
    node.replica(1, "cart", &[counter("a")]);
    node.connect(2);
    node.hello(2, "cart");
    node.region(2, 0);

    let both = vec![Ok(placed(gauge("a"), 0, 0)), Ok(placed(gauge("b"), 0, 1))];
    node.service_sends(2, ServiceMessage::AddSeries(both));

    let refusals = node.refusals(2);
    assert_eq!(refusals.len(), 1);
    assert!(refusals[0].starts_with("a: this metric is a counter, not a gauge"), "{refusals:?}");
    assert_eq!(node.plane.counters().refused_series, 1);
    assert_eq!(node.plane.list().lmaps[0].metrics.len(), 2);
    assert!(node.plane.status().problems[0].starts_with("cart cart-2: a: "));
}

#[test]
fn a_series_registered_twice_at_one_place_is_one() {
    let mut node = Node::new(settings());
    node.replica(1, "cart", &[counter("a")]);
    node.series(1, counter("a"), 0);

    assert!(node.refusals(1).is_empty());
    node.series(1, counter("a"), 1);
    assert!(node.refusals(1)[0].contains("at another place"));
    assert_eq!(node.plane.list().lmaps[0].metrics.len(), 1);
}

#[test]
fn a_counter_of_several_shards_is_one_metric_that_is_read_at_several_places() {
    let mut node = Node::new(settings());
    node.worker(9, 0, 1);
    node.connect(1);
    node.hello(1, "cart");
    node.region(1, 0);
    let sharded = |shards| PlacedSeries { shards: Shards::new(shards).unwrap(), ..placed(counter("a"), 0, 3) };

    node.service_sends(1, ServiceMessage::AddSeries(vec![Ok(sharded(4))]));
    node.settle();

    let (_, lmap) = node.set(9).pop().unwrap();
    let places: Vec<_> = lmap.replicas[0].places.iter().map(|place| place.first_slot).collect();
    assert_eq!((lmap.metrics.len(), places), (1, vec![3, 11, 19, 27]));
    node.service_sends(1, ServiceMessage::AddSeries(vec![Ok(sharded(2))]));
    assert!(node.refusals(1)[0].contains("at another place"));
    node.series(1, counter("b"), 34);
    assert!(node.refusals(1)[0].starts_with("b: "), "the rest of the last cache line is not free");
}

#[test]
fn a_process_registers_only_as_the_configured_services() {
    let services = Some(vec![service("cart")]);
    let rule = IdentityRule { uid: Some(1000), cgroup: None, services, of_processes: true };
    let mut node = Node::new(Settings { identities: [rule].into(), ..settings() });
    node.replica(1, "cart", &[counter("a")]);
    node.connect(2);

    node.hello(2, "payment");

    let refusals = node.refusals(2);
    assert!(refusals[0].contains("process 102 of user 1000 may not register as payment"), "{refusals:?}");
    assert!(node.did(&Action::CloseService { connection: ConnectionId(2) }));
    assert_eq!(node.plane.counters().refused_hellos, 1);
    assert_eq!(node.plane.list().lmaps.len(), 1);
}

#[test]
fn the_first_message_is_a_hello_and_no_other_one_is() {
    let mut node = Node::new(settings());
    node.connect(1);
    node.region(1, 0);
    assert!(node.did(&Action::DropRegion(RegionId(1))));
    assert!(node.did(&Action::CloseService { connection: ConnectionId(1) }));

    node.connect(2);
    node.hello(2, "cart");
    node.hello(2, "cart");
    assert!(node.did(&Action::CloseService { connection: ConnectionId(2) }));
    assert_eq!(node.plane.counters().refused_hellos, 2);
    assert_eq!(node.plane.sizes()[1], ("replicas", 0));
}

#[test]
fn a_connection_without_a_hello_is_closed_in_time() {
    let mut node = Node::new(settings());
    node.connect(1);
    node.connect(2);
    node.hello(2, "cart");
    assert_eq!(node.plane.poll(node.now), Nanos::from_secs(5));

    node.pass(Nanos::from_secs(5));

    assert!(node.did(&Action::CloseService { connection: ConnectionId(1) }));
    assert!(!node.did(&Action::CloseService { connection: ConnectionId(2) }));
    assert_eq!(node.plane.counters().late_hellos, 1);
    assert_eq!(node.plane.poll(node.now), Nanos::NEVER);
}

#[test]
fn garbage_closes_its_own_connection_only() {
    let mut node = Node::new(settings());
    node.replica(1, "cart", &[counter("a")]);
    node.replica(2, "cart", &[counter("a")]);

    node.plane.service_garbage(node.now, ConnectionId(1), "not a message");
    node.step();

    assert!(node.did(&Action::CloseService { connection: ConnectionId(1) }));
    assert_eq!(node.refusals(1), ["frame: not a message"]);
    assert_eq!(node.plane.counters().refused_frames, 1);
    assert_eq!(node.plane.list().lmaps[0].replicas.len(), 1);
}

#[test]
fn a_region_needs_a_good_descriptor_a_number_and_a_layout_that_is_known() {
    let mut node = Node::new(settings());
    node.connect(1);
    node.hello(1, "cart");
    let add = |region, layout_version| ServiceMessage::AddRegion { region, size: RegionSize::ONE_PAGE, layout_version };

    node.service_sends(1, add(0, VERSION));
    let bad = Descriptor::Refused("it is no memfd".into());
    node.plane.service_message(node.now, ConnectionId(1), add(1, VERSION), &bad);
    let good = Descriptor::Accepted(RegionId(5));
    node.plane.service_message(node.now, ConnectionId(1), add(2, VERSION + 1), &good);
    node.plane.service_message(node.now, ConnectionId(1), add(u32::MAX, VERSION), &good);
    node.step();

    let refusals = node.refusals(1);
    assert_eq!(refusals[0], "region 0: no descriptor came with the message");
    assert_eq!(refusals[1], "region 1: it is no memfd");
    assert!(refusals[2].contains("layout version 2"));
    assert!(refusals[3].contains("number regions upwards"));
    assert!(node.did(&Action::DropRegion(RegionId(5))));
    assert_eq!(node.plane.counters().refused_regions, 4);
    assert_eq!(node.plane.sizes()[1], ("replicas", 1), "the connection stands");
}

#[test]
fn a_series_in_a_region_of_the_agent_is_refused() {
    let mut node = Node::new(settings());
    node.replica(1, "cart", &[]);
    let own = vec![placed(counter("process.cpu.time"), 0, 0)];
    node.plane.agent_region(node.now, ConnectionId(1), RegionId(77), RegionSize::ONE_PAGE, own);

    node.service_sends(1, ServiceMessage::AddSeries(vec![Ok(placed(counter("a"), u32::MAX, 5))]));

    assert!(node.refusals(1)[0].contains("is not registered"));
    node.retire(1, 0, 1);
    let run = SlotRun { region: u32::MAX, first: wire::layout::Slot(0), slots: 1 };
    node.service_sends(1, ServiceMessage::Retire(vec![run]));
    assert_eq!(node.plane.list().lmaps[0].metrics.len(), 1);
}

#[test]
fn a_hundred_thousand_series_are_accepted_up_to_the_limit_with_few_refusal_messages() {
    let mut node = Node::new(settings());
    node.replica(1, "greedy", &[]);
    node.replica(2, "cart", &[counter("a")]);
    for number in 1..60 {
        node.region(1, number);
    }

    for message in 0..25 {
        let asked = message * 4000..(message + 1) * 4000;
        let series = asked.map(|at| Ok(placed(counter(&format!("m{at}")), at / 504, at % 504))).collect();
        node.service_sends(1, ServiceMessage::AddSeries(series));
    }

    let taken = wire::control::MAX_METRICS - Limits::OWN_SERIES;
    let refusals = node.refusals(1);
    assert!(refusals.iter().any(|refusal| refusal.contains("the limit of 4064 series")));
    assert_eq!(refusals.len(), 24 * 17);
    assert_eq!(node.plane.counters().refused_series, 100_000 - taken as u64);
    let watched: Vec<_> = node.plane.list().lmaps.iter().map(|lmap| lmap.metrics.len()).collect();
    assert_eq!(watched, [1, taken]);
}

#[test]
fn connections_replicas_and_memory_are_bounded() {
    let limits = Limits { connections: 4, replicas_per_service: 2, bytes_per_service: 3 * 4096, ..Limits::default() };
    let mut node = Node::new(Settings { limits, ..settings() });
    node.replica(1, "cart", &[counter("a")]);
    node.replica(2, "cart", &[counter("a")]);
    node.region(1, 1);
    node.region(2, 1);
    assert!(node.refusals(2)[0].contains("16384 bytes, over the limit of 12288"));

    node.connect(3);
    node.hello(3, "cart");
    assert!(node.refusals(3)[0].contains("cart has reached the limit of 2 replicas"));

    node.connect(4);
    node.connect(5);
    assert!(node.refusals(5)[0].contains("user 1000 would have 4 of 4 service connections with 0 free"));
    assert!(node.did(&Action::CloseService { connection: ConnectionId(5) }));
    assert_eq!(node.plane.counters().refused_connections, 1);
    node.gone(5);
    assert_eq!(node.plane.sizes()[1], ("replicas", 2));
}

#[test]
fn a_service_learns_how_many_of_its_messages_are_in_effect() {
    let mut node = Node::new(settings());
    node.replica(1, "cart", &[counter("a"), labelled(counter("a"), "route", "/")]);

    let messages = node.sent_to_service(1);
    assert!(matches!(&messages[0], to_service::agent_message::Message::Welcome(w) if w.agent_incarnation == 9));
    let last = messages.last().unwrap();
    assert!(matches!(last, to_service::agent_message::Message::Acknowledgement(accepted) if accepted.messages == 4));
}
