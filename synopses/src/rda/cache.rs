//! Cache of an interval's packets, with id and timestamp. It stays at its end, and allows any number of cells after the
//! interval (late binding).

use super::aggregator::Rda;
use super::settings::{Ids, MAX_PACKETS, Settings, SettingsError};
use super::table::{Insertion, Table};
use crate::digest::{Digest, Mixer};

/// The packets of one end in one interval. Takes 24 to 32 bytes per packet of its capacity.
#[derive(Clone, Debug)]
pub struct Cache {
    ids: Ids,
    table: Table,
    duplicates: u64,
    overflowed: u64,
}

impl Cache {
    /// An empty cache for at most `packets` packets.
    ///
    /// # Errors
    ///
    /// [`SettingsError::Packets`] unless `packets` is from 1 to [`MAX_PACKETS`].
    pub fn new(packets: usize, ids: Ids) -> Result<Self, SettingsError> {
        if !(1..=MAX_PACKETS).contains(&packets) {
            return Err(SettingsError::Packets(packets));
        }
        Ok(Self { ids, table: Table::new(packets), duplicates: 0, overflowed: 0 })
    }

    /// Adds a packet with timestamp `now_ns`, of a clock that both ends share. Of duplicates the first one is stored,
    /// at both ends, so that a duplicate at one end only does no harm.
    #[inline]
    pub fn insert(&mut self, digest: Digest, now_ns: u64) {
        match self.table.insert(self.ids.id(digest), now_ns) {
            Insertion::New => {}
            Insertion::Present => self.duplicates += 1,
            Insertion::Full => self.overflowed += 1,
        }
    }

    /// Computes the cells of the stored packets.
    ///
    /// # Errors
    ///
    /// [`SettingsError`] if a setting is invalid, or the kind of ids differs.
    pub fn aggregate(&self, settings: &Settings) -> Result<Rda, SettingsError> {
        if settings.ids != self.ids {
            return Err(SettingsError::Ids { wanted: settings.ids, cached: self.ids });
        }
        let mut rda = Rda::new(settings)?;
        for packet in self.table.entries() {
            rda.add(packet.id, packet.value);
        }
        (rda.duplicates, rda.truncated) = (self.duplicates, self.truncated());
        Ok(rda)
    }

    /// Timestamp of the packet with this id.
    #[must_use]
    pub fn time_of(&self, id: u64) -> Option<u64> {
        self.table.get(id)
    }

    /// Ids and timestamps, in the order of arrival.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (u64, u64)> {
        self.table.entries().iter().map(|packet| (packet.id, packet.value))
    }

    /// Kind of the packet ids.
    #[must_use]
    pub const fn ids(&self) -> Ids {
        self.ids
    }

    /// Number of stored packets.
    #[must_use]
    pub fn packets(&self) -> u64 {
        self.table.entries().len() as u64
    }

    /// Number of skipped duplicates.
    #[must_use]
    pub const fn duplicates(&self) -> u64 {
        self.duplicates
    }

    /// Packets, or duplicates of them, that exceeded the capacity.
    #[must_use]
    pub const fn overflowed(&self) -> u64 {
        self.overflowed
    }

    /// Whether packets are missing because the capacity was exceeded. Sample fewer flows in the next interval:
    /// [`FlowSampling::sparser`].
    #[must_use]
    pub const fn truncated(&self) -> bool {
        self.overflowed > 0
    }

    /// Empties the cache, without freeing its memory.
    pub fn clear(&mut self) {
        self.table.clear();
        (self.duplicates, self.overflowed) = (0, 0);
    }

    /// Allocated bytes, whatever the number of packets.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.table.memory_bytes()
    }
}

/// Sampling of flows, where a cache cannot hold all packets. It samples whole flows, the same ones at both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowSampling {
    /// Flows with a hash below this are sampled; `None` for all.
    below: Option<u64>,
    seed: u64,
}

