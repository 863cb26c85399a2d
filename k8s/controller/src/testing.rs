//! An API server of the tests' own: it lists, watches, and takes writes as a real one does as far as the controller can
//! tell.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{Method, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use axum::{Json, Router};
use serde_json::{Value, json};
use support::wait::Wait;
use tokio::sync::watch;

use crate::clock::Clock;

/// How long a test waits for what has to come.
pub(crate) const WAIT: Wait = Wait::up_to(Duration::from_secs(20));

/// A write of a status that was taken.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    /// The object's name.
    pub(crate) name: String,
    /// The status that was written.
    pub(crate) status: Value,
    /// Who wrote it, and who had the lease then.
    pub(crate) by: [String; 2],
}

#[derive(Debug, Default)]
pub(crate) struct Objects {
    version: u64,
    /// By resource, and by `namespace/name`.
    all: BTreeMap<String, BTreeMap<String, Value>>,
    /// Changes: version, resource, kind of change, object.
    log: Vec<(u64, String, &'static str, Value)>,
    /// Changes before this version are forgotten.
    compacted: u64,
    /// Answers of the next writes of statuses: code, and `Retry-After`.
    pub(crate) refusals: VecDeque<(u16, Option<u64>)>,
    /// When it was attempted to write a status, by the server's clock.
    pub(crate) attempts: Vec<Duration>,
    pub(crate) written: Vec<Written>,
    /// Kinds that are not installed.
    pub(crate) missing: BTreeSet<&'static str>,
    /// Lists of each resource.
    pub(crate) lists: BTreeMap<String, usize>,
    /// How often each client has read single objects of a resource.
    pub(crate) reads: BTreeMap<(String, String), usize>,
    /// Which client watches which resource.
    pub(crate) watches: BTreeSet<(String, String)>,
}

impl Objects {
    pub(crate) fn get(&self, resource: &str, key: &str) -> Option<&Value> {
        self.all.get(resource)?.get(key)
    }

    pub(crate) fn of(&self, resource: &str) -> Vec<Value> {
        self.all.get(resource).into_iter().flat_map(|all| all.values().cloned()).collect()
    }

    fn put(&mut self, resource: &str, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let before = self.all.entry(resource.to_owned()).or_default().insert(key(&object), object.clone());
        let kind = if before.is_some() { "MODIFIED" } else { "ADDED" };
        self.log.push((self.version, resource.to_owned(), kind, object.clone()));
        object
    }

    fn delete(&mut self, resource: &str, key: &str) {
        self.version += 1;
        let gone = self.all.get_mut(resource).and_then(|all| all.remove(key)).expect("it is there");
        self.log.push((self.version, resource.to_owned(), "DELETED", gone));
    }
}

fn key(object: &Value) -> String {
    let text = |name: &str| object["metadata"][name].as_str().unwrap_or_default().to_owned();
    format!("{}/{}", text("namespace"), text("name"))
}

/// The server. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct ApiServer {
    objects: Arc<Mutex<Objects>>,
    clock: Clock,
    changed: watch::Sender<()>,
}

impl ApiServer {
    pub(crate) fn new() -> Self {
        Self { objects: Arc::default(), clock: Clock::start(), changed: watch::Sender::new(()) }
    }

    /// Listens for the client `name` alone, and returns how it reaches the server.
    pub(crate) async fn start(&self, name: &str) -> kube::Config {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().fallback(answer).with_state((self.clone(), name.to_owned()));
        tokio::spawn(async move { axum::serve(listener, router).await });
        kube::Config::new(format!("http://{address}").parse().unwrap())
    }

    /// Reads or changes what the server has.
    pub(crate) fn with<T>(&self, of: impl FnOnce(&mut Objects) -> T) -> T {
        let result = of(&mut self.objects.lock().unwrap());
        self.changed.send_replace(());
        result
    }

    pub(crate) fn put(&self, resource: &str, object: Value) {
        self.with(|objects| objects.put(resource, object));
    }

    pub(crate) fn delete(&self, resource: &str, key: &str) {
        self.with(|objects| objects.delete(resource, key));
    }

    /// Puts `object`, and forgets that and everything before: watches end with 410.
    pub(crate) fn put_and_forget(&self, resource: &str, object: Value) {
        self.with(|objects| {
            objects.put(resource, object);
            objects.log.clear();
            objects.compacted = objects.version;
        });
    }

    /// Waits until `holds`. If it never does, what was written is printed.
    #[track_caller]
    pub(crate) fn until(&self, what: &str, holds: impl Fn(&Objects) -> bool) -> impl Future<Output = ()> {
        WAIT.until_async(what, async move || {
            let objects = self.objects.lock().unwrap();
            if holds(&objects) { Ok(()) } else { Err(objects.written.clone()) }
        })
    }

    async fn watch(&self, resource: &str, since: u64) -> Response {
        let mut changed = self.changed.subscribe();
        loop {
            {
                let objects = self.objects.lock().unwrap();
                if since < objects.compacted {
                    let object = json!({"kind": "Status", "code": 410, "reason": "Expired", "status": "Failure",
                        "message": "too old resource version"});
                    return format!("{}\n", json!({"type": "ERROR", "object": object})).into_response();
                }
                let news = objects.log.iter().filter(|(version, of, ..)| *version > since && of == resource);
                let lines: Vec<_> =
                    news.map(|(.., kind, object)| format!("{}\n", json!({"type": kind, "object": object}))).collect();
                if !lines.is_empty() {
                    // With what is told the watch ends, and begins anew.
                    return lines.concat().into_response();
                }
            }
            if changed.changed().await.is_err() {
                return StatusCode::OK.into_response();
            }
        }
    }
}

