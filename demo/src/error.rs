//! Why a run has no finding.

use std::io;
use std::path::PathBuf;

use crate::fault::Kind;
use crate::graph::Watched;
use crate::link::LinkError;
use crate::stage::StageError;

/// Why a run has no finding. All processes have ended by the time this is returned.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DemoError {
    /// The system gives no event queue.
    #[error("cannot wait for events")]
    Runtime(#[source] io::Error),
    /// Ctrl-C would leave processes behind.
    #[error("the system does not pass signals on")]
    NoSignals,
    /// The processes did not start, or one ended.
    #[error(transparent)]
    Stage(#[from] StageError),
    /// The host agent does not do its part.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// An LMAP that never arms judges nothing.
    #[error("not every LMAP was armed in time: {0}")]
    NotArmed(String),
    /// The service, or the way, did not take the fault.
    #[error("{1} did not take the fault {0}")]
    NotInjected(Kind, Watched),
    /// Ctrl-C or SIGTERM.
    #[error("interrupted")]
    Interrupted,
    /// The run is over and its account is lost.
    #[error("cannot write {}", .path.display())]
    Write {
        /// What was to be written.
        path: PathBuf,
        /// Why.
        #[source]
        cause: io::Error,
    },
}
