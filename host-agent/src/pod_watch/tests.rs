//! An API server of the test's own answers lists and watches.

use std::collections::VecDeque;
use std::time::Duration;

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use serde_json::{Value, json};
use support::wait::Wait;

use super::*;
use crate::control_plane::PodIdentity;

const ID: &str = "3fa85f6457174562b3fc2c963f66afa63fa85f6457174562b3fc2c963f66afa6";
const WAIT: Wait = Wait::up_to(Duration::from_secs(20));

/// Answers of the API server, in the order of requests, and what was asked.
#[derive(Clone, Default)]
struct ApiServer(Arc<Mutex<(VecDeque<Answer>, Vec<String>)>>);

/// One answer; after the last one, watches never end.
enum Answer {
    List(Vec<Value>),
    /// Events of a watch that then ends.
    Events(Vec<Value>),
    Error(StatusCode),
}

impl ApiServer {
    fn answer(&self, query: String) -> Response {
        let (answers, asked) = &mut *self.0.lock().unwrap();
        asked.push(query);
        match answers.pop_front() {
            Some(Answer::List(items)) => {
                let list = json!({"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}, "items": items});
                ([("content-type", "application/json")], list.to_string()).into_response()
            }
            Some(Answer::Events(events)) => {
                let lines: Vec<_> = events.iter().map(|event| format!("{event}\n")).collect();
                lines.concat().into_response()
            }
            Some(Answer::Error(code)) => {
                let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                    "message": "it does not want to", "reason": "Gone", "code": code.as_u16()});
                (code, status.to_string()).into_response()
            }
            None => axum::body::Body::from_stream(tokio_stream::pending::<Result<Vec<u8>, std::io::Error>>())
                .into_response(),
        }
    }

    /// Serves `answers`, and watches with them.
    async fn watched(answers: impl IntoIterator<Item = Answer>) -> (Self, Arc<PodWatch>) {
        let server = Self::default();
        server.0.lock().unwrap().0.extend(answers);
        let route = get(|State(server): State<Self>, RawQuery(query): RawQuery| async move {
            server.answer(query.unwrap_or_default())
        });
        let monitors = get(|RawQuery(query): RawQuery| async move { monitors(&query.unwrap_or_default()) });
        let router = Router::new().route("/api/v1/pods", route).with_state(server.clone());
        let router = router.route("/apis/monitoring.coreos.com/v1/podmonitors", monitors);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, router).await });
        let node = "node-1".to_owned();
        let forwarders = ["shop/payment-9".to_owned()].into();
        let plan = PodPlan { node, forwarders, scrape_targets: 2, pod_monitors: true };
        let watched = Arc::new(PodWatch::new(plan, Clock::start()));
        let of = Arc::clone(&watched);
        let config = kube::Config::new(format!("http://{address}").parse().unwrap());
        tokio::spawn(async move { connect(config, &of).await });
        (server, watched)
    }
}

/// One `PodMonitor` of the namespace `shop`, which never changes.
fn monitors(query: &str) -> Response {
    if query.contains("watch=true") {
        return axum::body::Body::from_stream(tokio_stream::pending::<Result<Vec<u8>, std::io::Error>>())
            .into_response();
    }
    let monitor = json!({"apiVersion": "monitoring.coreos.com/v1", "kind": "PodMonitor",
        "metadata": {"name": "all", "namespace": "shop"},
        "spec": {"selector": {"matchLabels": {"app": "payment"}}, "podMetricsEndpoints": [{"port": "metrics"}], "jobLabel": "x"}});
    let list = json!({"kind": "PodMonitorList", "apiVersion": "monitoring.coreos.com/v1",
        "metadata": {"resourceVersion": "7"}, "items": [monitor]});
    ([("content-type", "application/json")], list.to_string()).into_response()
}

fn pod(number: u64) -> Value {
    json!({
        "kind": "Pod", "apiVersion": "v1",
        "metadata": {"name": format!("payment-{number}"), "namespace": "shop", "uid": format!("{number:032x}"), "resourceVersion": "8"},
        "spec": {"containers": [{"name": "app"}]},
        "status": {"containerStatuses": [{"name": "app", "containerID": format!("containerd://{ID}"), "image": "", "imageID": "", "ready": true, "restartCount": 0}]},
    })
}

