//! `/metrics`, `/healthz` and `/readyz`.

use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use agent_runtime::page;
use agent_runtime::server::{ReplyShares, with_page_shares};
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;

use crate::counts::ControllerMetrics;
use crate::known::ClusterView;

/// What it takes to be ready.
#[derive(Clone, Debug)]
pub(crate) struct Readiness {
    /// What is known of the cluster.
    pub(crate) known: Arc<ClusterView>,
    /// Whether the metrics API is served; `None` if it is not wanted.
    pub(crate) is_served: Option<Arc<AtomicBool>>,
}

/// The routes of the three pages. Metrics that are not read hold what `unread` has room for.
pub(crate) fn router(metrics: ControllerMetrics, readiness: Readiness, unread: &Arc<ReplyShares>) -> Router {
    let mut registry = page::registry("uview_controller");
    registry.register_collector(Box::new(metrics));
    let registry = Arc::new(registry);
    let metrics = Router::new().route("/metrics", get(async move || page::response(&registry)));
    with_page_shares(metrics, unread)
        .route("/healthz", get(|| async { "ok\n" }))
        .merge(Router::new().route("/readyz", get(ready)).with_state(readiness))
}

/// Ready is who knows the cluster, and serves what it is to serve.
async fn ready(State(Readiness { known, is_served }): State<Readiness>) -> Response {
    let why = if !known.is_complete() {
        known.problem().unwrap_or_else(|| "lists are not complete".to_owned())
    } else if is_served.is_some_and(|is_served| !is_served.load(Ordering::Relaxed)) {
        "metrics are not served yet: the log says why".to_owned()
    } else {
        return "ready\n".into_response();
    };
    (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {why}\n")).into_response()
}
