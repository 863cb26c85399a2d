//! From the wire to a synopsis: frames are captured and parsed, packets are filtered and paired as requests and
//! responses.
//!
//! ```text
//! source ──frames──▶ parse ──packets──▶ filter ──▶ pair ──requests, responses──▶ fridge          (delay)
//!                                              └─▶ identity ──digests──────────▶ FineComb, LDA   (two points)
//! ```
//!
//! | module | what |
//! | --- | --- |
//! | [`frame`] | a captured frame: bytes, timestamp and link type |
//! | [`source`] | the trait of captures ([`Source`]) |
//! | [`file`](mod@file) | reads pcap and pcapng files, writes pcap files |
//! | [`ring`] | captures from a network interface (AF_PACKET, TPACKET_V3). The only module with unsafe code |
//! | [`generator`] | synthetic traffic with known delays |
//! | [`packet`] | parses frames; counts parse errors by reason |
//! | [`filter`] | selects the packets of a stream |
//! | [`pair`] | matches responses with requests |
//! | [`identity`] | digest of the fields that do not change on a path |
//! | [`delays`] | filter, pairs and a fridge: the delays of one stream |
//! | [`switch`] | constants of the programs for switches |
//! | [`flows`] | filter, reordering by prefix, heavy hitters, distinct items: who is in one stream |
//!
//! Nothing is allocated per packet, except by the reader of pcapng blocks with options.

pub mod delays;
pub mod file;
pub mod filter;
pub mod flows;
pub mod frame;
pub mod generator;
pub mod identity;
pub mod packet;
pub mod pair;
pub mod ring;
pub mod source;
pub mod switch;

pub use delays::{Delays, DelaysError, DelaysSettings};
pub use filter::Filter;
pub use flows::{Flows, FlowsError, FlowsSettings};
pub use frame::{Frame, Link};
pub use packet::{Packet, ParseError, Refusals, Tcp, Transport, Udp, View, parse};
pub use pair::{Pair, Roles};
pub use source::{Progress, Source, SourceCounts, SourceError};
