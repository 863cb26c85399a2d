//! Every packet of an interval, id and time: never sent, and what makes cells of any number possible when the interval is over.

use super::aggregator::Rda;
use super::settings::{Ids, MOST_PACKETS, Settings, SettingsError};
use super::table::{Inserted, Table};
use crate::digest::{Digest, Mixer};

/// The packets of one end in one interval. 24 to 32 bytes for each that there is room for.
#[derive(Clone, Debug)]
pub struct Cache {
    ids: Ids,
    table: Table,
    duplicates: u64,
    refused: u64,
}

impl Cache {
    /// Room for so many packets.
    ///
    /// # Errors
    ///
    /// [`SettingsError::Packets`] unless it is for 1 to [`MOST_PACKETS`].
    pub fn new(packets: usize, ids: Ids) -> Result<Self, SettingsError> {
        if !(1..=MOST_PACKETS).contains(&packets) {
            return Err(SettingsError::Packets(packets));
        }
        Ok(Self { ids, table: Table::new(packets), duplicates: 0, refused: 0 })
    }

    /// A packet that passed at `now_ns`, of a clock that both ends share. Of copies the first one stays, at both ends, so that a copy that one end
    /// did not get does no harm.
    #[inline]
    pub fn insert(&mut self, digest: Digest, now_ns: u64) {
        match self.table.insert(self.ids.id(digest), now_ns) {
            Inserted::New => {}
            Inserted::There => self.duplicates += 1,
            Inserted::Full => self.refused += 1,
        }
    }

    /// Cells of what is in here.
    ///
    /// # Errors
    ///
    /// [`SettingsError`] if there can be no such cells, or not of these ids.
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

    /// When the packet of this id passed.
    #[must_use]
    pub fn time_of(&self, id: u64) -> Option<u64> {
        self.table.get(id)
    }

    /// Ids and times, in the order in which they came.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (u64, u64)> {
        self.table.entries().iter().map(|packet| (packet.id, packet.value))
    }

    /// Which bits stand for a packet.
    #[must_use]
    pub const fn ids(&self) -> Ids {
        self.ids
    }

    /// Packets in here.
    #[must_use]
    pub fn packets(&self) -> u64 {
        self.table.entries().len() as u64
    }

    /// Packets that came again.
    #[must_use]
    pub const fn duplicates(&self) -> u64 {
        self.duplicates
    }

    /// Packets, or copies of them, for which there was no room.
    #[must_use]
    pub const fn refused(&self) -> u64 {
        self.refused
    }

    /// Whether packets are missing. Sample fewer flows in the next interval: [`FlowSampling::sparser`].
    #[must_use]
    pub const fn truncated(&self) -> bool {
        self.refused > 0
    }

    /// An empty one takes this one's place, and its memory is used again.
    pub fn clear(&mut self) {
        self.table.clear();
        (self.duplicates, self.refused) = (0, 0);
    }

    /// Bytes taken, however many packets there are.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.table.memory_bytes()
    }
}

/// Which flows are looked at, where a cache cannot hold all packets. By the flow, not by the packet, so that an interval has whole flows; the same ones at
/// both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowSampling {
    /// Hashes below it are in; `None` for all.
    below: Option<u64>,
    seed: u64,
}

impl FlowSampling {
    /// Flows with this probability, between 0 and 1 (less or more is taken as that, NaN as 0).
    #[must_use]
    pub fn new(probability: f64, seed: u64) -> Self {
        // `as` saturates, and makes 0 of a NaN.
        Self { below: (probability < 1.0 || probability.is_nan()).then(|| libm::ldexp(probability, 64) as u64), seed }
    }

    /// Whether a packet of this flow is looked at.
    #[must_use]
    pub fn admits(&self, flow: Digest) -> bool {
        self.below.is_none_or(|below| Mixer::new(self.seed, 40).mix(flow) < below)
    }

    /// With which probability.
    #[must_use]
    pub fn probability(&self) -> f64 {
        self.below.map_or(1.0, |below| libm::ldexp(below as f64, -64))
    }

    /// For the next interval, after one in which `packets` came and there was room for `room`: with a tenth to spare. What is sparser at either end is
    /// right for both.
    #[must_use]
    pub fn sparser(self, packets: u64, room: u64) -> Self {
        let share = (0.9 * room as f64 / packets.max(1) as f64).min(1.0);
        Self::new(self.probability() * share, self.seed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_copies_stays_and_what_finds_no_room_is_counted() {
        let mut cache = Cache::new(2, Ids::Plain).expect("possible");
        for (digest, now) in [(1, 10), (2, 20), (1, 30), (3, 40), (2, 50)] {
            cache.insert(Digest(digest), now);
        }

        assert_eq!((cache.packets(), cache.duplicates(), cache.refused()), (2, 2, 1));
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
        assert_eq!(Cache::new(MOST_PACKETS + 1, Ids::Plain).err(), Some(SettingsError::Packets(MOST_PACKETS + 1)));
        let refused = Cache::new(1, Ids::Plain).expect("possible").aggregate(&Settings::default()).err();
        assert_eq!(refused, Some(SettingsError::Ids { wanted: Ids::Checked8, cached: Ids::Plain }));
    }

    #[test]
    fn as_many_flows_are_looked_at_as_was_asked_for() {
        let admitted = |p| (0..20_000).filter(|flow| FlowSampling::new(p, 1).admits(Digest(*flow))).count();

        assert_eq!([1.0, 1.5, 0.0, -1.0, f64::NAN].map(admitted), [20_000, 20_000, 0, 0, 0]);
        assert!(admitted(0.01).abs_diff(200) < 50);
        let sparser = FlowSampling::new(0.5, 1).sparser(3_000_000, 1_000_000);
        assert!((sparser.probability() - 0.15).abs() < 1e-9);
        assert!((0..2_000).all(|flow| !sparser.admits(Digest(flow)) || FlowSampling::new(0.5, 1).admits(Digest(flow))));
    }
}
