//! Starts everything, and ends it in good order.

use std::sync::Arc;

use agent_runtime::listen::{self, BindError};
use agent_runtime::server::{Limits, Listener, ReplyShares, Server, Traffic};
use kube::Client;
use kube::config::InClusterError;

use crate::ControllerArgs;
use crate::bounded;
use crate::counts::{ControllerMetrics, Counts};
use crate::health::{self, Readiness};
use crate::known::{self, ClusterView};
use crate::lease::{self, Leadership};
use crate::pace::Intervals;
use crate::serving::{Serving, serve};
use crate::writer::Writer;

/// Connections for `/metrics` and health.
pub(crate) const HEALTH_LIMITS: Limits = Limits { connections: 32, connections_per_peer: 16, traffic: Traffic::Pages };
/// Bytes of pages that have been asked for and not read.
pub(crate) const PAGE_BYTES: u64 = 2 << 20;

/// Why the controller does not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// It runs in no pod, or the pod has no service account.
    #[error("this is no pod with a service account: run it by the chart, with automountServiceAccountToken true")]
    NoCluster(#[source] InClusterError),
    /// The client of the API server cannot be set up.
    #[error("the API server cannot be asked")]
    Client(#[source] kube::Error),
    /// An address cannot be listened on.
    #[error(transparent)]
    Bind(#[from] BindError),
}

/// Runs the controller in its cluster until `stop` resolves.
///
/// # Errors
///
/// [`RunError`] if this is no pod, or an address cannot be listened on. Later errors are logged, and tried again.
pub async fn run(args: ControllerArgs, stop: impl Future<Output = ()>) -> Result<(), RunError> {
    let config = kube::Config::incluster().map_err(RunError::NoCluster)?;
    run_in(config, args, Intervals::default(), stop).await
}

/// The same, with the API server that `config` names.
pub(crate) async fn run_in(
    mut config: kube::Config,
    args: ControllerArgs,
    intervals: Intervals,
    stop: impl Future<Output = ()>,
) -> Result<(), RunError> {
    // What the API server puts off is computed anew, and not repeated as it was.
    config.default_retry = false;
    let client = bounded::bounded(Client::try_from(config).map_err(RunError::Client)?, bounded::MAX_BYTES);
    let known = Arc::new(ClusterView::default());
    let leadership = Arc::new(Leadership::new(args.name.clone().unwrap_or_default()));
    let counts = Arc::new(Counts::default());
    let metrics = ControllerMetrics {
        counts: Arc::clone(&counts),
        known: Arc::clone(&known),
        leadership: Arc::clone(&leadership),
    };
    let (listener, address) = listen::tcp("--listen", args.listen).await?;
    tracing::info!(%address, replica = args.name, "the controller runs");
    let serving = Serving::new(&client, &args, &known, &counts).await?;
    let readiness =
        Readiness { known: Arc::clone(&known), is_served: serving.as_ref().map(|api| Arc::clone(&api.is_served)) };
    let unread = ReplyShares::new(PAGE_BYTES, |error| tracing::debug!(%error, "a page is refused"));
    let router = health::router(metrics, readiness, &unread);
    let health = Server { name: "health", router, limits: HEALTH_LIMITS, counts: Arc::default() };
    let leases = lease::leases(client.clone(), &args.namespace);
    let writer = Writer { known: Arc::clone(&known), leadership: Arc::clone(&leadership), counts, intervals };
    tokio::select! {
        () = health.serve(vec![Listener::Tcp(listener)], None, core::future::pending()) => {}
        () = Box::pin(known::watch(client.clone(), &known)) => {}
        () = lease::run(&leases, &leadership, intervals.lease) => {}
        () = Box::pin(writer.run(client.clone())) => {}
        () = Box::pin(serve(serving, &client, intervals)) => {}
        () = stop => {}
    }
    lease::release(&leases, &leadership).await;
    Ok(())
}
