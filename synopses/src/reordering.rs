//! Reordering by prefix: which source prefixes have TCP flows with many packets out of order, in few records.
//!
//! # Source
//!
//! Y. Zheng, H. Yu, J. Rexford, *Detecting TCP Packet Reordering in the Data Plane*, and the chapter on it in the
//! dissertation of Y. Zheng (Princeton).
//!
//! # Guarantee
//!
//! Finding each flow with many packets out of order needs memory for all flows, even with randomness and approximation.
//! But flows of one prefix share paths, so that it is enough to look at many of them briefly. [`SamplingArray`] hashes
//! the prefix and not the flow: a prefix with many flows has one record, and a heavy flow does not take checks from
//! others (lemma 3.2: a prefix is checked in proportion to its share of its record's flows). There is no guarantee for
//! the prefixes found; the reproduction measures their share.
//!
//! In the basic mode ([`Reports::Suspicious`]) the share out of order is biased high, since only records with events
//! are reported. [`Reports::Always`] gives a usable estimate, and costs a report for most evictions.
//!
//! # Parameters
//!
//! Buckets B, and their split between heavy flows and samples ([`Split`]). A record is replaced after a silence of T,
//! or more than C packets, or R events ([`Settings`]). T counts most: it should be a few of a bucket's packet
//! distances, and must be finite, or finished flows keep their records for ever. A prefix is flagged by [`Decision`].
//!
//! # Memory
//!
//! 32 bytes per bucket (20 in a switch). [`PrefixTally`]: about 100 bytes per prefix, with a fixed number of prefixes.
//!
//! # Differences from the paper
//!
//! - A record is reported from R events on. The paper prints more than R, but says of R = 1 that any event is reported.
//! - A prefix is heavy with O > ε N, as the problem says; the paper's definition of accuracy prints another condition.
//! - [`HeavyFlows`] compares events with the packets since admission; the paper with the count, which is inherited.
//! - Fingerprints have 64 bits. Heavy flows are replaced at once; a switch recirculates the packet.
//! - Payloads and wrapping sequence numbers are handled. A jump of more than 2³⁰, the largest window of TCP, is counted
//!   apart and is no event. The paper's definition 3, a packet below the maximum, is here too.
//! - The control plane's tally is bounded ([`crate::rap`]), since sources can be forged.

pub use baseline::Exact;
pub use heavy::HeavyFlows;
pub use hybrid::{Constants, Reordering};
pub use report::{Boundary, Counters, Report};
pub use sampling::SamplingArray;
pub use segment::{Control, Definition, Event, Prefix, Segment};
pub use settings::{MAX_BUCKETS, Reports, Settings, SettingsError, Split};
pub use tally::{Decision, PrefixEstimate, PrefixTally, Threshold};

mod baseline;
mod codec;
mod heavy;
mod hybrid;
mod report;
mod sampling;
mod segment;
mod settings;
mod tally;
