//! Settings that both ends of a stream have to share.

use thiserror::Error;

use crate::digest::{Digest, Mixer, finalise, place};

/// Maximum number of banks. With more than four, fewer differences can be decoded.
pub const MAX_BANKS: usize = crate::moments::MAX_BANKS;
/// Maximum number of cells in a bank.
pub const MAX_CELLS: usize = 1 << 22;
/// Maximum number of packets in a cache.
pub const MAX_PACKETS: usize = 1 << 28;

/// Kind of packet ids, which have 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Ids {
    /// The digest, as in the paper. Some cells with several packets look like cells with a single packet.
    Plain = 0,
    /// The digest with the low 8 bits computed from the other 56. They reveal 255 of 256 XORs of several packets.
    Checked8 = 1,
    /// The digest with the low 16 bits computed from the other 48.
    Checked16 = 2,
}

impl Ids {
    const fn check_bits(self) -> u32 {
        match self {
            Self::Plain => 0,
            Self::Checked8 => 8,
            Self::Checked16 => 16,
        }
    }

    /// The id of a packet.
    #[must_use]
    pub const fn id(self, digest: Digest) -> u64 {
        let bits = self.check_bits();
        let kept = digest.0 >> bits << bits;
        // Not linear, or the XOR of three ids would pass the check.
        kept | finalise(kept) & ((1 << bits) - 1)
    }

    /// Whether this can be the id of a single packet.
    #[must_use]
    pub const fn possible(self, id: u64) -> bool {
        self.id(Digest(id)) == id
    }
}

/// Assignment of packets to cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Layout {
    /// RDA: one cell in each bank. The position of a cell reveals whether it has a single packet.
    Banks = 0,
    /// sRDA: cells anywhere, only one where two coincide. So packets have unequal weights, and the mean is not quite
    /// exact. Cells have a second XOR, of hashed ids, which reveals a single packet. Deviations need
    /// [`crate::moments::Deviation::PerBucket`]: a packet in both cells of a pair would cancel out.
    Flat = 1,
}

/// Settings of RDA, the same at both ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// k, number of cells for each packet, from 1 to [`MAX_BANKS`].
    pub banks: usize,
    /// m, number of cells in a bank, from 1 to [`MAX_CELLS`]. A flat layout has k m cells, too.
    pub cells: usize,
    /// Assignment of packets to cells.
    pub layout: Layout,
    /// Kind of packet ids.
    pub ids: Ids,
    /// Seed of the cells, a new one for each attempt. Keep it secret if packets may be crafted.
    pub seed: u64,
}

impl Default for Settings {
    /// Three banks of checked ids. With four cells for each difference, 99.8 % of intervals are decoded completely.
    fn default() -> Self {
        Self { banks: 3, cells: 512, layout: Layout::Banks, ids: Ids::Checked8, seed: 0 }
    }
}

/// Invalid settings of cells or of a cache.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// Invalid number of banks.
    #[error("{0} banks, from 1 to {MAX_BANKS} are possible")]
    Banks(usize),
    /// Invalid number of cells.
    #[error("{0} cells in a bank, from 1 to {MAX_CELLS} are possible")]
    Cells(usize),
    /// Invalid capacity of a cache.
    #[error("a cache of {0} packets, from 1 to {MAX_PACKETS} are possible")]
    Packets(usize),
    /// A cache has ids of one kind only.
    #[error("cells of {wanted:?} ids from a cache of {cached:?} ones: give both the same")]
    Ids {
        /// Kind requested for the cells.
        wanted: Ids,
        /// Kind in the cache.
        cached: Ids,
    },
    /// Invalid length or number of intervals.
    #[error("intervals of {length_ns} ns, {generations} at a time: both have to be above 0, and at most 16 at a time")]
    Intervals {
        /// Length of an interval in nanoseconds.
        length_ns: u64,
        /// Number of intervals in memory.
        generations: usize,
    },
}

impl Settings {
    /// As published: two banks, plain ids.
    #[must_use]
    pub const fn paper(cells: usize, seed: u64) -> Self {
        Self { banks: 2, cells, layout: Layout::Banks, ids: Ids::Plain, seed }
    }

    /// Settings for another attempt at an interval that was not decoded completely: twice the cells and another seed.
    #[must_use]
    pub fn again(&self) -> Self {
        Self { cells: (2 * self.cells).min(MAX_CELLS), seed: finalise(self.seed ^ 0x5eed), ..self.clone() }
    }

    /// Number of cells in all banks.
    #[must_use]
    pub const fn all_cells(&self) -> usize {
        self.banks * self.cells
    }

    /// Bytes of the cells at one end: 24 each, 32 in a flat layout.
    #[must_use]
    pub const fn memory_bytes(&self) -> usize {
        self.all_cells()
            * match self.layout {
                Layout::Banks => 24,
                Layout::Flat => 32,
            }
    }

    pub(super) const fn checked(&self) -> Result<(), SettingsError> {
        if self.banks < 1 || self.banks > MAX_BANKS {
            return Err(SettingsError::Banks(self.banks));
        }
        if self.cells < 1 || self.cells > MAX_CELLS {
            return Err(SettingsError::Cells(self.cells));
        }
        Ok(())
    }
}

/// The distinct cells of one packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places {
    cells: [u32; MAX_BANKS],
    count: usize,
}

