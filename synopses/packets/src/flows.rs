//! Who is in one stream, interval by interval: prefixes whose packets are out of order, heavy hitters, and how many
//! distinct flows, sources and ports there are. A filter and three synopses, each of which can be left out.
//!
//! Sizes are fixed ([`Flows::memory_bytes`]), nothing is allocated per packet, and whoever sends packets cannot make
//! anything grow. Addresses are kept as they are, so that a result has a name.

mod distinct;
mod heavy;
mod party;
mod reordering;
mod turnover;

use synopses::cardinality;
use synopses::digest::DigestKey;
use synopses::{rap, reordering as prefixes};
use thiserror::Error;

use crate::filter::Filter;
use crate::packet::Packet;

use distinct::Distinct;
pub use distinct::{DistinctInterval, FanIn, FanOut, LastingInterval, POSITIONS, REGISTERS, SLOTS};
use heavy::Heavy;
pub use heavy::{HEAVY_ENTRIES, HeavyInterval, MIN_SHARE_PACKETS, TopParty};
pub use party::{Key, Party, Prefix, PrefixLengths, Weight};
use reordering::Reordered;
pub use reordering::{MIN_PACKETS, PrefixShare, ReorderingInterval, reordering_settings, segment};
pub(crate) use turnover::LastingCount;
pub use turnover::MAX_TURNOVER;

/// What is measured of a stream.
#[derive(Clone, Debug)]
pub struct FlowsSettings {
    /// Selects the packets.
    pub filter: Filter,
    /// Lengths of the prefixes among which those with packets out of order are looked for; `None`: they are not.
    pub reordering: Option<PrefixLengths>,
    /// What heavy hitters are, and by what they are weighed; `None`: they are not looked for.
    pub heavy: Option<(Key, Weight)>,
    /// The window of distinct flows, sources and ports in nanoseconds, from 1,000; `None`: they are not counted.
    pub window_ns: Option<u64>,
    /// Secret key of 128 bits, so that crafted packets cannot collide.
    pub secret: u128,
}

impl FlowsSettings {
    /// Whether segment offloads (TSO, GSO, GRO) change its figures, because a NIC or the kernel merges segments before
    /// they are captured. A merged frame is one packet where several passed, and has one header of theirs: fewer
    /// packets are checked for their order, all of them in order, and heavy hitters weigh less, also by bytes. Distinct
    /// items stay the same.
    #[must_use]
    pub const fn is_affected_by_offloads(&self) -> bool {
        self.reordering.is_some() || self.heavy.is_some()
    }
}

/// Why settings of flows are not valid.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum FlowsError {
    /// Invalid settings of reordering.
    #[error(transparent)]
    Reordering(#[from] prefixes::SettingsError),
    /// Invalid lengths of prefixes.
    #[error("prefixes of {} bits of IPv4 and {} of IPv6, 1 to 32 and 1 to 56 are possible", .0.v4, .0.v6)]
    Prefixes(PrefixLengths),
    /// Invalid settings of heavy hitters.
    #[error(transparent)]
    Heavy(#[from] rap::SettingsError),
    /// An invalid window.
    #[error(transparent)]
    Window(#[from] cardinality::SettingsError),
}

/// The flows of one stream.
#[derive(Debug)]
pub struct Flows {
    filter: Filter,
    key: DigestKey,
    reordering: Option<Reordered>,
    heavy: Option<Heavy>,
    distinct: Option<Distinct>,
    packets: u64,
}

/// One interval of a stream. What is not measured is `None`.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowsInterval {
    /// Packets of the stream.
    pub packets: u64,
    /// Packets out of order.
    pub reordering: Option<ReorderingInterval>,
    /// The heavy hitters.
    pub heavy: Option<HeavyInterval>,
    /// Distinct flows, sources and ports.
    pub distinct: Option<DistinctInterval>,
}

impl Flows {
    /// Empty synopses.
    ///
    /// # Errors
    ///
    /// [`FlowsError`] if a setting is invalid.
    pub fn new(settings: &FlowsSettings) -> Result<Self, FlowsError> {
        if let Some(lengths) = settings.reordering.filter(|lengths| !lengths.are_possible()) {
            return Err(FlowsError::Prefixes(lengths));
        }
        // Tables and digests get different bits, so that knowing one tells nothing about the other.
        let seed = (settings.secret >> 64) as u64 ^ settings.secret as u64;
        let heavy = settings.heavy.map(|(key, weight)| Heavy::new(key, weight, seed));
        Ok(Self {
            filter: settings.filter.clone(),
            key: DigestKey::new(settings.secret),
            reordering: settings.reordering.map(|lengths| Reordered::new(lengths, seed)).transpose()?,
            heavy: heavy.transpose()?,
            distinct: settings.window_ns.map(|window_ns| Distinct::new(window_ns, seed)).transpose()?,
            packets: 0,
        })
    }

    /// Selects other packets from now on; what is known of earlier ones stays. Right after the end of an interval, all
    /// packets of an interval are of one filter.
    pub fn set_filter(&mut self, filter: Filter) {
        self.filter = filter;
    }

    /// Adds a packet of the interface. Returns whether it belongs to the stream.
    #[inline]
    pub fn insert(&mut self, packet: &Packet<'_>) -> bool {
        if !self.filter.matches(packet) {
            return false;
        }
        self.packets += 1;
        if let Some(reordering) = &mut self.reordering {
            reordering.insert(packet, &self.key);
        }
        if let Some(heavy) = &mut self.heavy {
            heavy.insert(packet, &self.key);
        }
        if let Some(distinct) = &mut self.distinct {
            distinct.insert(packet, &self.key);
        }
        true
    }

    /// Ends an interval at `now_ns`, and begins the next one. At most `most` heavy hitters, and as many prefixes, are
    /// listed. Distinct items are those of the window before `now_ns`. O(size of the synopses).
    pub fn end_interval(&mut self, now_ns: u64, most: usize) -> FlowsInterval {
        FlowsInterval {
            packets: core::mem::take(&mut self.packets),
            reordering: self.reordering.as_mut().map(|reordering| reordering.end_interval(now_ns, most)),
            heavy: self.heavy.as_mut().map(|heavy| heavy.end_interval(most)),
            distinct: self.distinct.as_mut().map(|distinct| distinct.end_interval(now_ns)),
        }
    }

    /// Begins anew at `now_ns`, to which the clock was set back. Call it right after the end of an interval. Distinct
    /// items of the window and flows that are checked for their order are forgotten: their times are still to come.
    ///
    /// With the time at which the interval ended, the next one has its own items alone: a window looks back by up to
    /// two slots more than its length.
    pub fn set_back(&mut self, now_ns: u64) {
        if let Some(reordering) = &mut self.reordering {
            reordering.forget_flows(now_ns);
        }
        if let Some(heavy) = &mut self.heavy {
            heavy.forget();
        }
        if let Some(distinct) = &mut self.distinct {
            distinct.reset(now_ns);
        }
    }

    /// Allocated bytes, whatever was inserted.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.reordering.as_ref().map_or(0, Reordered::memory_bytes)
            + self.heavy.as_ref().map_or(0, Heavy::memory_bytes)
            + self.distinct.as_ref().map_or(0, Distinct::memory_bytes)
    }
}

#[cfg(test)]
mod tests;
