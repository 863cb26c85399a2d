//! Heavy hitters by name.

use synopses::digest::DigestKey;
use synopses::rap::{NamedRap, Settings, SettingsError};

use super::party::{Key, Party, Weight};
use crate::packet::Packet;

/// Entries of the table.
pub const HEAVY_ENTRIES: usize = 256;
/// Packets of an interval below which no share is stated: of few packets, one client easily has most.
pub const MIN_SHARE_PACKETS: u64 = 32;

/// The table of an interval.
#[derive(Debug)]
pub(super) struct Heavy {
    key: Key,
    weight: Weight,
    table: NamedRap<Party>,
    packets: u64,
    /// The share of the heaviest party in the interval before.
    share_before: Option<f64>,
}

/// Heavy hitters of one interval.
#[derive(Clone, Debug, PartialEq)]
pub struct HeavyInterval {
    /// Weight of all packets.
    pub total: u64,
    /// The heaviest parties, heaviest first.
    pub top: Vec<TopParty>,
    /// The share of the heaviest party in this interval, or in the one before if it was larger: when all clients change
    /// their addresses at once, each of them has two in an interval, with half of its share. `None` below
    /// [`MIN_SHARE_PACKETS`].
    pub lasting_share: Option<f64>,
}

/// One heavy hitter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopParty {
    /// Who it is.
    pub party: Party,
    /// Its estimated weight.
    pub count: u64,
    /// Its weight is at least this.
    pub least: u64,
    /// Whether most of the estimate is inherited from others, as in a flood of light ones.
    pub low_confidence: bool,
}

impl HeavyInterval {
    /// The share of the heaviest party, by what it has at least; `None` without packets.
    #[must_use]
    pub fn top_share(&self) -> Option<f64> {
        let least = self.top.iter().map(|top| top.least).max()?;
        (self.total > 0).then(|| least as f64 / self.total as f64)
    }
}

impl Heavy {
    pub(super) fn new(key: Key, weight: Weight, seed: u64) -> Result<Self, SettingsError> {
        let settings = Settings { entries: HEAVY_ENTRIES, seed, ..Settings::default() };
        Ok(Self { key, weight, table: NamedRap::new(settings)?, packets: 0, share_before: None })
    }

    #[inline]
    pub(super) fn insert(&mut self, packet: &Packet<'_>, key: &DigestKey) {
        self.packets += 1;
        let (digest, party) = self.key.of(packet, key);
        self.table.insert(digest, party, self.weight.of(packet));
    }

    pub(super) fn end_interval(&mut self, most: usize) -> HeavyInterval {
        let top = self.table.top(most).into_iter().map(|named| TopParty {
            party: named.key,
            count: named.hitter.count,
            least: named.hitter.since,
            low_confidence: named.hitter.low_confidence(),
        });
        let (total, top) = (self.table.tally().inserted, top.collect());
        let mut interval = HeavyInterval { total, top, lasting_share: None };
        let is_known = core::mem::take(&mut self.packets) >= MIN_SHARE_PACKETS;
        let share = interval.top_share().filter(|_| is_known);
        let before = core::mem::replace(&mut self.share_before, share);
        interval.lasting_share = share.map(|share| share.max(before.unwrap_or(share)));
        self.table.reset();
        interval
    }

    /// Forgets the interval before, which the clock has cut.
    pub(super) const fn forget(&mut self) {
        self.share_before = None;
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.table.memory_bytes()
    }
}
