//! Why something that the host agent said was not taken.

use wire::control::LmapError;
use wire::id::{Epoch, LmapId};
use wire::name::MetricName;

use crate::claims::RegionsError;
use crate::queue_pair::AnswerError;

/// Why a message was not, or not wholly, taken. Every one is counted; none stops the worker, or another LMAP.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ForeignMessage {
    /// It has no content that this release knows.
    #[error("a message without content that this release knows")]
    Unknown,
    /// It came without a connection, or before the welcome.
    #[error("a message before the welcome")]
    TooEarly,
    /// Its epoch is not the one after the last: something was lost, or came twice. The worker asks to be connected anew.
    #[error("{found} after {last}")]
    Epoch {
        /// That of the message.
        found: Epoch,
        /// The last one that was taken.
        last: Epoch,
    },
    /// The configuration does not hold. What was known of the LMAP is dropped, since it is not in effect any more.
    #[error("the configuration of {lmap} does not hold, so that it is not watched")]
    Lmap {
        /// Whose.
        lmap: LmapId,
        /// What is wrong.
        source: LmapError,
    },
    /// The regions of the LMAP cannot be what they are said to be. What was known of the LMAP is dropped.
    #[error("the regions of {lmap} are not taken, so that it is not watched")]
    Regions {
        /// Whose.
        lmap: LmapId,
        /// What is wrong.
        source: RegionsError,
    },
    /// The host agent wants regions fetched in a way that this worker does not have.
    #[error("the host agent chose the transport {0:?}, which this worker did not offer")]
    Transport(String),
    /// The queue pair was not connected. It is tried again after a pause.
    #[error(transparent)]
    QueuePair(#[from] AnswerError),
    /// There are too many LMAPs.
    #[error("{0} is one LMAP more than a worker takes")]
    TooMany(LmapId),
    /// The LMAP is not known.
    #[error("{0} is not known here")]
    UnknownLmap(LmapId),
    /// Nobody has added this aggregation: the metric is missing.
    #[error("no aggregation is called {name}, so that metrics of {lmap} are missing")]
    Aggregation {
        /// Whose.
        lmap: LmapId,
        /// What was asked for.
        name: MetricName,
    },
    /// The trained model cannot be used: the LMAP learns by itself.
    #[error("the model cannot be used, so that the LMAP learns by itself")]
    Model(#[from] lmap::ModelError),
    /// The settings that an operator asked for do not go together with those that this worker is configured with: those count.
    #[error("the settings asked for do not go together with this worker's own, which are taken instead")]
    Settings(#[source] lmap::SettingsError),
    /// There can be no detector: the LMAP is fetched, but not judged.
    #[error("the LMAP cannot be judged")]
    Detector(#[from] lmap::DetectorError),
    /// The host agent does not want this worker.
    #[error("the host agent refused this worker: {0}")]
    Refused(String),
    /// More messages came while a batch was out than can wait.
    #[error("{0} messages came while a batch was out")]
    Flood(usize),
}

/// An error and its causes, in one line.
pub(crate) fn told(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
