//! Finding the host agent and asking it for its status.
//!
//! The agent writes `host-agent.json` into its runtime directory when it is ready, with the addresses that it really has.

use core::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use tonic::Streaming;
use tonic::transport::{Channel, Endpoint, Uri};
use wire::proto::operators::operators_client::OperatorsClient;
use wire::proto::operators::{
    ListReply, ListRequest, ReceiptReply, ReceiptRequest, RowEvent, StatusReply, StatusRequest, WatchRowsRequest,
};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::tls::{self, Tls, TlsArgs, TlsError, Trouble};

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
    /// The operators' address, instead of the one in host-agent.json; https://HOST:PORT needs --tls-ca
    #[arg(long, value_name = "HOST:PORT")]
    pub operators: Option<String>,
    /// Certificates.
    #[command(flatten)]
    pub tls: TlsArgs,
}

/// Which host agent is meant, with nothing left open.
#[derive(Clone, Debug)]
pub struct Place {
    /// Its runtime directory.
    pub runtime_dir: PathBuf,
    /// The operators' address, if it was given.
    pub operators: Option<String>,
    /// How to speak TLS with it, if it is to be.
    pub tls: Option<Tls>,
}

impl AgentArgs {
    /// The arguments, completed from the environment (`UVIEW_RUNTIME_DIR`) and the default, with the certificates read.
    ///
    /// # Errors
    ///
    /// [`Failure`] as prose if the certificates cannot be used, or the address says another thing about TLS than they do.
    pub fn place(self, from_environment: Option<PathBuf>) -> Result<Place, Failure> {
        let runtime_dir = self.runtime_dir.or(from_environment).unwrap_or_else(|| PathBuf::from(RUNTIME_DIR));
        let tls = Tls::load(&self.tls).map_err(|error| certificates(&error))?;
        let contradiction = |because: &str, advice| {
            Err(Failure::to("decide on TLS").because(because).advice(advice).exit_with(Exit::Usage))
        };
        let scheme = self.operators.as_deref().and_then(|address| address.split_once("://")).map(|(scheme, _)| scheme);
        match (scheme.map(|scheme| scheme.eq_ignore_ascii_case("https")), &tls) {
            (Some(true), None) => contradiction(
                "--operators begins with https, and nobody is named whom to trust",
                "--tls-ca FILE, with the authority that signed the agent's certificate",
            ),
            (Some(false), Some(_)) => contradiction(
                "--tls-ca asks for TLS, and --operators begins with something other than https",
                "https://HOST:PORT, or HOST:PORT alone",
            ),
            _ => Ok(Place { runtime_dir, operators: self.operators, tls }),
        }
    }
}

