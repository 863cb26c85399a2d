//! Messages as they travel, generated from `wire/proto` by `cargo xtask proto`. Everything in them is unchecked: [`crate::control`] and
//! [`crate::registration`] turn them into values that hold.

#![expect(missing_docs, clippy::all, clippy::pedantic, reason = "generated; the proto files are the documentation")]
#![cfg_attr(feature = "grpc", expect(clippy::allow_attributes, reason = "generated"))]

pub mod attach;
pub mod control;
pub mod fragments;
pub mod gossip;
pub mod one_way;
pub mod operators;
pub mod registration;
