//! The vocabulary of uview: ids, units, names, the layout of a metric region, and the messages between its parts.
//!
//! Pure: no clock, thread, socket, file or environment. A service that links the client gets only this crate's default
//! features; the agents add `grpc`.

pub mod backoff;
#[cfg(feature = "grpc")]
pub mod bounded;
pub mod cause;
pub mod control;
pub mod date;
mod entries;
pub mod frame;
pub mod histogram;
pub mod id;
pub mod incident;
pub mod layout;
pub mod metric;
pub mod name;
pub mod printable;
pub mod proto;
pub mod quantity;
pub mod rdma;
pub mod registration;
pub mod span_record;
pub mod time;
