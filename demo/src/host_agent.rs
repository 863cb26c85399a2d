//! A client of the host agent's operator interface: the stream of verdicts, rows, receipts and status.

use std::time::Duration;

use tokio::sync::mpsc;
use tonic::transport::{Channel, Endpoint};
use wire::cause::innermost;
use wire::proto::operators::operators_client::OperatorsClient;
use wire::proto::operators::{
    HookEvent, ListReply, ListRequest, OpenPageRequest, ReceiptReply, ReceiptRequest, RegisterHookRequest, RowEvent,
    StatusReply, StatusRequest, WatchRowsRequest,
};
use wire::time::Nanos;

use crate::clock::Clock;

const CONNECT_WITHIN: Duration = Duration::from_secs(20);
const RESPONSE_WITHIN: Duration = Duration::from_secs(20);
/// Verdicts buffered here while the demo is busy; the agent buffers further ones.
const WAITING: usize = 1024;

/// Why a call of the host agent failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostAgentError {
    /// The connection cannot be made.
    #[error("cannot connect to the host agent at {address}: {cause}")]
    Connect {
        /// The agent's address.
        address: String,
        /// The innermost error.
        cause: String,
    },
    /// A call returned an error, or nothing in time.
    #[error("the host agent did not {what}: {cause}")]
    Call {
        /// The call, as a verb phrase.
        what: &'static str,
        /// The agent's error message.
        cause: String,
    },
}

/// A connection to the host agent, subscribed to all verdicts.
#[derive(Debug)]
pub(crate) struct HostAgentClient {
    operators: OperatorsClient<Channel>,
    verdicts: mpsc::Receiver<(Nanos, HookEvent)>,
}

impl HostAgentClient {
    /// Connects and subscribes to all verdicts. Each gets a timestamp of `clock` when it arrives.
    pub(crate) async fn open(address: &str, clock: Clock) -> Result<Self, HostAgentError> {
        let failed = |error: tonic::transport::Error| HostAgentError::Connect {
            address: address.to_owned(),
            cause: innermost(&error),
        };
        let endpoint = Endpoint::from_shared(address.to_owned()).map_err(failed)?;
        let channel = endpoint.connect_timeout(CONNECT_WITHIN).tcp_nodelay(true).connect().await.map_err(failed)?;
        let mut operators = OperatorsClient::new(channel);
        let all = RegisterHookRequest { lmaps: Vec::new(), min_share: 0.0, queue: 0, ..RegisterHookRequest::default() };
        let mut stream =
            operators.register_hook(all).await.map_err(|status| refused("register a hook", &status))?.into_inner();
        let (arrived, verdicts) = mpsc::channel(WAITING);
        tokio::spawn(async move {
            while let Ok(Some(event)) = stream.message().await {
                if arrived.send((clock.now(), event)).await.is_err() {
                    break;
                }
            }
        });
        Ok(Self { operators, verdicts })
    }

    /// An address of the live page; `None` if there is none.
    pub(crate) async fn page(&mut self) -> Option<String> {
        let opened = tokio::time::timeout(RESPONSE_WITHIN, self.operators.open_page(OpenPageRequest {})).await;
        Some(opened.ok()?.ok()?.into_inner().url)
    }

    /// The next verdict.
    ///
    /// # Errors
    ///
    /// The stream has ended.
    pub(crate) async fn verdict(&mut self) -> Result<(Nanos, HookEvent), HostAgentError> {
        let ended = || HostAgentError::Call { what: "send verdicts", cause: "the stream ended".to_owned() };
        self.verdicts.recv().await.ok_or_else(ended)
    }

    /// Subscribes to the rows of an LMAP, including those that the agent still has.
    pub(crate) async fn rows(&mut self, lmap: u32) -> Result<mpsc::Receiver<RowEvent>, HostAgentError> {
        let all = WatchRowsRequest { lmap, every: 1, ..WatchRowsRequest::default() };
        let mut stream =
            self.operators.watch_rows(all).await.map_err(|status| refused("send rows", &status))?.into_inner();
        let (arrived, rows) = mpsc::channel(WAITING);
        tokio::spawn(async move {
            while let Ok(Some(row)) = stream.message().await {
                if arrived.send(row).await.is_err() {
                    break;
                }
            }
        });
        Ok(rows)
    }

    /// Counts of spans seen, kept and lost since the agent's start.
    pub(crate) async fn receipt(&mut self) -> Result<ReceiptReply, HostAgentError> {
        reply("return a receipt", self.operators.receipt(ReceiptRequest {})).await
    }

    /// State of workers and LMAPs.
    pub(crate) async fn status(&mut self) -> Result<StatusReply, HostAgentError> {
        reply("return its status", self.operators.status(StatusRequest {})).await
    }

    /// LMAPs with their metrics.
    pub(crate) async fn list(&mut self) -> Result<ListReply, HostAgentError> {
        reply("list its metrics", self.operators.list(ListRequest {})).await
    }
}

/// The next row. Pending forever without a subscription, or after its end.
pub(crate) async fn next_row(rows: &mut Option<mpsc::Receiver<RowEvent>>) -> RowEvent {
    match rows {
        Some(rows) => match rows.recv().await {
            Some(row) => row,
            None => std::future::pending().await,
        },
        None => std::future::pending().await,
    }
}

/// What a call returns, within [`RESPONSE_WITHIN`].
async fn reply<T>(
    what: &'static str,
    call: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
) -> Result<T, HostAgentError> {
    match tokio::time::timeout(RESPONSE_WITHIN, call).await {
        Ok(reply) => reply.map(tonic::Response::into_inner).map_err(|status| refused(what, &status)),
        Err(_) => Err(HostAgentError::Call { what, cause: format!("no response within {RESPONSE_WITHIN:?}") }),
    }
}

fn refused(what: &'static str, status: &tonic::Status) -> HostAgentError {
    HostAgentError::Call { what, cause: status.message().to_owned() }
}
