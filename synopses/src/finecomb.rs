//! FineComb and LDA: mean and deviation of the one-way delay, and loss, between two points, over all packets of a stream.
//!
//! # Source
//!
//! M. Lee, S. Goldberg, R. R. Kompella, G. Varghese, *Fine-Grained Latency and Loss Measurements in the Presence of Reordering*, SIGMETRICS 2011,
//! with LDA (R. R. Kompella, K. Levchenko, A. C. Snoeren, G. Varghese, *Every Microsecond Counts*, SIGCOMM 2009) as what it is compared with. What is said of LDA here is what the former says of it.
//!
//! # Guarantee
//!
//! Both points add up, in buckets, the times of the same packets. Where a bucket saw the same packets at both, the difference of its
//! sums is their delay in all, to the nanosecond: without loss and reordering over the ends of intervals the mean is exact. That
//! they are the same is seen by their number and by the XOR of their digests (LDA: by their number only, which misleads it where one packet
//! was lost and another came too much). Packets that changed the interval are looked for among those near its ends and put right; a
//! bucket with a lost packet never is. A constant difference of the clocks goes into the mean as it is, and not into the deviation. There are no
//! percentiles: sums mix packets.
//!
//! # Parameters
//!
//! [`Settings`]: buckets, banks and the probability with which a packet is sampled. For a known share of lost and displaced packets
//! [`sizing`] has the best ones; [`Settings::four_banks`] covers a range. Both points need the same ones, and the same digests.
//!
//! # Memory
//!
//! 24 bytes per bucket and bank, and at the receiver 32 per packet near an end of an interval. A receiver has two intervals at a time.
//!
//! # Differences from the paper
//!
//! - Row, sampling and what is XORed come from a packet's digest by independent functions. With one for all (row = digest mod M) the bits that
//!   say the row say nothing in the XOR.
//! - A recovered bucket has to have the right number of packets too, or a packet added that should have been taken away would pass.
//! - Subsets of packets are found by elimination over GF(2), in time linear in their number, beside enumeration as published.
//! - [`Deviation::Centred`] and [`Deviation::PerBucket`] use the counts, do not depend on a difference of the clocks and are more precise than
//!   pairs of buckets. The published formula σ² = F − µ² is [`Deviation::Fixed`] and [`Deviation::Selective`].
//! - [`Estimate::loss_in_all`] is of all packets and not of sampled ones: over many intervals, displaced ones cancel out.
//! - Times are absolute and sums wrap: only differences are ever looked at, and those are right modulo 2⁶⁴.

pub use crate::moments::Deviation;
pub use comb::{Comb, MergeError};
pub use estimate::{Estimate, Health};
pub use receiver::{Interval, Receiver};
pub use recovery::Solver;
pub use settings::{Bank, MOST_BANKS, MOST_BUCKETS, Rule, Sampling, Settings, SettingsError, Spread};

mod codec;
mod comb;
mod estimate;
mod receiver;
mod recovery;
mod settings;
pub mod sizing;
