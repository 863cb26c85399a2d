//! The edge: threads, sockets and the clock around a [`Worker`].
//!
//! | thread | does |
//! | --- | --- |
//! | `worker` | owns the [`Worker`] and the reader: waits, fetches, scores. Runs nothing else, and never blocks |
//! | `jobs` | decompositions and fits, at lower priority |
//! | `attach` | requests region descriptors from the host agent; may block for seconds |
//! | tokio | the control connection, `/metrics`, health, models |
//!
//! They send [`Event`]s to the worker's thread, through one queue.

mod attach;
pub(crate) mod control;
mod error;
mod event;
mod files;
mod jobs;
mod models;
pub(crate) mod pages;
pub(crate) mod reader;
mod thread;

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use agent_runtime::budget::Load;
use agent_runtime::clock::Clock;
use agent_runtime::reload::{self, Hangup};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::aggregation::Aggregations;
use crate::budget::budget;
use crate::config::Config;
use crate::memory_rows::MemoryRows;
use crate::metrics::Board;
use crate::network::{self, PeerAccess};
use crate::reload::{AgentFiles, LiveParts, text_of};
use crate::settings::WorkerSettings;
use crate::worker::Worker;
pub use error::RunError;
use event::Event;
use pages::Pages;
use reader::Reader;
use thread::{Helpers, LEAVE_WITHIN, Runner};

/// Most events queued for the worker's thread. Other threads wait when the queue is full; the worker never does.
const EVENTS: usize = 1024;

/// Timeout for the end of the worker's thread after it had to let go, and for that of the connection.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// Runs the NIC agent until `shutdown` is ready, then sends the host agent what is queued, and ends. Helper threads end
/// when their current work is done.
///
/// # Errors
///
/// [`RunError`] if the agent cannot start. Once it runs, only a fault of the program ends it: without a host agent it
/// tries again for ever.
pub async fn run(config: Config, shutdown: impl Future<Output = ()>) -> Result<(), RunError> {
    run_with(config, Aggregations::default(), shutdown).await
}

/// Like [`run`], with the `file` that `config` was read from. Changes of the file, and of certificates that it names,
/// are taken over at SIGHUP, or within seconds.
///
/// # Errors
///
/// [`RunError`], as for [`run`].
pub async fn run_from(
    config: Config,
    file: Option<PathBuf>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), RunError> {
    run_agent(config, file, Aggregations::default(), shutdown).await
}

/// Like [`run`], with user-defined aggregations over replicas, which metrics select by name. A NIC agent with your own
/// aggregations is a program of a few lines.
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
/// [`RunError`], as for [`run`].
pub async fn run_with(
    config: Config,
    aggregations: Aggregations,
    shutdown: impl Future<Output = ()>,
) -> Result<(), RunError> {
    run_agent(config, None, aggregations, shutdown).await
}

async fn run_agent(
    config: Config,
    file: Option<PathBuf>,
    aggregations: Aggregations,
    shutdown: impl Future<Output = ()>,
) -> Result<(), RunError> {
    let hangup = Hangup::catch();
    // The text is read before anybody can know that the agent runs, and change its file.
    let text = text_of(file.as_deref());
    let live = LiveParts::new(&config)?;
    let pages = Pages::open(&config).await?;
    let (reader, transports) = Reader::open(&config)?;
    let clock = Clock::start();
    // The threads of packet measurement end when this is dropped.
    let peers = PeerAccess::new(live.access.clone());
    let denied_calls = Arc::clone(&peers.denied_calls);
    let (events, inbox) = sync_channel(EVENTS);
    let states = events.clone();
    // If the worker's thread has ended, so does the agent.
    let report = Box::new(move |of| drop(states.send(Event::Streams(of))));
    let network = network::start(&config.network, live.peers.clone(), peers, report).map_err(|error| match error {
        network::StartError::Thread(cause) => RunError::Thread(cause),
        network::StartError::Fragment(cause) => RunError::Fragment(cause),
        network::StartError::Bind(cause) => RunError::Bind(cause),
        network::StartError::Switch(cause) => RunError::Switch(cause),
    })?;
    for warning in config.warnings() {
        tracing::warn!("{warning}");
    }
    let files = AgentFiles::new((file, text), config.clone(), live.clone());
    let settings = files::settings(&config);
    let memory = MemoryRows::new(budget(&config, Load::default()), settings.regions.regions);
    let board = Board::new(clock, network.interfaces(), denied_calls, memory);
    let seed = rand::random();
    tracing::info!(
        worker = config.worker,
        control = config.control.address,
        metrics = %pages.metrics(),
        transports = transports.join(", "),
        regions_socket = config.regions_socket.as_ref().map(|socket| tracing::field::display(socket.display())),
        "NIC agent started"
    );
    let worker = Worker::new(WorkerSettings { transports, aggregations, ..settings }, seed);
    let helpers = Helpers {
        jobs: jobs::start(events.clone()).map_err(RunError::Thread)?,
        attach: attach::start(config.regions_socket, events.clone()).map_err(RunError::Thread)?,
        streams: network.setter(),
    };
    let runner = Runner::new(worker, reader, helpers, clock, board.clone());
    let mut ended = runner.start(inbox, config.core).map_err(RunError::Thread)?;
    let stop = StopGuard(events);
    let (stopping, is_stopping) = watch::channel(false);
    // Join sets abort their tasks when they are dropped.
    let mut control = JoinSet::new();
    control.spawn(control::maintain(live.endpoint.clone(), stop.0.clone(), board.clone(), seed, is_stopping));
    let _pages = pages.serve(&board, live.access.clone(), stop.0.clone());
    control.spawn(reload::watch(files, board.reloads(), hangup));
    tokio::select! {
        () = shutdown => {}
        _ = &mut ended => return Err(RunError::Broken),
    }
    tracing::info!("NIC agent stopped");
    // A pending connection attempt ends. An open connection is closed by the worker, after it has sent everything.
    let _ = stopping.send(true);
    drop(stop);
    let orderly =
        timeout(STOP_TIMEOUT + Duration::from(LEAVE_WITHIN), &mut ended).await.is_ok_and(|ended| ended.is_ok());
    let _ = timeout(STOP_TIMEOUT, control.join_next()).await;
    // A runtime of one thread drops no task before it waits for threads that may block, and the one that looks at files
    // ends with its task.
    let _ = timeout(STOP_TIMEOUT, control.shutdown()).await;
    if orderly { Ok(()) } else { Err(RunError::Broken) }
}

/// Stops the worker's thread when it is dropped, however [`run`] ends.
struct StopGuard(SyncSender<Event>);

impl Drop for StopGuard {
    fn drop(&mut self) {
        // A full queue is emptied within a tick. If it is not, the thread hangs and cannot be stopped.
        for _ in 0..100 {
            match self.0.try_send(Event::Stop) {
                Err(TrySendError::Full(_)) => std::thread::sleep(Duration::from_millis(1)),
                Ok(()) | Err(TrySendError::Disconnected(_)) => return,
            }
        }
    }
}
