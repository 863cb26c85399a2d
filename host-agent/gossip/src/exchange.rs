//! Peer discovery: resolves the configured addresses every 10 s and keeps one call task per address.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use agent_runtime::access::Access;
use agent_runtime::connect::Connector;
use agent_runtime::reload::Reloadable;
use agent_runtime::ticks::ticks;
use agent_runtime::{ClientConfigs, TlsError};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;
use tonic::transport::Endpoint;

use crate::calls::Calls;
use crate::counts::Counts;
use crate::local_node::LocalNode;
use crate::peer::{self, PeerState, Shared};

/// How often names are resolved.
const RESOLVE_INTERVAL: Duration = Duration::from_secs(10);
/// HTTP/2 keep-alive interval and timeout: a peer that does not reply within this is treated as gone, whatever TCP
/// says.
const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// Limit of peers called.
const MAX_PEERS: usize = 1_024;

/// Which peers to call, and how.
#[derive(Clone, Debug)]
pub struct PeerSettings {
    /// `host:port` each. A name stands for all its addresses. This node's own address may be among them.
    pub addresses: Vec<String>,
    /// Client TLS; each connection begins with the current certificates. Without it, whoever answers is anyone: use a
    /// trusted network only.
    pub tls: Option<Reloadable<ClientConfigs>>,
}

/// Why gossip did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The address has no port.
    #[error("{0:?} is not a peer address: use host:port")]
    Address(String),
    /// The certificates cannot be used.
    #[error("the certificates for peers cannot be used")]
    Tls(#[source] TlsError),
}

/// Running gossip. Ends with its tokio runtime, or in order by [`Exchange::end`].
#[derive(Debug)]
pub struct Exchange {
    calls: Arc<Calls>,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

/// Starts calling peers. `access` says who may be one. Needs a tokio runtime with time and network.
///
/// # Errors
///
/// [`StartError`] if an address or the certificates cannot be used.
pub fn start<L: LocalNode>(
    settings: PeerSettings,
    local: Arc<L>,
    access: Reloadable<Access>,
    counts: Arc<Counts>,
) -> Result<Exchange, StartError> {
    for address in &settings.addresses {
        let port =
            address.rsplit_once(':').and_then(|(host, port)| port.parse::<u16>().ok().filter(|_| !host.is_empty()));
        port.ok_or_else(|| StartError::Address(address.clone()))?;
        endpoint(address, SocketAddr::from(([127, 0, 0, 1], 1)), &settings).map_err(StartError::Tls)?;
    }
    let (stop, stopped) = watch::channel(false);
    let calls = Arc::new(Calls::default());
    let shared = Shared { local, access, counts, calls: Arc::clone(&calls) };
    let task = tokio::spawn(run(settings, shared, stopped));
    Ok(Exchange { calls, stop, task })
}

impl Exchange {
    /// What became of the calls to each address.
    #[must_use]
    pub const fn calls(&self) -> &Arc<Calls> {
        &self.calls
    }

    /// Sends a last message to every peer, then ends; takes `within` at most.
    pub async fn end(self, within: Duration) {
        self.stop.send_replace(true);
        _ = timeout(within, self.task).await;
    }
}

/// How to call `address`, which `name` resolved to. Its certificate is checked against `name`, unless the settings have
/// another one.
fn endpoint(name: &str, address: SocketAddr, settings: &PeerSettings) -> Result<(Endpoint, Connector), TlsError> {
    let host = name.rsplit_once(':').map_or(name, |(host, _)| host);
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let connector = Connector::new(address.to_string(), host, settings.tls.clone())?;
    // The connector does TLS.
    let endpoint =
        Endpoint::from_shared(format!("http://{address}")).map_err(|_| TlsError::Name(address.to_string()))?;
    let endpoint =
        endpoint.http2_keep_alive_interval(KEEP_ALIVE).keep_alive_timeout(KEEP_ALIVE).keep_alive_while_idle(true);
    Ok((endpoint, connector))
}

/// Keeps one call task per resolved address until `stopped`.
async fn run<L: LocalNode>(settings: PeerSettings, shared: Shared<L>, mut stopped: watch::Receiver<bool>) {
    let mut calls = JoinSet::new();
    // Each call task has its own state: a single address may be removed.
    let mut called: BTreeMap<SocketAddr, watch::Sender<PeerState>> = BTreeMap::new();
    let mut resolve_ticks = ticks(RESOLVE_INTERVAL);
    while !*stopped.borrow() {
        tokio::select! {
            _ = resolve_ticks.tick() => {}
            _ = stopped.wait_for(|stop| *stop) => break,
        }
        let ResolvedPeers { all, complete } = resolve(&settings.addresses).await;
        // A failed lookup removes no peer from the cluster.
        called.retain(|address, stop| {
            let stays = !complete || all.contains_key(address);
            if !stays {
                stop.send_replace(PeerState::Removed);
                shared.calls.end(*address);
            }
            stays
        });
        for (address, name) in all {
            if called.contains_key(&address) || called.len() >= MAX_PEERS {
                continue;
            }
            match endpoint(&name, address, &settings) {
                Ok(endpoint) => {
                    let (stop, stopped) = watch::channel(PeerState::Active);
                    shared.calls.begin(address, name);
                    calls.spawn(peer::call(endpoint, address, shared.clone(), stopped));
                    called.insert(address, stop);
                }
                Err(error) => tracing::warn!(%address, %error, "cannot call peer"),
            }
        }
    }
    for stop in called.values() {
        stop.send_replace(PeerState::Leaving);
    }
    while calls.join_next().await.is_some() {}
}

/// Resolved addresses, each with the name that it came from.
struct ResolvedPeers {
    all: BTreeMap<SocketAddr, String>,
    /// Whether every name was resolved.
    complete: bool,
}

/// Resolves all names in `named`.
async fn resolve(names: &[String]) -> ResolvedPeers {
    let (mut all, mut complete) = (BTreeMap::new(), true);
    for name in names {
        match tokio::net::lookup_host(name).await {
            Ok(found) => all.extend(found.map(|address| (address, name.clone()))),
            Err(error) => {
                complete = false;
                tracing::warn!(name, %error, "cannot resolve peer");
            }
        }
    }
    ResolvedPeers { all, complete }
}