fn event(kind: &str, object: &Value) -> Value {
    json!({"type": kind, "object": object})
}

/// The pod's name, if it is known; whether it has started is another question.
fn instance(watched: &PodWatch, number: u64) -> Option<String> {
    let path = format!("kubepods/burstable/pod{number:032x}/{ID}");
    watched.pods().member(&path, Duration::MAX).map(|member| member.instance)
}

#[tokio::test]
async fn pods_of_the_node_are_listed_and_then_watched() {
    let events = vec![event("ADDED", &pod(2)), event("DELETED", &pod(1))];
    let (server, watched) = ApiServer::watched([Answer::List(vec![pod(1)]), Answer::Events(events)]).await;

    WAIT.until_async("pod 2 is known, and pod 1 is gone", async || {
        instance(&watched, 2).is_some() && instance(&watched, 1).is_none()
    })
    .await;

    assert_eq!(watched.problem(), None);
    let asked = server.0.lock().unwrap().1.clone();
    assert!(asked.iter().all(|query| query.contains("fieldSelector=spec.nodeName%3Dnode-1")), "{asked:?}");
    assert!(asked[1].contains("watch=true"), "{asked:?}");
}

#[tokio::test]
async fn pods_are_listed_from_the_servers_cache_and_in_pages_where_they_are_too_long_for_it() {
    let mut long = pod(1);
    long["metadata"]["annotations"] = json!({"long": "x".repeat(MAX_LIST_BYTES)});
    let (server, watched) = ApiServer::watched([Answer::List(vec![long]), Answer::List(vec![pod(2)])]).await;

    WAIT.until_async("pod 2 is known", async || instance(&watched, 2).is_some()).await;

    let asked = server.0.lock().unwrap().1.clone();
    assert!(asked[0].contains("resourceVersion=0") && !asked[0].contains("limit="), "{asked:?}");
    assert!(asked[1].contains("limit=25") && !asked[1].contains("resourceVersion"), "{asked:?}");
    assert_eq!((instance(&watched, 1), watched.counts().1, watched.problem()), (None, 0, None));
}

#[tokio::test]
async fn what_is_known_stays_while_the_api_server_is_away_and_a_new_list_replaces_it() {
    let gone = event(
        "ERROR",
        &json!({"kind": "Status", "code": 410, "message": "too old", "reason": "Expired", "status": "Failure"}),
    );
    let answers = [
        Answer::List(vec![pod(1)]),
        Answer::Events(vec![gone]),
        Answer::Error(StatusCode::SERVICE_UNAVAILABLE),
        Answer::List(vec![pod(2)]),
    ];
    let (_server, watched) = ApiServer::watched(answers).await;

    WAIT.until_async("the API server is away", async || watched.counts().1 > 0).await;
    assert_eq!(instance(&watched, 1).as_deref(), Some("payment-1"));
    WAIT.until_async("the new list is complete", async || instance(&watched, 2).is_some()).await;

    assert_eq!((instance(&watched, 1), watched.problem()), (None, None));
}

#[tokio::test]
async fn an_outage_is_over_when_a_watch_is_accepted_although_no_pod_changes() {
    // 503 kube itself repeats.
    let answers = [Answer::List(vec![pod(1)]), Answer::Error(StatusCode::INTERNAL_SERVER_ERROR)];
    let (_server, watched) = ApiServer::watched(answers).await;

    WAIT.until_async("the API server is away", async || watched.counts().1 > 0).await;
    WAIT.until_async("pods are watched", async || watched.problem().is_none()).await;

    assert_eq!(instance(&watched, 1).as_deref(), Some("payment-1"));
}

#[tokio::test]
async fn a_right_that_is_missing_is_in_the_status_with_what_to_do() {
    let (_server, watched) = ApiServer::watched([Answer::Error(StatusCode::FORBIDDEN)]).await;

    WAIT.until_async("the refusal is known", async || watched.problem().is_some()).await;

    let problem = watched.problem().unwrap();
    assert!(problem.starts_with("kubernetes: the pods of this node cannot be watched: "), "{problem}");
    assert!(problem.contains("it does not want to") && problem.contains("list and watch pods"), "{problem}");
}

