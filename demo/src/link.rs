//! The operator's line to the host agent: every verdict as it is made, and the status when asked.

use core::error::Error;
use core::net::SocketAddr;
use std::time::Duration;

use tokio::sync::mpsc;
use tonic::transport::{Channel, Endpoint};
use wire::proto::operators::operators_client::OperatorsClient;
use wire::proto::operators::{
    HookEvent, ReceiptReply, ReceiptRequest, RegisterHookRequest, RowEvent, StatusReply, StatusRequest,
    WatchRowsRequest,
};
use wire::time::Nanos;

use crate::clock::Clock;

const CONNECT_WITHIN: Duration = Duration::from_secs(20);
const ANSWER_WITHIN: Duration = Duration::from_secs(20);
/// Verdicts that wait here while the demo is busy; further ones wait at the agent.
const WAITING: usize = 1024;

/// What went wrong between the demo and the host agent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// Nobody answers.
    #[error("the host agent does not answer at {address}: {cause}")]
    Connect {
        /// Where.
        address: SocketAddr,
        /// The innermost reason.
        cause: String,
    },
    /// It answers with an error, or no longer.
    #[error("the host agent did not {what}: {cause}")]
    Call {
        /// What was asked for.
        what: &'static str,
        /// What it said.
        cause: String,
    },
}

/// The line.
#[derive(Debug)]
pub(crate) struct Link {
    operators: OperatorsClient<Channel>,
    verdicts: mpsc::Receiver<(Nanos, HookEvent)>,
}

impl Link {
    /// Connects, and asks for all verdicts. They are stamped by `clock` when they arrive.
    pub(crate) async fn open(address: SocketAddr, clock: Clock) -> Result<Self, LinkError> {
        let failed = |error: tonic::transport::Error| LinkError::Connect { address, cause: innermost(&error) };
        let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(failed)?;
        let channel = endpoint.connect_timeout(CONNECT_WITHIN).tcp_nodelay(true).connect().await.map_err(failed)?;
        let mut operators = OperatorsClient::new(channel);
        let all = RegisterHookRequest { lmaps: Vec::new(), min_share: 0.0, queue: 0 };
        let mut stream =
            operators.register_hook(all).await.map_err(|status| refused("call back", &status))?.into_inner();
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

    /// The next verdict. Fails when there will be none any more.
    pub(crate) async fn verdict(&mut self) -> Result<(Nanos, HookEvent), LinkError> {
        let ended = || LinkError::Call { what: "send verdicts", cause: "the stream ended".to_owned() };
        self.verdicts.recv().await.ok_or_else(ended)
    }

    /// Every row of an LMAP from now on, and those kept from before.
    pub(crate) async fn rows(&mut self, lmap: u32) -> Result<mpsc::Receiver<RowEvent>, LinkError> {
        let all = WatchRowsRequest { lmap, every: 1 };
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

    /// What was seen, kept and lost since the agent's start.
    pub(crate) async fn receipt(&mut self) -> Result<ReceiptReply, LinkError> {
        let what = "give a receipt";
        match tokio::time::timeout(ANSWER_WITHIN, self.operators.receipt(ReceiptRequest {})).await {
            Ok(reply) => reply.map(tonic::Response::into_inner).map_err(|status| refused(what, &status)),
            Err(_) => Err(LinkError::Call { what, cause: format!("no answer within {ANSWER_WITHIN:?}") }),
        }
    }

    /// How everything is.
    pub(crate) async fn status(&mut self) -> Result<StatusReply, LinkError> {
        let what = "tell its status";
        match tokio::time::timeout(ANSWER_WITHIN, self.operators.status(StatusRequest {})).await {
            Ok(reply) => reply.map(tonic::Response::into_inner).map_err(|status| refused(what, &status)),
            Err(_) => Err(LinkError::Call { what, cause: format!("no answer within {ANSWER_WITHIN:?}") }),
        }
    }
}

fn refused(what: &'static str, status: &tonic::Status) -> LinkError {
    LinkError::Call { what, cause: status.message().to_owned() }
}

/// The last source: what really happened. Those around it say "transport error".
fn innermost(error: &(dyn Error + 'static)) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}
