//! What a detector says, and what can go wrong before it says anything.

use crate::episode::Episode;
use crate::settings::SettingsError;
use thiserror::Error;

/// More columns than this are a mistake, not a service.
pub(crate) const MOST_COLUMNS: usize = 65_536;

/// Why a detector was not made.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum DetectorError {
    /// There is nothing to watch, or far too much.
    #[error("{0} columns, from 1 to {MOST_COLUMNS} are possible")]
    Columns(usize),
    /// A setting is out of range.
    #[error("the settings are not usable")]
    Settings(#[from] SettingsError),
}

/// What a detector is doing. *Silent* (no data) is for the caller to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Nothing is judged yet.
    Learning {
        /// Rows seen.
        rows: usize,
        /// Rows that arm it.
        needed: usize,
    },
    /// Judged, by too few rows: no episode begins.
    Provisional {
        /// Rows seen.
        rows: usize,
        /// Rows that arm it.
        needed: usize,
    },
    /// Judged.
    Armed,
    /// Armed, and in alarm for so long that the normal has probably changed.
    Drifted {
        /// Rows since the episode began.
        rows: u64,
    },
}

/// What an LMAP says about one row.
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use = "an unhandled verdict is a missed anomaly"]
pub struct Verdict {
    /// The smoothed score s̄, finite and at least 0; 0 while learning.
    pub score: f64,
    /// The row's own score s, likewise.
    pub raw: f64,
    /// The threshold γ in force; `None` while learning.
    pub gamma: Option<f64>,
    /// Whether s̄ ≥ γ.
    pub over: bool,
    /// Where the row lies among episodes.
    pub episode: Episode,
    /// What the detector was doing.
    pub state: State,
}

/// What became of a job's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Installed {
    /// It is in force.
    Taken,
    /// It came back empty: the detector goes on with what it had. See [`Counts`](crate::Counts).
    Failed,
    /// It was for a detector that has been reset since, or is not from this detector. Dropped and counted.
    Stale,
}
