//! FineComb and LDA: mean and deviation of the one-way delay, and loss, between two points, over all packets of a
//! stream.
//!
//! # Source
//!
//! M. Lee, S. Goldberg, R. R. Kompella, G. Varghese, *Fine-Grained Latency and Loss Measurements in the Presence of
//! Reordering*, SIGMETRICS 2011, with LDA (R. R. Kompella, K. Levchenko, A. C. Snoeren, G. Varghese, *Every Microsecond
//! Counts*, SIGCOMM 2009) for comparison. Statements about LDA are those of the former paper.
//!
//! # Guarantee
//!
//! Both points add up the timestamps of packets in buckets. If a bucket has the same packets at both points, the
//! difference of its sums is the sum of their delays, to the nanosecond. Without loss and without reordering across
//! interval ends, the mean is exact. Equal counts and equal XORs of digests show that the packets are the same. LDA
//! compares counts only, which is wrong if one packet is lost and another is added. Displaced packets, which changed
//! the interval, are searched among those near its ends, and their buckets are recovered. A bucket with a lost packet
//! is never recovered. A constant clock offset adds to the mean, but not to the deviation. There are no percentiles,
//! because sums mix packets.
//!
//! # Parameters
//!
//! [`Settings`]: buckets, banks, and the probability with which a packet is sampled. [`sizing`] computes the best ones
//! for known shares of lost and displaced packets; [`Settings::four_banks`] covers a range. Both points need the same
//! settings and the same digests.
//!
//! # Memory
//!
//! 24 bytes per bucket and bank, and at the receiver 32 bytes per packet near an interval's end. A receiver has two
//! intervals in memory.
//!
//! # Differences from the paper
//!
//! - Row, sampling and XOR value are derived from a packet's digest by independent functions. With one function for all
//!   (row = digest mod M), the bits of the row would carry no information in the XOR.
//! - A recovered bucket must also have the right number of packets. Otherwise adding a packet instead of removing it
//!   would go unnoticed.
//! - Subsets of packets are found by elimination over GF(2), in time linear in their number. Enumeration as published
//!   is available, too.
//! - [`Deviation::Centred`] and [`Deviation::PerBucket`] use the counts, do not depend on a difference of the clocks
//!   and are more precise than pairs of buckets. The published formula σ² = F − µ² is [`Deviation::Fixed`] and
//!   [`Deviation::Selective`].
//! - [`Estimate::loss_in_all`] is computed from all packets, not from sampled ones. Over many intervals, displaced
//!   packets cancel out.
//! - Timestamps are absolute and sums wrap: only differences are used, which are correct modulo 2⁶⁴.

pub use crate::moments::Deviation;
pub use aggregator::{Bucket, Constants, FineComb, MergeError};
pub use estimate::{Estimate, Health};
pub use receiver::{EndStash, Interval, Receiver, Stash, StashedPacket};
pub use recovery::Solver;
pub use settings::{Bank, MAX_BANKS, MAX_BUCKETS, Rule, Sampling, Settings, SettingsError, Spread};

mod aggregator;
mod codec;
mod estimate;
mod receiver;
mod recovery;
mod settings;
pub mod sizing;
