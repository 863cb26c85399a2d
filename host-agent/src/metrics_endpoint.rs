//! The HTTP endpoint: `/metrics` and `/metrics/lmaps` (OpenMetrics), `/healthz` and `/readyz`.

mod durations;
pub(crate) mod encoding;
mod lmaps;
mod memory;
mod otlp;
mod pods;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ::otlp::Edge;
use agent_runtime::server::{ReplyShares, with_page_shares};
use agent_runtime::{page, server};
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::registry::Registry;
use tokio::sync::Semaphore;

use self::encoding::{counter, gauge, gauges_by_reason};
use crate::cgroup_metrics;
use crate::measuring;
use crate::metric_exports::ExportMetrics;
use crate::node::Node;
use crate::open_problems::ProblemSources;
use crate::process_metrics::Counts;
use crate::prometheus::TargetMetrics;
use crate::readiness::Readiness;
use crate::remote_monitor::MonitorMetrics;
use crate::span_metrics;

/// Pages of metrics that are written at a time.
const WRITERS: usize = 2;

/// What the agent exports of itself: of `node`, and of its edges among `sources`.
pub fn metrics_of(
    node: &Arc<Node>,
    (measuring, cgroups): measuring::Counts,
    connections: Arc<server::Counts>,
    sources: &Arc<ProblemSources>,
) -> Arc<OwnMetrics> {
    let (otlp, watched) = (sources.edge.clone(), sources.watched.clone());
    let mut registry = page::registry("uview_host");
    let (of_node, of_edges) = (Arc::clone(node), Arc::clone(sources));
    registry.register_collector(Box::new(memory::MemoryMetrics { node: of_node, sources: of_edges }));
    registry.register_collector(Box::new(NodeMetrics {
        node: Arc::clone(node),
        measuring,
        cgroups,
        connections,
        otlp: otlp.clone(),
    }));
    registry.register_collector(Box::new(TargetMetrics(watched.targets)));
    registry.register_collector(Box::new(pods::PodMetrics(watched.pods)));
    if let (Some(exports), Some(edge)) = (watched.exports, otlp.clone()) {
        registry.register_collector(Box::new(ExportMetrics { exports, edge }));
    }
    for remote in sources.remotes.iter().cloned() {
        let registry = if remote.is_otlp() { registry.sub_registry_with_prefix("otlp_metrics") } else { &mut registry };
        registry.register_collector(Box::new(MonitorMetrics(remote)));
    }
    Arc::new(OwnMetrics { registry, otlp, writers: Arc::new(Semaphore::new(WRITERS)) })
}

/// The endpoint of `node`, with its `own` metrics. Pages that are not read hold what `held` has room for.
pub fn router(node: &Arc<Node>, own: Arc<OwnMetrics>, held: &Arc<ReplyShares>) -> Router {
    let pages = Router::new()
        .route("/metrics", get(metrics))
        .with_state(own)
        .merge(Router::new().route("/metrics/lmaps", get(lmaps)).with_state(Arc::clone(node)));
    with_page_shares(pages, held)
        .route("/healthz", get(|| async { "ok\n" }))
        .merge(Router::new().route("/readyz", get(ready)).with_state((Arc::clone(node), Arc::default())))
}

/// Contents of `/metrics`.
#[derive(Debug)]
pub struct OwnMetrics {
    registry: Registry,
    otlp: Option<Arc<Edge>>,
    /// Who may write a page now; others wait.
    writers: Arc<Semaphore>,
}

impl OwnMetrics {
    /// The value of each metric now, over all its labels, without durations. It waits for the OTLP endpoint's locks.
    pub fn values(&self) -> BTreeMap<String, u64> {
        page::values(&self.registry)
    }
}

async fn metrics(State(page): State<Arc<OwnMetrics>>) -> Response {
    let failed = || (StatusCode::INTERNAL_SERVER_ERROR, "cannot write the metrics\n").into_response();
    // Nobody closes it.
    let Ok(writing) = Arc::clone(&page.writers).acquire_owned().await else { return failed() };
    // On a thread of its own: it waits for the OTLP endpoint's locks, and the control plane waits for nobody.
    let written = tokio::task::spawn_blocking(move || {
        let durations = page.otlp.as_ref().map(|edge| durations::text(&span_metrics::read(edge)));
        let response = page::response_with(&page.registry, &durations.unwrap_or_default());
        // Not before: a page is written to its end, also for whoever has gone meanwhile.
        drop(writing);
        response
    });
    written.await.unwrap_or_else(|_| failed())
}

