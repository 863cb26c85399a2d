//! An API server of the test's own tells of custom resources, and takes what came of them.

mod files;
mod sampling;
mod status;
mod synopses;

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroU64;
use std::sync::Mutex;

use axum::extract::{RawQuery, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Json, Router};
use kube::runtime::watcher::Event;
use otlp::Edge;
use resources::plan::{MAX_OBJECT_BYTES, MAX_OBJECTS};
use serde_json::{Value, json};
use support::clock::Stopwatch;
use support::wait::Wait;
use wire::id::{Incarnation, LmapId};
use wire::layout::Slot;
use wire::metric::{Declaration, Group, Kind, Series};
use wire::name::{InstanceName, Labels, MetricName, ServiceName};
use wire::proto::operators::LmapStatus;
use wire::registration::{PlacedSeries, Shards};
use wire::time::{Interval, Nanos};

use super::known::KnownObjects;
use super::*;
use crate::clock::Clock;
use crate::control_plane::Settings;
use crate::filled_region::{FilledRegion, Sampling};
use crate::pod_watch::PodPlan;

const WITHIN: Duration = Duration::from_secs(20);
const WAIT: Wait = Wait::up_to(WITHIN);

/// What is told of one kind: lists in the order of requests, and events of watches.
#[derive(Debug, Default)]
struct ToldObjects {
    lists: VecDeque<Result<Vec<Value>, StatusCode>>,
    watches: VecDeque<Value>,
}

#[derive(Debug, Default)]
struct Answers {
    lmaps: ToldObjects,
    policies: ToldObjects,
    synopses: ToldObjects,
    /// How the next writes of statuses are refused: code, and `Retry-After` in seconds.
    refusals: VecDeque<(StatusCode, Option<u64>)>,
    /// When it was attempted to write a status, by the server's clock.
    attempts: Vec<Duration>,
    /// Statuses that were written, oldest first.
    written: Vec<Value>,
    /// Queries of lists.
    asked: Vec<String>,
}

impl Answers {
    fn of(&mut self, kind: &str) -> &mut ToldObjects {
        match kind {
            "Lmap" => &mut self.lmaps,
            "SamplingPolicy" => &mut self.policies,
            _ => &mut self.synopses,
        }
    }
}

#[derive(Clone, Debug)]
struct ApiServer(Arc<Mutex<Answers>>, Stopwatch);

