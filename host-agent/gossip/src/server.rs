//! The gRPC server that peers call.

use core::future::ready;
use std::sync::Arc;
use std::time::Duration;

use agent_runtime::access::{Access, Identity};
use agent_runtime::clock::Clock;
use agent_runtime::reload::Reloadable;
use agent_runtime::repeated_events::RepeatedEvents;
use agent_runtime::server::{AdmittedRequest, ReplyShares, with_bounded_requests, with_reply_shares};
use axum::Router;
use axum::http::request::Parts;
use hooks::coherence::{MAX_MESSAGE_BYTES, ReceiveError};
use tonic::service::Routes;
use tonic::{Request, Response, Status};
use wire::proto::gossip as proto;
use wire::proto::gossip::gossip_server::{Gossip, GossipServer};

use crate::connected_peer::{MessageError, require_peer, take};
use crate::counts::Counts;
use crate::local_node::LocalNode;

struct GossipService<L> {
    local: Arc<L>,
    access: Reloadable<Access>,
    counts: Arc<Counts>,
}

/// Bytes of messages of all peers that are being read, and of replies that they have not read.
pub const CALL_BYTES: u64 = 16 << 20;
/// Time limit for a message.
const MESSAGE_WITHIN: Duration = Duration::from_secs(10);

/// The gRPC service for those whom `access` takes for peers. Its requests have to know who sent them, as those of
/// [`agent_runtime::server`] do; a request without an [`Identity`] is refused. Nothing of a message is read before it
/// is known that its sender is a peer, and what all of them hold is bounded ([`CALL_BYTES`]).
pub fn router<L: LocalNode>(local: Arc<L>, access: Reloadable<Access>, counts: Arc<Counts>) -> Router {
    let service = GossipService { local: Arc::clone(&local), access: access.clone(), counts: Arc::clone(&counts) };
    let service = GossipServer::new(service)
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES);
    let (counted, refused, clock) = (Arc::clone(&counts), RepeatedEvents::default(), Clock::start());
    let held = ReplyShares::new(CALL_BYTES, move |error| {
        counted.refused.add(1);
        if let Some(times) = refused.count(clock.now(), &error.owner) {
            tracing::warn!(%error, times, "message of a peer refused");
        }
    });
    let admit = move |head: Parts| {
        let admitted = admit(&head, &access, &*local).inspect_err(|_| counts.refused.add(1));
        // The frame of a message has five bytes.
        ready(admitted.map(|()| AdmittedRequest { head, bytes: MAX_MESSAGE_BYTES + 5 }))
    };
    let router = Routes::new(service).into_axum_router();
    with_reply_shares(with_bounded_requests(router, MESSAGE_WITHIN, &held, admit), &held)
}

/// Whether the sender of a message is a peer.
fn admit<L: LocalNode>(head: &Parts, access: &Reloadable<Access>, local: &L) -> Result<(), Status> {
    let nobody = Identity::Certificate(Vec::new());
    let identity = head.extensions.get::<Identity>().unwrap_or(&nobody);
    require_peer(identity, &access.load(), local).map_err(|denied| Status::permission_denied(denied.to_string()))
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
