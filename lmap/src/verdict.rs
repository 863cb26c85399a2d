//! The verdict on a row, and the states and errors of a detector.

use crate::episode::Episode;
use crate::settings::SettingsError;
use thiserror::Error;

/// Maximum number of columns.
pub(crate) const MAX_COLUMNS: usize = 65_536;
const _: () = assert!(MAX_COLUMNS <= 1 + u16::MAX as usize, "an index of a column has 16 bits, in longer rows");

/// Why a detector cannot be created.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum DetectorError {
    /// No columns, or too many.
    #[error("a detector of {0} columns, 1 to {MAX_COLUMNS} are possible")]
    Columns(usize),
    /// A setting is out of range.
    #[error("invalid detector settings")]
    Settings(#[from] SettingsError),
}

/// The state of a detector. Only the caller knows whether it is *silent* (no data).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Collecting rows: no scores yet.
    Learning {
        /// Rows seen so far.
        rows: usize,
        /// Rows needed to arm.
        needed: usize,
    },
    /// Scoring with a model of few rows: no episode begins.
    Provisional {
        /// Rows seen so far.
        rows: usize,
        /// Rows needed to arm.
        needed: usize,
    },
    /// Scoring; episodes begin and end.
    Armed,
    /// Armed, but in alarm for so long that the normal behaviour has probably changed.
    Drifted {
        /// Rows since the episode began.
        rows: u64,
    },
}

impl State {
    /// Whether rows are judged: episodes begin and end. A detector that has drifted judges as before.
    #[must_use]
    pub const fn judges(self) -> bool {
        matches!(self, Self::Armed | Self::Drifted { .. })
    }
}

/// The verdict of an LMAP on one row.
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use = "an unhandled verdict is a missed anomaly"]
pub struct Verdict {
    /// The smoothed score s̄: finite, at least 0; 0 while learning.
    pub score: f64,
    /// The row's own score s, not smoothed: finite, at least 0; 0 while learning.
    pub raw: f64,
    /// The threshold γ in force, as moved by the alarm budget; `None` while learning.
    pub gamma: Option<f64>,
    /// Whether s̄ ≥ γ. One such row is not an alarm yet, see `episode`.
    pub over: bool,
    /// Whether an episode (alarm) begins, goes on or ends with this row.
    pub episode: Episode,
    /// The state of the detector.
    pub state: State,
}

/// The outcome of [`Detector::install`](crate::Detector::install).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InstallOutcome {
    /// The result is in force.
    Taken,
    /// The job failed: the detector goes on with what it had. See [`Counts`](crate::Counts).
    Failed,
    /// The detector was reset since, or the job is of another detector. The result is dropped and counted.
    Stale,
}
