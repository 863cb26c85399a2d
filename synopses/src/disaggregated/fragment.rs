//! A fragment: rows of counters at one monitoring point.

use alloc::boxed::Box;
use alloc::vec;

use thiserror::Error;

use super::settings::{Settings, SettingsError};
use crate::digest::{Digest, Mixer, place};

/// The largest count. One more is what a header has to which nobody added.
pub(super) const LIMIT: u32 = u32::MAX - 1;
/// Keeps rows apart from choices and from other synopses with the same seed.
const ROWS: u64 = 0x0064_6973_636f_0000;

/// Count-min rows of one monitoring point, for one epoch. See the [module](super).
#[derive(Clone, Debug)]
pub struct Fragment {
    settings: Settings,
    mixers: Box<[Mixer]>,
    /// Row after row.
    pub(super) counters: Box<[u32]>,
    pub(super) epoch: u32,
    pub(super) load: u64,
}

impl Fragment {
    /// An empty fragment in epoch 0.
    ///
    /// # Errors
    ///
    /// [`SettingsError::Counters`] if there is no counter, or too many.
    pub fn new(settings: Settings) -> Result<Self, SettingsError> {
        let size = settings.size()?;
        let mixers = (0..u64::from(settings.rows)).map(|row| Mixer::new(settings.seed, ROWS + row));
        Ok(Self { settings, mixers: mixers.collect(), counters: vec![0; size].into(), epoch: 0, load: 0 })
    }

    /// The fragment's settings.
    #[must_use]
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What a data plane combines digests of flows with by XOR before it mixes them (`p4/`), for each row.
    pub fn mixers(&self) -> impl Iterator<Item = u64> {
        self.mixers.iter().map(|mixer| mixer.constant())
    }

    /// Number of the measurement interval.
    #[must_use]
    pub const fn epoch(&self) -> u32 {
        self.epoch
    }

    /// l1, the sum of all updates of this epoch.
    #[must_use]
    pub const fn load(&self) -> u64 {
        self.load
    }

    /// Adds a packet of a flow, or `weight` bytes, and returns the flow's estimate here. O(d).
    #[inline]
    pub fn insert(&mut self, flow: Digest, weight: u32) -> u32 {
        let width = self.settings.counters;
        // Rows are found by addition: to cut the counters into rows of w would take a division for each packet.
        let (mut least, mut row) = (LIMIT, 0);
        for mixer in &self.mixers {
            let counter = &mut self.counters[row + column(*mixer, flow, width)];
            *counter = counter.saturating_add(weight).min(LIMIT);
            least = least.min(*counter);
            row += width as usize;
        }
        self.load = self.load.saturating_add(u64::from(weight));
        least
    }

    /// The flow's count here, at least the true one if the flow updates this fragment. O(d).
    #[must_use]
    pub fn estimate(&self, flow: Digest) -> u32 {
        let width = self.settings.counters;
        let (mut least, mut row) = (LIMIT, 0);
        for mixer in &self.mixers {
            least = least.min(self.counters[row + column(*mixer, flow, width)]);
            row += width as usize;
        }
        least
    }

    /// Share of the counters that are not 0. O(w d).
    #[must_use]
    pub fn occupancy(&self) -> f64 {
        self.counters.iter().filter(|count| **count > 0).count() as f64 / self.counters.len() as f64
    }

    /// Begins an epoch with empty counters. Publish the old ones before ([`Self::encode`], or a clone). O(w d).
    pub fn rotate(&mut self, epoch: u32) {
        self.counters.fill(0);
        (self.epoch, self.load) = (epoch, 0);
    }

    /// Adds the counts of another part of the same fragment in the same epoch, such as another queue's. O(w d).
    ///
    /// # Errors
    ///
    /// [`MergeError`] if settings or epochs differ: different fragments combine by the minimum, for each flow.
    pub fn merge(&mut self, other: &Self) -> Result<(), MergeError> {
        if (self.settings, self.epoch) != (other.settings, other.epoch) {
            return Err(MergeError);
        }
        for (count, more) in self.counters.iter_mut().zip(&other.counters) {
            *count = count.saturating_add(*more).min(LIMIT);
        }
        self.load = self.load.saturating_add(other.load);
        Ok(())
    }

    /// Allocated bytes: 4 per counter, 8 per row.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        size_of_val(&*self.counters) + size_of_val(&*self.mixers)
    }
}

/// The place of a flow's counter in a row of `width`.
#[inline]
const fn column(mixer: Mixer, flow: Digest, width: u32) -> usize {
    place((mixer.mix(flow) >> 32) as u32, width) as usize
}

/// Two fragments that are not parts of one.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("fragments of different id, size, seed or epoch cannot be merged; take the least of their estimates")]
pub struct MergeError;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_counter_stays_full_and_is_never_the_mark_of_an_untouched_header() {
        let mut fragment = Fragment::new(Settings { counters: 1, ..Settings::default() }).expect("possible");

        assert_eq!(fragment.insert(Digest(1), u32::MAX), LIMIT);
        assert_eq!(fragment.insert(Digest(2), 5), LIMIT);
        assert_eq!(fragment.load(), u64::from(u32::MAX) + 5);
        fragment.merge(&fragment.clone()).expect("the same");
        assert_eq!(fragment.estimate(Digest(3)), LIMIT);
    }

    #[test]
    fn parts_of_one_fragment_are_added_and_other_fragments_refused() {
        let settings = Settings { rows: 3, counters: 100, ..Settings::default() };
        let new = |settings| Fragment::new(settings).expect("possible");
        let (mut one, mut two, mut both) = (new(settings), new(settings), new(settings));
        for flow in 0..1_000 {
            if flow % 3 == 0 { &mut one } else { &mut two }.insert(Digest(flow), flow as u32);
            both.insert(Digest(flow), flow as u32);
        }
        one.merge(&two).expect("one fragment");

        assert_eq!((&one.counters, one.load()), (&both.counters, both.load()));
        assert_eq!(one.merge(&new(Settings { id: 1, ..settings })), Err(MergeError));
        assert_eq!(one.merge(&new(Settings { seed: 1, ..settings })), Err(MergeError));
        two.rotate(1);
        assert_eq!((one.merge(&two), two.load(), two.occupancy()), (Err(MergeError), 0, 0.0));
        assert_eq!(one.memory_bytes(), 3 * 100 * 4 + 3 * 16);
    }

    #[test]
    fn sizes_without_a_counter_are_refused() {
        for (counters, rows) in [(0, 1), (1, 0), (u32::MAX, u32::MAX)] {
            let found = Fragment::new(Settings { counters, rows, ..Settings::default() });
            assert_eq!(found.err(), Some(SettingsError::Counters { counters, rows }));
        }
        let sized = Settings::of_error(0, 0.00136, 0.01, 0).expect("possible");
        assert_eq!((sized.counters, sized.rows), (1_999, 5), "the logarithm is the natural one");
        for (epsilon, delta) in [(0.0, 0.1), (0.1, 1.0), (f64::NAN, 0.1), (1e-12, 0.1)] {
            assert!(Settings::of_error(0, epsilon, delta, 0).is_err());
        }
    }
}