fn certificates(error: &TlsError) -> Failure {
    let failure = Failure::to("use the certificates").caused_by(error);
    match error {
        TlsError::Read { .. } => failure.advice("is the path right, and may you read the file?"),
        TlsError::NoCertificate(_) => failure.advice("a file that has a line `-----BEGIN CERTIFICATE-----`"),
        TlsError::NoKey(_) => failure.advice("a file that has a line `-----BEGIN PRIVATE KEY-----`"),
        TlsError::Pair { .. } => failure.advice("the key that the certificate was made with"),
        TlsError::Name(_) => failure.advice("--tls-name host.example, or an address without its port"),
        TlsError::Half => failure.advice("both --tls-cert and --tls-key, or neither"),
        _ => failure,
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
    /// Somebody listens, and TLS is in the way.
    #[error("no connection with the host agent at {address}: {trouble}")]
    Tls {
        /// Where.
        address: String,
        /// Why.
        trouble: Trouble,
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
            Self::Tls { trouble, .. } => failure.advice(trouble.advice()),
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
    peer: Peer,
}

/// Who is at the other end.
#[derive(Clone, Debug)]
struct Peer {
    /// As it was given.
    address: String,
    uri: Uri,
    tls: Option<Tls>,
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
        let scheme = if place.tls.is_some() { "https" } else { "http" };
        let url = if address.contains("://") { address.clone() } else { format!("{scheme}://{address}") };
        let no_address = |_| AgentError::Address(address.clone());
        let mut endpoint = Endpoint::from_shared(url).map_err(no_address)?;
        let peer = Peer { address: address.clone(), uri: endpoint.uri().clone(), tls: place.tls.clone() };
        if let Some(tls) = &place.tls {
            // The certificates were tried when they were read: what is left to be wrong is the address.
            endpoint = endpoint.tls_config(tls.client()).map_err(no_address)?;
        }
        match endpoint.connect_timeout(CONNECT_WITHIN).timeout(ANSWER_WITHIN).connect().await {
            Ok(channel) => Ok(Self { client: OperatorsClient::new(channel), peer }),
            Err(error) => Err(peer.unreachable(innermost(&error)).await),
        }
    }

    /// The agent, its workers, and each LMAP's last summary.
    ///
    /// # Errors
    ///
    /// [`AgentError::Unreachable`] if it is gone, [`AgentError::Tls`] if it speaks TLS otherwise than this connection,
    /// [`AgentError::Refused`] if it answered with an error.
    pub async fn status(&mut self) -> Result<StatusReply, AgentError> {
        match self.client.status(StatusRequest {}).await {
            Ok(reply) => Ok(reply.into_inner()),
            Err(status) => Err(self.peer.error(&status).await),
        }
    }

    /// What was seen, kept, dropped and lost, per day and service.
    ///
    /// # Errors
    ///
    /// As [`status`](Self::status).
    pub async fn receipt(&mut self) -> Result<ReceiptReply, AgentError> {
        match self.client.receipt(ReceiptRequest {}).await {
            Ok(reply) => Ok(reply.into_inner()),
            Err(status) => Err(self.peer.error(&status).await),
        }
    }

    /// LMAPs, services, replicas, metrics.
    ///
    /// # Errors
    ///
    /// As [`status`](Self::status).
    pub async fn list(&mut self) -> Result<ListReply, AgentError> {
        match self.client.list(ListRequest {}).await {
            Ok(reply) => Ok(reply.into_inner()),
            Err(status) => Err(self.peer.error(&status).await),
        }
    }

    /// Every so manieth row of an LMAP, from the last ones that the worker kept on.
    ///
    /// # Errors
    ///
    /// As [`status`](Self::status). What goes wrong later ends the stream.
    pub async fn watch_rows(&mut self, lmap: u32, every: u32) -> Result<Streaming<RowEvent>, AgentError> {
        match self.client.watch_rows(WatchRowsRequest { lmap, every }).await {
            Ok(reply) => Ok(reply.into_inner()),
            Err(status) => Err(self.peer.error(&status).await),
        }
    }

    /// Where the agent listens.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.peer.address
    }
}

impl Peer {
    /// What the agent said has no source; what has one happened on the way.
    async fn error(&self, status: &tonic::Status) -> AgentError {
        use tonic::Code::{Cancelled, DeadlineExceeded, Unavailable};
        if status.source().is_some() || matches!(status.code(), Cancelled | DeadlineExceeded | Unavailable) {
            return self.unreachable(innermost(status)).await;
        }
        AgentError::Refused { address: self.address.clone(), message: status.message().to_owned() }
    }

    /// Looks whether it was TLS, and else says `cause`.
    async fn unreachable(&self, cause: String) -> AgentError {
        let address = self.address.clone();
        let host = self.uri.host().unwrap_or_default().trim_matches(['[', ']']);
        let port = self.uri.port_u16().unwrap_or(if self.tls.is_some() { 443 } else { 80 });
        match tls::diagnose(host, port, self.tls.as_ref()).await {
            Some(trouble) => AgentError::Tls { address, trouble },
            None => AgentError::Unreachable { address, cause },
        }
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
            let args = AgentArgs { runtime_dir: argument.map(PathBuf::from), ..AgentArgs::default() };
            args.place(environment.map(PathBuf::from)).unwrap().runtime_dir
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
