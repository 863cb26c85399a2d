//! Starts everything, and ends everything.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use daemon::TlsError;
use daemon::listen::{BindError, tcp};
use hooks::time::UnixNanos;
use otlp::Edge;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::Serialize;
use tokio::net::{TcpListener, UnixListener};
use tokio::task::JoinSet;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;
use transport::verbs::DeviceChoice;
use wire::id::Incarnation;
use wire::rdma::TRANSPORT;

use crate::clock::{self, Clock};
use crate::coherence::{self, Coherence};
use crate::config::{self, Config, ConfigError, Rdma, ServerTls, Transport};
use crate::exposing::{self, Exposures, registrar};
use crate::listening::{ListenError, Listening};
use crate::node::Node;
use crate::otlp_endpoint::{self, OtlpError};
use crate::process_metrics::{self, Counts};
use crate::receipts::Receipts;
use crate::remote_writing::{Output, RemoteWriting};
use crate::{
    control_server, head_sampling, metrics_endpoint, operators_server, regions_socket, services_socket, span_ring,
    webhooks,
};

/// How long the end may take.
const DRAIN_WITHIN: Duration = Duration::from_secs(3);
/// A peer that does not answer for so long is gone, whatever TCP thinks.
const KEEPALIVE: Duration = Duration::from_secs(5);
/// Calls at one time on one connection.
const CALLS: usize = 64;

/// Why the agent did not start, or ended by itself.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// RDMA.
    #[error("no RDMA: {0}; `uview check` says more, and transport: auto does without")]
    Rdma(String),
    /// A certificate.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// A Unix socket.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// A TCP address.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The runtime directory or a file in it.
    #[error("cannot write {}", .path.display())]
    Runtime {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// A server could not be set up, or failed.
    #[error("the {0} server failed")]
    Server(&'static str, #[source] Box<dyn core::error::Error + Send + Sync>),
    /// The OTLP endpoint.
    #[error("no OTLP endpoint")]
    Otlp(#[from] OtlpError),
    /// A thread.
    #[error("the system gives no thread")]
    Thread(#[source] io::Error),
}

/// What `host-agent.json` says: how to find the agent that runs now.
#[derive(Debug, Serialize)]
struct Addresses<'a> {
    pid: u32,
    incarnation: u64,
    control: SocketAddr,
    operators: SocketAddr,
    metrics: SocketAddr,
    /// By gRPC and by HTTP; none without an upstream.
    otlp: Vec<SocketAddr>,
    services: &'a Path,
    regions: &'a Path,
}

/// A file that is removed with this value.
struct RemovedAtTheEnd(PathBuf);

impl Drop for RemovedAtTheEnd {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.0) {
            tracing::warn!(path = %self.0.display(), %error, "a file was left behind");
        }
    }
}

/// Everything that the agent listens on.
struct Ears {
    services: (UnixListener, Listening),
    regions: (UnixListener, Listening),
    regions_uid: u32,
    control: (TcpListener, SocketAddr),
    operators: (TcpListener, SocketAddr),
    metrics: (TcpListener, SocketAddr),
    otlp: Vec<(TcpListener, SocketAddr)>,
}

impl Ears {
    async fn open(config: &Config) -> Result<Self, RunError> {
        let folder = &config.runtime_dir.0;
        std::fs::create_dir_all(folder).map_err(|cause| RunError::Runtime { path: folder.clone(), cause })?;
        let own_uid = rustix::process::geteuid().as_raw();
        let regions_uid = config.regions.uid.unwrap_or(own_uid);
        let mut otlp = Vec::new();
        if config.otlp.upstream.is_some() {
            otlp.push(tcp("otlp.listen_grpc", config.otlp.listen_grpc).await?);
            otlp.push(tcp("otlp.listen_http", config.otlp.listen_http).await?);
        }
        // Another user has to get as far as the check of who it is.
        let regions_mode = if regions_uid == own_uid { 0o600 } else { 0o666 };
        Ok(Self {
            services: unix(&folder.join("services.sock"), 0o666)?,
            regions: unix(&folder.join("regions.sock"), regions_mode)?,
            regions_uid,
            control: tcp("control.listen", config.control.listen).await?,
            operators: tcp("operators.listen", config.operators.listen).await?,
            metrics: tcp("metrics.listen", config.metrics.listen).await?,
            otlp,
        })
    }

