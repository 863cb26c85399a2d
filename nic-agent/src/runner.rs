//! The edge: threads, sockets and the clock around a [`Worker`].
//!
//! | thread | does |
//! | --- | --- |
//! | `worker` | owns the [`Worker`] and the reader: waits, fetches, judges. Nothing else runs on it, and nothing makes it wait |
//! | `jobs` | decompositions and fits, at lower urgency |
//! | `attach` | asks the host agent for regions' descriptors; may block for seconds |
//! | tokio | the control connection, `/metrics`, `/models` |
//!
//! They speak to the worker's thread by one queue of [`Event`]s.

mod attach;
mod control;
mod jobs;
mod models;
mod reader;
mod thread;

use std::future::{Future, IntoFuture as _};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use daemon::TlsError;
use daemon::listen::{BindError, tcp};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use wire::name::ServiceName;
use wire::proto::control::{HostMessage, WorkerMessage};

use crate::aggregation::Aggregations;
use crate::attachments::AttachRequest;
use crate::clock::Clock;
use crate::config::Config;
use crate::error::told;
use crate::jobs::JobId;
use crate::metrics::Board;
use crate::network;
use crate::settings::WorkerSettings;
use crate::worker::Worker;
use reader::Reader;
use thread::{Helpers, Runner};

/// Events that wait for the worker's thread. Whoever has more to say waits; the worker never does.
const EVENTS: usize = 1024;

/// What comes in for the worker's thread.
#[derive(Debug)]
enum Event {
    /// A connection to the host agent is there.
    Connected(Connection),
    /// The host agent said something, over the connection of this number.
    Said(u64, HostMessage),
    /// The connection of this number is gone.
    Gone(u64),
    /// What came of a request for a region's descriptor.
    Descriptor(AttachRequest, Result<OwnedFd, String>),
    /// What a job computed.
    Done(JobId, lmap::Done),
    /// Somebody wants to know what has been learnt of a service.
    Model(ServiceName, oneshot::Sender<Option<Arc<lmap::Model>>>),
    /// Say what there is to say, and end.
    Stop,
}

/// The worker's end of a connection.
#[derive(Debug)]
struct Connection {
    number: u64,
    out: tokio::sync::mpsc::Sender<WorkerMessage>,
    /// Told why, if the worker wants it closed; dropped at the end.
    close: oneshot::Sender<String>,
}

/// Why the NIC agent cannot run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The address of the host agent.
    #[error("control.address {address:?} is no address")]
    Address {
        /// As configured.
        address: String,
        /// Why.
        #[source]
        cause: tonic::transport::Error,
    },
    /// Certificates.
    #[error("control.tls")]
    Tls(#[from] TlsError),
    /// RDMA.
    #[error(
        "no RDMA: {0}; `uview check` says more, and transport: shm does without if the host agent is on this machine"
    )]
    Rdma(String),
    /// The port of `/metrics`.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The system gives no threads.
    #[error("cannot start a thread")]
    Thread(#[source] std::io::Error),
    /// The worker's thread ended by itself.
    #[error("the worker's thread has broken down: this is a fault of the program")]
    Broken,
}

/// How long the worker's thread and the connection may take to end.
const PATIENCE: Duration = Duration::from_secs(2);

/// Runs the NIC agent until `shutdown` is ready, then tells the host agent what there is to tell and ends. Helper threads end by themselves
/// as soon as what they are at is done.
///
/// # Errors
///
/// [`RunError`] if it cannot start. Once it runs, only a fault of the program ends it: without a host agent it tries again for ever.
pub async fn run(config: Config, shutdown: impl Future<Output = ()>) -> Result<(), RunError> {
    run_with(config, Aggregations::default(), shutdown).await
}

