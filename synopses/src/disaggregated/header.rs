//! What travels with a packet: the least count so far.

use thiserror::Error;

use super::fragment::{Fragment, LIMIT};
use super::path::Path;
use crate::digest::Digest;

/// Length of an encoded header.
pub const HEADER_BYTES: usize = 6;

/// The field of a packet. The first hop overwrites what a sender put there: it is not to be trusted outside the fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Least count so far; `u32::MAX` if no fragment counted.
    pub least: u32,
    /// Epoch of the first hop, its lowest 8 bits.
    pub epoch: u8,
    /// Number of fragments that counted in that epoch.
    pub touched: u8,
}

impl Header {
    /// The header that the first hop writes in its epoch.
    #[must_use]
    pub const fn first(epoch: u32) -> Self {
        Self { least: u32::MAX, epoch: epoch as u8, touched: 0 }
    }

    /// A hop with the fragment at `position` of the path. Counts the packet if the flow chose this fragment, and
    /// returns whether it did. A fragment in another epoch counts, but leaves the header as it is: the last hop then
    /// gives no estimate.
    pub fn pass(&mut self, path: &Path, position: usize, flow: Digest, fragment: &mut Fragment) -> bool {
        let chosen = path.select(flow).contains(position);
        if chosen {
            let count = fragment.insert(flow, 1);
            if fragment.epoch() as u8 == self.epoch {
                self.least = self.least.min(count);
                self.touched = self.touched.saturating_add(1);
            }
        }
        chosen
    }

    /// The estimate at the last hop, which is in `epoch`.
    ///
    /// # Errors
    ///
    /// [`NoEstimate`] if the path has no fragments, epochs differ, or a chosen fragment did not count.
    pub fn estimate(&self, path: &Path, epoch: u32) -> Result<Estimate, NoEstimate> {
        let chosen = path.count();
        if chosen == 0 {
            return Err(NoEstimate::Unmonitored);
        }
        if self.epoch != epoch as u8 {
            return Err(NoEstimate::Epoch { found: u32::from(self.epoch), expected: epoch & 0xff });
        }
        if usize::from(self.touched) != chosen || self.least > LIMIT {
            return Err(NoEstimate::Skipped { touched: self.touched.into(), chosen });
        }
        Ok(Estimate::of(self.least))
    }

    /// The header as bytes in network order: least count, epoch, number of updates.
    #[must_use]
    pub const fn encode(&self) -> [u8; HEADER_BYTES] {
        let [a, b, c, d] = self.least.to_be_bytes();
        [a, b, c, d, self.epoch, self.touched]
    }

    /// The header in these bytes. All values are possible; [`Self::estimate`] judges them.
    #[must_use]
    pub const fn decode(bytes: [u8; HEADER_BYTES]) -> Self {
        let [a, b, c, d, epoch, touched] = bytes;
        Self { least: u32::from_be_bytes([a, b, c, d]), epoch, touched }
    }
}

/// Size of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// Number of packets, at least the true one.
    pub count: u64,
    /// Whether a counter was full, so that the true number may be larger.
    pub saturated: bool,
}

impl Estimate {
    pub(super) const fn of(least: u32) -> Self {
        Self { count: least as u64, saturated: least >= LIMIT }
    }
}

/// The size of a flow over all its paths: the sum of the estimates of each.
#[must_use]
pub fn global(estimates: impl IntoIterator<Item = Estimate>) -> Estimate {
    estimates.into_iter().fold(Estimate { count: 0, saturated: false }, |sum, one| Estimate {
        count: sum.count.saturating_add(one.count),
        saturated: sum.saturated || one.saturated,
    })
}

/// Why a flow has no estimate.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NoEstimate {
    /// There is no fragment on the path.
    #[error("no fragment is on the path")]
    Unmonitored,
    /// The path is not in the table: the node has another version.
    #[error("path {0} is not in the table")]
    Path(u32),
    /// Fragments of different epochs. A fragment that began anew has counted less.
    #[error("a count of epoch {found}, expected {expected}")]
    Epoch {
        /// Epoch of a fragment.
        found: u32,
        /// Epoch of the others.
        expected: u32,
    },
    /// A chosen fragment failed, or has another version of the table.
    #[error("{touched} fragments counted, {chosen} were chosen")]
    Skipped {
        /// Number of fragments that counted.
        touched: usize,
        /// Number of fragments that should have.
        chosen: usize,
    },
    /// A chosen fragment was not collected.
    #[error("fragment {0} was not collected")]
    Missing(u32),
}
