//! Keeps this node's traces together with those of other nodes: the OTLP endpoint decides, the gossip crate transports.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use agent_runtime::access::Access;
use agent_runtime::listen::tcp;
use agent_runtime::live_tls::LiveServer;
use agent_runtime::reload::Reloadable;
use agent_runtime::server::{self, Limits, Listener, Server, Traffic};
use gossip::{Calls, Counts, Exchange, LocalNode, PeerSettings};
use hooks::coherence::{GossipMessage, MemberSettings, ReceiveError, Refusal, RunId, Speaker};
use otlp::{CoherenceSettings, Edge};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use wire::time::Nanos;

use crate::config::CoherenceConfig;
use crate::listeners::acceptor;
use crate::run_error::RunError;

/// Connections of peers: of all, and from one address.
pub(crate) const LIMITS: Limits = Limits { connections: 2_048, connections_per_peer: 64, traffic: Traffic::Streams };
/// Deadline of the last messages on shutdown.
const LEAVE_WITHIN: Duration = Duration::from_secs(1);

/// The OTLP endpoint as a gossip node.
struct Endpoint(Arc<Edge>);

impl LocalNode for Endpoint {
    fn receive(&self, message: GossipMessage, speaker: Speaker<'_>) -> Result<(), ReceiveError> {
        self.0.receive(message, speaker)
    }

    fn refuse(&self, who: &str, why: Refusal) {
        self.0.refuse_message(who, why);
    }

    fn message(&self, peer: Option<&str>) -> Option<GossipMessage> {
        self.0.message_for(peer)
    }

    fn is_due(&self, peer: Option<&str>, last: Option<Nanos>) -> bool {
        self.0.is_due(peer, last)
    }

    fn time(&self) -> Nanos {
        self.0.now()
    }

    fn forget_peer(&self, peer: &str) {
        self.0.forget_peer(peer);
    }
}

/// Running gossip of this node.
#[derive(Debug)]
pub(crate) struct Coherence {
    edge: Arc<Edge>,
    exchange: Exchange,
    stop: oneshot::Sender<()>,
    server: JoinHandle<()>,
    trace_run: PathBuf,
}

/// Marker file: this run has traces. If it exists at start, the previous run was killed.
fn trace_run(folder: &Path) -> PathBuf {
    folder.join("trace-run")
}

/// Who gossips with whom.
pub(crate) struct Membership<'a> {
    /// Name of this node.
    pub(crate) name: &'a str,
    /// Whom it calls.
    pub(crate) peers: PeerSettings,
    /// Certificates of the listener; `None` for plain text.
    pub(crate) tls: Option<LiveServer>,
    /// Who may be a peer.
    pub(crate) access: &'a Reloadable<Access>,
    /// Connections of all servers.
    pub(crate) connections: &'a Arc<server::Counts>,
}

/// Starts gossip for the traces of `edge`.
pub(crate) async fn start(
    config: &CoherenceConfig,
    membership: Membership<'_>,
    folder: &Path,
    edge: Arc<Edge>,
) -> Result<Coherence, RunError> {
    let Membership { name, peers, tls, access, connections } = membership;
    let (listener, address) = tcp("coherence.listen", config.listen).await?;
    let failed = |error| RunError::Server("coherence", error);
    let trace_run = trace_run(folder);
    let successor = trace_run.exists();
    std::fs::write(&trace_run, "").map_err(|cause| RunError::Runtime { path: trace_run.clone(), cause })?;
    edge.join(name, RunId(rand::random()), CoherenceSettings { member: MemberSettings::default(), successor });
    let (counts, local) = (Arc::new(Counts::default()), Arc::new(Endpoint(Arc::clone(&edge))));
    let router = gossip::router(Arc::clone(&local), access.clone(), Arc::clone(&counts));
    let server = Server { name: "coherence", router, limits: LIMITS, counts: Arc::clone(connections) };
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = server.serve(vec![Listener::Tcp(listener)], acceptor(tls.as_ref())?, async { _ = stopped.await });
    let server = tokio::spawn(serving);
    let exchange =
        gossip::start(peers, local, access.clone(), Arc::clone(&counts)).map_err(|error| failed(error.into()))?;
    tracing::info!(%address, node = name, successor, "gossip started");
    Ok(Coherence { edge, exchange, stop, server, trace_run })
}

impl Coherence {
    /// What became of calls to other nodes.
    pub(crate) fn calls(&self) -> Arc<Calls> {
        Arc::clone(self.exchange.calls())
    }

    /// Announces to all peers that this node leaves, and stops.
    pub(crate) async fn end(self) {
        self.edge.leave();
        self.exchange.end(LEAVE_WITHIN).await;
        drop(self.stop);
        _ = tokio::time::timeout(LEAVE_WITHIN, self.server).await;
        if let Err(error) = std::fs::remove_file(&self.trace_run) {
            tracing::warn!(path = %self.trace_run.display(), %error, "cannot remove the marker file: the next run will assume that this one was killed");
        }
    }
}
