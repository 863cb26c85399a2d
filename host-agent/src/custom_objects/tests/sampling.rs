//! `SamplingPolicy`s, from the API server to the services' traces and back.

use hooks::tracing::Policy;
use otlp::EdgeHandle;
use tokio::net::TcpListener;

use super::*;
use crate::config::Config;

const LONG_AGO: &str = "2026-01-01T00:00:00Z";

/// An endpoint that samples as `traces` says, and forwards to nobody.
pub(super) fn edge(traces: &str) -> EdgeHandle {
    let text = format!("otlp: {{upstream: {{endpoint: 'http://127.0.0.1:9'}}, traces: {traces}}}");
    let settings = Config::parse(&text).unwrap().otlp.settings(7, "node-1").unwrap().unwrap();
    otlp::start(&settings, Vec::<TcpListener>::new()).unwrap()
}

fn policy(name: &str, created: &str, workload: &str, more: &Value) -> Value {
    let mut spec = more.clone();
    spec["workload"] = json!({"kind": "Pod", "name": workload});
    object("SamplingPolicy", name, created, &spec)
}

impl Running {
    /// With these policies, and no `Lmap`.
    async fn sampling(policies: Vec<Value>, edge: Option<&EdgeHandle>) -> Self {
        let policies = ToldObjects { lists: [Ok(policies)].into(), ..ToldObjects::default() };
        Self::start_with(ToldObjects::default(), policies, edge.map(|edge| Arc::clone(edge.edge()))).await
    }

    fn said(&self, name: &str, kind: &str) -> Option<[String; 3]> {
        self.condition_of("samplingPolicies", name, kind)
    }
}

/// Whether errors of `service` keep no traces at `edge`.
fn is_off(edge: &EdgeHandle, service: &str) -> bool {
    edge.edge().with_tail(|tail, _| tail.policies().services().is_off(service, Policy::Error)).unwrap()
}

#[tokio::test]
async fn a_policy_is_applied_changed_and_gone() {
    let edge = edge("{keep: tail}");
    let of = |reasons: Value| policy("quiet", LONG_AGO, "cart", &json!({"reasons": reasons, "share": 0.2}));
    let running = Running::sampling(vec![of(json!(["lmap"]))], Some(&edge)).await;

    running.until("errors of cart keep no traces", |_| is_off(&edge, "shop/cart")).await;
    assert!(!is_off(&edge, "shop/payment"));
    running.until("it is reported", |of| is(of.said("quiet", "Applied"), "True", "Applied", "")).await;
    let written = running.server.written();
    let last = written.last().unwrap();
    assert_eq!((&last["applied"], &last["lmaps"]), (&json!(1), &json!([])));
    assert_eq!(last["samplingPolicies"][0]["services"], json!(["shop/cart"]));

    running.server.tell("MODIFIED", &of(json!(["error"])));
    running.until("errors of cart keep traces again", |_| !is_off(&edge, "shop/cart")).await;
    running.server.tell("DELETED", &of(json!(["error"])));
    let is_empty = |edge: &EdgeHandle| edge.edge().with_tail(|tail, _| tail.policies().services().is_empty());
    running.until("nothing is left of it", |_| is_empty(&edge) == Some(true)).await;
    running
        .until("nothing is left to say", |of| {
            of.server.written().last().is_some_and(|last| last["samplingPolicies"] == json!([]))
        })
        .await;
    assert_eq!(running.objects.problems(), Vec::<String>::new());
}

