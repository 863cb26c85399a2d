//! The network link between two services: packets pass a network namespace and a small relay in user space, which can
//! delay them.
//!
//! ```text
//! payment ── uview-demo0 ══ relay ══ uview-demo0 ── the store's listening socket
//!            host namespace          unnamed namespace
//! ```
//!
//! `run` is the relay, a process of its own. Both interfaces are TUN devices that it holds open, and the namespace
//! belongs to one of its threads, so that everything disappears with the process. Only the listening socket of the
//! store is in that namespace; everything else reaches the store as before.
//!
//! Needs root, `/dev/net/tun` and `ip` (iproute2). If something is missing, the demo prints it and runs without the
//! link.

mod namespace;
mod queue;
mod relay;
mod tun;

use core::net::{Ipv4Addr, SocketAddr};
use std::io;
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::routing::post;
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

pub(crate) use namespace::{CARRIED_BYTES, listen_in};

use crate::fault::Kind;
use crate::noise::Noise;
use crate::shop::Injection;
use crate::state_file;
use namespace::LinkDevices;

/// Limit for the first packet to pass; if it does not, something blocks it, such as a firewall.
const PASSES_WITHIN: Duration = Duration::from_secs(3);

/// Arguments of `uview link`, the relay between two services.
#[derive(Clone, Debug, clap::Args)]
pub struct LinkArgs {
    /// File to write when packets pass, with the addresses; or with the reason why they do not
    #[arg(long, value_name = "FILE")]
    pub ready: PathBuf,
    /// Seed of the packet delays
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// The content of the relay's ready file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum LinkStatus {
    /// Packets pass the link.
    Open(OpenLink),
    /// Packets cannot pass, with the reason.
    Skipped(String),
}

/// An open link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OpenLink {
    /// The interface on the callers' side.
    pub(crate) interface: String,
    /// The address on the other side.
    pub(crate) address: Ipv4Addr,
    /// The network namespace on the other side.
    pub(crate) netns: PathBuf,
    /// Address of the admin port, which injects faults.
    pub(crate) admin: SocketAddr,
}

/// Why no packets pass the link.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The process is not root.
    #[error("needs root for network namespaces")]
    Root,
    /// `ip` is not installed.
    #[error("needs `ip`, of the package iproute2")]
    NoIp,
    /// A call of `ip` failed.
    #[error("`ip {arguments}` failed: {stderr}")]
    Ip {
        /// Its arguments, separated by spaces.
        arguments: String,
        /// Its error output in one line.
        stderr: String,
    },
    /// A system resource is not available, as in a container without privileges.
    #[error("needs {what}, which is not available: {cause}")]
    System {
        /// Name of the resource.
        what: &'static str,
        /// Error of the system call.
        cause: io::Error,
    },
    /// Everything is set up, but a test connection failed.
    #[error("no packet passes {interface}, perhaps because of a firewall: {cause}")]
    Closed {
        /// The interface on the callers' side.
        interface: String,
        /// Error of the test connection.
        cause: io::Error,
    },
    /// The relay failed while running.
    #[error("the link no longer passes packets")]
    Broken(#[source] io::Error),
    /// The ready file cannot be written.
    #[error("cannot write {}", .path.display())]
    Ready {
        /// Path of the file.
        path: PathBuf,
        /// Error of the file system.
        #[source]
        cause: io::Error,
    },
    /// The runtime, the thread or the admin socket cannot be created.
    #[error("cannot serve")]
    Serve(#[source] io::Error),
}

/// Mean delay of packets in milliseconds; 0 passes them at once.
type PacketDelay = Arc<AtomicU64>;

/// Fails without root, so that nothing has to be started to find out.
pub(crate) fn check_privileges() -> Result<(), LinkError> {
    if rustix::process::geteuid().is_root() { Ok(()) } else { Err(LinkError::Root) }
}

/// Runs the link until the process ends. If the link is not possible, the ready file says so and `run` waits for the
/// end of the process; that is no error.
///
/// # Errors
///
/// [`LinkError`] if the ready file cannot be written, or packets no longer pass.
pub fn run(args: &LinkArgs) -> Result<(), LinkError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(LinkError::Serve)?.block_on(async {
        let delay_ms = PacketDelay::default();
        let admin = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(LinkError::Serve)?;
        let (ended, end) = oneshot::channel();
        let opened = start(args.seed, Arc::clone(&delay_ms), ended).await;
        let status = match opened {
            Ok(endpoints) => LinkStatus::Open(OpenLink {
                interface: endpoints.interface,
                address: endpoints.address,
                netns: endpoints.netns,
                admin: admin.local_addr().map_err(LinkError::Serve)?,
            }),
            Err(why) => LinkStatus::Skipped(why.to_string()),
        };
        let written = state_file::write(&args.ready, &status);
        written.map_err(|cause| LinkError::Ready { path: args.ready.clone(), cause })?;
        let service = Router::new().route("/fault", post(inject)).with_state(delay_ms);
        tokio::select! {
            served = axum::serve(admin, service).into_future() => served.map_err(LinkError::Serve),
            Ok(error) = end => Err(LinkError::Broken(error)),
        }
    })
}

/// Starts the relay's thread, and checks that a connection passes.
async fn start(
    seed: u64,
    delay_ms: PacketDelay,
    ended: oneshot::Sender<io::Error>,
) -> Result<namespace::LinkEndpoints, LinkError> {
    check_privileges()?;
    let (opened, open) = oneshot::channel();
    let relay = move || {
        let devices = LinkDevices::open();
        let (endpoints, pair) = match devices {
            Ok(LinkDevices { endpoints, pair }) => (Ok(endpoints), Some(pair)),
            Err(error) => (Err(error), None),
        };
        let _ = opened.send(endpoints); // the receiver waits for it
        if let Some(pair) = pair {
            let _ = ended.send(relay::pass(&pair, &delay_ms, &mut Noise::new(seed, "link")));
        }
    };
    std::thread::Builder::new().name("relay".to_owned()).spawn(relay).map_err(LinkError::Serve)?;
    let gone = |_| LinkError::Serve(io::ErrorKind::BrokenPipe.into());
    let endpoints = open.await.map_err(gone)??;
    let (interface, probed) = (endpoints.interface.clone(), endpoints.probe);
    let connect = move || TcpStream::connect_timeout(&probed.into(), PASSES_WITHIN).map(drop);
    let connected = tokio::task::spawn_blocking(connect).await.map_err(|error| LinkError::Serve(error.into()))?;
    connected.map_err(|cause| LinkError::Closed { interface, cause })?;
    Ok(endpoints)
}

async fn inject(State(delay_ms): State<PacketDelay>, Query(injection): Query<Injection>) -> (StatusCode, String) {
    if injection.kind != Kind::SlowLink {
        return (StatusCode::BAD_REQUEST, format!("{} is no fault of the link", injection.kind));
    }
    // A switch that nothing else depends on.
    delay_ms.store(injection.amount, Ordering::Relaxed);
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(injection.ms)).await;
        delay_ms.store(0, Ordering::Relaxed);
    });
    (StatusCode::ACCEPTED, String::new())
}

#[cfg(test)]
mod tests;
