use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::testing::{declared, pod};

fn policy(namespace: &str, name: &str, created: i64, spec: Value) -> Declared<SynopsisPolicySpec> {
    declared(namespace, name, created, spec)
}

/// A pod with these addresses.
fn at(namespace: &str, workload: &str, number: u64, addresses: &[&str]) -> Pod {
    let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
    Pod { addresses, stage: Stage::Ready, ..pod(namespace, workload, number, &["app"]) }
}

fn invalid(spec: Value) -> String {
    let plan = plan(&[policy("shop", "a", 1, spec)], &[at("shop", "cart", 1, &["10.0.0.1"])]);
    assert!(plan.wanted.is_empty());
    plan.selected[0].invalid.clone().unwrap()
}

#[test]
fn each_workload_has_a_stream_with_the_addresses_of_its_pods_here() {
    let pods = [
        at("shop", "cart", 1, &["10.0.0.1", "fd00::1"]),
        at("shop", "cart", 2, &["10.0.0.2"]),
        Pod { stage: Stage::Over, ..at("shop", "cart", 3, &["10.0.0.3"]) },
        at("shop", "payment", 4, &["10.0.0.4"]),
        at("other", "cart", 5, &["10.0.0.5"]),
    ];
    let spec = json!({"selector": {}, "delay": "Handshake", "direction": "Sent", "port": 443, "heavyHitters": {"by": "Flow"},
        "cardinality": {"window": "1m"}, "interval": "5s", "interface": "eth0"});
    let plan = plan(&[policy("shop", "front", 7, spec)], &pods);

    let names: Vec<_> = plan.wanted.keys().map(String::as_str).collect();
    assert_eq!(names, ["network.shop.cart", "network.shop.payment"]);
    let cart = &plan.wanted["network.shop.cart"];
    let addresses: Vec<_> = cart.addresses.iter().map(ToString::to_string).collect();
    assert_eq!(addresses, ["10.0.0.1", "10.0.0.2", "fd00::1"]);
    assert_eq!(
        (cart.by.as_str(), cart.created, cart.interface.as_deref()),
        ("SynopsisPolicy shop/front", 7, Some("eth0"))
    );
    assert_eq!((cart.direction, cart.port, cart.interval_ms), (Direction::Sent, Some(443), 5_000));
    assert_eq!((cart.delay, cart.reordering, cart.window_ms), (Some(Delay::Handshake), false, Some(60_000)));
    assert_eq!((cart.heavy_hitters.unwrap().by.name(), cart.heavy_hitters.unwrap().weight.name()), ("flow", "bytes"));
    assert_eq!(stream_of("network.shop.cart"), "shop.cart");
}

#[test]
fn pods_whose_packets_cannot_be_told_apart_are_said() {
    let spec = || json!({"workload": {"name": "cart"}, "reordering": {}});
    let why = |pods: &[Pod]| {
        let plan = plan(&[policy("shop", "a", 1, spec())], pods);
        plan.wanted["network.shop.cart"].why_not.clone().unwrap_or_default()
    };
    let on_node = |number| Pod { has_host_network: true, ..at("shop", "cart", number, &["192.0.2.1"]) };

    assert!(why(&[on_node(1)]).contains("its pods are on the node's network"));
    let starting = plan(&[policy("shop", "a", 1, spec())], &[at("shop", "cart", 1, &[])]);
    let starting = &starting.wanted["network.shop.cart"];
    assert_eq!((starting.has_no_address, &starting.why_not), (true, &None));
    let plan = plan(&[policy("shop", "a", 1, spec())], &[on_node(1), at("shop", "cart", 2, &["10.0.0.2"])]);
    let cart = &plan.wanted["network.shop.cart"];
    assert_eq!((cart.addresses.len(), &cart.why_not), (1, &None), "the node's own address is left out");
    let many: Vec<_> = (0..=MAX_ADDRESSES as u64)
        .map(|number| at("shop", "cart", number, &[&format!("10.0.{}.{}", number / 256, number % 256)]))
        .collect();
    assert_eq!(why(&many), "its pods have 257 addresses here, 256 are the most");
}