impl ApiServer {
    async fn answer(&self, kind: &str, query: &str) -> Response {
        if query.contains("watch=true") {
            // As long as there is nothing to tell, the watch waits; with what is told it ends, and begins anew.
            loop {
                if let Some(event) = self.0.lock().unwrap().of(kind).watches.pop_front() {
                    return format!("{event}\n").into_response();
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        self.0.lock().unwrap().asked.push(query.to_owned());
        match self.0.lock().unwrap().of(kind).lists.pop_front().unwrap_or(Ok(Vec::new())) {
            Ok(items) => Json(json!({"kind": format!("{kind}List"), "apiVersion": "uview.dev/v1alpha1",
                "metadata": {"resourceVersion": "7"}, "items": items}))
            .into_response(),
            Err(code) => failure(code),
        }
    }

    /// Tells of one change of an object.
    fn tell(&self, change: &str, object: &Value) {
        let kind = object["kind"].as_str().unwrap();
        self.0.lock().unwrap().of(kind).watches.push_back(json!({"type": change, "object": object}));
    }

    /// Takes a status, unless it is to be refused.
    fn take(&self, status: &str) -> Response {
        let object: Value = serde_json::from_str(status).unwrap();
        let mut answers = self.0.lock().unwrap();
        answers.attempts.push(self.1.elapsed());
        if let Some((code, retry_after)) = answers.refusals.pop_front() {
            let mut response = failure(code);
            if let Some(seconds) = retry_after {
                response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
            }
            return response;
        }
        answers.written.push(object.clone());
        Json(object).into_response()
    }

    fn written(&self) -> Vec<Value> {
        self.0.lock().unwrap().written.clone()
    }
}

fn failure(code: StatusCode) -> Response {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "it does not want to", "reason": "NotFound", "code": code.as_u16()});
    (code, Json(status)).into_response()
}

fn lmap(name: &str, created: &str, spec: &Value) -> Value {
    object("Lmap", name, created, spec)
}

fn object(kind: &str, name: &str, created: &str, spec: &Value) -> Value {
    json!({"apiVersion": "uview.dev/v1alpha1", "kind": kind, "spec": spec,
        "metadata": {"name": name, "namespace": "shop", "uid": name, "resourceVersion": "8", "generation": 3,
            "creationTimestamp": created}})
}

/// A node with two pods, `cart` and `payment`, and an LMAP for each.
struct Running {
    node: Arc<Node>,
    objects: Arc<CustomObjects>,
    server: ApiServer,
    _regions: Vec<FilledRegion>,
}

fn pod(name: &str, number: u64) -> k8s_openapi::api::core::v1::Pod {
    let addresses = json!([{"ip": format!("10.0.0.{number}")}]);
    let object = json!({"metadata": {"name": name, "namespace": "shop", "uid": format!("{number:032x}")},
        "spec": {"containers": [{"name": "app"}]}, "status": {"podIPs": addresses}});
    serde_json::from_value(object).unwrap()
}

/// The replica `name` of the service of its pod.
fn replica(name: &str, node: &Node) -> FilledRegion {
    replica_of(&format!("shop/{name}"), name, node)
}

fn replica_of(service: &str, name: &str, node: &Node) -> FilledRegion {
    let series = Series {
        name: MetricName::new("requests").unwrap(),
        labels: Labels::default(),
        kind: Kind::Counter,
        unit: None,
        group: Group::Service,
        parts_per_unit: NonZeroU64::MIN,
    };
    let placed = PlacedSeries { series, region: 0, first: Slot(0), shards: Shards::ONE, declared: Declaration::NONE };
    let who = (ServiceName::new(service).unwrap(), InstanceName::new(name).unwrap());
    let sampling = Sampling { every: Nanos::from_millis(100), fastest: None, first: Nanos::ZERO };
    FilledRegion::create("test", who, (1, vec![placed]), sampling, |_| {}, node).unwrap()
}

fn lmap_of(node: &Node, name: &str) -> Option<LmapStatus> {
    let service = ServiceName::new(name).unwrap();
    node.inspect(|plane, _| {
        let LmapId(id) = plane.lmap_of(&service)?;
        plane.status().lmaps.into_iter().find(|lmap| lmap.lmap == id)
    })
}

fn interval_ms(node: &Node, name: &str) -> Option<u64> {
    lmap_of(node, name).map(|lmap| lmap.interval_us / 1000)
}

impl Running {
    /// With these `Lmap`s.
    async fn start(lists: impl IntoIterator<Item = Result<Vec<Value>, StatusCode>>) -> Self {
        Self::start_with(
            ToldObjects { lists: lists.into_iter().collect(), ..ToldObjects::default() },
            ToldObjects::default(),
            None,
        )
        .await
    }

    /// With these objects, on a node that samples traces at `edge`.
    async fn start_with(lmaps: ToldObjects, policies: ToldObjects, edge: Option<Arc<Edge>>) -> Self {
        Self::start_told(Answers { lmaps, policies, ..Answers::default() }, edge).await
    }

