//! The way between two services: packets pass a network namespace and a small relay in user space, which can make them late.
//!
//! ```text
//! payment ── uview-demo0 ══ relay ══ uview-demo0 ── the store's listening socket
//!            this network            a network without a name
//! ```
//!
//! `run` is the relay, as a process of its own. Both interfaces are TUN devices that it holds open, and the namespace is that of one of its threads: all of
//! it is gone with the process, however that ends. Of the store only the socket that it listens at is in there, so that everything else reaches it as
//! before.
//!
//! Needs root, `/dev/net/tun` and `ip` (iproute2). What is missing is said, and the demo does without the way.

mod queue;
mod relay;
mod space;
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

pub(crate) use space::{CARRIED_BYTES, listen_in};

use crate::fault::Kind;
use crate::noise::Noise;
use crate::ready;
use crate::shop::Injection;
use space::Ends;

/// A packet is there within so long: else something is between, such as a firewall.
const PASSES_WITHIN: Duration = Duration::from_secs(3);

/// The relay between two services.
#[derive(Clone, Debug, clap::Args)]
pub struct WayArgs {
    /// Written when packets pass, with where; or with why they cannot
    #[arg(long, value_name = "FILE")]
    pub ready: PathBuf,
    /// Makes how late packets are
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// What the relay says of itself when it is ready.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Said {
    /// Packets pass.
    Open(Open),
    /// They cannot, and why.
    Skipped(String),
}

/// Where packets pass.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Open {
    /// The interface on the callers' side.
    pub(crate) interface: String,
    /// The address on the other side.
    pub(crate) address: Ipv4Addr,
    /// The namespace on the other side.
    pub(crate) space: PathBuf,
    /// Where faults are asked for.
    pub(crate) admin: SocketAddr,
}

/// Why no packets pass.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WayError {
    /// Not allowed.
    #[error("needs root for network namespaces")]
    Root,
    /// A program is missing.
    #[error("needs `ip`, of the package iproute2")]
    NoIp,
    /// It refused.
    #[error("`ip {arguments}` failed: {said}")]
    Ip {
        /// What it was asked for.
        arguments: String,
        /// What it said.
        said: String,
    },
    /// The system does not give what is needed, as in a container without privileges.
    #[error("needs {what}, and there is none: {cause}")]
    System {
        /// What.
        what: &'static str,
        /// Why not.
        cause: io::Error,
    },
    /// Everything is there and yet nothing comes through.
    #[error("no packet passes {interface}, perhaps because of a firewall: {cause}")]
    Closed {
        /// On the callers' side.
        interface: String,
        /// What a try to connect said.
        cause: io::Error,
    },
    /// Packets do not pass any more.
    #[error("packets do not pass any more")]
    Broken(#[source] io::Error),
    /// Nobody would know.
    #[error("cannot write {}", .path.display())]
    Ready {
        /// What was to be written.
        path: PathBuf,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// The system gives no event queue, thread or socket.
    #[error("cannot serve")]
    Serve(#[source] io::Error),
}

/// Milliseconds by which packets are held, about; 0 if they are not.
type Held = Arc<AtomicU64>;

/// Whether there is any use in trying: what is not allowed is known without.
pub(crate) fn may_be() -> Result<(), WayError> {
    if rustix::process::geteuid().is_root() { Ok(()) } else { Err(WayError::Root) }
}

/// Is the way until the process ends. One that is not possible is said in the file, and no error: it waits for its end.
///
/// # Errors
///
/// [`WayError`] if it cannot say how it is, or packets pass no longer.
pub fn run(args: &WayArgs) -> Result<(), WayError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(WayError::Serve)?.block_on(async {
        let held = Held::default();
        let admin = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(WayError::Serve)?;
        let (ended, end) = oneshot::channel();
        let opened = start(args.seed, Arc::clone(&held), ended).await;
        let said = match opened {
            Ok(ends) => Said::Open(Open {
                interface: ends.interface,
                address: ends.address,
                space: ends.space,
                admin: admin.local_addr().map_err(WayError::Serve)?,
            }),
            Err(why) => Said::Skipped(why.to_string()),
        };
        let written = ready::write(&args.ready, &said);
        written.map_err(|cause| WayError::Ready { path: args.ready.clone(), cause })?;
        let service = Router::new().route("/fault", post(inject)).with_state(held);
        tokio::select! {
            served = axum::serve(admin, service).into_future() => served.map_err(WayError::Serve),
            Ok(error) = end => Err(WayError::Broken(error)),
        }
    })
}

/// Starts the thread that relays, and sees that something passes.
async fn start(seed: u64, held: Held, ended: oneshot::Sender<io::Error>) -> Result<space::Known, WayError> {
    may_be()?;
    let (opened, open) = oneshot::channel();
    let relay = move || {
        let ends = Ends::open();
        let (known, pair) = match ends {
            Ok(Ends { known, pair }) => (Ok(known), Some(pair)),
            Err(error) => (Err(error), None),
        };
        let _ = opened.send(known); // whoever asked is there until this is said
        if let Some(pair) = pair {
            let _ = ended.send(relay::pass(&pair, &held, &mut Noise::new(seed, "way")));
        }
    };
    std::thread::Builder::new().name("relay".to_owned()).spawn(relay).map_err(WayError::Serve)?;
    let gone = |_| WayError::Serve(io::ErrorKind::BrokenPipe.into());
    let known = open.await.map_err(gone)??;
    let (interface, probed) = (known.interface.clone(), known.probe);
    let connect = move || TcpStream::connect_timeout(&probed.into(), PASSES_WITHIN).map(drop);
    let connected = tokio::task::spawn_blocking(connect).await.map_err(|error| WayError::Serve(error.into()))?;
    connected.map_err(|cause| WayError::Closed { interface, cause })?;
    Ok(known)
}

async fn inject(State(held): State<Held>, Query(injection): Query<Injection>) -> (StatusCode, String) {
    if injection.kind != Kind::SlowWay {
        return (StatusCode::BAD_REQUEST, format!("{} is no fault of packets on their way", injection.kind));
    }
    // A switch that nothing else depends on.
    held.store(injection.amount, Ordering::Relaxed);
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(injection.ms)).await;
        held.store(0, Ordering::Relaxed);
    });
    (StatusCode::ACCEPTED, String::new())
}

#[cfg(test)]
mod tests;
