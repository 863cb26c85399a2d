//! An API server of the tests' own, which decides by the roles of the chart.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// The roles of the chart.
const ROLES: &str = include_str!("../../../k8s/chart/templates/operators-api.yaml");

/// Resource and verb of each rule of the role `name`.
pub(super) fn rules(name: &str) -> Vec<(String, String)> {
    let of_role = |text: &&str| text.contains("kind: ClusterRole\n") && text.contains(&format!("name: {name}\n"));
    let document = ROLES.split("\n---\n").find(of_role).unwrap();
    let list = |line: &str, key: &str| -> Option<Vec<String>> {
        let inner = line.trim().strip_prefix(key)?.trim().strip_prefix('[')?.strip_suffix(']')?;
        Some(inner.split(", ").map(str::to_owned).collect())
    };
    let (mut resources, mut all) = (Vec::new(), Vec::new());
    for line in document.lines() {
        if let Some(named) = list(line, "resources:") {
            resources = named;
        } else if let Some(verbs) = list(line, "verbs:") {
            for resource in &resources {
                all.extend(verbs.iter().map(|verb| (resource.clone(), verb.clone())));
            }
        }
    }
    all
}

/// How the API server answers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum Mood {
    #[default]
    Well,
    /// The agent may not ask.
    Forbids,
    /// It never does.
    Silent,
    /// It knows of no audiences.
    Old,
    /// What it says cannot be read, and repeats the token.
    Garbled,
}

#[derive(Debug, Default)]
pub(super) struct Cluster {
    pub(super) mood: Mood,
    /// By token: whose it is, and what it is for. One that has expired is not in it.
    pub(super) tokens: BTreeMap<String, (String, String)>,
    /// By account: its role, and on which node; none: on all.
    pub(super) bindings: BTreeMap<String, (&'static str, Option<&'static str>)>,
    /// Bodies of questions.
    pub(super) asked: Vec<Value>,
}

/// The API server. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct ApiServer(Arc<Mutex<Cluster>>);

impl ApiServer {
    pub(super) fn with<T>(&self, of: impl FnOnce(&mut Cluster) -> T) -> T {
        of(&mut self.0.lock().unwrap())
    }

    pub(super) fn token(&self, token: &str, account: &str, audience: &str) {
        let value = (account.to_owned(), audience.to_owned());
        self.with(|cluster| cluster.tokens.insert(token.to_owned(), value));
    }

    /// How often it was asked who somebody is, and whether they may.
    pub(super) fn asked(&self) -> (usize, usize) {
        self.with(|cluster| {
            let who = cluster.asked.iter().filter(|body| body["kind"] == "TokenReview").count();
            (who, cluster.asked.len() - who)
        })
    }

    pub(super) async fn start(&self) -> kube::Config {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().fallback(answer).with_state(self.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        kube::Config::new(format!("http://{address}").parse().unwrap())
    }

    fn answer(&self, path: &str, mut body: Value) -> Value {
        self.with(|cluster| {
            cluster.asked.push(body.clone());
            body["status"] = match path {
                "/apis/authentication.k8s.io/v1/tokenreviews" => cluster.who(&body["spec"]),
                "/apis/authorization.k8s.io/v1/subjectaccessreviews" => cluster.may(&body["spec"]),
                other => panic!("asked for {other}"),
            };
            body
        })
    }
}

impl Cluster {
    fn who(&self, spec: &Value) -> Value {
        let wanted = spec["audiences"][0].as_str().unwrap();
        match self.tokens.get(spec["token"].as_str().unwrap()) {
            Some((account, audience)) if audience == wanted || self.mood == Mood::Old => {
                let user = json!({"username": account, "uid": "7", "groups": ["system:authenticated"],
                    "extra": {"pod": ["a"]}});
                let audiences = if self.mood == Mood::Old { json!([]) } else { json!([audience]) };
                json!({"authenticated": true, "user": user, "audiences": audiences})
            }
            Some((_, audience)) => {
                let error =
                    format!("token audiences [\"{audience}\"] is invalid for the target audiences [\"{wanted}\"]");
                json!({"authenticated": false, "error": error})
            }
            None => {
                json!({"authenticated": false, "error": "[invalid bearer token, service account token has expired]"})
            }
        }
    }

    fn may(&self, spec: &Value) -> Value {
        assert_eq!((&spec["uid"], &spec["extra"]["pod"][0]), (&json!("7"), &json!("a")), "who was said is passed on");
        let attributes = &spec["resourceAttributes"];
        let (resource, verb) = (attributes["resource"].as_str().unwrap(), attributes["verb"].as_str().unwrap());
        let resource = match attributes["subresource"].as_str() {
            Some(of) => format!("{resource}/{of}"),
            None => resource.to_owned(),
        };
        let binding = self.bindings.get(spec["user"].as_str().unwrap());
        let is_allowed = binding.is_some_and(|(role, node)| {
            let is_here = node.is_none_or(|node| attributes["name"] == node);
            let named = (resource.clone(), verb.to_owned());
            attributes["group"] == "uview.dev" && is_here && rules(role).contains(&named)
        });
        json!({"allowed": is_allowed})
    }
}

async fn answer(State(server): State<ApiServer>, uri: Uri, Json(body): Json<Value>) -> Response {
    match server.with(|cluster| cluster.mood) {
        Mood::Silent => core::future::pending().await,
        Mood::Forbids => {
            let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 403,
                "message": "tokenreviews is forbidden", "reason": "Forbidden"});
            (StatusCode::FORBIDDEN, Json(status)).into_response()
        }
        Mood::Garbled => {
            let garbled = json!({"spec": body["spec"], "status": body["spec"]["token"]});
            (StatusCode::CREATED, Json(garbled)).into_response()
        }
        Mood::Well | Mood::Old => (StatusCode::CREATED, Json(server.answer(uri.path(), body))).into_response(),
    }
}