fn cgroup(number: u64) -> String {
    format!("/kubepods/burstable/pod{number:032x}/{ID}")
}

#[tokio::test]
async fn three_hundred_pods_come_in_any_order_and_half_of_them_go() {
    // 7 and 11 have no common factor with 300.
    let added = (0..300).map(|at| event("ADDED", &pod(at * 7 % 300)));
    let deleted = (0..300).map(|at| at * 11 % 300).filter(|number| number % 2 == 0);
    let events = added.chain(deleted.map(|number| event("DELETED", &pod(number)))).collect();
    let (_server, watched) = ApiServer::watched([Answer::List(Vec::new()), Answer::Events(events)]).await;

    WAIT.until_async("half of the pods are gone", async || {
        watched.counts().0 == 150 && instance(&watched, 298).is_none()
    })
    .await;

    assert_eq!((instance(&watched, 1).is_some(), instance(&watched, 2)), (true, None));
    assert!(watched.pods().memory_bytes() < 150 * 2_000);
}

#[tokio::test]
async fn an_expired_token_and_too_many_requests_end_by_themselves() {
    let answers = [
        Answer::List(vec![pod(1)]),
        Answer::Events(Vec::new()),
        Answer::Error(StatusCode::UNAUTHORIZED),
        Answer::Error(StatusCode::TOO_MANY_REQUESTS),
    ];
    let (server, watched) = ApiServer::watched(answers).await;

    // kube itself asks again after the second one.
    WAIT.until_async("it asks again after both", async || server.0.lock().unwrap().1.len() > 4).await;

    assert_eq!(instance(&watched, 1).as_deref(), Some("payment-1"), "what is known stays");
    assert!(watched.counts().1 >= 1);
}

#[tokio::test]
async fn processes_are_their_pods_services_and_one_that_is_too_early_waits() {
    let watched = Arc::new(PodWatch::new(PodPlan::default(), Clock::start()));
    let known = |object: &Value| watched.apply(Ok(Event::Apply(serde_json::from_value(object.clone()).unwrap())));
    known(&pod(1));
    let name = |identity: PodIdentity| match identity {
        PodIdentity::Member { service, instance } => format!("{service} {instance}"),
        other => format!("{other:?}"),
    };

    assert_eq!(name(watched.identity(&cgroup(1), "app").await), "shop/payment-1 payment-1");
    // A group that it makes below its own, called like another pod's.
    let below = format!("{}/pod{:032x}/{ID}", cgroup(1), 2);
    assert_eq!(name(watched.identity(&below, "app").await), "shop/payment-1 payment-1");
    let forged = format!("/user.slice/user-1000.slice/pod{:032x}/{ID}", 1);
    assert_eq!(watched.identity(&forged, "app").await, PodIdentity::None);
    let PodIdentity::Refused(why) = watched.identity(&cgroup(1), "runsc-sandbox").await else { panic!("gVisor") };
    assert!(why.contains("gVisor"), "{why}");

    let waiting = {
        let watched = Arc::clone(&watched);
        tokio::spawn(async move { watched.identity(&cgroup(2), "app").await })
    };
    tokio::task::yield_now().await;
    known(&pod(2));
    assert_eq!(name(waiting.await.unwrap()), "shop/payment-2 payment-2");
}

