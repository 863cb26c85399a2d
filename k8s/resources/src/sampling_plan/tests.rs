use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::plan::tests::pods;
use crate::report::{KindReport, KindWords, report_of};
use crate::testing::{declared, pod};
use crate::{NodeReport, SamplingPolicy};

const WORDS: KindWords = KindWords { kind: "SamplingPolicy", waits: "waits" };

fn policy(namespace: &str, name: &str, created: i64, spec: serde_json::Value) -> Declared<SamplingPolicySpec> {
    declared(namespace, name, created, spec)
}

fn invalid(spec: serde_json::Value) -> String {
    let plan = plan(&[policy("shop", "a", 1, spec)], &[pod("shop", "payment", 1, &["app"])]);
    assert!(plan.wanted.is_empty());
    plan.selected[0].invalid.clone().unwrap()
}

#[test]
fn a_policy_is_about_the_services_of_pods_and_not_of_their_containers() {
    let pods = [
        pod("shop", "payment", 1, &["app", "proxy"]),
        pod("shop", "cart", 2, &["app"]),
        pod("other", "cart", 3, &["app"]),
    ];
    let of = |spec| {
        let plan = plan(&[policy("shop", "a", 1, spec)], &pods);
        plan.wanted.keys().cloned().collect::<Vec<_>>().join(" ")
    };

    assert_eq!(of(json!({"workload": {"name": "payment"}, "share": 0.1})), "shop/payment");
    assert_eq!(of(json!({"workload": {"name": "payment", "kind": "Job"}, "share": 0.1})), "");
    assert_eq!(of(json!({"selector": {"matchLabels": {"app": "cart"}}, "reasons": []})), "shop/cart");
    assert_eq!(of(json!({"selector": {}, "reasons": ["error"]})), "shop/cart shop/payment");
}

#[test]
fn what_is_absent_is_as_configured_and_an_empty_list_is_none() {
    let pods = [pod("shop", "cart", 1, &["app"])];
    let of = |spec| {
        let plan = plan(&[policy("shop", "a", 1, spec)], &pods);
        (plan.wanted["shop/cart"].share, plan.wanted["shop/cart"].reasons.clone())
    };

    let cart = json!({"name": "cart"});
    assert_eq!(of(json!({"workload": cart, "share": 0.25})), (Some(0.25), None));
    assert_eq!(of(json!({"workload": cart, "reasons": []})), (None, Some(BTreeSet::new())));
    let two = BTreeSet::from([KeepReason::Error, KeepReason::Lmap]);
    assert_eq!(of(json!({"workload": cart, "reasons": ["lmap", "error"]})), (None, Some(two)));
}

#[test]
fn policies_that_pass_another_definition_and_make_no_sense_say_why() {
    let payment = json!({"name": "payment"});
    assert!(invalid(json!({"share": 0.1})).contains("exactly one of workload and selector"));
    assert!(invalid(json!({"workload": payment, "selector": {}, "share": 0.1})).contains("exactly one"));
    assert!(invalid(json!({"workload": payment})).contains("set share, reasons, or both"));
    assert!(invalid(json!({"workload": payment, "share": 0})).contains("share is 0: it must be above 0"));
    assert!(invalid(json!({"workload": payment, "share": 1.5})).contains("share is 1.5: it must be above 0, up to 1"));
    let container = json!({"name": "payment", "container": "app"});
    assert!(invalid(json!({"workload": container, "share": 0.1})).contains("workload.container is app"));
    assert!(invalid(json!({"workload": payment, "reasons": ["floor"]})).contains("floor"));
}

