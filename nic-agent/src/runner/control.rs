//! The control connection to the host agent: connects, and reconnects with back-off.

use std::sync::mpsc::SyncSender;
use std::time::Duration;

use agent_runtime::TlsError;
use agent_runtime::live_tls::ClientFiles;
use agent_runtime::reload::Reloadable;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt as _};
use tonic::Streaming;
use tonic::transport::Endpoint;
use wire::backoff::Backoff;
use wire::proto::control::control_client::ControlClient;
use wire::proto::control::host_message::Message;
use wire::proto::control::worker_message::Message as FromWorker;
use wire::proto::control::{HostMessage, WorkerMessage};
use wire::time::Nanos;

use super::error::RunError;
use super::event::{Connection, Event, send_event};
use crate::config::{ControlConfig, UNIX};
use crate::error::chain;
use crate::metrics::Board;
use crate::seeds::Seeds;

/// Most messages queued for the network; others stay in the worker's outbox.
const QUEUE_LENGTH: usize = 64;
/// Largest message: an LMAP of 4,096 series with long names and a model.
const MAX_MESSAGE_BYTES: usize = 64 << 20;
/// Timeout for connecting, and for the reply to the hello.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// HTTP/2 keep-alive: its interval, and the timeout after which a silent peer is disconnected.
const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// One summary in so many says what the agent keeps in memory.
const ACCOUNT_EVERY: u64 = 5;
/// Timeout for sending the last messages.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);
/// The first and the longest pause between two attempts.
const BACKOFF: (Nanos, Nanos) = (Nanos::from_millis(100), Nanos::from_secs(2));

/// The endpoint of the host agent, with TLS by `files`.
///
/// # Errors
///
/// [`RunError::Address`] or [`RunError::Tls`] if the configuration cannot be used.
pub(crate) fn endpoint(config: &ControlConfig, files: Option<&ClientFiles>) -> Result<Endpoint, RunError> {
    let scheme = if files.is_some() { "https://" } else { "http://" };
    let scheme = if config.address.starts_with(UNIX) { "" } else { scheme };
    let wrong = |cause| RunError::Address { address: config.address.clone(), cause };
    let endpoint = Endpoint::from_shared(format!("{scheme}{}", config.address)).map_err(wrong)?;
    let endpoint = endpoint
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE)
        .keep_alive_while_idle(true);
    match files {
        None => Ok(endpoint),
        Some(files) => Ok(endpoint.tls_config(files.configs.channel.clone()).map_err(TlsError::Certificates)?),
    }
}

/// Why a connection ended before the worker closed it.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("cannot connect to the host agent")]
    Connect(#[from] tonic::transport::Error),
    #[error("the host agent does not respond")]
    Silence,
    // A status includes its cause in its message.
    #[error("the connection to the host agent failed: {0}")]
    Stream(String),
    #[error("the host agent closed the connection")]
    Closed,
    #[error("{0}")]
    Worker(String),
}

impl Failure {
    fn stream(status: &tonic::Status) -> Self {
        Self::Stream(status.message().to_owned())
    }

    /// Whether an open connection failed.
    fn is_broken(&self) -> bool {
        matches!(self, Self::Silence | Self::Stream(_))
    }
}

