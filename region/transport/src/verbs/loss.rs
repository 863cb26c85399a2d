//! Reasons for the loss of a whole batch.

use std::io;
use std::time::Duration;

use super::status::Status;
use crate::fetch::Loss;

/// Why a whole batch was lost: the source of [`BatchError::Lost`](crate::BatchError::Lost).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LostReason {
    /// There is no connection: connect first.
    #[error("not connected")]
    NotConnected,
    /// The peer does not respond, has destroyed its queue pair, or rejects the READs.
    #[error("the device gave up: {0}")]
    GaveUp(Status),
    /// The device delivered no completion in time.
    #[error("no completion within {} ms", .0.as_millis())]
    Silent(Duration),
    /// The device refused to post READs or to deliver completions.
    #[error("the device refuses to {step}")]
    Device {
        /// The operation that failed.
        step: &'static str,
        /// The device's error.
        #[source]
        cause: io::Error,
    },
}

impl LostReason {
    /// The reason under which the lost batch is counted.
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
