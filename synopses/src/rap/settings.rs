//! Settings of heavy-hitter tables, and their checks.

use thiserror::Error;

/// Maximum number of entries (1.4 GiB).
pub const MAX_ENTRIES: usize = (1 << 24) - 1;
/// Epochs are at most 2⁴⁰ ns long, 18 minutes.
pub const MAX_EPOCH_SHIFT: u32 = 40;

/// The probability with which a key of weight w replaces the key with the least count c.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// w/(c + w), 1/(c + 1) for single packets: the original one.
    InverseOfNext,
    /// w/c, at most 1: the dissertation's. With a least count of 1 each key enters.
    Inverse,
    /// w/(c + w) with the denominator rounded up to a power of two, as switches do. Admits up to half as often.
    PowerOfTwo,
}

impl Admission {
    /// The law with this code, its place in the list of laws.
    pub(crate) const fn of(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::InverseOfNext),
            1 => Some(Self::Inverse),
            2 => Some(Self::PowerOfTwo),
            _ => None,
        }
    }
}

/// Settings of a [`super::Rap`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// m, number of entries, from 1 to [`MAX_ENTRIES`].
    pub entries: usize,
    /// Probability of admission.
    pub admission: Admission,
    /// Seed of places and coins. Take it from the operating system: who predicts coins can force evictions.
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { entries: 1 << 10, admission: Admission::InverseOfNext, seed: 0 }
    }
}

/// Settings of a [`super::Precision`] or a [`super::DWayRap`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaySettings {
    /// d, number of places of a key, at least 1: stages, or entries of a set.
    pub ways: usize,
    /// W, number of entries of a stage, or of sets. At least 1; d W is at most [`MAX_ENTRIES`].
    pub rows: usize,
    /// Probability of admission.
    pub admission: Admission,
    /// Seed of places and coins. Keep it secret.
    pub seed: u64,
}

impl Default for WaySettings {
    fn default() -> Self {
        Self { ways: 2, rows: 1 << 9, admission: Admission::InverseOfNext, seed: 0 }
    }
}

/// Settings of a [`super::EpochPrecision`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochSettings {
    /// Those of the table of an epoch.
    pub table: WaySettings,
    /// An epoch is 2^`epoch_shift` nanoseconds long. At most [`MAX_EPOCH_SHIFT`].
    pub epoch_shift: u32,
}

/// Invalid settings of a heavy-hitter table.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// Invalid number of entries.
    #[error("{0} entries, from 1 to {MAX_ENTRIES} are possible")]
    Entries(usize),
    /// Invalid number of places or rows.
    #[error("{ways} ways of {rows} rows, at least one of each and {MAX_ENTRIES} entries in all are possible")]
    Ways {
        /// Number of places of a key.
        ways: usize,
        /// Number of rows.
        rows: usize,
    },
    /// An epoch of more than eighteen minutes.
    #[error("an epoch of 2^{0} ns, at most 2^{MAX_EPOCH_SHIFT} is possible")]
    Epoch(u32),
}

pub(super) fn entries(entries: usize) -> Result<usize, SettingsError> {
    if (1..=MAX_ENTRIES).contains(&entries) { Ok(entries) } else { Err(SettingsError::Entries(entries)) }
}

impl WaySettings {
    /// Number of entries, d W.
    pub(super) fn entries(&self) -> Result<usize, SettingsError> {
        let all = self.ways.checked_mul(self.rows).filter(|all| (1..=MAX_ENTRIES).contains(all));
        all.ok_or(SettingsError::Ways { ways: self.ways, rows: self.rows })
    }
}
