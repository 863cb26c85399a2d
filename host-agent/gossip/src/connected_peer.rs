//! What the identity at the other end of a connection may say.

use agent_runtime::access::{Access, Denied, Identity, Role};
use hooks::coherence::{DecodeError, GossipMessage, ReceiveError, Refusal, Run, Speaker};
use wire::proto::gossip as proto;

use crate::local_node::LocalNode;

/// Why a message was not taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MessageError {
    /// The identity is no peer.
    #[error(transparent)]
    Denied(#[from] Denied),
    /// The message is malformed.
    #[error(transparent)]
    Malformed(#[from] DecodeError),
    /// The message is refused as a whole.
    #[error(transparent)]
    Refused(#[from] ReceiveError),
}

/// Refuses `identity` unless it is a peer.
pub(crate) fn require_peer<L: LocalNode>(identity: &Identity, access: &Access, local: &L) -> Result<(), Denied> {
    let required = access.require(identity, Role::Peer, "be a peer");
    required.inspect_err(|_| local.refuse(&identity.to_string(), Refusal::NoPeer))
}

/// Takes a message of `identity` if that is a peer, and the message is in one of its names. Returns the run that sent
/// it.
pub(crate) fn take<L: LocalNode>(
    message: &proto::GossipMessage,
    identity: &Identity,
    access: &Access,
    local: &L,
) -> Result<Run, MessageError> {
    require_peer(identity, access, local)?;
    let message = match GossipMessage::decode(message) {
        Ok(message) => message,
        Err(error) => {
            local.refuse(&identity.to_string(), Refusal::Malformed);
            return Err(error.into());
        }
    };
    let names: Vec<&str> = identity.node_names().collect();
    let speaker = match identity {
        Identity::Anyone => Speaker::Anyone,
        Identity::Certificate(_) | Identity::User { .. } | Identity::Account(_) => Speaker::Named(&names),
    };
    let run = message.run.clone();
    local.receive(message, speaker)?;
    Ok(run)
}
