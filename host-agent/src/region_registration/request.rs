//! What the registrar is asked for.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};

use region::AcceptedRegion;
use wire::id::{RegionId, WorkerId};
use wire::proto::control as proto;
use wire::proto::registration::AgentMessage;
use wire::rdma::Endpoint;

use crate::control_plane::ConnectionId;

/// A request to the registrar. Requests are carried out in order.
#[derive(Debug)]
pub enum Request {
    /// Fill in addresses and keys of regions, then send the message to a worker.
    Send {
        /// The worker's connection.
        to: ConnectionId,
        /// The worker's number.
        worker: WorkerId,
        /// The message to send.
        message: Box<proto::HostMessage>,
        /// The regions that the message names, except those already dropped.
        memories: BTreeMap<RegionId, Arc<AcceptedRegion>>,
    },
    /// Connect a worker's queue pair, and send it the reply.
    Connect {
        /// The worker's connection.
        to: ConnectionId,
        /// The worker's number.
        worker: WorkerId,
        /// The worker's attempt, which the reply repeats.
        attempt: u32,
        /// The worker's end of the queue pair.
        peer: Endpoint,
    },
    /// Fence a worker.
    Stop {
        /// The worker's number.
        worker: WorkerId,
        /// Whether its registrations are dropped.
        for_good: bool,
    },
    /// Give slots back to a service.
    Release {
        /// The service's connection.
        to: ConnectionId,
        /// The message that gives them back.
        message: AgentMessage,
    },
    /// Deregister a region for all workers.
    Deregister(RegionId),
    /// Everything to be sent to a worker again is ahead of this request.
    Resent(WorkerId),
}

/// Sends requests; never blocks.
pub type RequestSender = mpsc::Sender<Request>;

/// A channel for requests.
#[must_use]
pub fn channel() -> (RequestSender, Receiver<Request>) {
    mpsc::channel()
}
