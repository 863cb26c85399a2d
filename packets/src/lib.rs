//! From the wire to a synopsis: captures, packets, requests and responses.
//!
//! ```text
//! source ──frames──▶ parse ──packets──▶ filter ──▶ pair ──requests, responses──▶ fridge          (delay)
//!                                              └─▶ identity ──digests──────────▶ FineComb, LDA   (two points)
//! ```
//!
//! | module | what |
//! | --- | --- |
//! | [`frame`] | bytes, time and kind of link; what gives them out ([`Source`]) |
//! | [`file`](mod@file) | pcap and pcapng, read and written |
//! | [`ring`] | a network interface, by the kernel's ring (AF_PACKET, TPACKET_V3). The one module with unsafe code |
//! | [`generator`] | traffic whose every delay is known |
//! | [`packet`] | frames taken apart; what cannot be is counted by its reason |
//! | [`filter`] | which packets belong to a stream |
//! | [`pair`] | which packets are requests, which are responses, and of which requests |
//! | [`identity`] | what is the same of a packet wherever it passes |
//! | [`delays`] | all of that with a fridge: the delays of one stream |
//!
//! Nothing is allocated per packet, but what a pcapng block with options costs its reader.

pub mod delays;
pub mod file;
pub mod filter;
pub mod frame;
pub mod generator;
pub mod identity;
pub mod packet;
pub mod pair;
pub mod ring;

pub use delays::{Delays, DelaysError, DelaysSettings};
pub use filter::Filter;
pub use frame::{Frame, Link, Progress, Source, SourceCounts, SourceError};
pub use packet::{Packet, Refusals, Tcp, Transport, Udp, Unusable, View, parse};
pub use pair::{Pair, Roles};
