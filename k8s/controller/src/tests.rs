//! The controller against an API server of the tests' own.

mod metrics;

use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::sync::Arc;

use agent_runtime::http_client::{Client as ReaderClient, Endpoint};
use agent_runtime::server::ReplyShares;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::ControllerArgs;
use crate::counts::ControllerMetrics;
use crate::health::{self, Readiness};
use crate::known::{self, ClusterView};
use crate::lease::Leadership;
use crate::pace::Intervals;
use crate::run::run_in;
use crate::testing::{ApiServer, Objects, WAIT};

/// Quick, so that a test need not wait.
pub(crate) fn intervals() -> Intervals {
    let short = Duration::from_millis(5);
    Intervals { look: short, write: short, again: short, lease: short, gone: short, certificates: short }
}

pub(crate) fn args(name: &str) -> ControllerArgs {
    ControllerArgs {
        name: Some(name.to_owned()),
        namespace: "uview".to_owned(),
        listen: "127.0.0.1:0".parse().unwrap(),
        metrics_api: None,
        certificate: None,
        key: None,
        agent_port: 9702,
        log_level: "info".to_owned(),
        log_json: false,
        budget: false,
    }
}

/// A replica that runs until it is told to end.
struct Replica {
    end: tokio::sync::oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Replica {
    async fn start(server: &ApiServer, name: &str) -> Self {
        let (end, ended) = tokio::sync::oneshot::channel();
        let (config, args) = (server.start(name).await, args(name));
        let stop = async { drop(ended.await) };
        let task = tokio::spawn(async move { run_in(config, args, intervals(), stop).await.unwrap() });
        Self { end, task }
    }

    /// Ends it in good order.
    async fn end(self) {
        self.end.send(()).unwrap();
        self.task.await.unwrap();
    }
}

pub(crate) fn lmap(name: &str, generation: i64) -> Value {
    json!({"apiVersion": "uview.dev/v1alpha1", "kind": "Lmap", "spec": {"selector": {}},
        "metadata": {"name": name, "namespace": "shop", "uid": format!("uid-{name}"), "generation": generation}})
}

/// What the host agent of `node` says about objects: name, generation, and why it is refused, if it is.
pub(crate) fn said(node: &str, lmaps: &[(&str, i64, Option<&str>)]) -> Value {
    let state = |(name, generation, why): &(&str, i64, Option<&str>)| {
        let condition = |kind: &str, is_true: bool, reason: &str, message: &str| {
            json!({"type": kind, "status": if is_true { "True" } else { "False" }, "reason": reason,
                "message": message, "observedGeneration": generation, "lastTransitionTime": "2026-01-01T00:00:00Z"})
        };
        let applied = match why {
            None => condition("Applied", true, "Applied", ""),
            Some(why) => condition("Applied", false, "Refused", why),
        };
        json!({"namespace": "shop", "name": name, "services": ["shop/cart"],
            "conditions": [applied, condition("Conflicted", false, "NoConflict", "")]})
    };
    json!({"apiVersion": "uview.dev/v1alpha1", "kind": "LmapNodeStatus", "metadata": {"name": node, "uid": format!("uid-{node}")},
        "lmaps": lmaps.iter().map(state).collect::<Vec<_>>()})
}

pub(crate) fn node(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
}

/// A server with two nodes that have applied `fast`.
fn server() -> ApiServer {
    let server = ApiServer::new();
    for name in ["node-1", "node-2"] {
        server.put("nodes", node(name));
        server.put("lmapnodestatuses", said(name, &[("fast", 1, None)]));
    }
    server.put("lmaps", lmap("fast", 1));
    server
}

/// Whether the API server has `applied` nodes and this reason for `fast`.
fn has(objects: &Objects, applied: u64, reason: &str) -> bool {
    let status = &objects.get("lmaps", "shop/fast").unwrap()["status"];
    status["nodesApplied"] == applied && status["conditions"][0]["reason"] == reason
}

fn events(objects: &Objects) -> Vec<(String, String)> {
    let text = |event: &Value, key: &str| event[key].as_str().unwrap().to_owned();
    objects.of("events").iter().map(|event| (text(event, "reason"), text(event, "note"))).collect()
}

#[tokio::test]
async fn a_status_is_written_once_per_transition_and_told_by_an_event() {
    let server = server();
    let _replica = Replica::start(&server, "a").await;

    server.until("it is in effect on both", |of| has(of, 2, "Applied") && !of.of("events").is_empty()).await;
    let (event, status) = server.with(|of| (of.of("events")[0].clone(), of.written[0].status.clone()));
    assert_eq!((&event["reason"], &event["type"]), (&json!("Applied"), &json!("Normal")));
    assert_eq!(event["note"], "in effect on all 2 nodes that run its pods");
    assert_eq!((&event["regarding"]["name"], &event["regarding"]["uid"]), (&json!("fast"), &json!("uid-fast")));
    assert_eq!((&status["observedGeneration"], &status["firstProblem"]), (&json!(1), &json!("")));

    server.put("lmapnodestatuses", said("node-2", &[("fast", 1, Some("interval is 1h: at most 1m"))]));
    server.until("one refuses", |of| has(of, 1, "PartlyApplied") && of.of("events").len() == 2).await;
    let note = server.with(|of| events(of).into_iter().find(|(reason, _)| reason == "PartlyApplied").unwrap().1);
    assert_eq!(note, "in effect on 1 of 2 nodes; node-2: interval is 1h: at most 1m");

    // Until another object has a status, many looks have passed; the first is as it was.
    server.put("lmaps", lmap("other", 1));
    server.until("another one", |of| of.written.iter().any(|written| written.name == "other")).await;
    let of_fast = server.with(|of| of.written.iter().filter(|written| written.name == "fast").count());
    assert_eq!(of_fast, 2);
}

#[tokio::test]
async fn a_node_that_is_gone_and_an_object_that_is_gone_do_not_count() {
    let server = server();
    let _replica = Replica::start(&server, "a").await;
    server.until("both", |of| has(of, 2, "Applied")).await;

    server.delete("nodes", "/node-2");
    server.until("one is left", |of| has(of, 1, "Applied")).await;
    server.delete("lmaps", "shop/fast");
    server.put("lmaps", lmap("other", 1));
    server.until("another one", |of| of.written.iter().any(|written| written.name == "other")).await;
}

#[tokio::test]
async fn the_report_of_a_node_that_is_gone_is_deleted_and_no_other() {
    let server = server();
    let _replica = Replica::start(&server, "a").await;
    server.until("both", |of| has(of, 2, "Applied")).await;

    server.delete("nodes", "/node-2");
    server.until("its report is gone", |of| of.get("lmapnodestatuses", "/node-2").is_none()).await;
    server.until("one is left", |of| has(of, 1, "Applied")).await;

    // A cluster without nodes is none: the list may have been cut.
    server.delete("nodes", "/node-1");
    server.until("none counts", |of| has(of, 0, "NoPods")).await;
    server.put("lmaps", lmap("other", 1));
    server.until("another one", |of| of.written.iter().any(|written| written.name == "other")).await;
    assert!(server.with(|of| of.get("lmapnodestatuses", "/node-1").is_some()));
}

/// One policy of each kind, with the name of an Lmap, which an older one is in the way of.
#[tokio::test]
async fn policies_have_statuses_and_events_of_their_own() {
    for (kind, resource, field) in [
        ("SamplingPolicy", "samplingpolicies", "samplingPolicies"),
        ("SynopsisPolicy", "synopsispolicies", "synopsisPolicies"),
    ] {
        let server = server();
        let mut said = said("node-1", &[("fast", 1, None)]);
        let older = format!("Older{kind}");
        let conflict = json!({"type": "Conflicted", "status": "True", "reason": older, "message": "older",
            "observedGeneration": 1, "lastTransitionTime": "2026-01-01T00:00:00Z"});
        said[field] = said["lmaps"].clone();
        said[field][0]["conditions"][1] = conflict;
        server.put("lmapnodestatuses", said);
        let mut policy = lmap("fast", 1);
        policy["kind"] = json!(kind);
        server.put(resource, policy);
        let _replica = Replica::start(&server, "a").await;

        let status = |of: &Objects| of.get(resource, "shop/fast").unwrap()["status"].clone();
        server.until("it has a status", |of| status(of)["nodesRefused"] == 1).await;
        server.until("the Lmap of the same name has another", |of| has(of, 2, "Applied")).await;
        server.until("three events", |of| of.of("events").len() == 3).await;

        assert_eq!(server.with(|of| status(of))["conditions"][1]["reason"], json!(older));
        let mut told: Vec<_> = server
            .with(|of| of.of("events"))
            .iter()
            .map(|event| {
                (event["regarding"]["kind"].as_str().unwrap().to_owned(), event["reason"].as_str().unwrap().to_owned())
            })
            .collect();
        told.sort();
        let of = |kind: &str, reason: &str| (kind.to_owned(), reason.to_owned());
        assert_eq!(told, [of("Lmap", "Applied"), of(kind, "Conflicted"), of(kind, "Refused")]);
    }
}

#[tokio::test]
async fn definitions_of_an_earlier_release_hide_nothing_of_the_kinds_that_there_are() {
    let server = server();
    server.with(|of| of.missing.insert("synopsispolicies"));
    let _replica = Replica::start(&server, "a").await;

    server.until("the Lmap has its status", |of| has(of, 2, "Applied")).await;
}

#[tokio::test]
async fn a_conflict_is_computed_anew_and_a_watch_that_is_too_old_begins_with_a_list() {
    let server = server();
    server.with(|of| of.refusals.push_back((409, None)));
    let _replica = Replica::start(&server, "a").await;
    server.until("it is written after all", |of| has(of, 2, "Applied")).await;
    assert!(server.with(|of| of.attempts.len()) >= 2);

    let lists = server.with(|of| of.lists["lmapnodestatuses"]);
    // Nobody is told of this change.
    server.put_and_forget("lmapnodestatuses", said("node-1", &[("fast", 1, Some("no"))]));
    server.until("the change is seen", |of| has(of, 1, "PartlyApplied")).await;
    assert!(server.with(|of| of.lists["lmapnodestatuses"]) > lists);
}

#[tokio::test]
async fn a_server_that_has_enough_to_do_is_left_alone_for_as_long_as_it_says() {
    let server = server();
    server.with(|of| of.refusals.push_back((429, Some(2))));
    let _replica = Replica::start(&server, "a").await;
    server.until("it is written after all", |of| has(of, 2, "Applied")).await;

    let attempts = server.with(|of| of.attempts.clone());
    let pause = attempts[1].saturating_sub(attempts[0]);
    assert!(pause >= Duration::from_millis(1_990), "{pause:?}");
}

#[tokio::test]
async fn who_does_not_have_the_lease_looks_on() {
    let server = server();
    let lease = |holder: &str| {
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "uview-controller", "namespace": "uview"},
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": 3600, "leaseTransitions": 4}})
    };
    server.put("leases", lease("other"));
    let _replica = Replica::start(&server, "a").await;
    let of = |resource: &str| ("a".to_owned(), resource.to_owned());
    // A resource is watched once its list is complete.
    let kinds = ["lmaps", "samplingpolicies", "synopsispolicies", "lmapnodestatuses", "nodes"];
    server.until("all is known", |objects| kinds.iter().all(|kind| objects.watches.contains(&of(kind)))).await;
    let before = server.with(|objects| objects.reads.get(&of("leases")).copied().unwrap_or_default());
    let has_looked = |objects: &Objects| objects.reads.get(&of("leases")).is_some_and(|reads| *reads > before + 20);
    server.until("it has looked at the lease", has_looked).await;
    assert!(server.with(|objects| objects.attempts.is_empty()), "it writes nothing");