impl FlowSampling {
    /// Samples flows with this probability, clamped to \[0, 1\]; NaN counts as 0.
    #[must_use]
    pub fn new(probability: f64, seed: u64) -> Self {
        // `as` saturates, and makes 0 of a NaN.
        Self { below: (probability < 1.0 || probability.is_nan()).then(|| libm::ldexp(probability, 64) as u64), seed }
    }

    /// Whether this flow is sampled.
    #[must_use]
    pub fn admits(&self, flow: Digest) -> bool {
        self.below.is_none_or(|below| Mixer::new(self.seed, 40).mix(flow) < below)
    }

    /// Probability with which a flow is sampled.
    #[must_use]
    pub fn probability(&self) -> f64 {
        self.below.map_or(1.0, |below| libm::ldexp(below as f64, -64))
    }

    /// Sampling for the next interval, after one with `packets` packets and this `capacity`, with a margin of a tenth.
    /// Both ends use the sparser one of theirs.
    #[must_use]
    pub fn sparser(self, packets: u64, capacity: u64) -> Self {
        let share = (0.9 * capacity as f64 / packets.max(1) as f64).min(1.0);
        Self::new(self.probability() * share, self.seed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_duplicates_is_stored_and_packets_over_capacity_are_counted() {
        let mut cache = Cache::new(2, Ids::Plain).expect("possible");
        for (digest, now) in [(1, 10), (2, 20), (1, 30), (3, 40), (2, 50)] {
            cache.insert(Digest(digest), now);
        }

        assert_eq!((cache.packets(), cache.duplicates(), cache.overflowed()), (2, 2, 1));
        assert_eq!([1, 2, 3].map(|id| cache.time_of(id)), [Some(10), Some(20), None]);
        let rda = cache.aggregate(&Settings::paper(4, 0)).expect("possible");
        assert_eq!((rda.packets(), rda.duplicates(), rda.truncated()), (2, 2, true));
        cache.clear();
        assert_eq!((cache.packets(), cache.duplicates(), cache.truncated()), (0, 0, false));
    }

    #[test]
    fn cells_bound_late_are_those_that_were_filled_packet_by_packet() {
        let settings = Settings { cells: 40, ..Settings::default() };
        let (mut cache, mut early) =
            (Cache::new(500, settings.ids).expect("possible"), Rda::new(&settings).expect("possible"));
        for number in 0..500 {
            cache.insert(Digest(number << 20), number);
            early.insert(Digest(number << 20), number);
        }

        let late = cache.aggregate(&settings).expect("possible");

        assert_eq!(late.cells, early.cells);
        assert_eq!(cache.memory_bytes(), 500 * 16 + 1_024 * 4);
    }

    #[test]
    fn impossible_caches_and_other_ids_are_refused() {
        assert_eq!(Cache::new(0, Ids::Plain).err(), Some(SettingsError::Packets(0)));
        assert_eq!(Cache::new(MAX_PACKETS + 1, Ids::Plain).err(), Some(SettingsError::Packets(MAX_PACKETS + 1)));
        let refused = Cache::new(1, Ids::Plain).expect("possible").aggregate(&Settings::default()).err();
        assert_eq!(refused, Some(SettingsError::Ids { wanted: Ids::Checked8, cached: Ids::Plain }));
    }

    #[test]
    fn flows_are_sampled_with_the_given_probability() {
        let admitted = |p| (0..20_000).filter(|flow| FlowSampling::new(p, 1).admits(Digest(*flow))).count();

        assert_eq!([1.0, 1.5, 0.0, -1.0, f64::NAN].map(admitted), [20_000, 20_000, 0, 0, 0]);
        assert!(admitted(0.01).abs_diff(200) < 50);
        let sparser = FlowSampling::new(0.5, 1).sparser(3_000_000, 1_000_000);
        assert!((sparser.probability() - 0.15).abs() < 1e-9);
        assert!((0..2_000).all(|flow| !sparser.admits(Digest(flow)) || FlowSampling::new(0.5, 1).admits(Digest(flow))));
    }
}
