//! RDA, the reconcilable difference aggregator: mean and deviation of the one-way delay, and loss, between two points that remember their packets.
//!
//! # Source
//!
//! Y. Fu, P. Barlet-Ros, D. Li, *Every Timestamp Counts: Accurate Tracking of Network Latencies Using Reconcilable Difference Aggregator*,
//! IEEE/ACM Transactions on Networking, with its supplement.
//!
//! # Guarantee
//!
//! Both points add up ids and times of the same packets in cells. What only one of them has (lost, late, changed on the way) is *named* by
//! taking the cells of one from those of the other and peeling the difference, and is taken out of the sums: the mean of all other packets is exact to
//! the nanosecond. All of d such packets are named with probability √(1 − (d/m)²) in two banks of m cells, with 99.8 % in three banks with 4 d
//! cells in all and checked ids. What cannot be named makes its cells useless and nothing else wrong; the result says so.
//! A constant difference of the clocks goes into the mean as it is. There are no percentiles: sums mix packets.
//!
//! The exchange, for each interval of the synchronised clock: both ends fill a [`Cache`] ([`Capture`] has one for each interval). The sender asks, with
//! [`XorCounters`] of its cache. The receiver compares them with its own, sizes cells by it ([`Sizing`]) and sends its [`Rda`]. The sender decodes
//! ([`Reconciliation`]), asks for the times of packets that only the receiver has, and estimates. One interval later it is known which of the lost
//! packets were only late ([`Unsettled`]).
//!
//! # Parameters
//!
//! [`Settings`]: banks k, cells m, ids, layout. [`Settings::paper`] is as published, the default is what works best; m follows the differences.
//!
//! # Memory
//!
//! 24 bytes per cell (32 in a flat layout) while an interval is evaluated, and a cache of 24 to 32 bytes per packet: much more than [`crate::finecomb`] takes, for a
//! switch too much.
//!
//! # Differences from the paper
//!
//! - A cell counts as one of a single packet only as long as nothing speaks against it: an id that shows up again with the other sign is put back and
//!   banned. As printed the decoder never ends once a cell of several packets looks like one, in 1 % of intervals ([`Peeling::Printed`]).
//! - [`Ids::Checked8`]: eight bits of an id are made from the others, which unmasks such cells without another byte.
//! - A lost packet has to be in the sender's cache, one that only the receiver has must not be; one that the receiver does not know never was.
//! - The hash of each bank is not linear over XOR: with a CRC the XOR of any odd number of ids of a cell is of that cell again.
//! - How many packets differ is counted by [`XorCounters`]: with [`MinHash`], as published, a thousand of a million are not seen.
//! - A usable cell has as many packets at both ends, not only the same XOR of ids.
//! - σ² = F − µ² (printed with F²) and [`Deviation::Centred`], [`Deviation::PerBucket`] beside it, which are more precise.
//! - Loss, and packets that were late only: not in the paper.
//! - Times are absolute and sums wrap: only differences are ever looked at, and those are right modulo 2⁶⁴.

pub use crate::moments::Deviation;
pub use aggregator::{MergeError, Rda};
pub use cache::{Cache, FlowSampling};
pub use capture::Capture;
pub use decode::{Difference, Peeling};
pub use differences::{MinHash, XorCounters};
pub use late::{Settled, Unsettled};
pub use reconcile::{AnswerError, Estimate, Health, Reconciliation};
pub use settings::{Ids, Layout, MOST_BANKS, MOST_CELLS, MOST_PACKETS, Settings, SettingsError};
pub use sizing::Sizing;

mod aggregator;
mod cache;
mod capture;
mod codec;
mod decode;
mod differences;
mod late;
mod reconcile;
mod settings;
pub mod sizing;
mod table;
