//! Requests to the reader of span rings.

use std::sync::Arc;

use region::AcceptedRegion;
use tokio::sync::mpsc;
use wire::id::Owner;
use wire::name::{InstanceName, ServiceName};

use super::ring::Ring;
use crate::control_plane::ConnectionId;

/// A request to the reader of span rings.
#[derive(Debug)]
pub(super) enum RingRequest {
    Read(ConnectionId, Box<Ring>),
    End(ConnectionId),
}

/// Sends requests to the reader.
#[derive(Clone, Debug)]
pub struct RequestSender(mpsc::UnboundedSender<RingRequest>);

/// Pending requests: at most two per connection of a service.
#[derive(Debug)]
pub struct Inbox(pub(super) mpsc::UnboundedReceiver<RingRequest>);

/// A channel for requests.
#[must_use]
pub fn channel() -> (RequestSender, Inbox) {
    let (left, waiting) = mpsc::unbounded_channel();
    (RequestSender(left), Inbox(waiting))
}

impl RequestSender {
    /// The replica's connection ended: its ring is read once more. The ring's memory outlives the replica.
    pub(crate) fn end(&self, connection: ConnectionId) {
        // Without a reader there is nothing to end.
        _ = self.0.send(RingRequest::End(connection));
    }
}

/// Starts reading the ring of a replica, whose spans are of the share of its owner. The error says why not, for the
/// operator of the service.
pub(crate) fn read_ring(
    requests: Option<&RequestSender>,
    connection: ConnectionId,
    replica: (&ServiceName, &InstanceName, Owner),
    ring: Arc<AcceptedRegion>,
    first_ticket: u64,
) -> Result<(), String> {
    let requests = requests.ok_or(
        "nobody takes spans: neither otlp.upstream nor otlp.watch_only is set in the host agent's configuration",
    )?;
    let ring = Ring::new(replica, ring, first_ticket).map_err(|error| error.to_string())?;
    requests.0.send(RingRequest::Read(connection, Box::new(ring))).map_err(|_| "the agent is shutting down".to_owned())
}
