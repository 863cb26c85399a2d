//! The detectors to compare, behind one trait: trained on a unit's training rows, then fed its test rows one by one.

mod kind;
#[cfg(feature = "competitors")]
mod pca;
mod peer;
mod pipeline;
#[cfg(feature = "competitors")]
mod rcf;
mod size;
mod standard;

use lmap::{DetectorError, Episode};
use thiserror::Error;

pub use kind::Kind;
pub use pipeline::Lmap;

/// Why a detector could not be trained.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TrainError {
    /// Too few rows to learn from.
    #[error("{found} training rows, at least {least} are needed")]
    Rows {
        /// Training rows found.
        found: usize,
        /// Minimum number of rows.
        least: usize,
    },
    /// No column moves, or a decomposition failed.
    #[error("nothing can be learnt from the training rows: does any metric move?")]
    NotFitted,
    /// Invalid settings or columns.
    #[error("cannot create a detector")]
    Detector(#[from] DetectorError),
    /// The Random Cut Forest crate reported an error.
    #[cfg(feature = "competitors")]
    #[error("cannot create a forest: {0}")]
    Forest(String),
}

/// The score of a row by any detector.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowScore {
    /// The score to be compared with γ. Finite.
    pub score: f64,
    /// The deviation of the row as a whole, not smoothed. In the row where it is highest, the named metrics count.
    pub own: f64,
    /// The position of the row relative to episodes, if the detector has any.
    pub episode: Option<Episode>,
}

/// A trained detector.
pub trait Candidate {
    /// The threshold that the detector chose.
    fn gamma(&self) -> f64;

    /// Scores the next test row, then learns it if the detector does that. `gap`: the row does not follow the one
    /// before.
    fn step(&mut self, row: &[f64], gap: bool) -> RowScore;

    /// The columns that contribute most to the last score, at most `top`, largest first.
    fn named(&mut self, top: usize) -> Vec<usize>;
}
