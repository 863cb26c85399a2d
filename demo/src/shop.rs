//! The shop: `run` is one service, as a process of its own that serves HTTP and uses the uview client.
//!
//! [`crate::graph`] has the call graph. Each request does real work (lookups, hashing) and waits; its cost is in the
//! metrics.

mod cache;
mod faults;
mod handler;
pub(crate) mod instruments;
mod logic;
mod meters;
pub(crate) mod names;
pub(crate) mod spans;

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
use crate::link::listen_in;
use crate::state_file;
use handler::Handler;
use spans::Spans;

/// Keep-alive of the runtime's threads: longer than any run.
const ALWAYS: Duration = Duration::from_hours(24);

/// Arguments of `uview shop`, one service of the shop.
#[derive(Clone, Debug, clap::Args)]
pub struct ShopArgs {
    /// The service to run
    #[arg(long)]
    pub service: Service,
    /// Address for requests
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,
    /// Network namespace of that address, a file such as /proc/4711/ns/net [default: that of this process]
    #[arg(long, value_name = "PATH")]
    pub netns: Option<PathBuf>,
    /// Address of the admin port, which injects faults
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:0")]
    pub admin: SocketAddr,
    /// Address of a dependency; once for each
    #[arg(long, value_name = "SERVICE=HOST:PORT")]
    pub next: Vec<Next>,
    /// The host agent's socket for services
    #[arg(long, value_name = "PATH")]
    pub socket: PathBuf,
    /// OTLP/gRPC endpoint for spans, such as http://127.0.0.1:4317 [default: no spans]
    #[arg(long, value_name = "URL")]
    pub otlp: Option<String>,
    /// File for the addresses of this service, written when it is ready
    #[arg(long, value_name = "FILE")]
    pub ready: Option<PathBuf>,
    /// Seed of its work
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Number of this replica
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub replica: usize,
    /// Median time that its one worker spends on a request, in microseconds
    #[arg(long, value_name = "US", default_value_t = 1500)]
    pub wait_us: u64,
}

/// Address of a dependency, as SERVICE=HOST:PORT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Next {
    /// The service that is called.
    pub service: Service,
    /// Address of that service.
    pub address: SocketAddr,
}

/// A text that is no [`Next`].
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

/// The content of a service's ready file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ServiceInfo {
    pub(crate) pid: u32,
    pub(crate) listen: SocketAddr,
    pub(crate) admin: SocketAddr,
}

/// The response of a service's `/stats`.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct ServiceStats {
    /// Number of requests served.
    pub(crate) served: u64,
    /// Series registered with uview.
    pub(crate) series: usize,
    /// Time for which its worker was busy, in nanoseconds.
    pub(crate) busy_ns: u64,
}

/// Why a service of the shop failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShopError {
    /// The address of a dependency is missing.
    #[error("{service} calls {dependency}: add --next {dependency}=HOST:PORT")]
    NoAddress {
        /// The service to run.
        service: Service,
        /// The service that it calls.
        dependency: Service,
    },
    /// The address is in use, or no socket can be created.
    #[error("cannot listen at {address}")]
    Listen {
        /// Address to listen at.
        address: SocketAddr,
        /// Error of the system.
        #[source]
        cause: io::Error,
    },
    /// The ready file cannot be written.
    #[error("cannot write {}", .path.display())]
    Ready {
        /// Path of the file.
        path: PathBuf,
        /// Error of the file system.
        #[source]
        cause: io::Error,
    },
    /// The endpoint for spans is invalid.
    #[error("cannot send spans to {endpoint}: an http URL is needed, such as http://127.0.0.1:4317")]
    Spans {
        /// The endpoint as given.
        endpoint: String,
        /// Error of the exporter.
        #[source]
        cause: ExporterBuildError,
    },
    /// The runtime cannot be created, or a socket failed.
    #[error("cannot serve")]
    Serve(#[source] io::Error),
}

/// Runs one service of the shop until the process ends.
///
/// # Errors
///
/// [`ShopError`] if it cannot start. A missing host agent is no error.
pub fn run(args: &ShopArgs) -> Result<(), ShopError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().thread_keep_alive(ALWAYS).build();
    runtime.map_err(ShopError::Serve)?.block_on(async {
        // Starts the thread for blocking calls now: one more thread at the end would be an anomaly.
        let _ = tokio::task::spawn_blocking(|| {}).await;
        let server = ServiceServer::new(args).await?;
        if let Some(path) = &args.ready {
            let write = state_file::write(path, &server.ready);
            write.map_err(|cause| ShopError::Ready { path: path.clone(), cause })?;
        }
        server.serve().await.map_err(ShopError::Serve)
    })
}

