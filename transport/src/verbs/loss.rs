//! Why a whole batch was lost.

use std::io;
use std::time::Duration;

use super::status::Status;
use crate::fetch::Loss;

/// Why a whole batch was lost: the source of [`BatchError::Lost`](crate::BatchError::Lost).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LostReason {
    /// Connect first.
    #[error("not connected")]
    NotConnected,
    /// The peer does not answer, has taken its queue pair away, or does not take READs as they are asked for.
    #[error("the device gave up: {0}")]
    GaveUp(Status),
    /// The device said nothing at all.
    #[error("no completion within {} ms", .0.as_millis())]
    Silent(Duration),
    /// The device refused to take READs, or to say what became of them.
    #[error("the device refuses to {step}")]
    Device {
        /// What was to be done.
        step: &'static str,
        /// What it said.
        #[source]
        cause: io::Error,
    },
}

impl LostReason {
    /// What it is counted as.
    #[must_use]
    pub const fn loss(&self) -> Loss {
        match self {
            Self::NotConnected => Loss::Unconnected,
            Self::GaveUp(Status::RETRIES_EXCEEDED) => Loss::Unanswered,
            Self::GaveUp(_) => Loss::Broken,
            Self::Silent(_) => Loss::Silent,
            Self::Device { .. } => Loss::Device,
        }
    }
}
