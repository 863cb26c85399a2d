//! Settings of a fragment, and their checks.

use thiserror::Error;

/// Maximum number of counters of a fragment (256 MiB).
pub const MAX_COUNTERS: usize = 1 << 26;

/// Settings of a [`super::Fragment`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Name of the fragment, one for each monitoring point.
    pub id: u32,
    /// w, number of counters of a row, at least 1. Need not be a power of two.
    pub counters: u32,
    /// d, number of rows, at least 1; w d is at most [`MAX_COUNTERS`].
    pub rows: u32,
    /// Seed of the rows. Keep it secret, and different for each fragment: [`super::PathTable::new`] checks that.
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { id: 0, counters: 2_000, rows: 1, seed: 0 }
    }
}

impl Settings {
    /// The least sketch whose estimates exceed the truth by more than `epsilon` times all packets with probability
    /// `delta` at most: ⌈e/ε⌉ counters in ⌈ln(1/δ)⌉ rows.
    ///
    /// # Errors
    ///
    /// [`SettingsError::Error`] unless both are between 0 and 1; [`SettingsError::Counters`] if it gets too large.
    pub fn of_error(id: u32, epsilon: f64, delta: f64, seed: u64) -> Result<Self, SettingsError> {
        let possible = |share: f64| 0.0 < share && share < 1.0;
        if !(possible(epsilon) && possible(delta)) {
            return Err(SettingsError::Error { epsilon, delta });
        }
        // A cast saturates, and what is too large is refused.
        let counters = libm::ceil(core::f64::consts::E / epsilon) as u32;
        let rows = libm::ceil(-libm::log(delta)) as u32;
        let settings = Self { id, counters, rows, seed };
        settings.size().map(|_| settings)
    }

    /// Number of all counters, w d.
    pub(super) fn size(&self) -> Result<usize, SettingsError> {
        let size = (self.counters as usize).checked_mul(self.rows as usize);
        let size = size.filter(|size| (1..=MAX_COUNTERS).contains(size));
        size.ok_or(SettingsError::Counters { counters: self.counters, rows: self.rows })
    }
}

/// Invalid settings of a fragment.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// No counter, or too many of them.
    #[error("{rows} rows of {counters} counters, at least one of each and {MAX_COUNTERS} counters in all are possible")]
    Counters {
        /// Counters of a row.
        counters: u32,
        /// Number of rows.
        rows: u32,
    },
    /// Bounds that no sketch has.
    #[error("an error of {epsilon} with probability {delta}, both have to be between 0 and 1")]
    Error {
        /// ε, share of all packets.
        epsilon: f64,
        /// δ, the probability.
        delta: f64,
    },
}
