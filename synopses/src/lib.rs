//! Packet synopses: estimates of the delay, the loss, the order and the variety of *all* packets, each of which touches
//! only a few bytes of memory.
//!
//! Pure structs: no clock, thread, socket or file. Times and packets are arguments. The crate uses only `core`, `alloc`
//! and libm, so that results are the same on every machine. Nothing is allocated per packet.
//!
//! Every synopsis takes a [`digest::Digest`]: 64 bits of a packet, a key or a flow, computed once with a secret key.
//! Slots, coins and fingerprints are derived from it with the synopsis' own seed. All synopses have the same verbs:
//!
//! | verb | what it does |
//! | --- | --- |
//! | `new` | checks the settings and allocates all memory |
//! | `insert` | adds a packet (a fridge also has `match_response`, for the response to a request) |
//! | `estimate` | the estimates so far, with the number of samples; an unknown value is `None`, never 0 |
//! | `merge` | combines two instances, only where that is sound |
//! | `encode`, `decode` | versioned bytes with a checksum; `decode` never panics or exceeds its memory limit |
//! | `memory_bytes` | allocated memory, without the struct itself |
//!
//! | module | what |
//! | --- | --- |
//! | [`cardinality`] | distinct items of the last seconds: sources, flows, ports |
//! | [`digest`] | digests of packets |
//! | [`disaggregated`] | sizes of flows, from counters along their paths |
//! | [`fridge`] | distribution of the delay between requests and responses |
//! | [`finecomb`] | mean and deviation of the one-way delay, and loss, between two points |
//! | [`rda`] | the same, and which packets were lost, between two points that store an interval's packets |
//! | [`rap`] | the heaviest keys of a stream and their counts, in few entries |
//! | [`reordering`] | source prefixes whose TCP flows have many packets out of order |
//! | [`encoding`] | header and checksum of all encodings |
#![cfg_attr(not(test), no_std)]

extern crate alloc;

pub mod cardinality;
pub mod digest;
pub mod disaggregated;
pub mod encoding;
pub mod finecomb;
pub mod fridge;
mod moments;
pub mod rap;
pub mod rda;
pub mod reordering;
