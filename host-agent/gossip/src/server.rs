//! The gRPC server that peers call.

use std::sync::Arc;

use hooks::coherence::{GossipMessage, MAX_MESSAGE_BYTES};
use tonic::{Request, Response, Status};
use wire::proto::gossip as proto;
use wire::proto::gossip::gossip_server::{Gossip, GossipServer};

use crate::exchange::Counts;
use crate::local_node::LocalNode;

struct GossipService<L> {
    local: Arc<L>,
    counts: Arc<Counts>,
}

/// The gRPC service for peers.
#[must_use]
pub fn service<L: LocalNode>(local: Arc<L>, counts: Arc<Counts>) -> GossipServer<impl Gossip> {
    GossipServer::new(GossipService { local, counts })
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES)
}

#[tonic::async_trait]
impl<L: LocalNode> Gossip for GossipService<L> {
    async fn exchange(&self, request: Request<proto::GossipMessage>) -> Result<Response<proto::GossipMessage>, Status> {
        let message = GossipMessage::decode(&request.into_inner()).map_err(|error| {
            self.counts.refused.add(1);
            Status::invalid_argument(error.to_string())
        })?;
        let sender = Arc::clone(&message.run.node);
        self.local.receive(message).map_err(|error| {
            self.counts.refused.add(1);
            Status::failed_precondition(error.to_string())
        })?;
        self.counts.received.add(1);
        match self.local.message(Some(&sender)) {
            Some(reply) => Ok(Response::new(reply.encode())),
            None => Err(Status::unavailable("this node has no peers")),
        }
    }
}
