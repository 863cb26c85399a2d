//! Metric regions: shared memory that one service owns and writes, and others read.
//!
//! | who | does | type |
//! | --- | --- | --- |
//! | service | creates the region, writes slots through handles | [`OwnedRegion`], [`SlotRef`], [`SlotRun`] |
//! | service → host agent | passes the file descriptor over a Unix socket | [`fd_passing`] |
//! | host agent | validates the descriptor: memfd, seals, size, access | [`AcceptedRegion`] |
//! | NIC agent on the same host | maps the region read-only | [`ReadMapping`] |
//! | RDMA device | registers a shared, writable mapping | [`SharedMapping`] |
//!
//! This crate knows no metric names: control messages say which slot belongs to which metric.
//!
//! # Memory model
//!
//! A slot is one 64-bit atomic word, and every access to a metric's slot is one relaxed operation. A reader must not
//! conclude anything from the order of two slots. A region may hold a [`ring`] of records instead, whose words belong
//! together; loom and Miri check that protocol (`tests/ring.rs`).

mod accepted_region;
pub mod fd_passing;
mod mapping;
mod owned_region;
mod read_mapping;
pub mod ring;
mod seals;
mod shared_mapping;
mod slots;
mod sparse_mapping;
mod sync;

pub use accepted_region::{AcceptError, AcceptedRegion, FreedMemory};
pub use owned_region::{CreateError, OwnedRegion};
pub use read_mapping::{BufferLengthError, MapError, ReadMapping};
pub use shared_mapping::SharedMapping;
pub use slots::{SlotRef, SlotRun, SlotsRef};
pub use sparse_mapping::SparseMapping;
