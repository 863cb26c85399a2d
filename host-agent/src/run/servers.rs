//! The servers of the control plane, the operators' API, `/metrics` and the live page.

use std::sync::Arc;

use agent_runtime::repeated_events::RepeatedEvents;
use agent_runtime::server::{self, Listener, ReplyShares, Server};
use agent_runtime::socket_file::SocketFile;
use gossip::Calls;
use otlp::Edge;
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tonic::service::Routes;

use super::limits::{CALL_BYTES, METRICS_LIMITS, OPERATOR_LIMITS, WORKER_LIMITS, page_bytes};
use super::records::Records;
use super::tasks::{Tasks, drained, spawn, until_drained};
use crate::clock::Clock;
use crate::config::Config;
use crate::listeners::{Listeners, acceptor};
use crate::live_page::{self, LivePage, NodeLook, OlderScores, PageSources};
use crate::measuring::Counts;
use crate::node::Node;
use crate::open_problems::ProblemSources;
use crate::operators_server::Callers;
use crate::reload::LiveParts;
use crate::remote_monitor::RemoteMonitor;
use crate::run_error::RunError;
use crate::stored_models::StoredModels;
use crate::telemetry_threads::move_to;
use crate::token_access::TokenAccess;
use crate::watched_sources::WatchedSources;
use crate::{control_server, freed_regions, metrics_endpoint, operators_server, regions_socket, services_socket};

/// What the operators' server and `/metrics` report besides the node.
pub(super) struct MonitoringSources {
    pub(super) connections: Arc<server::Counts>,
    pub(super) counts: Counts,
    pub(super) otlp: Option<Arc<Edge>>,
    pub(super) remotes: Vec<Arc<RemoteMonitor>>,
    pub(super) records: Records,
    pub(super) models: Option<Arc<StoredModels>>,
    pub(super) watched: WatchedSources,
    /// `None`: no Prometheus is asked.
    pub(super) older: Option<OlderScores>,
    /// Calls to other nodes; `None`: this one is alone.
    pub(super) calls: Option<Arc<Calls>>,
    /// Threads of the live page.
    pub(super) on: Handle,
}

/// Starts the servers on `listeners`, that of the page on its threads. The files are removed on drop.
pub(super) fn serve(
    config: &Config,
    node: &Arc<Node>,
    live: &LiveParts,
    listeners: Listeners,
    sources: MonitoringSources,
) -> Result<(Tasks, [SocketFile; 4]), RunError> {
    let MonitoringSources { connections, counts, otlp, remotes, records, models, watched, older, calls, on } = sources;
    let tokens = token_access(config, node.clock())?;
    let named = |name, router, limits| Server { name, router, limits, counts: Arc::clone(&connections) };
    let control = Routes::new(control_server::service(Arc::clone(node), live.access.clone()));
    let control = named("control", control.into_axum_router(), WORKER_LIMITS);
    let hooks = (config.operators.hooks.get(), config.operators.hook_queue.get());
    let pods = watched.pods.clone();
    let problems = Arc::new(ProblemSources {
        edge: otlp,
        remotes,
        receipts: records.receipts,
        incidents: Some(records.incidents),
        models,
        cgroups: Arc::clone(&counts.1),
        watched,
        tokens: tokens.clone(),
        connections: Arc::clone(&connections),
    });
    let own = metrics_endpoint::metrics_of(node, counts, Arc::clone(&connections), &problems);
    let page = listeners.page.as_ref().map(|(_, address)| {
        let (access, problems, traces) = (live.access.clone(), Arc::clone(&problems), records.traces);
        let looks = NodeLook::new(config, live.budget.clone(), Arc::clone(&own), calls);
        let sources = PageSources { access, problems, traces, looks, older };
        LivePage::new(&config.page, *address, Arc::clone(node), sources)
    });
    let callers = Callers { access: live.access.clone(), tokens, refused: Arc::default() };
    let (held, pages) = (held_calls(node), held_pages(config, node, &connections));
    let operators = operators_server::router(Arc::clone(node), callers, hooks, problems, page.clone(), &held);
    let operators = named("operators", operators, OPERATOR_LIMITS);
    let metrics = named("metrics", metrics_endpoint::router(node, own, &pages), METRICS_LIMITS);
    let ((services, services_file), (regions, regions_file)) = (listeners.services, listeners.regions);
    let (control_listeners, control_file) = listeners.control.split();
    let (operator_listeners, operators_file) = listeners.operators.split();
    let mut tasks = JoinSet::new();
    for (server, listeners, tls) in [
        (control, control_listeners, acceptor(live.control.as_ref())?),
        (operators, operator_listeners, acceptor(live.operators.as_ref())?),
        (metrics, vec![Listener::Tcp(listeners.metrics.0)], None),
    ] {
        spawn(&mut tasks, server.serve(listeners, tls, drained(Arc::clone(node))));
    }
    if let (Some(page), Some((listener, _))) = (page, listeners.page) {
        let listener = move_to(&on, listener).map_err(|error| RunError::Server("page", error.into()))?;
        let server = named("page", live_page::router(&page), live_page::LIMITS);
        spawn_on(&mut tasks, &on, server.serve(vec![Listener::Tcp(listener)], None, drained(Arc::clone(node))));
        spawn_on(&mut tasks, &on, until_drained(live_page::watch(page), Arc::clone(node)));
    }
    spawn(&mut tasks, services_socket::serve(services, Arc::clone(node), pods));
    spawn(&mut tasks, until_drained(freed_regions::watch(Arc::clone(node)), Arc::clone(node)));
    spawn(&mut tasks, regions_socket::serve(regions, Arc::clone(node), listeners.regions_uid));
    Ok((tasks, [services_file, regions_file, control_file, operators_file]))
}

/// What operators and viewers hold of calls.
fn held_calls(node: &Arc<Node>) -> Arc<ReplyShares> {
    let (node, refused) = (Arc::clone(node), RepeatedEvents::default());
    ReplyShares::new(CALL_BYTES, move |error| {
        node.counts.refused_replies.one_more();
        if let Some(times) = refused.count(node.clock().now(), &error.owner) {
            tracing::warn!(%error, times, "call refused");
        }
    })
}

/// What readers of `/metrics` hold of pages.
fn held_pages(config: &Config, node: &Arc<Node>, connections: &Arc<server::Counts>) -> Arc<ReplyShares> {
    let (clock, connections, refused) = (node.clock(), Arc::clone(connections), RepeatedEvents::default());
    ReplyShares::new(page_bytes(config), move |error| {
        connections.refused_pages.one_more();
        if let Some(times) = refused.count(clock.now(), &error.owner) {
            tracing::warn!(%error, times, "page refused");
        }
    })
}

/// What decides about callers with tokens, if `config` wants them.
fn token_access(config: &Config, clock: Clock) -> Result<Option<Arc<TokenAccess>>, RunError> {
    let Some(plan) = config.kubernetes.tokens() else { return Ok(None) };
    let api = kube::Config::incluster().map_err(|error| RunError::Kubernetes(error.into()))?;
    let tokens = TokenAccess::new(plan, api, clock).map_err(|error| RunError::Kubernetes(error.into()))?;
    Ok(Some(Arc::new(tokens)))
}

/// Runs a server that has no error of its own on `threads`.
fn spawn_on(tasks: &mut Tasks, threads: &Handle, server: impl Future<Output = ()> + Send + 'static) {
    let serving = async {
        server.await;
        Ok(())
    };
    tasks.spawn_on(serving, threads);
}
