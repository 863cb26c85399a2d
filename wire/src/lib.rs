//! The vocabulary of uview: what everything is called, how a metric region looks in memory, and what its parts say to each other.
//!
//! Pure: no clock, thread, socket, file or environment. A service that links the client gets no more than this crate's default
//! features; the agents add `grpc`.

pub mod control;
pub mod frame;
pub mod histogram;
pub mod id;
pub mod layout;
pub mod metric;
pub mod name;
pub mod proto;
pub mod quantity;
pub mod rdma;
pub mod registration;
pub mod span_record;
pub mod time;
