//! Packet synopses: what is known of the delay and the loss of *all* packets after each has touched a few bytes of memory.
//!
//! Pure structs: no clock, thread, socket or file; time and packets come in as arguments. Only `core`, `alloc` and libm's functions are used, so
//! that figures are the same on every machine. Nothing is allocated per packet.
//!
//! Every synopsis takes a [`digest::Digest`], 64 bits that are computed once per packet with a secret key. Slots, coins and
//! fingerprints are derived from it with a seed of the synopsis' own. The verbs are the same everywhere:
//!
//! | verb | what it does |
//! | --- | --- |
//! | `new` | checks the parameters and takes all memory |
//! | `insert` | one packet (a fridge also has `answer`, for the packet that answers it) |
//! | `estimate` | what is known now, with how much it rests on; nothing known is `None`, never 0 |
//! | `merge` | what two parts saw, as one; only where that is sound |
//! | `encode`, `decode` | versioned bytes with a checksum; no bytes make `decode` panic or take more memory than it was allowed |
//! | `memory_bytes` | memory taken, without the struct itself |
//!
//! | module | what |
//! | --- | --- |
//! | [`digest`] | the name of a packet |
//! | [`fridge`] | delay between requests and responses, as a distribution |
//! | [`finecomb`] | mean, deviation and loss between two points |
//! | [`rda`] | the same, and which packets were lost, between two points that remember an interval's packets |
//! | [`encoding`] | what all encodings have in common |
#![cfg_attr(not(test), no_std)]

extern crate alloc;

pub mod digest;
pub mod encoding;
pub mod finecomb;
pub mod fridge;
mod moments;
pub mod rda;