/// Like [`run`], with aggregations over replicas of one's own, which metrics can be registered with by their name: a NIC agent of one's
/// own is a program of a few lines.
///
/// ```
/// use nic_agent::wire::name::MetricName;
/// use nic_agent::{Aggregations, config::Config};
///
/// async fn agent(stop: impl Future<Output = ()>) -> Result<(), Box<dyn std::error::Error>> {
///     let config = Config::load("/etc/uview/nic-agent.yaml".as_ref())?;
///     let mut aggregations = Aggregations::default();
///     aggregations.add(MetricName::new("spread")?, |values: &[f64]| {
///         let most = values.iter().copied().fold(f64::MIN, f64::max);
///         most - values.iter().copied().fold(f64::MAX, f64::min)
///     });
///     Ok(nic_agent::run_with(config, aggregations, stop).await?)
/// }
/// ```
///
/// # Errors
///
/// As [`run`].
pub async fn run_with(
    config: Config,
    aggregations: Aggregations,
    shutdown: impl Future<Output = ()>,
) -> Result<(), RunError> {
    let endpoint = control::endpoint(&config.control)?;
    let (listener, metrics) = tcp("metrics.listen", config.metrics.listen).await?;
    let (reader, transports) = Reader::open(&config)?;
    let clock = Clock::start();
    // Its threads end with it.
    let network = network::start(&config.network).map_err(|error| match error {
        network::StartError::Thread(cause) => RunError::Thread(cause),
        network::StartError::Bind(cause) => RunError::Bind(cause),
    })?;
    let board = Board::new(clock, network.interfaces());
    let (events, inbox) = sync_channel(EVENTS);
    let seed = rand::random();
    tracing::info!(
        worker = config.worker,
        control = config.control.address,
        %metrics,
        transports = transports.join(", "),
        regions_socket = config.regions_socket.as_ref().map(|socket| tracing::field::display(socket.display())),
        "the NIC agent runs"
    );
    let worker = Worker::new(WorkerSettings { transports, aggregations, ..config.settings() }, seed);
    let helpers = Helpers {
        jobs: jobs::start(events.clone()).map_err(RunError::Thread)?,
        attach: attach::start(config.regions_socket, events.clone()).map_err(RunError::Thread)?,
    };
    let runner = Runner::new(worker, reader, helpers, clock, board.clone());
    let mut ended = runner.start(inbox, config.core).map_err(RunError::Thread)?;
    let stop = Stop(events);
    let (stopping, is_stopping) = watch::channel(false);
    // Sets, since these end their tasks when they are dropped.
    let (mut control, mut pages) = (JoinSet::new(), JoinSet::new());
    control.spawn(control::keep(endpoint, stop.0.clone(), board.clone(), seed, is_stopping));
    let router = board.router().merge(models::router(stop.0.clone()));
    pages.spawn(axum::serve(listener, router).into_future());
    tokio::select! {
        () = shutdown => {}
        _ = &mut ended => return Err(RunError::Broken),
    }
    tracing::info!("the NIC agent ends");
    // Whoever waits for the connection waits no longer; one that is there is closed by the worker, when it has said everything.
    let _ = stopping.send(true);
    drop(stop);
    let orderly = timeout(PATIENCE, &mut ended).await.is_ok_and(|ended| ended.is_ok());
    let _ = timeout(PATIENCE, control.join_next()).await;
    if orderly { Ok(()) } else { Err(RunError::Broken) }
}

/// Stops the worker's thread when it is dropped, whatever becomes of [`run`].
struct Stop(SyncSender<Event>);

impl Drop for Stop {
    fn drop(&mut self) {
        // A full queue is emptied within a tick; if it is not, the thread hangs, and cannot be stopped by anyone.
        for _ in 0..100 {
            match self.0.try_send(Event::Stop) {
                Err(TrySendError::Full(_)) => std::thread::sleep(Duration::from_millis(1)),
                Ok(()) | Err(TrySendError::Disconnected(_)) => return,
            }
        }
    }
}

/// Puts an event into the queue, and waits as long as it is full. False if the worker's thread is gone.
async fn tell(events: &SyncSender<Event>, mut event: Event) -> bool {
    loop {
        match events.try_send(event) {
            Ok(()) => return true,
            Err(TrySendError::Disconnected(_)) => return false,
            Err(TrySendError::Full(again)) => event = again,
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
