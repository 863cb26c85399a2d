//! What the agent records while it runs.

use std::sync::Arc;

use otlp::Edge;
use tokio::runtime::Handle;

use super::host::node_name;
use crate::clock::{self, Clock};
use crate::config::Config;
use crate::dispatch::TooManyHooks;
use crate::incident_book::{EvidenceSources, IncidentBook};
use crate::kept_logs::KeptLogs;
use crate::kept_traces::KeptTraces;
use crate::node::Node;
use crate::pod_watch::PodWatch;
use crate::receipts::Receipts;
use crate::run_error::RunError;

/// What the agent records while it runs: the receipt's ledger, incidents, and kept traces for people to look at.
#[derive(Clone, Debug)]
pub(crate) struct Records {
    pub(crate) receipts: Arc<Receipts>,
    pub(crate) incidents: Arc<IncidentBook>,
    pub(crate) traces: Arc<KeptTraces>,
}

impl Records {
    /// Goes on with what the previous run stored, and follows `node` on `threads`.
    pub(super) fn start(
        config: &Config,
        edge: Option<&Arc<Edge>>,
        (pods, clock): (Option<Arc<PodWatch>>, Clock),
        node: &Arc<Node>,
        threads: &Handle,
    ) -> Result<Self, RunError> {
        let no_hook = |error: TooManyHooks| RunError::Server("operators", error.into());
        let receipts = receipts(config, edge, clock)?;
        receipts.start(node, threads).map_err(no_hook)?;
        let traces = Arc::new(KeptTraces::new(edge.cloned(), config.page.trace_bytes));
        let incidents = incidents(config, (&traces, KeptLogs::new(edge.cloned())), pods)?;
        incidents.start(node, threads).map_err(no_hook)?;
        Ok(Self { receipts, incidents, traces })
    }
}

/// The receipt's ledger, with what the previous run stored.
fn receipts(config: &Config, edge: Option<&Arc<Edge>>, clock: Clock) -> Result<Arc<Receipts>, RunError> {
    let began = clock::unix_now().minus(clock.now());
    let receipts = Receipts::new(&config.receipt, edge.cloned(), node_name(config), began);
    let folder = || config.receipt.dir.clone().unwrap_or_default();
    receipts.map(Arc::new).map_err(|cause| RunError::Runtime { path: folder(), cause })
}

/// Incidents, with what the previous run stored.
fn incidents(
    config: &Config,
    (traces, logs): (&Arc<KeptTraces>, KeptLogs),
    pods: Option<Arc<PodWatch>>,
) -> Result<Arc<IncidentBook>, RunError> {
    let sources = EvidenceSources { traces: Arc::clone(traces), logs, pods };
    let incidents = IncidentBook::open(&config.incidents, node_name(config), sources);
    let folder = || config.incidents.dir.clone().unwrap_or_default();
    incidents.map(Arc::new).map_err(|cause| RunError::Runtime { path: folder(), cause })
}
