//! The shop: `run` is one service of it, as a process of its own that speaks HTTP and is linked with the client.
//!
//! Who calls whom is in [`crate::graph`]. A request is looked up, hashed and waited for honestly; what it cost is in the metrics.

mod cache;
mod desk;
mod faults;
pub(crate) mod instruments;
mod meters;
pub(crate) mod names;
pub(crate) mod spans;
mod trade;

use core::net::SocketAddr;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::serve::ListenerExt as _;
use axum::{Json, Router};
use client::Client;
use opentelemetry_otlp::ExporterBuildError;
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use wire::time::Nanos;

pub(crate) use faults::Injection;

use crate::graph::{Errand, Service};
use crate::ready;
use crate::way::listen_in;
use desk::Desk;
use spans::Spans;

/// Longer than any shop is open.
const ALWAYS: Duration = Duration::from_hours(24);

/// One service of the shop.
#[derive(Clone, Debug, clap::Args)]
pub struct ShopArgs {
    /// Which service to be
    #[arg(long)]
    pub service: Service,
    /// Where visitors are served
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,
    /// The network namespace of that address, a file such as /proc/4711/ns/net, if it is not that of everything else
    #[arg(long, value_name = "PATH")]
    pub space: Option<PathBuf>,
    /// Where faults are asked for
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:0")]
    pub admin: SocketAddr,
    /// Where a dependency is; once for each
    #[arg(long, value_name = "SERVICE=HOST:PORT")]
    pub next: Vec<Next>,
    /// The host agent's socket for services
    #[arg(long, value_name = "PATH")]
    pub socket: PathBuf,
    /// Where its spans go by OTLP/gRPC, such as http://127.0.0.1:4317; without, it makes none
    #[arg(long, value_name = "URL")]
    pub otlp: Option<String>,
    /// Written with the addresses that this service really has, when it is ready
    #[arg(long, value_name = "FILE")]
    pub ready: Option<PathBuf>,
    /// Makes the unevenness of its work
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Which of its replicas to be
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub replica: usize,
    /// Microseconds that its one hand spends on a request, half of the time less
    #[arg(long, value_name = "US", default_value_t = 1500)]
    pub wait_us: u64,
}

/// Where a dependency is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Next {
    /// Which.
    pub service: Service,
    /// Where.
    pub address: SocketAddr,
}

/// A text that names no dependency.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not of the form SERVICE=HOST:PORT, with a service of the shop and an IP address")]
pub struct NextError(String);

impl FromStr for Next {
    type Err = NextError;

    fn from_str(text: &str) -> Result<Self, NextError> {
        let parts = text.split_once('=').and_then(|(service, address)| {
            Some(Self { service: Service::named(service)?, address: address.parse().ok()? })
        });
        parts.ok_or_else(|| NextError(text.to_owned()))
    }
}

/// What a service says of itself when it is ready.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Ready {
    pub(crate) pid: u32,
    pub(crate) listen: SocketAddr,
    pub(crate) admin: SocketAddr,
}

/// What a service says of itself when it is asked.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Facts {
    /// Requests that came in.
    pub(crate) served: u64,
    /// Series that it registered.
    pub(crate) series: usize,
    /// How long its hand was busy so far, in nanoseconds.
    pub(crate) busy_ns: u64,
}

/// Why a service of the shop did not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShopError {
    /// Without its dependencies it has nothing to offer.
    #[error("{service} asks {dependency}, and --next does not say where that is")]
    NoAddress {
        /// Who asks.
        service: Service,
        /// Who is asked.
        dependency: Service,
    },
    /// The address is taken, or the system gives no socket.
    #[error("cannot listen at {address}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// Nobody would find this service.
    #[error("cannot write {}", .path.display())]
    Ready {
        /// What was to be written.
        path: PathBuf,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// The endpoint for spans is none.
    #[error("cannot send spans to {endpoint}: an URL of http is needed, such as http://127.0.0.1:4317")]
    Spans {
        /// Where to.
        endpoint: String,
        /// Why.
        #[source]
        cause: ExporterBuildError,
    },
    /// The system gives no event queue, or took a socket back.
    #[error("cannot serve")]
    Serve(#[source] io::Error),
}

/// Is one service of the shop until the process ends.
///
/// # Errors
///
/// [`ShopError`] if it cannot begin. That no host agent is there is none.
pub fn run(args: &ShopArgs) -> Result<(), ShopError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().thread_keep_alive(ALWAYS).build();
    runtime.map_err(ShopError::Serve)?.block_on(async {
        // The thread for what blocks is there from the start: one more at the end would be out of the ordinary.
        let _ = tokio::task::spawn_blocking(|| {}).await;
        let open = Open::new(args).await?;
        if let Some(path) = &args.ready {
            let write = ready::write(path, &open.ready);
            write.map_err(|cause| ShopError::Ready { path: path.clone(), cause })?;
        }
        open.serve().await.map_err(ShopError::Serve)
    })
}

