//! Host agents of several nodes keep traces together: this crate carries what [`hooks::coherence`] decides between them.
//!
//! Each node calls each other one, ten times a second if there is something to say, once a second if not; one call at a time to each. What a
//! call carries and its answer is decided by the [`Local`] end. A call that fails is not made again: the next one carries what was lost.
//!
//! | module | what |
//! | --- | --- |
//! | [`Local`] | this node's end |
//! | `server` | others call |
//! | `peer` | one peer is called |
//! | [`Running`] | who is called: addresses, and names that are looked up again and again |

mod local;
mod peer;
mod running;
mod server;

pub use local::Local;
pub use running::{Counts, PeerSettings, Running, StartError, start};
pub use server::service;
