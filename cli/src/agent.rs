//! Finding the host agent and asking it for its status.
//!
//! The agent writes `host-agent.json` into its runtime directory when it is ready, with the addresses that it really has.

use core::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use tonic::transport::{Channel, Endpoint};
use wire::proto::operators::operators_client::OperatorsClient;
use wire::proto::operators::{StatusReply, StatusRequest};

use crate::exit::Exit;
use crate::failure::Failure;

/// What is taken without `--runtime-dir` and without `UVIEW_RUNTIME_DIR`.
pub const RUNTIME_DIR: &str = "/run/uview";

/// What the agent is called in its runtime directory.
pub const READY_FILE: &str = "host-agent.json";

const CONNECT_WITHIN: Duration = Duration::from_secs(2);
const ANSWER_WITHIN: Duration = Duration::from_secs(3);

/// Which host agent is meant.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct AgentArgs {
    /// Where the host agent keeps its sockets and host-agent.json [default: $UVIEW_RUNTIME_DIR, else /run/uview]
    #[arg(long, value_name = "DIR")]
    pub runtime_dir: Option<PathBuf>,
    /// The operators' address, instead of the one in host-agent.json
    #[arg(long, value_name = "HOST:PORT")]
    pub operators: Option<String>,
}

/// Which host agent is meant, with nothing left open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its runtime directory.
    pub runtime_dir: PathBuf,
    /// The operators' address, if it was given.
    pub operators: Option<String>,
}

impl AgentArgs {
    /// The arguments, completed from the environment (`UVIEW_RUNTIME_DIR`) and the default.
    #[must_use]
    pub fn place(self, from_environment: Option<PathBuf>) -> Place {
        let runtime_dir = self.runtime_dir.or(from_environment).unwrap_or_else(|| PathBuf::from(RUNTIME_DIR));
        Place { runtime_dir, operators: self.operators }
    }
}

/// What a running host agent says about itself in [`READY_FILE`]. Unknown fields are left alone: the agent may be newer.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Ready {
    /// Its process.
    pub pid: u32,
    /// The address for operators.
    pub operators: String,
}

/// Why the host agent did not answer.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AgentError {
    /// None runs, or it has another runtime directory.
    #[error("no host agent is running there: {} does not exist", .0.display())]
    NotReady(PathBuf),
    /// The file is there and cannot be read.
    #[error("{} cannot be read", .path.display())]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// The file is there and says something else.
    #[error("{} was not written by a host agent", .path.display())]
    Foreign {
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        cause: serde_json::Error,
    },
    /// Not an address.
    #[error("`{0}` is no address of the form HOST:PORT")]
    Address(String),
    /// Nobody listens.
    #[error("the host agent does not answer at {address}: {cause}")]
    Unreachable {
        /// Where.
        address: String,
        /// Why, the innermost reason.
        cause: String,
    },
    /// It answers, with a refusal.
    #[error("the host agent at {address} refused: {message}")]
    Refused {
        /// Where.
        address: String,
        /// What it said.
        message: String,
    },
}

impl AgentError {
    /// As prose, for a command that wanted `what`.
    #[must_use]
    pub fn into_failure(self, what: &str) -> Failure {
        let failure = Failure::to(what).caused_by(&self).exit_with(Exit::NoAgent);
        match self {
            Self::NotReady(_) => failure
                .advice("`uview host-agent` starts one, `uview demo` shows everything at work")
                .advice("--runtime-dir DIR, if the agent was started with another runtime directory"),
            Self::Unreadable { .. } => failure.advice("run as the agent's user, or ask for access to its directory"),
            Self::Foreign { path, .. } => {
                failure.advice(format!("remove {} and start the agent again", path.display()))
            }
            Self::Address(_) => failure.advice("--operators 127.0.0.1:9701").exit_with(Exit::Usage),
            Self::Unreachable { .. } => failure
                .advice("`uview check` shows whether the agent still runs")
                .advice("--operators HOST:PORT, if it listens elsewhere"),
            Self::Refused { .. } => failure.advice("is agent and command the same release? `uview --version`"),
        }
    }
}

/// Reads [`READY_FILE`] in `runtime_dir`.
///
/// # Errors
///
/// [`AgentError`] if it is not there, cannot be read, or is something else.
pub fn ready(runtime_dir: &Path) -> Result<Ready, AgentError> {
    let path = runtime_dir.join(READY_FILE);
    match std::fs::read(&path) {
        Ok(bytes) => serde_json::from_slice(&bytes).map_err(|cause| AgentError::Foreign { path, cause }),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Err(AgentError::NotReady(path)),
        Err(cause) => Err(AgentError::Unreadable { path, cause }),
    }
}