fn failure(code: u16, reason: &str) -> Response {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code,
        "message": "it does not want to", "reason": reason});
    (StatusCode::from_u16(code).unwrap(), Json(status)).into_response()
}

/// The parts of a path: namespace, resource, name, and what of it.
fn parts(path: &str) -> (Option<&str>, &str, Option<&str>, bool) {
    let path = path.strip_prefix("/api/v1/").unwrap_or_else(|| path.splitn(5, '/').last().unwrap());
    let (namespace, path) = match path.strip_prefix("namespaces/").and_then(|path| path.split_once('/')) {
        Some((namespace, rest)) => (Some(namespace), rest),
        None => (None, path),
    };
    let mut words = path.split('/');
    (namespace, words.next().unwrap(), words.next(), words.next() == Some("status"))
}

async fn answer(
    State((server, client)): State<(ApiServer, String)>,
    method: Method,
    uri: Uri,
    body: Bytes,
) -> Response {
    let (namespace, resource, name, is_status) = parts(uri.path());
    let query = uri.query().unwrap_or_default();
    let parameter = |name: &str| {
        query.split('&').filter_map(|pair| pair.split_once('=')).find(|(key, _)| *key == name).map(|(_, value)| value)
    };
    if method == Method::GET && parameter("watch") == Some("true") {
        server.with(|objects| objects.watches.insert((client, resource.to_owned())));
        return server.watch(resource, parameter("resourceVersion").unwrap().parse().unwrap()).await;
    }
    let key = format!("{}/{}", namespace.unwrap_or_default(), name.unwrap_or_default());
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    server.with(|objects| match (method.as_str(), name) {
        ("GET", Some(_)) => {
            *objects.reads.entry((client, resource.to_owned())).or_default() += 1;
            objects.get(resource, &key).map_or_else(|| failure(404, "NotFound"), |of| Json(of).into_response())
        }
        ("GET", None) if objects.missing.contains(resource) => failure(404, "NotFound"),
        ("GET", None) => {
            *objects.lists.entry(resource.to_owned()).or_default() += 1;
            let selector = parameter("labelSelector").unwrap_or_default().replace("%3D", "=").replace("%2C", ",");
            let selector = selector.replace("%2F", "/");
            let is_selected = |object: &Value| {
                let has = |(key, value): (&str, &str)| object["metadata"]["labels"][key] == value;
                let is_here = namespace.is_none_or(|wanted| object["metadata"]["namespace"] == wanted);
                is_here && selector.split(',').filter_map(|pair| pair.split_once('=')).all(has)
            };
            let items: Vec<_> = objects.of(resource).into_iter().filter(is_selected).collect();
            let metadata = json!({"resourceVersion": objects.version.to_string()});
            Json(json!({"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": items})).into_response()
        }
        ("POST", _) => {
            let mut object = body;
            object["metadata"]["namespace"] = json!(namespace);
            if objects.get(resource, &self::key(&object)).is_some() {
                return failure(409, "AlreadyExists");
            }
            Json(objects.put(resource, object)).into_response()
        }
        ("PUT", _) => match objects.get(resource, &key) {
            Some(there) if there["metadata"]["resourceVersion"] == body["metadata"]["resourceVersion"] => {
                Json(objects.put(resource, body)).into_response()
            }
            Some(_) => failure(409, "Conflict"),
            None => failure(404, "NotFound"),
        },
        ("DELETE", Some(_)) => match objects.get(resource, &key) {
            Some(there) if there["metadata"]["uid"] == body["preconditions"]["uid"] => {
                objects.delete(resource, &key);
                Json(json!({"kind": "Status", "apiVersion": "v1", "status": "Success"})).into_response()
            }
            Some(_) => failure(409, "Conflict"),
            None => failure(404, "NotFound"),
        },
        ("PATCH", Some(_)) if is_status => {
            objects.attempts.push(server.clock.now());
            patch_status(objects, &client, (resource, &key), &body)
        }
        _ => failure(405, "MethodNotAllowed"),
    })
}

fn patch_status(objects: &mut Objects, client: &str, (resource, key): (&str, &str), body: &Value) -> Response {
    if let Some((code, retry_after)) = objects.refusals.pop_front() {
        let mut response = failure(code, "Refused");
        if let Some(seconds) = retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
        }
        return response;
    }
    let Some(mut object) = objects.get(resource, key).cloned() else { return failure(404, "NotFound") };
    if object["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"] {
        return failure(409, "Conflict");
    }
    object["status"] = body["status"].clone();
    let lease = objects.of("leases");
    let holder =
        lease.first().and_then(|lease| lease["spec"]["holderIdentity"].as_str()).unwrap_or_default().to_owned();
    let name = object["metadata"]["name"].as_str().unwrap().to_owned();
    objects.written.push(Written { name, status: body["status"].clone(), by: [client.to_owned(), holder] });
    Json(objects.put(resource, object)).into_response()
}