/// A service that listens.
#[derive(Debug)]
pub(crate) struct Open {
    desk: Arc<Desk>,
    visitors: TcpListener,
    admin: TcpListener,
    pub(crate) ready: Ready,
    uview: Client,
}

impl Open {
    pub(crate) async fn new(args: &ShopArgs) -> Result<Self, ShopError> {
        let service = args.service;
        let dependencies = service.calls().iter().map(|dependency| {
            let next = args.next.iter().find(|next| next.service == *dependency);
            let missing = ShopError::NoAddress { service, dependency: *dependency };
            next.map(|next| (next.service, next.address)).ok_or(missing)
        });
        let dependencies: Vec<_> = dependencies.collect::<Result<_, _>>()?;
        let (visitors, listen) = bind(args.listen, args.space.as_deref()).await?;
        let (admin, admin_address) = bind(args.admin, None).await?;
        let instance = format!("{service}-{}", args.replica);
        let uview = client::connect(client::Service::new(service.name()).instance(&instance).socket(&args.socket));
        let spans = args.otlp.as_deref().map(|endpoint| {
            let failed = |cause| ShopError::Spans { endpoint: endpoint.to_owned(), cause };
            Spans::to(endpoint, service, &instance).map_err(failed)
        });
        let spans = spans.transpose()?.unwrap_or_else(Spans::none);
        let desk = Desk::new(service, &dependencies, &uview, args.seed);
        let desk = Arc::new(desk.wait(Nanos::from_micros(args.wait_us)).recorded(spans));
        let ready = Ready { pid: std::process::id(), listen, admin: admin_address };
        Ok(Self { desk, visitors, admin, ready, uview })
    }

    /// Serves until a socket fails.
    pub(crate) async fn serve(self) -> io::Result<()> {
        let office = Arc::new(Office { desk: self.desk.clone(), uview: self.uview });
        let admin = Router::new().route("/fault", post(inject)).route("/facts", get(facts));
        let admin = admin.route("/flush", post(flush)).with_state(office);
        let service = self.desk.service();
        let mut shop = Router::new();
        for errand in Errand::ALL {
            let serve = move |desk, ask, headers, given| Desk::serve(desk, errand, ask, headers, given);
            shop = shop.route(service.path(errand), get(serve));
        }
        let visitors = self.visitors.tap_io(|stream| {
            let _ = stream.set_nodelay(true); // an answer that waits for more is late, not wrong
        });
        tokio::try_join!(
            axum::serve(visitors, shop.with_state(self.desk)).into_future(),
            axum::serve(self.admin, admin).into_future(),
        )?;
        Ok(())
    }
}

async fn bind(address: SocketAddr, space: Option<&Path>) -> Result<(TcpListener, SocketAddr), ShopError> {
    let failed = |cause| ShopError::Listen { address, cause };
    let listener = match space {
        Some(space) => listen_in(space, address).and_then(TcpListener::from_std),
        None => TcpListener::bind(address).await,
    };
    let listener = listener.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}

/// What the admin port needs.
#[derive(Debug)]
struct Office {
    desk: Arc<Desk>,
    uview: Client,
}

async fn facts(State(office): State<Arc<Office>>) -> Json<Facts> {
    let (served, busy_ns) = (office.desk.served(), office.desk.busy_ns());
    Json(Facts { served, series: office.uview.status().series, busy_ns })
}

/// Sends the spans that wait for their batch.
async fn flush(State(office): State<Arc<Office>>) -> StatusCode {
    // On another thread: the connection that they are sent by lives on this one.
    let flushed = tokio::task::spawn_blocking(move || office.desk.spans.flush()).await;
    if flushed.is_ok() { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR }
}

async fn inject(State(office): State<Arc<Office>>, Query(injection): Query<Injection>) -> (StatusCode, String) {
    match office.desk.faults.inject(injection) {
        Ok(()) => (StatusCode::ACCEPTED, String::new()),
        Err(kind) => (StatusCode::BAD_REQUEST, format!("{kind} is done to a service from outside")),
    }
}

#[cfg(test)]
mod tests;
