//! Messages as they travel on a socket.

use prost::Message;
use wire::proto::registration::AgentMessage;
use wire::proto::registration::agent_message::Message as FromAgent;

/// `message` as one frame of the sockets of services and regions: its length, then its bytes.
#[must_use]
pub fn framed(message: &impl Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    wire::frame::encode(message, &mut bytes).expect("tests send short messages");
    bytes
}

/// A frame in which a host agent sends `message` to a service.
#[must_use]
pub fn from_agent(message: FromAgent) -> Vec<u8> {
    framed(&AgentMessage { message: Some(message) })
}

/// `message` in a frame of gRPC; `flag` 1 says that it is compressed.
#[must_use]
pub fn in_grpc(flag: u8, message: &[u8]) -> Vec<u8> {
    let length = (message.len() as u32).to_be_bytes();
    [&[flag], &length[..], message].concat()
}
