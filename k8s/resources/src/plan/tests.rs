use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::testing::{lmap, of_workload, pod};

fn names(plan: &Plan) -> Vec<&str> {
    plan.wanted.keys().map(String::as_str).collect()
}

fn invalid(spec: serde_json::Value) -> String {
    let plan = plan(&[lmap("shop", "a", 1, spec)], &[pod("shop", "payment", 1, &["app"])]);
    assert!(plan.wanted.is_empty());
    plan.selected[0].invalid.clone().unwrap()
}

#[test]
fn a_workload_is_all_of_its_services_and_a_container_is_one() {
    let pods = [pod("shop", "payment", 1, &["app", "proxy"]), pod("shop", "cart", 2, &["app"])];
    let of = |spec| {
        let plan = plan(&[lmap("shop", "a", 1, spec)], &pods);
        names(&plan).join(" ")
    };

    assert_eq!(of(of_workload("payment", "1s")), "shop/payment shop/payment/app shop/payment/proxy");
    assert_eq!(of(json!({"workload": {"name": "payment", "container": "proxy"}})), "shop/payment/proxy");
    assert_eq!(of(json!({"workload": {"name": "cart", "container": "app"}})), "shop/cart", "it has only one");
    assert_eq!(of(json!({"workload": {"name": "cart", "container": "none"}})), "");
    assert_eq!(of(json!({"workload": {"name": "cart", "kind": "DaemonSet"}})), "");
    assert_eq!(of(json!({"selector": {"matchLabels": {"app": "cart"}}})), "shop/cart");
    let other = json!({"selector": {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["payment"]}]}});
    assert_eq!(of(other), "shop/cart");
    assert_eq!(of(json!({"selector": {}})), "shop/cart shop/payment shop/payment/app shop/payment/proxy");
}

#[test]
fn what_is_absent_is_nothing_and_what_is_said_is_kept() {
    let spec = json!({"workload": {"name": "cart"}, "interval": "200ms", "adaptive": "off",
        "detector": {"rank": 4, "alarmsPerDay": 2.5}, "metrics": [{"name": "requests", "aggregation": "p90"}]});
    let plan = plan(&[lmap("shop", "a", 1, spec)], &[pod("shop", "cart", 1, &["app"])]);

    let settings = &plan.wanted["shop/cart"];
    assert_eq!((settings.by.as_str(), settings.interval), ("Lmap shop/a", Some(200_000)));
    assert_eq!(
        (settings.adaptive, settings.detector.rank, settings.detector.stride),
        (Some(Adaptive::Off), Some(4), None)
    );
    assert_eq!((settings.metrics.len(), settings.detector.alarms_per_day), (1, Some(2.5)));
}

#[test]
fn of_two_objects_the_older_one_has_the_say_and_the_other_is_told() {
    let pods = [pod("shop", "cart", 1, &["app"]), pod("shop", "payment", 2, &["app"])];
    let objects = [
        lmap("shop", "a-later", 20, json!({"selector": {}, "interval": "2s"})),
        lmap("shop", "z-older", 10, of_workload("cart", "1s")),
    ];

    let plan = plan(&objects, &pods);

    assert_eq!(plan.wanted["shop/cart"].by, "Lmap shop/z-older");
    assert_eq!(plan.wanted["shop/payment"].by, "Lmap shop/a-later");
    let later = &plan.selected[0];
    assert_eq!(later.conflicts.get("shop/cart"), Some(&("shop".to_owned(), "z-older".to_owned())));
    assert!(plan.selected[1].conflicts.is_empty());
}

#[test]
fn several_workloads_have_one_lmap_where_one_of_them_runs() {
    let spec = json!({"together": [
        {"workload": {"name": "cart"}, "metrics": [{"name": "requests"}]},
        {"workload": {"name": "payment", "container": "app"}},
        {"workload": {"name": "away", "kind": "StatefulSet", "container": "db"}},
    ]});
    let objects = [lmap("shop", "flow", 1, spec)];
    let pods = [pod("shop", "cart", 1, &["app"]), pod("shop", "payment", 2, &["app", "proxy"])];

    let both = plan(&objects, &pods);
    let none = plan(&objects, &[pod("shop", "else", 3, &["app"])]);

    assert_eq!(names(&both), ["shop/lmap:flow"]);
    let members: Vec<_> = both.wanted["shop/lmap:flow"].members.keys().map(String::as_str).collect();
    assert_eq!(members, ["shop/away/db", "shop/cart", "shop/payment/app"]);
    assert_eq!(none, Plan::default(), "it is about no pod of this node");
}

