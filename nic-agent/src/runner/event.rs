//! What other threads tell the worker's thread, through its queue.

use std::os::fd::OwnedFd;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use wire::name::ServiceName;
use wire::proto::control::{HostMessage, StreamStates, WorkerMessage};

use crate::attachments::AttachRequest;
use crate::effect_error::EffectError;
use crate::jobs::JobId;

/// An event for the worker's thread.
#[derive(Debug)]
pub(super) enum Event {
    /// A connection to the host agent is open.
    Connected(Connection),
    /// A message of the host agent, over the connection with this number.
    Received(u64, HostMessage),
    /// The connection with this number is closed.
    Disconnected(u64),
    /// The outcome of a request for a region's descriptor.
    Descriptor(AttachRequest, Result<OwnedFd, EffectError>),
    /// The result of a job.
    Done(JobId, lmap::JobResult),
    /// What came of the streams that the host agent asked for.
    Streams(StreamStates),
    /// A request for the learned model of a service.
    Model(ServiceName, oneshot::Sender<Option<lmap::Model>>),
    /// Send what is queued, and end.
    Stop,
}

/// The worker's end of a connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) number: u64,
    pub(super) out: mpsc::Sender<WorkerMessage>,
    /// Takes the reason if the worker closes the connection; dropped at the end.
    pub(super) close: oneshot::Sender<String>,
}

/// Queues an event, and waits while the queue is full. Returns false if the worker's thread is gone.
pub(super) async fn send_event(events: &SyncSender<Event>, mut event: Event) -> bool {
    loop {
        match events.try_send(event) {
            Ok(()) => return true,
            Err(TrySendError::Disconnected(_)) => return false,
            Err(TrySendError::Full(again)) => event = again,
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
