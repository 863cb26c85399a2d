//! The agent's own metrics, what it counts of spans, and health over HTTP: `/metrics` (OpenMetrics), `/paths` (JSON), `/healthz`, `/readyz`.

mod durations;
mod otlp;
mod paths;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ::otlp::Edge;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use daemon::page;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::node::Node;
use crate::process_metrics::Counts;
use crate::remote_writing::{Exported, RemoteWriting};
use crate::span_metrics;

/// The endpoint of `node`, and of its OTLP endpoint and what it sends to remote monitors if there are any.
pub fn router(
    node: &Arc<Node>,
    measuring: Arc<Counts>,
    otlp: Option<Arc<Edge>>,
    remote: impl Iterator<Item = Arc<RemoteWriting>>,
) -> Router {
    let paths = paths::router(otlp.clone());
    let mut registry = page::registry("uview_host");
    registry.register_collector(Box::new(NodeMetrics { node: Arc::clone(node), measuring, otlp: otlp.clone() }));
    for remote in remote {
        let registry = if remote.is_otlp() { registry.sub_registry_with_prefix("otlp_metrics") } else { &mut registry };
        registry.register_collector(Box::new(Exported(remote)));
    }
    Router::new()
        .route("/metrics", get(metrics))
        .with_state(Arc::new(Page { registry, otlp }))
        .route("/healthz", get(|| async { "ok\n" }))
        .merge(paths)
        .merge(Router::new().route("/readyz", get(ready)).with_state(Arc::clone(node)))
}

/// What `/metrics` shows.
#[derive(Debug)]
struct Page {
    registry: Registry,
    otlp: Option<Arc<Edge>>,
}

async fn metrics(State(page): State<Arc<Page>>) -> Response {
    let durations = page.otlp.as_ref().map(|edge| durations::text(&span_metrics::read(edge)));
    page::answer_with(&page.registry, &durations.unwrap_or_default())
}

/// Ready from the moment that everything listens until the agent is about to end.
async fn ready(State(node): State<Arc<Node>>) -> Response {
    if *node.draining().borrow() {
        return (StatusCode::SERVICE_UNAVAILABLE, "draining\n").into_response();
    }
    "ready\n".into_response()
}

/// Reads everything when asked, so that nothing is counted twice.
#[derive(Debug)]
struct NodeMetrics {
    node: Arc<Node>,
    measuring: Arc<Counts>,
    otlp: Option<Arc<Edge>>,
}

impl Collector for NodeMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), core::fmt::Error> {
        let (counters, sizes, delivered, hooks, waiting, workers) = self.node.look(|plane, dispatch| {
            let workers = plane.status().workers.iter().filter(|worker| worker.connected).count();
            (
                plane.counters().clone(),
                plane.sizes(),
                dispatch.delivered(),
                dispatch.open(),
                plane.waiting_releases(),
                workers,
            )
        });
        for (name, help, value) in counters.iter().chain(self.node.counts.iter()) {
            counter(&mut encoder, name, help, value)?;
        }
        counter(&mut encoder, "delivered_verdicts", "Verdicts that hooks took.", delivered.verdicts)?;
        counter(&mut encoder, "lost_verdicts", "Verdicts that slow hooks lost.", delivered.lost_verdicts)?;
        counter(&mut encoder, "delivered_rows", "Rows that watchers took.", delivered.rows)?;
        counter(&mut encoder, "lost_rows", "Rows that slow watchers lost.", delivered.lost_rows)?;
        for (name, help, count) in [
            ("process_samples", "Samples of registered processes.", &self.measuring.samples),
            ("unreadable_processes", "Processes that could not be measured.", &self.measuring.unreadable),
            ("late_process_rounds", "Rounds of process metrics skipped for lateness.", &self.measuring.late_rounds),
            ("lost_process_orders", "Processes not measured because too many came.", &self.measuring.lost_orders),
        ] {
            counter(&mut encoder, name, help, count.load(Ordering::Relaxed))?;
        }
        for (name, value) in sizes {
            gauge(&mut encoder, name, size(name), value)?;
        }
        gauge(&mut encoder, "workers", "Connected NIC workers.", workers)?;
        gauge(&mut encoder, "hooks", "Registered hooks and watchers, the agent's own among them.", hooks)?;
        gauge(&mut encoder, "waiting_releases", "Slot runs and regions that workers still have to forget.", waiting)?;
        self.otlp.as_ref().map_or(Ok(()), |edge| self::otlp::encode(edge, &mut encoder))
    }
}

/// What a size of the control plane is a number of.
fn size(name: &str) -> &'static str {
    match name {
        "services" => "Services with a replica.",
        "replicas" => "Replicas of services that are registered.",
        "lmaps" => "LMAPs, wherever they run.",
        "unplaced_lmaps" => "LMAPs that no worker runs.",
        "unreadable_regions" => "Regions that a worker cannot read by RDMA.",
        "unfenced_workers" => "Workers that a device does not shut out; until it does, no service gets slots back.",
        _ => "How many there are now.",
    }
}

pub(crate) fn counter(
    encoder: &mut DescriptorEncoder,
    name: &str,
    help: &str,
    value: u64,
) -> Result<(), core::fmt::Error> {
    let metric = ConstCounter::new(value);
    let metric_encoder = encoder.encode_descriptor(name, help, None, metric.metric_type())?;
    metric.encode(metric_encoder)
}

pub(crate) fn gauge(
    encoder: &mut DescriptorEncoder,
    name: &str,
    help: &str,
    value: usize,
) -> Result<(), core::fmt::Error> {
    let metric = ConstGauge::new(value as i64);
    let metric_encoder = encoder.encode_descriptor(name, help, None, metric.metric_type())?;
    metric.encode(metric_encoder)
}