/// Keeps a connection to the host agent open until it is `stopping`. Counts failed connections on the `board`, which
/// knows what the agent keeps in memory.
pub(super) async fn maintain(
    endpoint: Reloadable<Endpoint>,
    events: SyncSender<Event>,
    board: Board,
    seed: u64,
    mut stopping: watch::Receiver<bool>,
) {
    let mut backoff = Backoff::new(BACKOFF.0, BACKOFF.1);
    let mut seeds = Seeds::new(!seed);
    let mut complained = false;
    for number in 0.. {
        let mut welcomed = false;
        // Certificates may have changed since the last connection.
        let current = endpoint.load();
        let channel = tokio::select! {
            channel = current.connect() => channel,
            () = stopped(&mut stopping) => return,
        };
        let failure = match channel {
            Ok(channel) => {
                let client = ControlClient::new(channel);
                serve_connection(client, &events, number, &board, &mut welcomed).await.err()
            }
            Err(error) => Some(error.into()),
        };
        if *stopping.borrow() {
            return;
        }
        if failure.as_ref().is_some_and(Failure::is_broken) {
            board.connection_broke();
        }
        if welcomed {
            backoff.reset();
            complained = false;
        }
        let pause = backoff.pause(seeds.fraction());
        let why = failure.as_ref().map_or_else(String::new, |failure| chain(failure));
        if core::mem::replace(&mut complained, true) {
            tracing::debug!(%pause, why, "no connection to the host agent");
        } else {
            tracing::warn!(%pause, why, "no connection to the host agent: trying again");
        }
        tokio::select! {
            () = sleep(pause.into()) => {}
            () = stopped(&mut stopping) => return,
        }
    }
}

async fn stopped(stopping: &mut watch::Receiver<bool>) {
    let _ = stopping.wait_for(|stopping| *stopping).await;
}

/// Serves one connection from its beginning to its end, and reports both to the worker's thread.
async fn serve_connection(
    client: ControlClient<tonic::transport::Channel>,
    events: &SyncSender<Event>,
    number: u64,
    board: &Board,
    welcomed: &mut bool,
) -> Result<(), Failure> {
    let (out, messages) = mpsc::channel(QUEUE_LENGTH);
    let (close, closed) = oneshot::channel();
    if !send_event(events, Event::Connected(Connection { number, out, close })).await {
        return Ok(());
    }
    let mut client = client.max_decoding_message_size(MAX_MESSAGE_BYTES);
    // The worker's thread sends the hello first; the server does not respond before.
    let response = timeout(CONNECT_TIMEOUT, client.work(accounted(messages, board.clone()))).await;
    let outcome = match response {
        Err(_) => Err(Failure::Silence),
        Ok(Err(status)) => Err(Failure::stream(&status)),
        Ok(Ok(incoming)) => receive(incoming.into_inner(), events, number, closed, welcomed).await,
    };
    send_event(events, Event::Disconnected(number)).await;
    outcome
}

/// The `messages` of the worker's thread, where one summary in a few says what the agent keeps in memory. The thread
/// itself has better things to do.
fn accounted(messages: mpsc::Receiver<WorkerMessage>, board: Board) -> impl Stream<Item = WorkerMessage> {
    let mut summaries = 0_u64;
    ReceiverStream::new(messages).map(move |mut message| {
        if let Some(FromWorker::Summary(summary)) = &mut message.message {
            summary.account = summaries.is_multiple_of(ACCOUNT_EVERY).then(|| board.account());
            summaries += 1;
        }
        message
    })
}

/// Passes messages of the host agent on, until one end closes the connection.
async fn receive(
    mut incoming: Streaming<HostMessage>,
    events: &SyncSender<Event>,
    number: u64,
    mut closed: oneshot::Receiver<String>,
    welcomed: &mut bool,
) -> Result<(), Failure> {
    loop {
        tokio::select! {
            message = incoming.message() => {
                let message = message.map_err(|status| Failure::stream(&status))?.ok_or(Failure::Closed)?;
                if matches!(message.message, Some(Message::Welcome(_))) {
                    tracing::info!("session with the host agent started");
                    *welcomed = true;
                }
                if !send_event(events, Event::Received(number, message)).await {
                    return Ok(());
                }
            }
            why = &mut closed => {
                if let Ok(why) = why {
                    return Err(Failure::Worker(why));
                }
                // The worker has ended: its last messages are in flight, and the host agent ends the stream when it has
                // received them.
                let _ = timeout(CLOSE_TIMEOUT, async { while let Ok(Some(_)) = incoming.message().await {} }).await;
                return Ok(());
            }
        }
    }
}