    /// With what the API server tells, on a node that samples traces at `edge`.
    async fn start_told(told: Answers, edge: Option<Arc<Edge>>) -> Self {
        let server = ApiServer(Arc::new(Mutex::new(told)), Stopwatch::start());
        let of_kind = |kind: &'static str| {
            get(async move |State(server): State<ApiServer>, RawQuery(query): RawQuery| {
                server.answer(kind, &query.unwrap_or_default()).await
            })
        };
        let status = get(async || failure(StatusCode::NOT_FOUND)).patch(
            async |State(server): State<ApiServer>, RawQuery(query): RawQuery, body: String| {
                assert!(query.is_some_and(|query| query.contains("force=true")));
                server.take(&body)
            },
        );
        let router = Router::new()
            .route("/apis/uview.dev/v1alpha1/lmaps", of_kind("Lmap"))
            .route("/apis/uview.dev/v1alpha1/samplingpolicies", of_kind("SamplingPolicy"))
            .route("/apis/uview.dev/v1alpha1/synopsispolicies", of_kind("SynopsisPolicy"))
            .route("/apis/uview.dev/v1alpha1/lmapnodestatuses/node-1", status)
            .with_state(server.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, router).await });
        let mut settings = Settings::new(Incarnation(1), Interval::new(Nanos::from_secs(1)).unwrap());
        let bound = |millis| Interval::new(Nanos::from_millis(millis)).unwrap();
        settings.operator_bounds = (bound(10), bound(60_000));
        settings.lease = Nanos::from_secs(60);
        let node = Arc::new(Node::new(settings, 4, Clock::start(), None));
        let pods = Arc::new(PodWatch::new(PodPlan::default(), node.clock()));
        for event in
            [Event::Init, Event::InitApply(pod("cart", 1)), Event::InitApply(pod("payment", 2)), Event::InitDone]
        {
            pods.apply(Ok(event));
        }
        let regions = ["cart", "payment"].map(|name| replica(name, &node)).into();
        let short = Duration::from_millis(5);
        let pace = Pace { look: short, again: short, settle: short, write: short, files: short };
        let objects = Arc::new(CustomObjects::new("kubernetes", "node-1".to_owned(), pace));
        objects.set_edge(edge);
        let (of, running) = (Arc::clone(&objects), Arc::clone(&node));
        let config = kube::Config::new(format!("http://{address}").parse().unwrap());
        let kinds = WatchedKinds { lmaps: true, sampling_policies: true, synopsis_policies: true };
        tokio::spawn(async move { Box::pin(run(config, kinds, &of, &pods, &running)).await });
        Self { node, objects, server, _regions: regions }
    }

    fn lmap(&self, name: &str) -> Option<LmapStatus> {
        lmap_of(&self.node, name)
    }

    fn interval_ms(&self, name: &str) -> Option<u64> {
        interval_ms(&self.node, name)
    }

    #[track_caller]
    fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) -> impl Future<Output = ()> {
        let seen = || (&self.objects, self.server.written().pop());
        WAIT.until_async(what, async move || holds(self).then_some(()).ok_or_else(seen))
    }

    /// The last condition `kind` of the `Lmap` `name`: status, reason, message.
    fn condition(&self, name: &str, kind: &str) -> Option<[String; 3]> {
        self.condition_of("lmaps", name, kind)
    }

    /// The last condition `kind` of the object `name` of the list `field`.
    fn condition_of(&self, field: &str, name: &str, kind: &str) -> Option<[String; 3]> {
        let written = self.server.written();
        let objects = written.last()?[field].as_array()?;
        let object = objects.iter().find(|object| object["name"] == name)?;
        let condition = object["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)?;
        Some(["status", "reason", "message"].map(|key| condition[key].as_str().unwrap_or_default().to_owned()))
    }
}

fn is(condition: Option<[String; 3]>, status: &str, reason: &str, part: &str) -> bool {
    condition.is_some_and(|[s, r, message]| s == status && r == reason && message.contains(part))
}

#[tokio::test]
async fn an_object_is_applied_changed_and_gone() {
    let of = |interval| {
        let (workload, detector) = (json!({"kind": "Pod", "name": "cart"}), json!({"rank": 4, "margin": 2}));
        json!({"workload": workload, "interval": interval, "detector": detector})
    };
    let object = |interval| lmap("fast", "2026-01-01T00:00:00Z", &of(interval));
    let running = Running::start([Ok(vec![object("200ms")])]).await;

    running.until("the interval is set", |of| of.interval_ms("shop/cart") == Some(200)).await;
    assert_eq!(running.interval_ms("shop/payment"), Some(1000));
    let cart = running.lmap("shop/cart").unwrap();
    assert_eq!((cart.interval_by.as_str(), cart.detector.unwrap().rank), ("Lmap shop/fast", Some(4)));
    running.until("it is reported", |of| is(of.condition("fast", "Applied"), "True", "Applied", "")).await;
    let written = running.server.written();
    let last = written.last().unwrap();
    assert_eq!(
        (&last["metadata"]["name"], &last["kind"], &last["applied"]),
        (&json!("node-1"), &json!("LmapNodeStatus"), &json!(1))
    );
    assert_eq!(
        (&last["lmaps"][0]["services"], &last["lmaps"][0]["conditions"][0]["observedGeneration"]),
        (&json!(["shop/cart"]), &json!(3))
    );

    running.server.tell("MODIFIED", &object("500ms"));
    running.until("it is changed", |of| of.interval_ms("shop/cart") == Some(500)).await;
    running.server.tell("DELETED", &object("500ms"));
    running.until("it is as configured", |of| of.interval_ms("shop/cart") == Some(1000)).await;
    assert_eq!(running.lmap("shop/cart").unwrap().interval_by, "");
    running
        .until("nothing is left to say", |of| of.server.written().last().is_some_and(|last| last["lmaps"] == json!([])))
        .await;
    assert_eq!(running.objects.problems(), Vec::<String>::new());
}