    /// Writes `host-agent.json`, at once or not at all.
    fn announce(&self, folder: &Path, incarnation: Incarnation) -> Result<RemovedAtTheEnd, RunError> {
        let addresses = Addresses {
            pid: std::process::id(),
            incarnation: incarnation.0,
            control: self.control.1,
            operators: self.operators.1,
            metrics: self.metrics.1,
            otlp: self.otlp.iter().map(|(_, address)| *address).collect(),
            services: self.services.1.path(),
            regions: self.regions.1.path(),
        };
        let path = folder.join("host-agent.json");
        let draft = folder.join(".host-agent.json.new");
        let written = serde_json::to_vec(&addresses).map_err(io::Error::from).and_then(|mut text| {
            text.push(b'\n');
            std::fs::write(&draft, text)?;
            std::fs::rename(&draft, &path)
        });
        written.map_err(|cause| RunError::Runtime { path: path.clone(), cause })?;
        Ok(RemovedAtTheEnd(path))
    }
}

fn unix(path: &Path, mode: u32) -> Result<(UnixListener, Listening), RunError> {
    let (listener, listening) = Listening::bind(path, mode)?;
    let listener = UnixListener::from_std(listener).map_err(|cause| RunError::Runtime { path: path.into(), cause })?;
    Ok((listener, listening))
}

fn server(name: &'static str, tls: Option<&ServerTls>) -> Result<Server, RunError> {
    let server = Server::builder()
        .http2_keepalive_interval(Some(KEEPALIVE))
        .http2_keepalive_timeout(Some(KEEPALIVE))
        .tcp_nodelay(true)
        .concurrency_limit_per_connection(CALLS);
    match tls {
        Some(tls) => server.tls_config(tls.server()?).map_err(|error| RunError::Server(name, error.into())),
        None => Ok(server),
    }
}

/// Resolves when `node` drains.
async fn drained(node: Arc<Node>) {
    node.drained().await;
}

type Tasks = JoinSet<Result<(), RunError>>;

/// What operators and monitors are shown beside the node.
struct Shown {
    counts: Arc<Counts>,
    otlp: Option<Arc<Edge>>,
    remotes: Vec<Arc<RemoteWriting>>,
    receipts: Arc<Receipts>,
}

/// Starts the servers on what the agent listens on.
fn serve(config: &Config, node: &Arc<Node>, ears: Ears, shown: Shown) -> Result<(Tasks, [Listening; 2]), RunError> {
    let Shown { counts, otlp, remotes, receipts } = shown;
    let mut control = server("control", config.control.tls.as_ref())?;
    let mut operators = server("operators", config.operators.tls.as_ref())?;
    let control = control.add_service(control_server::service(Arc::clone(node)));
    let hook_queue = config.operators.hook_queue.get();
    receipts.start(node).map_err(|error| RunError::Server("operators", error.into()))?;
    let operators = operators.add_service(operators_server::service(Arc::clone(node), hook_queue, receipts));
    let metrics = metrics_endpoint::router(node, counts, otlp, remotes.into_iter());
    let needs_cgroup = config.services.identities.iter().any(|identity| identity.cgroup.is_some());
    let ((services, services_file), (regions, regions_file)) = (ears.services, ears.regions);
    let mut tasks = JoinSet::new();
    let streams = (TcpListenerStream::new(ears.control.0), TcpListenerStream::new(ears.operators.0));
    let ended = control.serve_with_incoming_shutdown(streams.0, drained(Arc::clone(node)));
    tasks.spawn(async { ended.await.map_err(|error| RunError::Server("control", error.into())) });
    let ended = operators.serve_with_incoming_shutdown(streams.1, drained(Arc::clone(node)));
    tasks.spawn(async { ended.await.map_err(|error| RunError::Server("operators", error.into())) });
    let ended = axum::serve(ears.metrics.0, metrics).with_graceful_shutdown(drained(Arc::clone(node)));
    tasks.spawn(async { ended.await.map_err(|error| RunError::Server("metrics", error.into())) });
    let ended = services_socket::serve(services, Arc::clone(node), needs_cgroup);
    tasks.spawn(async {
        ended.await;
        Ok(())
    });
    let ended = regions_socket::serve(regions, Arc::clone(node), ears.regions_uid);
    tasks.spawn(async {
        ended.await;
        Ok(())
    });
    Ok((tasks, [services_file, regions_file]))
}

/// A remote monitor: what decides about its samples, and what sends them.
type Monitor = (Arc<RemoteWriting>, Output);

/// The remote monitors that are configured.
fn monitors(config: &Config, clock: Clock) -> Result<Vec<Monitor>, RunError> {
    let began = UnixNanos(clock::unix_now().0);
    let by_remote_write = config.remote_write.start(&host_name(), began)?;
    let by_remote_write = by_remote_write.map(|(shipper, client)| (shipper, Output::RemoteWrite(client)));
    let by_otlp = config.otlp_metrics.start(&host_name(), began)?;
    let by_otlp = by_otlp.map(|(shipper, exporter)| (shipper, Output::Otlp(exporter)));
    let monitor = |(shipper, output)| (Arc::new(RemoteWriting::new(shipper, clock)), output);
    Ok(by_remote_write.into_iter().chain(by_otlp).map(monitor).collect())
}