/// A connection to the operators' API.
#[derive(Clone, Debug)]
pub struct Connection {
    client: OperatorsClient<Channel>,
    address: String,
}

impl Connection {
    /// Finds the agent and connects.
    ///
    /// # Errors
    ///
    /// [`AgentError`] if it is not there or does not answer within 2 s.
    pub async fn open(place: &Place) -> Result<Self, AgentError> {
        let address = match &place.operators {
            Some(address) => address.clone(),
            None => ready(&place.runtime_dir)?.operators,
        };
        let url = if address.contains("://") { address.clone() } else { format!("http://{address}") };
        let endpoint = Endpoint::from_shared(url).map_err(|_| AgentError::Address(address.clone()))?;
        let channel = endpoint.connect_timeout(CONNECT_WITHIN).timeout(ANSWER_WITHIN).connect().await;
        match channel {
            Ok(channel) => Ok(Self { client: OperatorsClient::new(channel), address }),
            Err(error) => Err(AgentError::Unreachable { address, cause: innermost(&error) }),
        }
    }

    /// The agent, its workers, and each LMAP's last summary.
    ///
    /// # Errors
    ///
    /// [`AgentError::Unreachable`] if it is gone, [`AgentError::Refused`] if it answered with an error.
    pub async fn status(&mut self) -> Result<StatusReply, AgentError> {
        match self.client.status(StatusRequest {}).await {
            Ok(reply) => Ok(reply.into_inner()),
            Err(status) => Err(self.error(&status)),
        }
    }

    /// Where the agent listens.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// What the agent said has no source; what has one happened on the way.
    fn error(&self, status: &tonic::Status) -> AgentError {
        use tonic::Code::{Cancelled, DeadlineExceeded, Unavailable};
        let address = self.address.clone();
        if status.source().is_some() || matches!(status.code(), Cancelled | DeadlineExceeded | Unavailable) {
            return AgentError::Unreachable { address, cause: innermost(status) };
        }
        AgentError::Refused { address, message: status.message().to_owned() }
    }
}

/// Asks once, on a runtime of its own.
///
/// # Errors
///
/// [`Failure`] as prose, for a command that wanted `what`.
pub fn status_once(place: &Place, what: &str) -> Result<StatusReply, Failure> {
    let ask = async { Connection::open(place).await?.status().await };
    runtime(what)?.block_on(ask).map_err(|error| error.into_failure(what))
}

/// A runtime on the calling thread.
///
/// # Errors
///
/// [`Failure`] if the system has no resources for it.
pub fn runtime(what: &str) -> Result<tokio::runtime::Runtime, Failure> {
    let built = tokio::runtime::Builder::new_current_thread().enable_all().build();
    built.map_err(|error| Failure::to(what).because("the system gives no event queue").caused_by(&error))
}

/// The last source: what really happened. Those around it say "transport error".
fn innermost(error: &(dyn Error + 'static)) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_argument_comes_before_the_environment_and_that_before_the_default() {
        let place = |argument: Option<&str>, environment: Option<&str>| {
            let args = AgentArgs { runtime_dir: argument.map(PathBuf::from), operators: None };
            args.place(environment.map(PathBuf::from)).runtime_dir
        };

        assert_eq!(place(Some("/a"), Some("/b")), Path::new("/a"));
        assert_eq!(place(None, Some("/b")), Path::new("/b"));
        assert_eq!(place(None, None), Path::new(RUNTIME_DIR));
    }

    #[test]
    fn a_missing_and_a_foreign_file_are_told_apart() {
        let directory = tempfile::tempdir().unwrap();

        assert!(matches!(ready(directory.path()), Err(AgentError::NotReady(_))));
        std::fs::write(directory.path().join(READY_FILE), b"[1, 2]").unwrap();
        assert!(matches!(ready(directory.path()), Err(AgentError::Foreign { .. })));
    }

    #[test]
    fn a_file_of_a_newer_agent_is_understood() {
        let directory = tempfile::tempdir().unwrap();
        let text = r#"{"pid": 12, "incarnation": 3, "operators": "127.0.0.1:9701", "something": {"new": true}}"#;
        std::fs::write(directory.path().join(READY_FILE), text).unwrap();

        assert_eq!(ready(directory.path()).unwrap(), Ready { pid: 12, operators: "127.0.0.1:9701".to_owned() });
    }
}