#[test]
fn policies_that_pass_another_definition_and_make_no_sense_say_why() {
    let cart = json!({"name": "cart"});
    for (spec, why) in [
        (json!({"delay": "Dns"}), "exactly one of workload and selector"),
        (json!({"workload": cart}), "set at least one of delay"),
        (json!({"workload": cart, "delay": "Dns", "oneWay": "Rda"}), "oneWay is Rda: one-way delay and loss"),
        (json!({"workload": cart, "delay": "Dns", "interval": "2m"}), "interval is 2m: it must be from 100ms to 1m"),
        (json!({"workload": cart, "delay": "Dns", "interval": "soon"}), "interval is soon"),
        (
            json!({"workload": cart, "cardinality": {"window": "2h"}}),
            "cardinality.window is 2h: it must be from 100ms to 60m",
        ),
        (json!({"workload": {"name": "cart", "container": "app"}, "delay": "Dns"}), "workload.container is app"),
        (json!({"workload": cart, "delay": "Quic"}), "unknown variant `Quic`"),
    ] {
        let found = invalid(spec);
        assert!(found.contains(why), "{found}");
    }
    let long = format!("a{}", "b".repeat(120));
    let plan = plan(
        &[policy("shop", "a", 1, json!({"selector": {}, "delay": "Dns"}))],
        &[at("shop", &long, 1, &["10.0.0.1"])],
    );
    assert!(plan.selected[0].invalid.as_ref().unwrap().contains("128 are the most"));
}

#[test]
fn of_two_policies_for_a_workload_the_older_has_the_say() {
    let of = |name, created, delay| policy("shop", name, created, json!({"selector": {}, "delay": delay}));
    let plan = plan(&[of("a", 2, "Dns"), of("b", 1, "Data")], &[at("shop", "cart", 1, &["10.0.0.1"])]);

    assert_eq!(plan.wanted["network.shop.cart"].delay, Some(Delay::Data));
    let conflict = plan.selected[0].conflicts.first_key_value().unwrap();
    assert_eq!(conflict, (&"network.shop.cart".to_owned(), &("shop".to_owned(), "b".to_owned())));
}

#[test]
fn on_a_node_without_pods_a_policy_names_stream_and_interface() {
    let of = |spec| of_services(&[policy("", "front", 1, spec)]);
    let plan = of(json!({"workload": {"name": "front"}, "interface": "eth0", "port": 443, "delay": "Handshake"}));
    let front = &plan.wanted["network.front"];
    assert_eq!((front.addresses.len(), front.port, &front.why_not), (0, Some(443), &None));

    for (spec, why) in [
        (json!({"workload": {"name": "front"}, "delay": "Dns"}), "name the interface"),
        (json!({"selector": {}, "interface": "eth0", "delay": "Dns"}), "selector is for pods"),
        (
            json!({"workload": {"name": "a"}, "interface": "eth0", "delay": "Dns", "direction": "Sent"}),
            "direction is about",
        ),
    ] {
        let found = of(spec).selected[0].invalid.clone().unwrap();
        assert!(found.contains(why), "{found}");
    }
}

proptest! {
    #[test]
    fn the_order_of_policies_and_pods_does_not_matter(
        created in prop::collection::vec(0_i64..3, 1..5),
        pods in prop::collection::vec((0_u64..3, 0_u8..4), 0..6),
        turn in 0_usize..5,
    ) {
        let mut policies: Vec<_> = created.iter().enumerate().map(|(number, created)| {
            let spec = json!({"selector": {}, "delay": if number % 2 == 0 { "Dns" } else { "Data" }});
            policy("shop", &format!("of-{number}"), *created, spec)
        }).collect();
        let mut pods: Vec<_> = pods.iter().enumerate().map(|(number, (workload, host))| {
            at("shop", &format!("w{workload}"), number as u64, &[&format!("10.0.0.{host}")])
        }).collect();
        let first = plan(&policies, &pods);
        let turns = |of: usize| turn % of.max(1);
        let (by, pods_by) = (turns(policies.len()), turns(pods.len()));
        policies.rotate_left(by);
        pods.rotate_left(pods_by);
        prop_assert_eq!(plan(&policies, &pods), first);
    }
}
