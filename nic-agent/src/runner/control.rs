//! The connection to the host agent: made, kept, and made again.

use std::sync::mpsc::SyncSender;
use std::time::Duration;

use daemon::TlsError;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::Endpoint;
use wire::proto::control::HostMessage;
use wire::proto::control::control_client::ControlClient;
use wire::proto::control::host_message::Message;
use wire::time::Nanos;

use super::{Connection, Event, RunError, tell, told};
use crate::backoff::{Backoff, Seeds};
use crate::config::ControlConfig;
use crate::metrics::Board;

/// Messages that wait for the network; more wait in the worker's outbox.
const WAITING: usize = 64;
/// The largest message that is taken: an LMAP of 4,096 series with long names and a model.
const MOST_BYTES: usize = 64 << 20;
/// How long connecting, and the answer to the hello, may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// A peer that does not answer for so long is gone.
const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// How long the last words may take.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// The first and the longest pause between two tries.
const PAUSE: (Nanos, Nanos) = (Nanos::from_millis(100), Nanos::from_secs(2));

/// Where to connect to, and how.
///
/// # Errors
///
/// [`RunError::Address`], [`RunError::Tls`].
pub(super) fn endpoint(config: &ControlConfig) -> Result<Endpoint, RunError> {
    let scheme = if config.tls.is_some() { "https" } else { "http" };
    let wrong = |cause| RunError::Address { address: config.address.clone(), cause };
    let endpoint = Endpoint::from_shared(format!("{scheme}://{}", config.address)).map_err(wrong)?;
    let endpoint = endpoint
        .connect_timeout(PATIENCE)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE)
        .keep_alive_while_idle(true);
    match &config.tls {
        None => Ok(endpoint),
        Some(tls) => Ok(endpoint.tls_config(tls.client()?).map_err(TlsError::Certificates)?),
    }
}

/// Why a connection ended before the worker wanted it to.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("cannot connect to the host agent")]
    Connect(#[from] tonic::transport::Error),
    #[error("the host agent does not answer")]
    Silence,
    // A status repeats its cause in its own words.
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

    /// Whether there was a connection, and it ended otherwise than in order.
    fn is_broken(&self) -> bool {
        matches!(self, Self::Silence | Self::Stream(_))
    }
}

/// Keeps a connection to the host agent until it is `stopping`. What breaks goes onto the `board`.
pub(super) async fn keep(
    endpoint: Endpoint,
    events: SyncSender<Event>,
    board: Board,
    seed: u64,
    mut stopping: watch::Receiver<bool>,
) {
    let mut backoff = Backoff::new(PAUSE.0, PAUSE.1);
    let mut seeds = Seeds::new(!seed);
    let mut complained = false;
    for number in 0.. {
        let mut welcomed = false;
        let channel = tokio::select! {
            channel = endpoint.connect() => channel,
            () = stopped(&mut stopping) => return,
        };
        let failure = match channel {
            Ok(channel) => converse(ControlClient::new(channel), &events, number, &mut welcomed).await.err(),
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
        let pause = backoff.pause(seeds.draw());
        let why = failure.as_ref().map_or_else(String::new, |failure| told(failure));
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

/// One connection, from its beginning to its end, both told to the worker's thread.
async fn converse(
    client: ControlClient<tonic::transport::Channel>,
    events: &SyncSender<Event>,
    number: u64,
    welcomed: &mut bool,
) -> Result<(), Failure> {
    let (out, messages) = mpsc::channel(WAITING);
    let (close, closed) = oneshot::channel();
    if !tell(events, Event::Connected(Connection { number, out, close })).await {
        return Ok(());
    }
    let mut client = client.max_decoding_message_size(MOST_BYTES);
    // The worker's thread says hello first, else no server would answer.
    let answer = timeout(PATIENCE, client.work(ReceiverStream::new(messages))).await;
    let outcome = match answer {
        Err(_) => Err(Failure::Silence),
        Ok(Err(status)) => Err(Failure::stream(&status)),
        Ok(Ok(said)) => listen(said.into_inner(), events, number, closed, welcomed).await,
    };
    tell(events, Event::Gone(number)).await;
    outcome
}

/// Passes on what the host agent says, until it or the worker has enough.
async fn listen(
    mut said: Streaming<HostMessage>,
    events: &SyncSender<Event>,
    number: u64,
    mut closed: oneshot::Receiver<String>,
    welcomed: &mut bool,
) -> Result<(), Failure> {
    loop {
        tokio::select! {
            message = said.message() => {
                let message = message.map_err(|status| Failure::stream(&status))?.ok_or(Failure::Closed)?;
                if matches!(message.message, Some(Message::Welcome(_))) {
                    tracing::info!("the host agent welcomes this worker");
                    *welcomed = true;
                }
                if !tell(events, Event::Said(number, message)).await {
                    return Ok(());
                }
            }
            why = &mut closed => {
                if let Ok(why) = why {
                    return Err(Failure::Worker(why));
                }
                // The worker has ended: what it said last is under way, and the host agent ends the stream when it has heard it.
                let _ = timeout(LAST_WORDS, async { while let Ok(Some(_)) = said.message().await {} }).await;
                return Ok(());
            }
        }
    }
}