/// A service with its listening sockets.
#[derive(Debug)]
pub(crate) struct ServiceServer {
    handler: Arc<Handler>,
    visitors: TcpListener,
    admin: TcpListener,
    pub(crate) ready: ServiceInfo,
    uview: Client,
}

impl ServiceServer {
    pub(crate) async fn new(args: &ShopArgs) -> Result<Self, ShopError> {
        let service = args.service;
        let dependencies = service.calls().iter().map(|dependency| {
            let next = args.next.iter().find(|next| next.service == *dependency);
            let missing = ShopError::NoAddress { service, dependency: *dependency };
            next.map(|next| (next.service, next.address)).ok_or(missing)
        });
        let dependencies: Vec<_> = dependencies.collect::<Result<_, _>>()?;
        let (visitors, listen) = bind(args.listen, args.netns.as_deref()).await?;
        let (admin, admin_address) = bind(args.admin, None).await?;
        let instance = format!("{service}-{}", args.replica);
        let uview = client::connect(client::Service::new(service.name()).instance(&instance).socket(&args.socket));
        let spans = args.otlp.as_deref().map(|endpoint| {
            let failed = |cause| ShopError::Spans { endpoint: endpoint.to_owned(), cause };
            Spans::to(endpoint, service, &instance).map_err(failed)
        });
        let spans = spans.transpose()?.unwrap_or_else(Spans::none);
        let handler = Handler::new(service, &dependencies, &uview, args.seed);
        let handler = Arc::new(handler.wait(Nanos::from_micros(args.wait_us)).recorded(spans));
        let ready = ServiceInfo { pid: std::process::id(), listen, admin: admin_address };
        Ok(Self { handler, visitors, admin, ready, uview })
    }

    /// Serves until a socket fails.
    pub(crate) async fn serve(self) -> io::Result<()> {
        let state = Arc::new(AdminState { handler: self.handler.clone(), uview: self.uview });
        let admin = Router::new().route("/fault", post(inject)).route("/stats", get(stats));
        let admin = admin.route("/flush", post(flush)).with_state(state);
        let service = self.handler.service();
        let mut shop = Router::new();
        for errand in Errand::ALL {
            let serve = move |handler, query, headers, body| Handler::serve(handler, errand, query, headers, body);
            shop = shop.route(service.path(errand), get(serve));
        }
        let visitors = self.visitors.tap_io(|stream| {
            let _ = stream.set_nodelay(true); // without it, responses are late but correct
        });
        tokio::try_join!(
            axum::serve(visitors, shop.with_state(self.handler)).into_future(),
            axum::serve(self.admin, admin).into_future(),
        )?;
        Ok(())
    }
}

async fn bind(address: SocketAddr, netns: Option<&Path>) -> Result<(TcpListener, SocketAddr), ShopError> {
    let failed = |cause| ShopError::Listen { address, cause };
    let listener = match netns {
        Some(netns) => listen_in(netns, address).and_then(TcpListener::from_std),
        None => TcpListener::bind(address).await,
    };
    let listener = listener.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}

/// State of the admin port.
#[derive(Debug)]
struct AdminState {
    handler: Arc<Handler>,
    uview: Client,
}

async fn stats(State(state): State<Arc<AdminState>>) -> Json<ServiceStats> {
    let (served, busy_ns) = (state.handler.served(), state.handler.busy_ns());
    Json(ServiceStats { served, series: state.uview.status().series, busy_ns })
}

/// Sends pending spans.
async fn flush(State(state): State<Arc<AdminState>>) -> StatusCode {
    // On another thread: the exporter's connection needs this one.
    let flushed = tokio::task::spawn_blocking(move || state.handler.spans.flush()).await;
    if flushed.is_ok() { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR }
}

async fn inject(State(state): State<Arc<AdminState>>, Query(injection): Query<Injection>) -> (StatusCode, String) {
    match state.handler.faults.inject(injection) {
        Ok(()) => (StatusCode::ACCEPTED, String::new()),
        Err(kind) => (StatusCode::BAD_REQUEST, format!("a service cannot inject {kind} into itself")),
    }
}

#[cfg(test)]
mod tests;