#[test]
fn of_two_policies_the_older_one_has_the_say_and_the_other_is_told() {
    let pods = [pod("shop", "cart", 1, &["app"]), pod("shop", "payment", 2, &["app"])];
    let policies = [
        policy("shop", "a-later", 20, json!({"selector": {}, "share": 0.5})),
        policy("shop", "z-older", 10, json!({"workload": {"name": "cart"}, "share": 0.1})),
    ];

    let plan = plan(&policies, &pods);

    let by = |service: &str| plan.wanted[service].by.as_str();
    assert_eq!((by("shop/cart"), by("shop/payment")), ("SamplingPolicy shop/z-older", "SamplingPolicy shop/a-later"));
    let now = Time(Timestamp::from_second(7).unwrap());
    let report = report_of(&plan, WORDS, (|_: &str| true, &BTreeMap::new()), (&[], &now));
    assert_eq!((report.applied, report.not_applied), (1, 1));
    let conflict = &report.states[0].conditions[1];
    assert_eq!((conflict.status.as_str(), conflict.reason.as_str()), ("True", "OlderSamplingPolicy"));
    assert!(conflict.message.starts_with("shop/cart is set by the older SamplingPolicy shop/z-older: delete one"));
    assert!(report.first_problem.starts_with("SamplingPolicy shop/a-later: shop/cart is set by"), "{report:?}");
    let node = NodeReport::of(&KindReport::default(), &report, &KindReport::default());
    assert_eq!((node.applied, node.not_applied, &node.first_problem), (1, 1, &report.first_problem));
    assert_eq!((node.lmaps.len(), node.sampling_policies.len()), (0, 2));
}

/// Policies of three namespaces about three workloads each.
fn policies() -> impl Strategy<Value = Vec<Declared<SamplingPolicySpec>>> {
    let names = prop::sample::select(vec!["a", "b", "c"]);
    let spec = (names.clone(), 0..3_u32).prop_map(|(name, form)| match form {
        0 => json!({"selector": {}, "share": 0.5}),
        1 => json!({"selector": {"matchLabels": {"app": name}}, "reasons": ["error"]}),
        _ => json!({"workload": {"name": name}, "share": 0.1}),
    });
    let one = (names.clone(), names, 0..3_i64, spec)
        .prop_map(|(namespace, name, created, spec)| policy(namespace, name, created, spec));
    prop::collection::vec(one, 0..8).prop_map(|policies| {
        let by_key: BTreeMap<_, _> = policies.into_iter().map(|policy| (policy.key(), policy)).collect();
        by_key.into_values().collect()
    })
}

proptest! {
    #[test]
    fn order_does_not_matter_and_nothing_crosses_a_namespace(policies in policies(), pods in pods()) {
        let planned = plan(&policies, &pods);

        let (mut other_policies, mut other_pods) = (policies.clone(), pods.clone());
        other_policies.reverse();
        other_pods.reverse();
        prop_assert_eq!(&plan(&other_policies, &other_pods), &planned);
        for (service, sampling) in &planned.wanted {
            let (namespace, _) = service.split_once('/').unwrap();
            let own = format!("SamplingPolicy {namespace}/");
            prop_assert!(sampling.by.starts_with(&own), "{} by {}", service, sampling.by);
        }
        for selected in &planned.selected {
            prop_assert!(selected.conflicts.values().all(|(namespace, _)| *namespace == selected.key.0));
        }
    }
}

#[test]
fn the_example_of_the_documentation_is_about_its_workload() {
    let page = include_str!("../../../../docs/kubernetes.md");
    let (_, example) = page.split_once("```yaml\napiVersion: uview.dev/v1alpha1\nkind: SamplingPolicy\n").unwrap();
    let (example, _) = example.split_once("```").unwrap();
    let head = "apiVersion: uview.dev/v1alpha1\nkind: SamplingPolicy\n";
    let object: SamplingPolicy = serde_saphyr::from_str(&format!("{head}{example}")).unwrap();
    let spec = serde_json::to_value(object.spec).unwrap();

    let plan = plan(&[policy("shop", "payment", 1, spec)], &[pod("shop", "payment", 1, &["app"])]);

    let sampling = &plan.wanted["shop/payment"];
    let reasons = BTreeSet::from([KeepReason::Error, KeepReason::Lmap]);
    assert_eq!((sampling.share, &sampling.reasons), (Some(0.1), &Some(reasons)));
}