#[tokio::test]
async fn the_older_of_two_has_the_say_and_what_this_node_cannot_do_is_refused() {
    let edge = edge("{keep: tail, floor: 0.05, latency: false}");
    let listed = vec![
        policy("a-later", "2026-01-02T00:00:00Z", "cart", &json!({"reasons": ["error"]})),
        policy("b-latency", LONG_AGO, "payment", &json!({"reasons": ["error", "latency"]})),
        policy("z-older", LONG_AGO, "cart", &json!({"reasons": []})),
    ];
    let running = Running::sampling(listed, Some(&edge)).await;

    running.until("the older one is in effect", |_| is_off(&edge, "shop/cart")).await;
    running.until("all are told", |of| is(of.said("z-older", "Applied"), "True", "Applied", "")).await;
    let conflict = running.said("a-later", "Conflicted");
    let what = "shop/cart is set by the older SamplingPolicy shop/z-older: delete one of the two";
    assert!(is(conflict.clone(), "True", "OlderSamplingPolicy", what), "{conflict:?}");
    let refused = running.said("b-latency", "Applied");
    assert!(
        is(refused.clone(), "False", "Refused", "shop/payment: latency keeps no traces on this node"),
        "{refused:?}"
    );
    let problems = running.objects.problems();
    assert!(problems[0].starts_with("kubernetes: SamplingPolicy shop/a-later: shop/cart is set by"), "{problems:?}");

    // The older one goes: the other one is next.
    running.server.tell("DELETED", &policy("z-older", LONG_AGO, "cart", &json!({"reasons": []})));
    running.until("the later one is in effect", |of| is(of.said("a-later", "Applied"), "True", "Applied", "")).await;
    assert!(!is_off(&edge, "shop/cart"));
    let below = policy("below", LONG_AGO, "cart", &json!({"share": 0.01}));
    running.server.tell("ADDED", &below);
    running
        .until("it is refused", |of| is(of.said("below", "Applied"), "False", "Refused", "less than the 0.05"))
        .await;
}

#[tokio::test]
async fn where_no_traces_are_chosen_policies_say_what_to_set() {
    let half = || vec![policy("half", LONG_AGO, "cart", &json!({"share": 0.5}))];

    let forwarding = edge("{keep: all}");
    let running = Running::sampling(half(), Some(&forwarding)).await;
    let what = "shop/cart: this node chooses no traces: set otlp.traces.keep to tail";
    running.until("it is refused", |of| is(of.said("half", "Applied"), "False", "Refused", what)).await;

    let running = Running::sampling(half(), None).await;
    running.until("it is refused", |of| is(of.said("half", "Applied"), "False", "Refused", "set otlp.upstream")).await;
}

#[tokio::test]
async fn a_kind_that_is_not_installed_hides_nothing_of_the_other() {
    let edge = edge("{keep: tail}");
    let missing =
        || ToldObjects { lists: (0..50).map(|_| Err(StatusCode::NOT_FOUND)).collect(), ..ToldObjects::default() };
    let told = |object: Value| ToldObjects { lists: [Ok(vec![object])].into(), ..ToldObjects::default() };

    let quiet = policy("quiet", LONG_AGO, "cart", &json!({"reasons": []}));
    let running = Running::start_with(missing(), told(quiet), Some(Arc::clone(edge.edge()))).await;
    running.until("the policy is in effect", |of| is(of.said("quiet", "Applied"), "True", "Applied", "")).await;

    let fast = lmap("fast", LONG_AGO, &json!({"workload": {"kind": "Pod", "name": "cart"}, "interval": "200ms"}));
    let running = Running::start_with(told(fast), missing(), Some(Arc::clone(edge.edge()))).await;
    running.until("the Lmap is in effect", |of| is(of.condition("fast", "Applied"), "True", "Applied", "")).await;
}

#[tokio::test]
async fn policies_wait_until_it_is_known_where_traces_are_sampled() {
    let objects = CustomObjects::new("kubernetes", "node-1".to_owned(), Pace::default());
    let pods = PodWatch::new(PodPlan::default(), Clock::start());
    for event in [Event::Init, Event::InitApply(super::pod("cart", 1)), Event::InitDone] {
        pods.apply(Ok(event));
    }
    let mut listed = KnownObjects::default();
    let quiet = serde_json::from_value(policy("quiet", LONG_AGO, "cart", &json!({"reasons": []}))).unwrap();
    for event in [Event::Init, Event::InitApply(quiet), Event::InitDone] {
        objects.policies.take(Ok(event), &mut listed);
    }
    let mut reconciler = super::super::sampling::PolicyReconciler::default();

    assert!(!reconciler.look(&objects, Some(&pods)), "a policy is not refused before the endpoint has started");
    let edge = edge("{keep: tail}");
    objects.set_edge(Some(Arc::clone(edge.edge())));
    assert!(reconciler.look(&objects, Some(&pods)) && is_off(&edge, "shop/cart"));
}
