//! What runs on the telemetry threads: OTLP, head sampling, gossip, span rings.

use std::sync::Arc;

use ::head_sampling::Advice;
use agent_runtime::access::Access;
use agent_runtime::descriptors::leaves_enough;
use agent_runtime::live_tls::LiveServer;
use agent_runtime::reload::Reloadable;
use agent_runtime::server;
use gossip::{Calls, PeerSettings};
use otlp::Edge;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use super::host::node_name;
use crate::coherence::{self, Coherence, Membership};
use crate::config::Config;
use crate::metric_exports::{ExportSettings, Exports};
use crate::node::Node;
use crate::run_error::RunError;
use crate::span_metrics::Destination;
use crate::telemetry_threads::TelemetryThreads;
use crate::{head_sampling, kept_logs, kept_traces, metric_exports, otlp_endpoint, span_ring};

/// Settings of what runs on the telemetry threads, besides remote monitors.
pub(super) struct TelemetrySettings {
    pub(super) otlp: Option<otlp::Settings>,
    pub(super) peers: Option<PeerSettings>,
    /// Certificates of gossip's listener.
    pub(super) gossip_tls: Option<LiveServer>,
    advice: Advice,
    exports: Option<ExportSettings>,
}

/// What all servers share.
pub(super) struct Servers {
    pub(super) access: Reloadable<Access>,
    pub(super) connections: Arc<server::Counts>,
}

/// What runs there.
pub(super) struct Telemetry {
    pub(super) otlp: Option<otlp::EdgeHandle>,
    /// Exporters of metrics that are watched.
    pub(super) exports: Option<Arc<Exports>>,
    /// Stops when it is dropped.
    pub(super) head_sampling: Option<JoinSet<()>>,
    pub(super) coherence: Option<Coherence>,
    pub(super) spans: Option<tokio::task::JoinHandle<()>>,
}

impl TelemetrySettings {
    pub(super) fn of(config: &Config) -> Result<Self, RunError> {
        let mut otlp = config.otlp.settings(rand::random(), &node_name(config))?;
        let peers = config.coherence.settings(&config.otlp)?;
        if let Some(otlp) = &mut otlp {
            otlp.admits = leaves_enough;
            otlp.watched_kept = Some(kept_traces::KEPT_BYTES);
            otlp.watched_kept_logs = otlp.logs.is_some().then_some(kept_logs::KEPT_BYTES);
            otlp.observed = config.observes_spans().then(|| config.otlp.traces.frontends.clone());
        }
        let exports = config.otlp.metrics.settings(config.otlp.request_bytes)?;
        Ok(Self { otlp, peers, gossip_tls: None, advice: config.head_sampling.advice(&config.otlp)?, exports })
    }

    pub(super) async fn start(
        self,
        config: &Config,
        threads: &TelemetryThreads,
        node: &Arc<Node>,
        listeners: impl Iterator<Item = TcpListener>,
        servers: Servers,
    ) -> Result<Telemetry, RunError> {
        let Self { otlp, peers, gossip_tls, advice, exports } = self;
        let destination = if config.otlp.derived.columns { Destination::Columns } else { Destination::Figures };
        let counted = (config.span_metrics_interval(), destination);
        let otlp = otlp
            .map(|settings| {
                otlp_endpoint::start(&settings, listeners, (node, &node_name(config)), counted, threads.handle())
            })
            .transpose()?;
        let edge = otlp.as_ref().map(|otlp| Arc::clone(otlp.edge()));
        let head_sampling = match config.head_sampling.listen {
            Some(listen) => {
                let connections = Arc::clone(&servers.connections);
                let starting = head_sampling::start(listen, advice, edge.clone(), Arc::clone(node), connections);
                Some(start_on(threads, starting).await?)
            }
            None => None,
        };
        let coherence = match (peers, &edge) {
            (Some(peers), Some(edge)) => {
                let name = config.otlp.traces.node.clone().unwrap_or_else(|| node_name(config));
                let (folder, edge) = (config.runtime_dir.0.clone(), Arc::clone(edge));
                let config = config.coherence.clone();
                let starting = async move {
                    let Servers { access, connections } = &servers;
                    let membership = Membership { name: &name, peers, tls: gossip_tls, access, connections };
                    coherence::start(&config, membership, &folder, edge).await
                };
                Some(start_on(threads, starting).await?)
            }
            _ => None,
        };
        let spans = edge.as_ref().map(|edge| read_spans(edge, node, threads.handle()));
        let exports = exports.zip(edge).map(|(settings, edge)| {
            let _entered = threads.handle().enter();
            metric_exports::start(settings, &edge, node)
        });
        Ok(Telemetry { otlp, exports, head_sampling, coherence, spans })
    }
}

impl Telemetry {
    pub(super) fn edge(&self) -> Option<&Arc<Edge>> {
        self.otlp.as_ref().map(otlp::EdgeHandle::edge)
    }

    /// What became of calls to other nodes; `None`: this one is alone.
    pub(super) fn calls(&self) -> Option<Arc<Calls>> {
        self.coherence.as_ref().map(Coherence::calls)
    }
}

/// Starts something with its listeners and tasks on `threads`.
async fn start_on<T, E>(
    threads: &TelemetryThreads,
    starting: impl Future<Output = Result<T, E>> + Send + 'static,
) -> Result<T, RunError>
where
    T: Send + 'static,
    E: Send + 'static,
    RunError: From<E>,
{
    let started = threads.handle().spawn(starting).await;
    Ok(started.map_err(|error| RunError::Server("telemetry", error.into()))??)
}

/// Starts reading the span rings of replicas.
fn read_spans(edge: &Arc<Edge>, node: &Arc<Node>, threads: &Handle) -> tokio::task::JoinHandle<()> {
    let (requests, inbox) = span_ring::channel();
    node.read_spans_with(requests);
    threads.spawn(span_ring::run(Arc::clone(edge), Arc::clone(node), inbox))
}