#[tokio::test]
async fn conflicts_and_nonsense_are_told_with_what_to_do_and_hide_nothing_else() {
    let workload = |interval: &str| json!({"workload": {"kind": "Pod", "name": "cart"}, "interval": interval});
    let derived = json!([{"name": "x", "derived": "requests /"}]);
    let formula = json!({"workload": {"kind": "Pod", "name": "payment"}, "metrics": derived});
    let listed = vec![
        lmap("a-later", "2026-01-02T00:00:00Z", &workload("2s")),
        lmap("b-newer-kind", "2026-01-01T00:00:00Z", &json!({"workload": {"kind": "Rollout", "name": "cart"}})),
        lmap("c-formula", "2026-01-01T00:00:00Z", &formula),
        lmap("z-older", "2026-01-01T00:00:00Z", &workload("200ms")),
    ];
    let running = Running::start([Ok(listed)]).await;

    running.until("the older one is in effect", |of| of.interval_ms("shop/cart") == Some(200)).await;
    running.until("all four are told", |of| is(of.condition("z-older", "Applied"), "True", "Applied", "")).await;

    let conflict = running.condition("a-later", "Conflicted");
    assert!(
        is(conflict.clone(), "True", "OlderLmap", "older Lmap shop/z-older: delete one of the two"),
        "{conflict:?}"
    );
    let kind = running.condition("b-newer-kind", "Applied");
    assert!(is(kind.clone(), "False", "Invalid", "is the definition of Lmap that of this release"), "{kind:?}");
    let formula = running.condition("c-formula", "Applied");
    assert!(is(formula.clone(), "False", "Refused", "shop/payment: at "), "{formula:?}");
    let problems = running.objects.problems();
    assert!(problems[0].starts_with("kubernetes: Lmap shop/a-later: shop/cart is set by"), "{problems:?}");
    assert!(problems[0].ends_with("; and 2 more"), "{problems:?}");
}

#[tokio::test]
async fn several_workloads_are_watched_together_until_the_object_is_gone() {
    let together = json!({"together": [
        {"workload": {"kind": "Pod", "name": "cart"}, "metrics": [{"name": "requests"}]},
        {"workload": {"kind": "Pod", "name": "payment"}},
    ], "interval": "500ms"});
    let object = lmap("flow", "2026-01-01T00:00:00Z", &together);
    let running = Running::start([Ok(vec![object.clone()])]).await;

    running.until("it is made", |of| of.interval_ms("shop/lmap:flow") == Some(500)).await;
    assert_eq!(running.interval_ms("shop/cart"), Some(1000), "its services have their own");
    let members = running.node.inspect(|plane, _| {
        let id = plane.lmap_of(&ServiceName::new("shop/lmap:flow").unwrap()).unwrap();
        plane.members(id, Nanos::ZERO)
    });
    let names: Vec<_> = members.iter().map(|member| member.service.as_str()).collect();
    assert_eq!(names, ["shop/cart", "shop/payment"]);

    running.server.tell("DELETED", &object);
    running.until("it is gone", |of| of.lmap("shop/lmap:flow").is_none()).await;
}

