//! Gossip between the host agents of several nodes, so that they keep the same traces. This crate transports the
//! messages of [`hooks::coherence`]; it decides nothing itself.
//!
//! Each node calls every other node: every 100 ms while it has something to send, once a second otherwise, and one call
//! at a time per peer. Request and reply carry a message each, made by [`LocalNode`]. A failed call is not retried: the
//! next message repeats what was lost. Whoever is at the other end, called or calling, needs the role `peer`, and
//! speaks in the names of its certificate only.
//!
//! | module | what |
//! | --- | --- |
//! | [`LocalNode`] | the local state that messages are made from and applied to |
//! | `connected_peer` | what the identity at the other end of a connection may say |
//! | `server` | answers the calls of peers |
//! | `peer` | calls one peer |
//! | [`Calls`] | what became of the calls to each address |
//! | [`Exchange`] | peer discovery by address and DNS, one call task per peer |

mod calls;
mod connected_peer;
mod counts;
mod exchange;
mod local_node;
mod peer;
mod server;

pub use calls::{CallState, Calls, Responder};
pub use counts::Counts;
pub use exchange::{Exchange, PeerSettings, StartError, start};
pub use local_node::LocalNode;
pub use server::{CALL_BYTES, router};
