//! An API server of the test's own answers lists and watches.

use std::collections::VecDeque;
use std::time::Duration;

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use serde_json::{Value, json};

use super::*;

const ID: &str = "3fa85f6457174562b3fc2c963f66afa63fa85f6457174562b3fc2c963f66afa6";
const WITHIN: Duration = Duration::from_secs(20);

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
        let router = Router::new().route("/api/v1/pods", route).with_state(server.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, router).await });
        let watched = Arc::new(PodWatch::default());
        let of = Arc::clone(&watched);
        let config = kube::Config::new(format!("http://{address}").parse().unwrap());
        tokio::spawn(async move { run(config, "node-1", &of).await });
        (server, watched)
    }
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

async fn until(what: &str, holds: impl Fn() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(tokio::time::timeout(WITHIN, waiting).await.is_ok(), "not within {WITHIN:?}: {what}");
}

fn instance(watched: &PodWatch, number: u64) -> Option<String> {
    watched.member(&format!("kubepods/burstable/pod{number:032x}/{ID}")).map(|member| member.instance)
}

#[tokio::test]
async fn pods_of_the_node_are_listed_and_then_watched() {
    let events = vec![event("ADDED", &pod(2)), event("DELETED", &pod(1))];
    let (server, watched) = ApiServer::watched([Answer::List(vec![pod(1)]), Answer::Events(events)]).await;

    until("pod 2 is known, and pod 1 is gone", || instance(&watched, 2).is_some() && instance(&watched, 1).is_none())
        .await;

    assert_eq!(watched.problem(), None);
    let asked = server.0.lock().unwrap().1.clone();
    assert!(asked.iter().all(|query| query.contains("fieldSelector=spec.nodeName%3Dnode-1")), "{asked:?}");
    assert!(asked[1].contains("watch=true"), "{asked:?}");
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

    until("the API server is away", || watched.counts().1 > 0).await;
    assert_eq!(instance(&watched, 1).as_deref(), Some("payment-1"));
    until("the new list is complete", || instance(&watched, 2).is_some()).await;

    assert_eq!((instance(&watched, 1), watched.problem()), (None, None));
}

#[tokio::test]
async fn a_right_that_is_missing_is_in_the_status_with_what_to_do() {
    let (_server, watched) = ApiServer::watched([Answer::Error(StatusCode::FORBIDDEN)]).await;

    until("the refusal is known", || watched.problem().is_some()).await;

    let problem = watched.problem().unwrap();
    assert!(problem.starts_with("kubernetes: the pods of this node cannot be watched: "), "{problem}");
    assert!(problem.contains("it does not want to") && problem.contains("list and watch pods"), "{problem}");
}