#[test]
fn objects_that_pass_the_schema_and_make_no_sense_say_why_and_change_nothing() {
    let twice = json!({"workload": {"name": "payment"}, "metrics": [{"name": "a"}, {"name": "a"}]});
    assert!(invalid(twice).contains("the metric a is named twice"));
    let workload = json!({"workload": {"name": "payment"}});
    assert!(invalid(json!({"together": [workload, workload]})).contains("shop/payment is in together twice"));
    assert!(invalid(json!({})).contains("set exactly one of workload"));
    assert!(invalid(json!({"workload": {"name": "payment"}, "selector": {}})).contains("set exactly one"));
    assert!(invalid(json!({"workload": {"name": "payment"}, "interval": "soon"})).contains("interval is soon"));
    assert!(invalid(json!({"workload": {"name": "payment", "kind": "Rollout"}})).contains("Rollout"));
}

#[test]
fn own_pods_are_nobodys() {
    let mut own = pod("shop", "payment", 1, &["app"]);
    own.is_own = true;

    assert_eq!(plan(&[lmap("shop", "a", 1, json!({"selector": {}}))], &[own]), Plan::default());
}

/// Objects of three namespaces about three workloads each.
pub(crate) fn objects() -> impl Strategy<Value = Vec<Declared>> {
    let names = prop::sample::select(vec!["a", "b", "c"]);
    let spec = (0..5_u32, names.clone(), names.clone(), 1..4_u32).prop_map(|(form, one, other, seconds)| {
        let interval = format!("{seconds}s");
        match form {
            0 => json!({"selector": {}, "interval": interval}),
            1 => json!({"selector": {"matchLabels": {"app": one}}, "interval": interval}),
            2 => {
                json!({"together": [{"workload": {"name": one}}, {"workload": {"name": other}}], "interval": interval})
            }
            _ => json!({"workload": {"name": one}, "interval": interval}),
        }
    });
    let object = (names.clone(), names, 0..3_i64, spec)
        .prop_map(|(namespace, name, created, spec)| lmap(namespace, name, created, spec));
    let unique = |objects: Vec<Declared>| {
        let by_key: BTreeMap<_, _> = objects.into_iter().map(|object| (object.key(), object)).collect();
        by_key.into_values().collect()
    };
    prop::collection::vec(object, 0..8).prop_map(unique)
}

/// One pod of some workloads of some namespaces.
pub(crate) fn pods() -> impl Strategy<Value = Vec<Pod>> {
    prop::collection::vec(any::<bool>(), 9).prop_map(|present| {
        let all = ["a", "b", "c"].into_iter().flat_map(|namespace| ["a", "b", "c"].map(|name| (namespace, name)));
        let number = |at: usize, (namespace, name): (&str, &str)| pod(namespace, name, at as u64, &["app"]);
        all.enumerate().filter(|(at, _)| present[*at]).map(|(at, of)| number(at, of)).collect()
    })
}

proptest! {
    #[test]
    fn order_does_not_matter_and_nothing_crosses_a_namespace(objects in objects(), pods in pods(), seed: u64) {
        let planned = plan(&objects, &pods);

        let (mut other_objects, mut other_pods) = (objects.clone(), pods.clone());
        let len = other_objects.len().max(1);
        other_objects.rotate_left((seed % len as u64) as usize % len.max(1));
        other_objects.reverse();
        other_pods.reverse();
        prop_assert_eq!(&plan(&other_objects, &other_pods), &planned);

        for selected in &planned.selected {
            let own = format!("{}/", selected.key.0);
            prop_assert!(selected.sets.iter().chain(selected.conflicts.keys()).all(|name| name.starts_with(&own)));
            prop_assert!(selected.conflicts.values().all(|(namespace, _)| *namespace == selected.key.0));
        }
        for (name, settings) in &planned.wanted {
            let own = format!("{}/", name.split_once('/').unwrap().0);
            prop_assert!(settings.by.strip_prefix("Lmap ").unwrap().starts_with(&own), "{} by {}", name, settings.by);
            prop_assert!(settings.members.keys().all(|member| member.starts_with(&own)));
        }
    }
}

#[test]
fn the_example_of_the_documentation_is_about_its_workload() {
    let page = include_str!("../../../../docs/kubernetes.md");
    let (_, example) = page.split_once("```yaml\napiVersion: uview.dev/v1alpha1\n").unwrap();
    let (example, _) = example.split_once("```").unwrap();
    let object: crate::Lmap = serde_saphyr::from_str(&format!("apiVersion: uview.dev/v1alpha1\n{example}")).unwrap();
    let namespace = object.metadata.namespace.unwrap();
    let declared = Declared { spec: Ok(object.spec), ..lmap(&namespace, "payment", 1, json!({})) };

    let plan = plan(&[declared], &[pod("shop", "payment", 1, &["app"])]);

    let settings = &plan.wanted["shop/payment"];
    assert_eq!((settings.interval, settings.adaptive), (Some(200_000), Some(Adaptive::AtMost(50_000))));
    assert_eq!((settings.detector.rank, settings.metrics.len()), (Some(8), 2));
}
