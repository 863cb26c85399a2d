//! What the bytes of a server's connection say to somebody who only looks on.
//!
//! A *turn* is what a client sends until the server answers. Its duration is the time from the return of the server's
//! first read to the call of its first write that is not interim. With a client that waits for each answer, a turn is
//! a request. What hides requests (TLS, HTTP/2, pipelining) is named as [`Unseen`].
//!
//! Everything here is pure, allocates nothing and never panics: it runs within `read` and `write` of other programs,
//! and in their signal handlers. At most [`HEAD_BYTES`] of a read or write are looked at.

mod connection;
mod head;

pub use connection::{Connection, Duration, Inbound, Outcome, Ticks, Turn, Unseen};
pub use head::{Answer, HEAD_BYTES, Question, answer, question};
