//! The gRPC server that peers call.

use std::sync::Arc;

use agent_runtime::access::{Access, Identity};
use agent_runtime::reload::Reloadable;
use hooks::coherence::{MAX_MESSAGE_BYTES, ReceiveError};
use tonic::{Request, Response, Status};
use wire::proto::gossip as proto;
use wire::proto::gossip::gossip_server::{Gossip, GossipServer};

use crate::connected_peer::{MessageError, take};
use crate::exchange::Counts;
use crate::local_node::LocalNode;

struct GossipService<L> {
    local: Arc<L>,
    access: Reloadable<Access>,
    counts: Arc<Counts>,
}

/// The gRPC service for those whom `access` takes for peers. Its requests have to know who sent them, as those of
/// [`agent_runtime::server`] do; a request without an [`Identity`] is refused.
#[must_use]
pub fn service<L: LocalNode>(
    local: Arc<L>,
    access: Reloadable<Access>,
    counts: Arc<Counts>,
) -> GossipServer<impl Gossip> {
    GossipServer::new(GossipService { local, access, counts })
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES)
}

#[tonic::async_trait]
impl<L: LocalNode> Gossip for GossipService<L> {
    async fn exchange(&self, request: Request<proto::GossipMessage>) -> Result<Response<proto::GossipMessage>, Status> {
        let nobody = Identity::Certificate(Vec::new());
        let identity = request.extensions().get::<Identity>().cloned().unwrap_or(nobody);
        let sender = take(request.get_ref(), &identity, &self.access.load(), &*self.local).map_err(|error| {
            self.counts.refused.add(1);
            let text = error.to_string();
            match error {
                MessageError::Denied(_) | MessageError::Refused(ReceiveError::Impostor(_)) => {
                    Status::permission_denied(text)
                }
                MessageError::Malformed(_) => Status::invalid_argument(text),
                MessageError::Refused(_) => Status::failed_precondition(text),
            }
        })?;
        self.counts.received.add(1);
        match self.local.message(Some(&sender.node)) {
            Some(reply) => Ok(Response::new(reply.encode())),
            None => Err(Status::unavailable("this node has no peers")),
        }
    }
}
