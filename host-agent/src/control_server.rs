//! The gRPC server for NIC workers: one bidirectional stream per worker.

use std::sync::Arc;
use std::time::Duration;

use agent_runtime::access::{Access, Identity, Role};
use agent_runtime::reload::Reloadable;
use agent_runtime::repeated_events::RefusedCalls;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};
use wire::control::MAX_MESSAGE_BYTES;
use wire::proto::control::control_server::{Control, ControlServer};
use wire::proto::control::worker_message::Message;
use wire::proto::control::{HostMessage, WorkerHello, WorkerMessage};
use wire::time::UnixNanos;

use crate::clock::unix_now;
use crate::node::Node;

/// Deadline of a stream's first message, the hello.
const HELLO_WITHIN: Duration = Duration::from_secs(5);

/// The control service of `node`.
#[must_use]
pub fn service(node: Arc<Node>, access: Reloadable<Access>) -> ControlServer<impl Control> {
    ControlServer::new(Workers { node, access, refused: RefusedCalls::default() })
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES)
}

struct Workers {
    node: Arc<Node>,
    access: Reloadable<Access>,
    /// Who may not be a worker, for the log.
    refused: RefusedCalls,
}

#[tonic::async_trait]
impl Control for Workers {
    type WorkStream = ReceiverStream<Result<HostMessage, Status>>;

    async fn work(&self, request: Request<Streaming<WorkerMessage>>) -> Result<Response<Self::WorkStream>, Status> {
        let identity = sender(&request);
        if let Err(denied) = self.access.load().require(&identity, Role::Worker, "be a worker") {
            self.node.counts.denied_calls.one_more();
            let denied = denied.to_string();
            self.refused.log("Work", &denied, self.node.clock().now());
            return Err(Status::permission_denied(denied));
        }
        let mut messages = request.into_inner();
        let Some(hello) = hello(&mut messages).await else {
            self.node.counts.broken_workers.one_more();
            tracing::warn!(%identity, "worker stream without a hello");
            return Err(Status::invalid_argument("the first message must be a hello, within 5 s"));
        };
        let (id, to_worker, mut closed) = self.node.worker_connected(&identity, &hello);
        let (worker, version) = (hello.worker, &hello.version);
        tracing::info!(worker, connection = id.0, %identity, version, "worker connected");
        let node = Arc::clone(&self.node);
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    message = messages.message() => match message {
                        Ok(Some(message)) => node.worker_message(id, not_after(message, unix_now())),
                        Ok(None) => break,
                        Err(status) => {
                            node.counts.broken_workers.one_more();
                            tracing::warn!(worker = hello.worker, why = status.message(), "worker stream broke");
                            break;
                        }
                    },
                    _ = &mut closed => break,
                }
            }
            node.worker_gone(id);
            tracing::info!(worker = hello.worker, connection = id.0, "worker disconnected");
        });
        Ok(Response::new(ReceiverStream::new(to_worker)))
    }
}

/// Who sent a request. The server puts it there; a request without it is nobody's.
fn sender<T>(request: &Request<T>) -> Identity {
    request.extensions().get::<Identity>().cloned().unwrap_or(Identity::Certificate(Vec::new()))
}

/// `message` with no verdict and no summary after `now`, which this machine's clock shows: a worker's may be ahead, and
/// an incident of the future would be the newest one for as long.
fn not_after(mut message: WorkerMessage, now: UnixNanos) -> WorkerMessage {
    match &mut message.message {
        Some(Message::Verdicts(verdicts)) => verdicts.at_unix_ns = verdicts.at_unix_ns.min(now.0),
        Some(Message::Summary(summary)) => summary.at_unix_ns = summary.at_unix_ns.min(now.0),
        _ => {}
    }
    message
}

async fn hello(messages: &mut Streaming<WorkerMessage>) -> Option<WorkerHello> {
    let first = tokio::time::timeout(HELLO_WITHIN, messages.message()).await;
    match first {
        Ok(Ok(Some(WorkerMessage { message: Some(Message::Hello(hello)) }))) => Some(hello),
        _ => None,
    }
}