/// Sends samples to remote monitors, until the node drains.
fn tell_monitors(tasks: &mut Tasks, node: &Arc<Node>, edge: Option<&Arc<Edge>>, monitors: Vec<Monitor>) {
    for (remote, output) in monitors {
        let (rows, of, edge) = (Arc::clone(&remote), Arc::clone(node), edge.cloned());
        tasks.spawn(async move {
            rows.take_rows(&of, edge.as_deref()).await;
            Ok(())
        });
        let node = Arc::clone(node);
        tasks.spawn(async move {
            remote.send(&node, output).await;
            Ok(())
        });
    }
}

/// Runs the host agent until `shutdown` comes; then sends what waits, closes everything and removes its files. Ends by itself only if it
/// cannot start, or a server fails. Needs a tokio runtime with time and network. Raises the process's limit of open files to what it is
/// allowed.
///
/// # Errors
///
/// [`RunError`] with what could not be done. Nothing is left behind.
pub async fn run(config: Config, shutdown: impl Future<Output = ()>) -> Result<(), RunError> {
    // 53 bits, so that a reader of host-agent.json that takes numbers for doubles gets it whole.
    let incarnation = Incarnation(rand::random::<u64>() >> 11);
    let clock = Clock::start();
    let mut settings = config.settings(incarnation)?;
    let mut otlp = config.otlp.settings(rand::random(), &host_name())?;
    let peers = config.coherence.settings(&config.otlp)?;
    let advice = config.head_sampling.advice(&config.otlp)?;
    if let (Some(otlp), Some(_)) = (&mut otlp, config.head_sampling.listen) {
        otlp.observed = Some(config.otlp.traces.frontends.clone());
    }
    let monitors = monitors(&config, clock)?;
    let told = config::start_webhooks(&config.webhooks, &host_name(), "")?;
    // Whoever tells a remote monitor watches every service.
    let watchers = monitors.len() * config.services.limits.connections;
    let exposures = exposures(&config, &mut settings.transports)?;
    let (orders, inbox) = registrar::orders();
    let transports = settings.transports.join(", ");
    let files = raise_file_limit();
    let mut ears = Ears::open(&config).await?;
    // One for the receipt.
    let hooks = config.operators.hooks.get() + watchers + config.webhooks.len() + 1;
    let node = Arc::new(Node::new(settings, hooks, clock, exposures.is_some().then_some(orders)));
    if let Some(exposures) = exposures {
        registrar::start(exposures, inbox, &node).map_err(RunError::Thread)?;
    }
    let counts = Arc::new(Counts::default());
    let measuring = measure(&config, files, &node, Arc::clone(&counts))?;
    let folder = &config.runtime_dir.0;
    let announced = ears.announce(folder, incarnation)?;
    tracing::info!(
        %incarnation, control = %ears.control.1, operators = %ears.operators.1, metrics = %ears.metrics.1,
        runtime_dir = %folder.display(), transports, "the host agent runs"
    );
    let listeners = core::mem::take(&mut ears.otlp).into_iter().map(|(listener, _)| listener);
    let interval = config.span_metrics_interval();
    let otlp = otlp.map(|settings| otlp_endpoint::start(&settings, listeners, &node, interval)).transpose()?;
    let edge = otlp.as_ref().map(|otlp| Arc::clone(otlp.edge()));
    let advised = match config.head_sampling.listen {
        Some(listen) => Some(head_sampling::start(listen, advice, edge.clone(), Arc::clone(&node)).await?),
        None => None,
    };
    let coherence = match (peers, &edge) {
        (Some(peers), Some(edge)) => {
            let named = config.otlp.traces.node.clone().unwrap_or_else(host_name);
            Some(coherence::start(&config.coherence, peers, &named, folder, Arc::clone(edge)).await?)
        }
        _ => None,
    };
    let spans = edge.as_ref().map(|edge| read_spans(edge, &node));
    let receipts = receipts(&config, edge.as_ref(), clock)?;
    let remotes = monitors.iter().map(|(remote, _)| Arc::clone(remote)).collect();
    let shown = Shown { counts, otlp: edge.clone(), remotes, receipts: Arc::clone(&receipts) };
    let (mut tasks, sockets) = serve(&config, &node, ears, shown)?;
    tell_monitors(&mut tasks, &node, edge.as_ref(), monitors);
    webhooks::start(told, &node).map_err(|error| RunError::Server("webhooks", error.into()))?;
    let failed = tokio::select! {
        () = shutdown => None,
        () = node.keep_time() => None,
        Some(ended) = tasks.join_next() => Some(ended),
    };
    tracing::info!("the host agent ends");
    drop((announced, sockets, advised));
    node.drain();
    Ending { spans, tasks, coherence, otlp, measuring }.end().await;
    // By now everything that came was decided, or never will be; a write that does not panic has no error.
    _ = tokio::task::spawn_blocking(move || receipts.close(&node)).await;
    match failed {
        Some(Ok(Err(error))) => Err(error),
        Some(Err(error)) => Err(RunError::Server("services", error.into())),
        _ => Ok(()),
    }
}