#[tokio::test]
async fn without_the_kind_nothing_is_said_and_without_the_right_it_is() {
    let running = Running::start((0..50).map(|_| Err(StatusCode::NOT_FOUND))).await;
    running.until("it was asked for", |of| of.server.0.lock().unwrap().lmaps.lists.len() < 50).await;
    assert_eq!(running.objects.problems(), Vec::<String>::new());
    assert!(running.server.written().is_empty());

    let running = Running::start((0..50).map(|_| Err(StatusCode::FORBIDDEN))).await;
    running.until("the refusal is known", |of| !of.objects.problems().is_empty()).await;
    let problem = running.objects.problems().remove(0);
    assert!(problem.contains("Lmaps cannot be watched") && problem.contains("list and watch lmaps?"), "{problem}");
}

#[tokio::test]
async fn objects_are_listed_from_the_servers_cache_and_in_pages_where_they_are_too_long_for_it() {
    let of = |interval: &str| json!({"workload": {"kind": "Pod", "name": "cart"}, "interval": interval});
    let long = of(&"x".repeat(MAX_OBJECT_BYTES));
    let lists = [long, of("200ms")].map(|spec| Ok(vec![lmap("fast", "2026-01-01T00:00:00Z", &spec)]));
    let running = Running::start(lists).await;

    running.until("the interval is set", |of| of.interval_ms("shop/cart") == Some(200)).await;

    let asked = running.server.0.lock().unwrap().asked.clone();
    let (cached, pages): (Vec<&String>, Vec<&String>) =
        asked.iter().partition(|query| query.contains("resourceVersion=0"));
    assert!(!cached.is_empty() && cached.iter().all(|query| !query.contains("limit=")), "{asked:?}");
    assert!(pages.len() == 1 && pages[0].contains("limit=25"), "{asked:?}");
    assert_eq!(running.objects.problems(), Vec::<String>::new());
}

#[test]
fn five_thousand_nodes_write_what_came_of_a_change_over_half_a_minute() {
    let settle = |number: u32| Pace::of(&format!("node-{number}"), Duration::from_secs(30)).settle;
    let mut by_second = BTreeMap::new();
    for number in 0..5_000 {
        *by_second.entry(settle(number).as_secs()).or_insert(0_u32) += 1;
    }

    assert_eq!((by_second.len(), by_second.keys().next()), (30, Some(&2)));
    assert!(by_second.values().all(|nodes| (100..=220).contains(nodes)), "{by_second:?}");
    assert_eq!(Pace::of("node-1", Duration::ZERO).settle, Pace::default().settle);
}

#[test]
fn objects_over_the_limit_are_not_kept_and_said() {
    let objects = CustomObjects::new("kubernetes", "node-1".to_owned(), Pace::default());
    let mut listed = KnownObjects::default();
    objects.lmaps.take(Ok(Event::Init), &mut listed);
    for number in 0..=MAX_OBJECTS {
        let object = lmap(&format!("of-{number}"), "2026-01-01T00:00:00Z", &json!({"selector": {}}));
        objects.lmaps.take(Ok(Event::InitApply(serde_json::from_value(object).unwrap())), &mut listed);
    }
    objects.lmaps.take(Ok(Event::InitDone), &mut listed);

    assert_eq!(lock(&objects.lmaps.known).objects.len(), MAX_OBJECTS);
    assert!(objects.problems()[0].contains("1 Lmaps are not in effect"), "{:?}", objects.problems());
}

#[test]
fn a_status_that_somebody_writes_changes_nothing_here() {
    let objects = CustomObjects::new("kubernetes", "node-1".to_owned(), Pace::default());
    let mut listed = KnownObjects::default();
    let mut object = lmap("fast", "2026-01-01T00:00:00Z", &json!({"selector": {}}));
    let mut tell = |object: &Value| {
        objects.lmaps.take(Ok(Event::Apply(serde_json::from_value(object.clone()).unwrap())), &mut listed);
        lock(&objects.lmaps.known).version
    };

    assert_eq!(tell(&object), 1);
    object["status"] = json!({"nodesApplied": 3});
    object["metadata"]["resourceVersion"] = json!("9");
    assert_eq!(tell(&object), 1);
    object["metadata"]["generation"] = json!(4);
    assert_eq!(tell(&object), 2);
}