async fn lmaps(State(node): State<Arc<Node>>) -> Response {
    let scores: Vec<_> = node.inspect(|plane, _| plane.scores().collect());
    page::of(lmaps::text(&scores))
}

async fn ready(State((node, readiness)): State<(Arc<Node>, Arc<Readiness>)>) -> Response {
    match readiness.missing(node.readiness()) {
        None => "ready\n".into_response(),
        Some(missing) => (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {missing}\n")).into_response(),
    }
}

/// Collects the values on each scrape, so that nothing is counted twice.
#[derive(Debug)]
struct NodeMetrics {
    node: Arc<Node>,
    measuring: Arc<Counts>,
    cgroups: Arc<cgroup_metrics::Counts>,
    connections: Arc<server::Counts>,
    otlp: Option<Arc<Edge>>,
}

impl Collector for NodeMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), core::fmt::Error> {
        let (counters, over_share, model_bytes, sizes, delivered, hooks, waiting, workers, warnings) =
            self.node.inspect(|plane, dispatch| {
                let workers = plane.status().workers.iter().filter(|worker| worker.connected).count();
                (
                    plane.counters().clone(),
                    plane.over_share().collect::<Vec<_>>(),
                    plane.model_bytes() as usize,
                    plane.sizes(),
                    dispatch.delivered(),
                    dispatch.open(),
                    plane.pending_releases(),
                    workers,
                    plane.warnings().len(),
                )
            });
        for (name, help, value) in counters.iter().chain(self.node.counts.iter()) {
            counter(&mut encoder, name, help, value)?;
        }
        encode_refusals(&mut encoder, &over_share)?;
        counter(&mut encoder, "delivered_verdicts", "Verdicts delivered to hooks.", delivered.verdicts)?;
        counter(&mut encoder, "lost_verdicts", "Verdicts dropped because a hook was slow.", delivered.lost_verdicts)?;
        counter(&mut encoder, "delivered_rows", "Rows delivered to watchers.", delivered.rows)?;
        counter(&mut encoder, "lost_rows", "Rows dropped because a watcher was slow.", delivered.lost_rows)?;
        for (name, help, count) in [
            ("process_samples", "Samples of registered processes.", &self.measuring.samples),
            ("unreadable_processes", "Processes that could not be measured.", &self.measuring.unreadable),
            (
                "late_process_rounds",
                "Rounds of process metrics skipped: the one before was slow.",
                &self.measuring.late_rounds,
            ),
            (
                "lost_process_requests",
                "Requests to measure a process lost because the queue was full.",
                &self.measuring.lost_requests,
            ),
        ] {
            counter(&mut encoder, name, help, count.get())?;
        }
        for (name, value) in sizes {
            gauge(&mut encoder, name, size(name), value)?;
        }
        gauge(&mut encoder, "operators_model_bytes", "Bytes of models that operators have sent.", model_bytes)?;
        gauge(&mut encoder, "workers", "Connected NIC workers.", workers)?;
        let help = "What the configuration leaves open: listeners and secrets without TLS. `uview status` names it.";
        gauge(&mut encoder, "warnings", help, warnings)?;
        gauge(&mut encoder, "hooks", "Registered hooks and watchers, including the agent's own.", hooks)?;
        gauge(
            &mut encoder,
            "pending_releases",
            "Slot runs and regions that wait until all workers have forgotten them.",
            waiting,
        )?;
        self.encode_cgroups(&mut encoder)?;
        self.encode_connections(&mut encoder)?;
        self.encode_reloads(&mut encoder)?;
        self.otlp.as_ref().map_or(Ok(()), |edge| self::otlp::encode(edge, &mut encoder))
    }
}

impl NodeMetrics {
    /// Cgroups that are read.
    fn encode_cgroups(&self, encoder: &mut DescriptorEncoder) -> Result<(), core::fmt::Error> {
        let cgroup_metrics::Counts { samples, cgroups, vanished, late_rounds, unread, .. } = &*self.cgroups;
        for (name, help, count) in [
            ("cgroup_samples", "Samples of cgroups.", samples),
            ("vanished_cgroups", "Cgroups that were read and have vanished.", vanished),
            ("late_cgroup_rounds", "Rounds of cgroup metrics skipped: the one before was slow.", late_rounds),
        ] {
            counter(encoder, name, help, count.get())?;
        }
        gauge(encoder, "cgroups", "Cgroups that are read.", cgroups.load(Ordering::Relaxed) as usize)?;
        let help = "Cgroups that the last scan found and that are not read, by reason; of reason scan folders that were not looked at.";
        let unread = unread.iter().map(|count| count.load(Ordering::Relaxed) as usize);
        gauges_by_reason(encoder, ("unread_cgroups", help), cgroup_metrics::UNREAD.into_iter().zip(unread))
    }