/// What is ended when the agent does, in this order.
struct Ending {
    spans: Option<tokio::task::JoinHandle<()>>,
    tasks: Tasks,
    coherence: Option<Coherence>,
    otlp: Option<otlp::Running>,
    measuring: Option<std::thread::JoinHandle<()>>,
}

impl Ending {
    /// Waits for last words, as long as that may take.
    async fn end(self) {
        let Self { spans, mut tasks, coherence, otlp, measuring } = self;
        if let Some(spans) = spans {
            // What services have written is taken before the endpoint ends; a task that does not panic has no error.
            _ = tokio::time::timeout(DRAIN_WITHIN, spans).await;
        }
        let ending = tokio::time::timeout(DRAIN_WITHIN, async { while tasks.join_next().await.is_some() {} });
        let sending = async {
            if let Some(coherence) = coherence {
                coherence.end().await;
            }
            if let Some(otlp) = otlp {
                otlp.end(DRAIN_WITHIN).await;
            }
        };
        let (ended, ()) = tokio::join!(ending, sending);
        if ended.is_err() {
            tracing::warn!("not everyone took the last words; ended without");
        }
        tasks.shutdown().await;
        if let Some(thread) = measuring {
            // It ends with its orders, within one round; waiting for it may block for as long.
            _ = tokio::task::spawn_blocking(move || thread.join()).await;
        }
    }
}

/// The receipt's books, with what a predecessor left.
fn receipts(config: &Config, edge: Option<&Arc<Edge>>, clock: Clock) -> Result<Arc<Receipts>, RunError> {
    let began = UnixNanos(clock::unix_now().0.saturating_sub(clock.now().0));
    let books = Receipts::new(&config.receipt, edge.cloned(), host_name(), began);
    let folder = || config.receipt.dir.clone().unwrap_or_default();
    books.map(Arc::new).map_err(|cause| RunError::Runtime { path: folder(), cause })
}

/// Starts reading the span rings of replicas.
fn read_spans(edge: &Arc<Edge>, node: &Arc<Node>) -> tokio::task::JoinHandle<()> {
    let (orders, inbox) = span_ring::orders();
    node.read_spans_with(orders);
    tokio::spawn(span_ring::run(Arc::clone(edge), Arc::clone(node), inbox))
}

/// What workers read by RDMA, if `config` wants it and this machine can; puts its name before, or in place of, the other `transports`.
fn exposures(config: &Config, transports: &mut Vec<String>) -> Result<Option<Exposures>, RunError> {
    if config.transport == Transport::Shm {
        return Ok(None);
    }
    let Rdma { device, port, gid_index } = config.rdma.clone();
    let choice = DeviceChoice { name: device, port: port.map(core::num::NonZero::get), gid_index };
    match exposing::device(choice) {
        Ok(open) => {
            if config.transport == Transport::Verbs {
                transports.clear();
            }
            transports.insert(0, TRANSPORT.to_owned());
            Ok(Some(Exposures::new(open)))
        }
        Err(why) if config.transport == Transport::Auto => {
            tracing::info!(why, "no RDMA on this machine: only workers on it can fetch regions");
            Ok(None)
        }
        Err(why) => Err(RunError::Rdma(why)),
    }
}

/// How this machine is called; empty if it does not say.
fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}

/// Raises the number of files that this process may have open to what it is allowed: each service takes about ten. Returns it.
fn raise_file_limit() -> usize {
    let limit = getrlimit(Resource::Nofile);
    if setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }).is_err() {
        tracing::warn!(?limit, "the number of open files could not be raised");
    }
    getrlimit(Resource::Nofile).current.map_or(usize::MAX, |files| files as usize)
}

/// Starts measuring processes, if that is wanted.
fn measure(
    config: &Config,
    files: usize,
    node: &Arc<Node>,
    counts: Arc<Counts>,
) -> Result<Option<std::thread::JoinHandle<()>>, RunError> {
    if !config.process_metrics.enabled {
        return Ok(None);
    }
    // The thread must not keep the node, which has its orders.
    let weak = Arc::downgrade(node);
    let announce: process_metrics::Announce = Box::new(move |connection, region, series| {
        if let Some(node) = weak.upgrade() {
            node.own_region(connection, region, series);
        }
    });
    let interval = config.process_metrics_interval();
    let started = process_metrics::start(interval, files / 4, node.clock(), counts, announce);
    let (orders, thread) = started.map_err(RunError::Thread)?;
    node.measure_with(orders);
    Ok(Some(thread))
}
