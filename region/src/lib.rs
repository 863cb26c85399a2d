//! A metric region: pages of shared memory that one service owns and others read.
//!
//! The service makes it ([`OwnedRegion`]) and writes slots through handles that keep it mapped ([`SlotRef`], [`SlotRun`]). The host agent
//! takes its descriptor over a Unix socket ([`passing`]) and checks it ([`AcceptedRegion`]); a reader maps it read-only ([`ReadMapping`]), a
//! device that copies it out gets a mapping of its own ([`SharedMapping`]).
//! Which slot means what is none of this crate's business: it knows no metric names.
//!
//! All slots are single atomic words and every access to a metric's is one relaxed operation: what a reader may conclude from two of them is
//! told by control messages, never by memory. A region may hold a [`ring`] of records instead, where words belong together: that protocol is
//! checked by loom and Miri (`tests/ring.rs`).

mod accepted;
mod mapping;
mod owned;
pub mod passing;
mod read;
pub mod ring;
mod seals;
mod shared;
mod slots;
mod sync;

pub use accepted::{AcceptError, AcceptedRegion};
pub use owned::{CreateError, OwnedRegion};
pub use read::{MapError, ReadMapping, WrongLength};
pub use shared::SharedMapping;
pub use slots::{SlotRef, SlotRun, SlotsRef};
