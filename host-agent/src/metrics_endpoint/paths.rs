//! `/paths`: operations and the services on their paths, as spans showed, for programs. 404 where spans do not wait.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Json, Router};
use otlp::{Edge, PassedService};
use serde::Serialize;

/// What the page says.
#[derive(Debug, Serialize)]
struct Page {
    operations: Vec<Entry>,
}

/// One operation of a frontend.
#[derive(Debug, Serialize)]
struct Entry {
    /// Whose; `default` unless tenants are configured.
    tenant: String,
    service: String,
    operation: String,
    /// Requests that entered by this node since the operation is known.
    requests: u64,
    services: Vec<Passed>,
}

/// A service on its path.
#[derive(Debug, Serialize)]
struct Passed {
    service: String,
    /// Since a request was last seen to pass it.
    age_ms: u64,
    /// What it was asked for.
    asked: Vec<String>,
}

/// The page, of `edge` if there is one.
pub(super) fn router(edge: Option<Arc<Edge>>) -> Router {
    Router::new().route("/paths", get(paths)).with_state(edge)
}

async fn paths(State(edge): State<Option<Arc<Edge>>>) -> Response {
    match edge.as_ref().and_then(|edge| page(edge)) {
        Some(page) => Json(page).into_response(),
        None => (StatusCode::NOT_FOUND, "spans do not wait here: set otlp.traces.keep to tail\n").into_response(),
    }
}

fn passed(passed: PassedService) -> Passed {
    Passed { service: passed.service, age_ms: passed.age.as_millis(), asked: passed.asked }
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
            services: path.services.into_iter().map(passed).collect(),
        }));
    }
    Some(Page { operations })
}