impl Places {
    pub(super) fn cells(self) -> impl Iterator<Item = usize> {
        self.cells.into_iter().take(self.count).map(|cell| cell as usize)
    }

    #[inline]
    pub(super) fn iter(&self) -> impl Iterator<Item = usize> {
        self.cells[..self.count].iter().map(|cell| *cell as usize)
    }
}

/// Maps ids to cells.
#[derive(Clone, Debug)]
pub(super) struct Hashes {
    banks: [Mixer; MAX_BANKS],
    count: usize,
    cells: u32,
    layout: Layout,
    check: Mixer,
}

impl Hashes {
    pub(super) fn new(settings: &Settings) -> Self {
        let bank = |bank: usize| Mixer::new(settings.seed, 16 + bank as u64);
        Self {
            banks: core::array::from_fn(bank),
            count: settings.banks,
            cells: settings.cells as u32,
            layout: settings.layout,
            check: Mixer::new(settings.seed, 32),
        }
    }

    /// The cell of `id` in a bank.
    #[inline]
    pub(super) fn cell(&self, id: u64, bank: usize) -> usize {
        let random = (self.banks[bank].mix(Digest(id)) >> 32) as u32;
        match self.layout {
            Layout::Banks => bank * self.cells as usize + place(random, self.cells) as usize,
            Layout::Flat => place(random, self.cells * self.count as u32) as usize,
        }
    }

    #[inline]
    pub(super) fn places(&self, id: u64) -> Places {
        let mut places = Places { cells: [0; MAX_BANKS], count: 0 };
        for bank in 0..self.count {
            let cell = self.cell(id, bank) as u32;
            if self.layout == Layout::Banks || !places.cells[..places.count].contains(&cell) {
                places.cells[places.count] = cell;
                places.count += 1;
            }
        }
        places
    }

    /// Contribution of an id to the second XOR of a flat layout.
    #[inline]
    pub(super) const fn check(&self, id: u64) -> u64 {
        self.check.mix(Digest(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_settings_are_refused() {
        let good = Settings::default();
        let of = |settings: Settings| settings.checked();

        assert_eq!(of(good.clone()), Ok(()));
        assert_eq!(of(Settings { banks: 0, ..good.clone() }), Err(SettingsError::Banks(0)));
        assert_eq!(of(Settings { banks: 9, ..good.clone() }), Err(SettingsError::Banks(9)));
        assert_eq!(of(Settings { cells: 0, ..good.clone() }), Err(SettingsError::Cells(0)));
        assert_eq!(of(Settings { cells: MAX_CELLS + 1, ..good }), Err(SettingsError::Cells(MAX_CELLS + 1)));
    }

    #[test]
    fn a_published_cell_has_192_bits() {
        assert_eq!(Settings::paper(100, 0).memory_bytes(), 4_800);
        assert_eq!(Settings { layout: Layout::Flat, ..Settings::paper(100, 0) }.memory_bytes(), 6_400);
    }

    #[test]
    fn the_xor_of_three_ids_is_seldom_one_and_an_id_always_is() {
        for (ids, most) in [(Ids::Checked8, 10_000 / 256 + 30), (Ids::Checked16, 3)] {
            let id = |number: u64| ids.id(Digest(finalise(number)));
            assert!((0..1_000).all(|number| ids.possible(id(number))));
            let passing = (0..10_000).filter(|n| ids.possible(id(3 * n) ^ id(3 * n + 1) ^ id(3 * n + 2))).count();
            assert!(passing <= most, "{passing}");
        }
        assert!(Ids::Plain.possible(7) && Ids::Plain.id(Digest(7)) == 7);
    }

    #[test]
    fn the_xor_of_three_ids_of_a_cell_is_of_another_one() {
        // With a hash that is linear over XOR it would always be of this cell, and every cell of an odd number of
        // packets looked pure.
        let hashes = Hashes::new(&Settings::paper(8, 3));
        let of_cell: alloc::vec::Vec<u64> = (0..80_000).map(finalise).filter(|id| hashes.cell(*id, 0) == 5).collect();
        let back = of_cell.as_chunks::<3>().0.iter().filter(|[a, b, c]| hashes.cell(a ^ b ^ c, 0) == 5).count();

        let share = back as f64 / (of_cell.len() / 3) as f64;
        assert!((share - 1.0 / 8.0).abs() < 0.03, "{share}");
    }

    #[test]
    fn banks_are_independent_of_each_other() {
        let hashes = Hashes::new(&Settings::paper(4, 3));
        let mut found = [[0_u32; 4]; 4];
        for id in (0..16_000).map(finalise) {
            found[hashes.cell(id, 0)][hashes.cell(id, 1) - 4] += 1;
        }

        assert!(found.iter().flatten().all(|count| count.abs_diff(1_000) < 150), "{found:?}");
    }

    #[test]
    fn a_flat_layout_counts_a_packet_once_where_its_cells_coincide() {
        let hashes = Hashes::new(&Settings { layout: Layout::Flat, cells: 1, banks: 4, ..Settings::default() });
        for id in 0..1_000 {
            let mut cells: alloc::vec::Vec<usize> = hashes.places(id).iter().collect();
            let count = cells.len();
            cells.sort_unstable();
            cells.dedup();
            assert!(cells.len() == count && count > 0 && cells.iter().all(|cell| *cell < 4));
        }
    }
}
