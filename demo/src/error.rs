//! Why a run failed.

use std::io;
use std::path::PathBuf;

use crate::fault::Kind;
use crate::graph::Target;
use crate::host_agent::HostAgentError;
use crate::testbed::TestbedError;

/// Why a run failed. All processes have ended when this is returned.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DemoError {
    /// The asynchronous runtime cannot be created.
    #[error("cannot create the event loop")]
    Runtime(#[source] io::Error),
    /// No handler for SIGINT and SIGTERM: Ctrl-C would leave processes behind.
    #[error("cannot install signal handlers")]
    NoSignals,
    /// A process did not start, or ended.
    #[error(transparent)]
    Testbed(#[from] TestbedError),
    /// The host agent does not respond, or refuses a call.
    #[error(transparent)]
    HostAgent(#[from] HostAgentError),
    /// Not every LMAP was armed in time; its argument lists the states.
    #[error("not every LMAP was armed in time: {0}")]
    NotArmed(String),
    /// The service or the link refused the fault.
    #[error("{1} refused the fault {0}")]
    NotInjected(Kind, Target),
    /// SIGINT (Ctrl-C) or SIGTERM ended the run.
    #[error("interrupted")]
    Interrupted,
    /// The report cannot be written.
    #[error("cannot write {}", .path.display())]
    Write {
        /// Path of the file or directory.
        path: PathBuf,
        /// Error of the file system.
        #[source]
        cause: io::Error,
    },
}
