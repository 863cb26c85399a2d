//! `/paths`: operations and the services on their paths, as learnt from spans, in JSON. 404 unless traces are buffered.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Json, Router};
use otlp::Edge;
use serde::Serialize;

/// Contents of `/paths`.
#[derive(Debug, Serialize)]
struct Page {
    operations: Vec<Entry>,
}

/// An operation of a frontend.
#[derive(Debug, Serialize)]
struct Entry {
    /// `default` unless tenants are configured.
    tenant: String,
    service: String,
    operation: String,
    /// Requests that entered at this node since the operation is known.
    requests: u64,
    services: Vec<ServiceEntry>,
}

/// A service on the operation's path.
#[derive(Debug, Serialize)]
struct ServiceEntry {
    service: String,
    /// Time since a request was last seen to reach it.
    age_ms: u64,
    /// Its operations that are called.
    asked: Vec<String>,
}

/// The route, for `edge` if there is one.
pub(super) fn router(edge: Option<Arc<Edge>>) -> Router {
    Router::new().route("/paths", get(paths)).with_state(edge)
}

async fn paths(State(edge): State<Option<Arc<Edge>>>) -> Response {
    match edge.as_ref().and_then(|edge| page(edge)) {
        Some(page) => Json(page).into_response(),
        None => (StatusCode::NOT_FOUND, "traces are not buffered: set otlp.traces.keep to tail\n").into_response(),
    }
}

fn entry(service: otlp::PathService) -> ServiceEntry {
    ServiceEntry { service: service.service, age_ms: service.age.as_millis(), asked: service.called }
}

fn page(edge: &Edge) -> Option<Page> {
    let mut operations = Vec::new();
    for (tenant, name) in edge.tenants() {
        let known = edge.operations(tenant)?;
        operations.extend(known.into_iter().map(|path| Entry {
            tenant: name.to_owned(),
            service: path.service,
            operation: path.operation,
            requests: path.requests,
            services: path.services.into_iter().map(entry).collect(),
        }));
    }
    Some(Page { operations })
}