#[tokio::test]
async fn a_process_below_its_containers_group_is_that_containers_at_once() {
    let watched = PodWatch::new(PodPlan::default(), Clock::start());
    let mut with_sidecar = pod(1);
    with_sidecar["spec"]["containers"] = json!([{"name": "app"}, {"name": "proxy"}]);
    watched.apply(Ok(Event::Apply(serde_json::from_value(with_sidecar).unwrap())));
    let slice = format!("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{:032x}.slice", 1);
    let joint = format!("/system.slice/containerd.service/kubepods-pod{:032x}.slice:cri-containerd:{ID}", 1);
    for (cgroup, expected) in [
        (format!("{slice}/crio-{ID}.scope"), "shop/payment-1/app"),
        // As crun makes it.
        (format!("{slice}/crio-{ID}.scope/container"), "shop/payment-1/app"),
        // As the container makes it, called like the one of another pod.
        (format!("{slice}/crio-{ID}.scope/pod{:032x}/{ID}", 2), "shop/payment-1/app"),
        (joint, "shop/payment-1/app"),
        (format!("{slice}/crio-conmon-{ID}.scope"), "shop/payment-1"),
        (format!("{slice}/own/{ID}"), "shop/payment-1"),
    ] {
        let identity = watched.identity_within(&cgroup, "app", Duration::ZERO).await;
        let PodIdentity::Member { service, .. } = identity else { panic!("{cgroup}: {identity:?}") };
        assert_eq!(service.as_str(), expected, "{cgroup}");
    }
    let forged = format!("/system.slice/own.service/kubepods-pod{:032x}.slice:cri-containerd:{ID}", 1);
    assert_eq!(watched.identity_within(&forged, "app", Duration::ZERO).await, PodIdentity::None);
}

#[tokio::test]
async fn a_process_of_a_pod_that_is_never_told_of_is_refused_with_the_reason() {
    let watched = PodWatch::new(PodPlan::default(), Clock::start());

    let PodIdentity::Refused(why) = watched.identity_within(&cgroup(1), "app", Duration::ZERO).await else {
        panic!("its pod is unknown")
    };
    assert!(why.contains("has not told of this process's pod yet"), "{why}");
}

#[tokio::test]
async fn a_pod_that_goes_while_its_process_registers_is_nobodys_name_and_hides_no_other() {
    let watched = Arc::new(PodWatch::new(PodPlan::default(), Clock::start()));
    let object = |number: u64| serde_json::from_value::<api::Pod>(pod(number)).unwrap();
    let waits = |number: u64, waits: Duration| {
        let watched = Arc::clone(&watched);
        tokio::spawn(async move { watched.identity_within(&cgroup(number), "app", waits).await })
    };
    let is_refused = |identity| matches!(identity, PodIdentity::Refused(why) if why.contains("has not told of"));

    // It came and went before the process, which is still there, is asked about.
    watched.apply(Ok(Event::Apply(object(1))));
    watched.apply(Ok(Event::Delete(object(1))));
    assert!(is_refused(waits(1, Duration::ZERO).await.unwrap()));

    // It went before it was ever told of, and another one came meanwhile.
    let waiting = waits(2, Duration::from_millis(50));
    tokio::task::yield_now().await;
    watched.apply(Ok(Event::Delete(object(2))));
    watched.apply(Ok(Event::Apply(object(3))));
    assert!(is_refused(waiting.await.unwrap()));
    assert!(matches!(waits(3, Duration::ZERO).await.unwrap(), PodIdentity::Member { .. }));
    assert_eq!(watched.counts().0, 1);

    // Its process ended before it was asked about: no name is taken.
    assert_eq!(watched.identity_within("", "app", Duration::ZERO).await, PodIdentity::None);
}

#[tokio::test]
async fn endpoints_are_those_of_annotations_and_of_pod_monitors() {
    let mut annotated = pod(1);
    annotated["metadata"]["annotations"] = json!({"prometheus.io/scrape": "true", "prometheus.io/port": "80"});
    let mut monitored = pod(2);
    monitored["metadata"]["labels"] = json!({"app": "payment"});
    monitored["spec"]["containers"][0]["ports"] = json!([{"name": "metrics", "containerPort": 9102}]);
    let items = [annotated, monitored, pod(3)].map(|mut pod| {
        let address = pod["metadata"]["name"].as_str().unwrap().replace("payment-", "10.1.0.");
        pod["status"]["podIPs"] = json!([{"ip": address}]);
        pod["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
        pod
    });
    let (_server, watched) = ApiServer::watched([Answer::List(items.to_vec())]).await;

    let found = || watched.endpoints().scraped.into_iter().map(|endpoint| endpoint.instance).collect::<Vec<_>>();
    WAIT.until_async("both are known", async || found() == ["payment-1:80", "payment-2:9102"]).await;
    assert_eq!(watched.problem(), None);
}
