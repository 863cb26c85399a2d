//! RDA, the reconcilable difference aggregator: mean and deviation of the one-way delay, and loss, between two points
//! that store their packets.
//!
//! # Source
//!
//! Y. Fu, P. Barlet-Ros, D. Li, *Every Timestamp Counts: Accurate Tracking of Network Latencies Using Reconcilable
//! Difference Aggregator*, IEEE/ACM Transactions on Networking, with its supplement.
//!
//! # Guarantee
//!
//! Both points add up ids and timestamps of packets in cells. Packets that only one point has (lost, late, or changed
//! on the path) are *identified*: the cells of one point are subtracted from those of the other, and the difference is
//! decoded by peeling. Their timestamps are removed from the sums, so the mean of all other packets is exact to the
//! nanosecond. All of d such packets are identified with probability √(1 − (d/m)²) in two banks of m cells, and with
//! 99.8 % in three banks with 4 d cells in all and checked ids. A packet that cannot be identified makes its cells
//! useless, which the result reports, and nothing else. A constant clock offset adds to the mean. There are no
//! percentiles, because sums mix packets.
//!
//! The steps for each interval of the synchronised clock:
//!
//! 1. Both ends fill a [`Cache`] ([`Capture`] has one for each interval).
//! 2. The sender sends [`XorCounters`] of its cache.
//! 3. The receiver compares them with its own, chooses the number of cells ([`Sizing`], late binding) and sends its
//!    [`Rda`].
//! 4. The sender decodes the difference ([`Reconciliation`]), requests the arrival times of packets that only the
//!    receiver has, and estimates.
//! 5. One interval later it knows which of the lost packets were only late ([`UnsettledLoss`]).
//!
//! # Parameters
//!
//! [`Settings`]: banks k, cells m, ids, layout. [`Settings::paper`] is as published, the default works best. The number
//! of cells m follows the number of differences.
//!
//! # Memory
//!
//! 24 bytes per cell (32 in a flat layout) while an interval is evaluated, and a cache of 24 to 32 bytes per packet.
//! That is much more than [`crate::finecomb`] needs, and too much for a switch.
//!
//! # Differences from the paper
//!
//! - Undo and ban: an id that shows up again with the other sign is put back and banned, because the cell that it came
//!   from had several packets. The published decoder does not terminate if a cell of several packets looks like one of
//!   a single packet, in 1 % of intervals ([`Peeling::Printed`]).
//! - [`Ids::Checked8`]: eight bits of an id are computed from the others, which detects such cells without another
//!   byte.
//! - A lost packet must be in the sender's cache, and a packet that only the receiver has must not be. An id that the
//!   receiver does not know is a phantom.
//! - The hash of each bank is not linear over XOR: with a CRC the XOR of any odd number of ids of a cell is of that
//!   cell again.
//! - [`XorCounters`] estimate the number of differences. The published [`MinHash`] does not detect a thousand
//!   differences in a million packets.
//! - A usable cell has the same count at both ends, not only the same XOR of ids.
//! - σ² = F − µ² (printed with F²), and the more precise [`Deviation::Centred`] and [`Deviation::PerBucket`].
//! - Loss, and late packets: not in the paper.
//! - Timestamps are absolute and sums wrap: only differences are used, which are correct modulo 2⁶⁴.

pub use crate::moments::Deviation;
pub use aggregator::{MergeError, Rda};
pub use cache::{Cache, FlowSampling};
pub use capture::Capture;
pub use decode::{Difference, Peeling};
pub use differences::{MinHash, XorCounters};
pub use reconcile::{Estimate, Health, Reconciliation, UnexpectedTime};
pub use settings::{Ids, Layout, MAX_BANKS, MAX_CELLS, MAX_PACKETS, Settings, SettingsError};
pub use settlement::{SettledLoss, UnsettledLoss};
pub use sizing::Sizing;

mod aggregator;
mod cache;
mod capture;
mod codec;
mod decode;
mod differences;
mod reconcile;
mod settings;
mod settlement;
pub mod sizing;
mod table;