    server.put("leases", lease(""));
    server.until("it acts", |of| has(of, 2, "Applied")).await;
    let lease = server.with(|of| of.get("leases", "uview/uview-controller").unwrap().clone());
    assert_eq!((&lease["spec"]["holderIdentity"], &lease["spec"]["leaseTransitions"]), (&json!("a"), &json!(5)));
}

#[tokio::test]
async fn who_ends_in_good_order_leaves_the_lease_to_the_other_replica() {
    let server = server();
    let first = Replica::start(&server, "a").await;
    server.until("a acts", |of| has(of, 2, "Applied")).await;
    let _second = Replica::start(&server, "b").await;

    first.end().await;
    let lease = server.with(|of| of.get("leases", "uview/uview-controller").unwrap().clone());
    assert_ne!(lease["spec"]["holderIdentity"], "a", "it is given back at once, and need not expire");
    server.put("lmapnodestatuses", said("node-2", &[("fast", 1, Some("no"))]));
    server.until("b acts", |of| of.written.last().is_some_and(|written| written.by == ["b", "b"])).await;
}

#[tokio::test]
async fn a_replica_is_ready_when_it_knows_the_cluster_and_serves_and_says_so_in_its_metrics() {
    let known = Arc::new(ClusterView::default());
    let leadership = Arc::new(Leadership::new("a".to_owned()));
    let metrics = ControllerMetrics { counts: Arc::default(), known: Arc::clone(&known), leadership };
    let is_served = Arc::new(AtomicBool::new(false));
    let readiness = Readiness { known: Arc::clone(&known), is_served: Some(Arc::clone(&is_served)) };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = health::router(metrics, readiness, &ReplyShares::new(1 << 20, |_| {}));
    tokio::spawn(async move { axum::serve(listener, router).await });
    let ask = async |path: &str| {
        let url = format!("http://{address}{path}");
        let endpoint = Endpoint { url, headers: Vec::new(), ca: None, timeout: Duration::from_secs(5) };
        let mut body = Vec::new();
        let answer = ReaderClient::new(&endpoint, "/").unwrap().get("*/*", &mut body, 1 << 20).await;
        answer.map(|_| String::from_utf8(body).unwrap()).map_err(|error| error.to_string())
    };

    assert_eq!(ask("/healthz").await, Ok("ok\n".to_owned()));
    assert_eq!(ask("/readyz").await, Err("HTTP status 503".to_owned()), "nothing is known");
    let server = server();
    let client = kube::Client::try_from(server.start("a").await).unwrap();
    let of = Arc::clone(&known);
    let watching = tokio::spawn(async move { Box::pin(known::watch(client, &of)).await });
    WAIT.until_async("the cluster is known", async || known.is_complete()).await;
    assert_eq!(ask("/readyz").await, Err("HTTP status 503".to_owned()), "metrics are not served");
    is_served.store(true, Ordering::Relaxed);
    assert_eq!(ask("/readyz").await, Ok("ready\n".to_owned()));
    let page = ask("/metrics").await.unwrap();
    for line in ["uview_controller_acting 0", "uview_controller_lmaps 1", "uview_controller_reporting_nodes 2"] {
        assert!(page.lines().any(|there| there == line), "{line}: {page}");
    }
    watching.abort();
}