    /// What became of connections.
    fn encode_connections(&self, encoder: &mut DescriptorEncoder) -> Result<(), core::fmt::Error> {
        for (name, help, count) in [
            (
                "refused_api_connections",
                "Connections to control, operators, coherence and metrics refused: too many, of all or of one peer.",
                &self.connections.refused,
            ),
            (
                "unaffordable_api_connections",
                "Connections to control, operators, coherence and metrics refused: the descriptors left are for services.",
                &self.connections.reserved,
            ),
            (
                "failed_api_handshakes",
                "TLS handshakes of control, operators and coherence that failed.",
                &self.connections.handshakes,
            ),
            (
                "failed_api_accepts",
                "Failed accepts on control, operators, coherence and metrics, usually for lack of descriptors.",
                &self.connections.accept_errors,
            ),
            (
                "unread_api_replies",
                "Connections to metrics closed because a page was not read in time.",
                &self.connections.unread,
            ),
            (
                "refused_pages",
                "Requests for metrics refused: their sender had its share of pages that were not read.",
                &self.connections.refused_pages,
            ),
        ] {
            counter(encoder, name, help, count.get())?;
        }
        Ok(())
    }

    /// What became of changed configuration.
    fn encode_reloads(&self, encoder: &mut DescriptorEncoder) -> Result<(), core::fmt::Error> {
        let reloads = &self.node.reloads;
        counter(encoder, "reloads", "Changes of configuration files taken over without a restart.", reloads.taken())?;
        counter(encoder, "failed_reloads", "Changed configuration files that could not be used.", reloads.failed())?;
        gauge(
            encoder,
            "configuration_rejected",
            "1 while the configuration files as they are cannot be used, and those before are in use.",
            usize::from(reloads.problem().is_some()),
        )
    }
}

/// Help text of a size of the control plane.
fn size(name: &str) -> &'static str {
    match name {
        "services" => "Services with a registered replica.",
        "replicas" => "Registered replicas of services.",
        "lmaps" => "LMAPs (local metrics analysis pipelines), placed or not.",
        "unplaced_lmaps" => "LMAPs that no worker runs.",
        "unreadable_regions" => "Regions that a worker cannot read by RDMA.",
        "unfenced_workers" => "Workers that an RDMA device does not fence; slots are held back.",
        "kept_model_bytes" => "Bytes of models that detectors have learnt, kept for the next worker.",
        "series_bytes" => "Bytes of series: of services and replicas, of LMAPs, and what workers were sent of them.",
        "drained_workers" => "Workers that operators drain: LMAPs move away from them, and none is placed on them.",
        _ => "Current number.",
    }
}

/// What was refused over a share, by bound.
fn encode_refusals(encoder: &mut DescriptorEncoder, refused: &[(&str, u64)]) -> Result<(), core::fmt::Error> {
    let help = "Connections, services, series and regions refused because their user had its share, or registered too fast, by bound.";
    let mut family = encoder.encode_descriptor("refused_over_share", help, None, MetricType::Counter)?;
    for (bound, count) in refused {
        ConstCounter::new(*count).encode(family.encode_family(&[("bound", *bound)])?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::extract::Request;
    use tower_service::Service as _;
    use wire::id::Incarnation;
    use wire::time::{Interval, Nanos};

    use super::*;
    use crate::clock::Clock;
    use crate::control_plane::Settings;

    #[tokio::test]
    async fn pages_that_are_not_read_count_for_who_asked_and_health_does_not() {
        let interval = Interval::new(Nanos::from_secs(1)).unwrap();
        let node = Arc::new(Node::new(Settings::new(Incarnation(1), interval), 4, Clock::start(), None));
        let writers = Arc::new(Semaphore::new(WRITERS));
        let own = Arc::new(OwnMetrics { registry: page::registry("uview_host"), otlp: None, writers });
        let held = ReplyShares::new(1 << 20, |_| {});
        let mut router = router(&node, own, &held);

        for (path, counts) in [("/metrics", true), ("/metrics/lmaps", true), ("/healthz", false)] {
            let reply = router.call(Request::get(path).body(Body::empty()).unwrap()).await.unwrap();

            assert_eq!((reply.status(), held.used() > 0), (StatusCode::OK, counts), "{path}");
            drop(reply);
            assert_eq!(held.used(), 0, "{path}");
        }
    }
}
