//! Who is called: addresses, and names that are looked up again and again.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{interval, timeout};
use tonic::transport::{ClientTlsConfig, Endpoint, Error};

use crate::local::Local;
use crate::peer::{self, Until};

/// How often names are looked up.
const LOOK_UP: Duration = Duration::from_secs(10);
/// A peer that takes longer to connect to is tried again.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);
/// A peer that does not answer for so long is gone, whatever TCP thinks.
const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// Peers that are called at the most.
const MOST_PEERS: usize = 1_024;

/// Whom to call.
#[derive(Clone, Debug)]
pub struct PeerSettings {
    /// `host:port` each; a name stands for all addresses that it has, this node's own among them.
    pub addresses: Vec<String>,
    /// Certificates; without, only a trusted network is safe.
    pub tls: Option<ClientTlsConfig>,
    /// `tls` says which name peers' certificates have. If not, it is that of the address.
    pub named: bool,
}

/// Why peers cannot be called.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// An address without a port.
    #[error("{0:?} is no peer's address: host:port is needed")]
    Address(String),
    /// The certificates.
    #[error("certificates for peers cannot be used")]
    Tls(#[source] Error),
}

/// A number that only rises.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// So many.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What became of calls.
#[derive(Debug, Default)]
pub struct Counts {
    /// Calls of this node.
    pub said: Count,
    /// Those that had no answer that could be heard.
    pub failed: Count,
    /// Calls of others that were heard.
    pub heard: Count,
    /// Calls of others that could not be.
    pub refused: Count,
}

/// Calls that go on. They end with their runtime, or in order by [`Running::end`].
#[derive(Debug)]
pub struct Running {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

/// Begins to call peers. Needs a tokio runtime with time and network.
///
/// # Errors
///
/// [`StartError`] if an address or the certificates cannot be used.
pub fn start<L: Local>(settings: PeerSettings, local: Arc<L>, counts: Arc<Counts>) -> Result<Running, StartError> {
    for address in &settings.addresses {
        let port =
            address.rsplit_once(':').and_then(|(host, port)| port.parse::<u16>().ok().filter(|_| !host.is_empty()));
        port.ok_or_else(|| StartError::Address(address.clone()))?;
        endpoint(address, SocketAddr::from(([127, 0, 0, 1], 1)), &settings).map_err(StartError::Tls)?;
    }
    let (stop, stopped) = watch::channel(false);
    let task = tokio::spawn(keep(settings, local, counts, stopped));
    Ok(Running { stop, task })
}

impl Running {
    /// Says the last words to everyone, and ends.
    pub async fn end(self, within: Duration) {
        self.stop.send_replace(true);
        _ = timeout(within, self.task).await;
    }
}

/// Where the peer `named` is that has `address` now. Its certificate is of its name.
fn endpoint(name: &str, address: SocketAddr, settings: &PeerSettings) -> Result<Endpoint, Error> {
    let PeerSettings { tls, named, .. } = settings;
    let scheme = if tls.is_some() { "https" } else { "http" };
    let endpoint = Endpoint::from_shared(format!("{scheme}://{address}"))?
        .connect_timeout(CONNECT_WITHIN)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE)
        .keep_alive_while_idle(true);
    let Some(tls) = tls else { return Ok(endpoint) };
    let host = name.rsplit_once(':').map_or(name, |(host, _)| host);
    endpoint.tls_config(if *named { tls.clone() } else { tls.clone().domain_name(host) })
}

/// Calls everyone that the addresses stand for, until it is to stop.
async fn keep<L: Local>(
    settings: PeerSettings,
    local: Arc<L>,
    counts: Arc<Counts>,
    mut stopped: watch::Receiver<bool>,
) {
    let mut calls = JoinSet::new();
    // Each call has a stop of its own: an address may go.
    let mut called: BTreeMap<SocketAddr, watch::Sender<Until>> = BTreeMap::new();
    let mut look_up = interval(LOOK_UP);
    while !*stopped.borrow() {
        tokio::select! {
            _ = look_up.tick() => {}
            _ = stopped.wait_for(|stop| *stop) => break,
        }
        let Found { all, complete } = addresses(&settings.addresses).await;
        // A name that cannot be looked up for a moment takes nobody out of the cluster.
        called.retain(|address, stop| {
            let stays = !complete || all.contains_key(address);
            if !stays {
                stop.send_replace(Until::Gone);
            }
            stays
        });
        for (address, named) in all {
            if called.contains_key(&address) || called.len() >= MOST_PEERS {
                continue;
            }
            match endpoint(&named, address, &settings) {
                Ok(endpoint) => {
                    let (stop, stopped) = watch::channel(Until::Going);
                    calls.spawn(peer::call(endpoint, address, Arc::clone(&local), Arc::clone(&counts), stopped));
                    called.insert(address, stop);
                }
                Err(error) => tracing::warn!(%address, %error, "a peer cannot be called"),
            }
        }
    }
    for stop in called.values() {
        stop.send_replace(Until::Ending);
    }
    while calls.join_next().await.is_some() {}
}

/// Addresses with what they were named by.
struct Found {
    all: BTreeMap<SocketAddr, String>,
    /// Every name could be looked up.
    complete: bool,
}

/// All addresses that `named` stand for now.
async fn addresses(named: &[String]) -> Found {
    let (mut all, mut complete) = (BTreeMap::new(), true);
    for name in named {
        match tokio::net::lookup_host(name).await {
            Ok(found) => all.extend(found.map(|address| (address, name.clone()))),
            Err(error) => {
                complete = false;
                tracing::warn!(name, %error, "a peer's name has no address now");
            }
        }
    }
    Found { all, complete }
}
