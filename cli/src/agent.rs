//! A client of the operators' API of the host agent. What the agent says is printable: see [`crate::replies`].
//!
//! When the agent is ready, it writes `host-agent.json` into its runtime directory, with the addresses that it listens
//! on.

mod bearer;
mod changes;

use core::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint, Uri};
use wire::cause::innermost;
use wire::control::MAX_MESSAGE_BYTES;
use wire::proto::operators::operators_client::OperatorsClient;
use wire::proto::operators::{
    HookEvent, IncidentReply, IncidentRequest, IncidentsReply, IncidentsRequest, ListReply, ListRequest, OpenPageReply,
    OpenPageRequest, PathsReply, PathsRequest, ReceiptReply, ReceiptRequest, RegisterHookRequest, RowEvent,
    SourcesReply, SourcesRequest, StatusReply, StatusRequest, WatchRowsRequest,
};

use self::bearer::Bearer;
use crate::discovery::{self, READY_FILE, RUNTIME_DIR};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::replies::{self, Messages, printable};
use crate::tls::{self, Tls, TlsArgs, TlsError, TlsProblem};

/// What the address of a Unix socket begins with.
const UNIX: &str = "unix:";

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(3);

/// Command line arguments that select the host agent.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct AgentArgs {
    /// Runtime directory of the host agent [default: $UVIEW_RUNTIME_DIR, else /run/uview, else the only agent's]
    #[arg(long, value_name = "DIR")]
    pub runtime_dir: Option<PathBuf>,
    /// Address of the operators' API, instead of the one in host-agent.json: unix:PATH, or HOST:PORT with --tls-ca
    #[arg(long, value_name = "ADDRESS")]
    pub operators: Option<String>,
    /// TLS to the operators' API.
    #[command(flatten)]
    pub tls: TlsArgs,
}

/// The host agent to connect to: arguments, environment and defaults combined.
#[derive(Clone, Debug)]
pub struct Target {
    /// The agent's runtime directory.
    pub runtime_dir: PathBuf,
    /// The address of the operators' API, if it was passed.
    pub operators: Option<String>,
    /// The TLS configuration, if the connection uses TLS.
    pub tls: Option<Tls>,
}

impl AgentArgs {
    /// Combines the arguments with the environment (`UVIEW_RUNTIME_DIR`), and reads the certificates. If neither names
    /// an agent, one that runs on this machine is used ([`discovery::runtime_dir`]), and stderr says which.
    ///
    /// # Errors
    ///
    /// [`Failure`] if several agents run and none is named, if the certificates cannot be used, or if the scheme of the
    /// address contradicts the TLS arguments.
    pub fn target(mut self, from_environment: Option<PathBuf>) -> Result<Target, Failure> {
        if self.operators.is_none() {
            self.runtime_dir = Some(discovery::runtime_dir("find the host agent", self.runtime_dir, from_environment)?);
            return self.named_target(None);
        }
        self.named_target(from_environment)
    }

    /// Combines arguments, environment and default, whatever runs on this machine, and reads the certificates.
    ///
    /// # Errors
    ///
    /// [`Failure`] if the certificates cannot be used, or the scheme of the address contradicts the TLS arguments.
    pub fn named_target(self, from_environment: Option<PathBuf>) -> Result<Target, Failure> {
        let runtime_dir = self.runtime_dir.or(from_environment).unwrap_or_else(|| PathBuf::from(RUNTIME_DIR));
        let tls = Tls::load(&self.tls).map_err(|error| certificates(&error))?;
        let is_socket = self.operators.as_deref().is_some_and(|address| address.starts_with(UNIX));
        let contradiction = |because: &str, advice| {
            Err(Failure::to("decide on TLS").because(because).advice(advice).exit_with(Exit::Usage))
        };
        let scheme = self.operators.as_deref().and_then(|address| address.split_once("://")).map(|(scheme, _)| scheme);
        if is_socket && tls.is_some() {
            return contradiction("--operators names a Unix socket, which needs no TLS", "leave out the TLS arguments");
        }
        match (scheme.map(|scheme| scheme.eq_ignore_ascii_case("https")), &tls) {
            (Some(true), None) => contradiction(
                "--operators begins with https, but no authority is named",
                "--tls-ca FILE with the authority that signed the agent's certificate",
            ),
            (Some(false), Some(_)) => contradiction(
                "--tls-ca asks for TLS, but --operators does not begin with https",
                "https://HOST:PORT, or HOST:PORT alone",
            ),
            _ => Ok(Target { runtime_dir, operators: self.operators, tls }),
        }
    }
}

fn certificates(error: &TlsError) -> Failure {
    let failure = Failure::to("use the certificates").caused_by(error);
    match error {
        TlsError::Read { .. } => failure.advice("is the path right, and may you read the file?"),
        TlsError::NoCertificate(_) => failure.advice("a PEM file with a line `-----BEGIN CERTIFICATE-----`"),
        TlsError::NoKey(_) => failure.advice("a PEM file with a line `-----BEGIN PRIVATE KEY-----`"),
        TlsError::Pair { .. } => failure.advice("the private key of this certificate"),
        TlsError::Name(_) => failure.advice("--tls-name host.example, or an address without its port"),
        TlsError::Incomplete => failure.advice("both --tls-cert and --tls-key, or neither"),
        _ => failure,
    }
}

/// The content of [`READY_FILE`]. Unknown fields are ignored: the agent may be newer.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct ReadyAgent {
    /// The process id of the agent.
    pub pid: u32,
    /// The address of the operators' API on this machine.
    pub operators: String,
    /// Its address for other machines, with TLS; `None` if there is none.
    #[serde(default)]
    pub operators_listen: Option<String>,
}

impl ReadyAgent {
    /// The address to connect to: with `tls` that for other machines, if there is one.
    fn address(self, tls: bool) -> String {
        self.operators_listen.filter(|_| tls).unwrap_or(self.operators)
    }
}

/// Why the host agent cannot be asked.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AgentError {
    /// No agent runs, or it has another runtime directory.
    #[error("no host agent is running there: {} does not exist", .0.display())]
    NotReady(PathBuf),
    /// [`READY_FILE`] exists but cannot be read.
    #[error("{} cannot be read", .path.display())]
    Unreadable {
        /// The path of the file.
        path: PathBuf,
        /// What the operating system reported.
        #[source]
        cause: io::Error,
    },
    /// [`READY_FILE`] exists but has another content.
    #[error("{} was not written by a host agent", .path.display())]
    Malformed {
        /// The path of the file.
        path: PathBuf,
        /// Line and column of the first mistake.
        #[source]
        cause: serde_json::Error,
    },
    /// The role that the call needs is not granted.
    #[error("{0}")]
    Denied(String),
    /// The agent does not do it, and says why.
    #[error("{0}")]
    Declined(String),
    /// The address cannot be parsed.
    #[error("`{0}` is no address of the form unix:PATH or HOST:PORT")]
    Address(String),
    /// No reply: nothing listens there, or the connection broke.
    #[error("the host agent does not answer at {address}: {cause}")]
    Unreachable {
        /// The address that was tried.
        address: String,
        /// The innermost cause.
        cause: String,
    },
    /// Something listens, but the TLS handshake fails.
    #[error("no connection with the host agent at {address}: {problem}")]
    Tls {
        /// The address that was tried.
        address: String,
        /// What is wrong with TLS.
        problem: TlsProblem,
    },
    /// The agent replied with an error.
    #[error("the host agent at {address} refused: {message}")]
    Refused {
        /// The address of the agent.
        address: String,
        /// The message of the agent's reply.
        message: String,
    },
}

impl AgentError {
    /// The error message of a command that wanted to do `what`.
    #[must_use]
    pub fn into_failure(self, what: &str) -> Failure {
        let failure = Failure::to(what).caused_by(&self).exit_with(Exit::NoAgent);
        match self {
            Self::NotReady(_) => failure
                .advice("`uview host-agent` starts one, `uview demo` shows everything at work")
                .advice("--runtime-dir DIR, if the agent was started with another runtime directory"),
            Self::Unreadable { .. } => failure.advice("run as the agent's user, or get read access to its directory"),
            Self::Malformed { path, .. } => {
                failure.advice(format!("remove {} and start the agent again", path.display()))
            }
            Self::Denied(_) => failure,
            Self::Declined(_) => failure.exit_with(Exit::Failed),
            Self::Address(_) => failure.advice("--operators unix:/run/uview/operators.sock").exit_with(Exit::Usage),
            Self::Unreachable { .. } => failure
                .advice("`uview check` shows whether the agent runs")
                .advice("--runtime-dir DIR or --operators ADDRESS, if it listens elsewhere"),
            Self::Tls { problem, .. } => failure.advice(problem.advice()),
            Self::Refused { .. } => failure.advice("are agent and command of the same release? `uview --version`"),
        }
    }
}

/// Reads [`READY_FILE`] in `runtime_dir`.
///
/// # Errors
///
/// [`AgentError`] if it does not exist, cannot be read, or has another content.
pub fn ready(runtime_dir: &Path) -> Result<ReadyAgent, AgentError> {
    let path = runtime_dir.join(READY_FILE);
    match std::fs::read(&path) {
        Ok(bytes) => serde_json::from_slice(&bytes).map_err(|cause| AgentError::Malformed { path, cause }),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Err(AgentError::NotReady(path)),
        Err(cause) => Err(AgentError::Unreadable { path, cause }),
    }
}

/// A connection to the operators' API of a host agent.
#[derive(Clone, Debug)]
pub struct Connection {
    client: OperatorsClient<InterceptedService<Channel, Bearer>>,
    peer: Peer,
}

/// The server of a connection.
#[derive(Clone, Debug)]
struct Peer {
    /// The address as passed or as in [`READY_FILE`].
    address: String,
    uri: Uri,
    tls: Option<Tls>,
}

impl Connection {
    /// Finds the agent and connects.
    ///
    /// # Errors
    ///
    /// [`AgentError`] if it does not run, or no connection is made within 2 s.
    pub async fn open(target: &Target) -> Result<Self, AgentError> {
        let address = match &target.operators {
            Some(address) => address.clone(),
            None => ready(&target.runtime_dir)?.address(target.tls.is_some()),
        };
        let scheme = if target.tls.is_some() { "https" } else { "http" };
        let complete = address.starts_with(UNIX) || address.contains("://");
        let url = if complete { address.clone() } else { format!("{scheme}://{address}") };
        let no_address = |_| AgentError::Address(address.clone());
        let mut endpoint = Endpoint::from_shared(url).map_err(no_address)?;
        let peer = Peer { address: address.clone(), uri: endpoint.uri().clone(), tls: target.tls.clone() };
        // On a Unix socket, the kernel says who is there.
        if let Some(tls) = target.tls.as_ref().filter(|_| !address.starts_with(UNIX)) {
            // The certificates were checked when they were read, so that an error here is about the address.
            endpoint = endpoint.tls_config(tls.client()).map_err(no_address)?;
        }
        match endpoint.connect_timeout(CONNECT_TIMEOUT).timeout(REQUEST_TIMEOUT).connect().await {
            Ok(channel) => {
                let token = peer.tls.as_ref().and_then(|tls| tls.token_file().cloned());
                let client = OperatorsClient::with_interceptor(channel, Bearer(token));
                // The agent's limit; tonic's own is 4 MiB, which the status of some hundred busy services exceeds.
                Ok(Self { client: client.max_decoding_message_size(MAX_MESSAGE_BYTES), peer })
            }
            Err(error) => Err(peer.unreachable(printable(innermost(&error))).await),
        }
    }

    /// The agent, its workers, and each LMAP's last summary.
    ///
    /// # Errors
    ///
    /// [`AgentError::Unreachable`] if there is no reply within 3 s, [`AgentError::Tls`] if TLS fails,
    /// [`AgentError::Refused`] if the reply is an error.
    pub async fn status(&mut self) -> Result<StatusReply, AgentError> {
        match self.client.status(StatusRequest {}).await {
            Ok(reply) => Ok(printable(reply.into_inner())),
            Err(status) => Err(self.peer.error(&status).await),
        }
    }

    /// Spans and requests that were seen, kept, dropped and lost, per day and service.
    ///
    /// # Errors
    ///
    /// As [`status`](Self::status).
    pub async fn receipt(&mut self) -> Result<ReceiptReply, AgentError> {
        match self.client.receipt(ReceiptRequest {}).await {
            Ok(reply) => Ok(printable(reply.into_inner())),
            Err(status) => Err(self.peer.error(&status).await),
        }
    }

    /// Operations and the services on their paths. `None` if traces are not buffered.
    ///
    /// # Errors
    ///
    /// As [`status`](Self::status).
    pub async fn paths(&mut self) -> Result<Option<PathsReply>, AgentError> {
        match self.client.paths(PathsRequest {}).await {
            Ok(reply) => Ok(Some(printable(reply.into_inner()))),
            Err(status) if status.code() == tonic::Code::FailedPrecondition => Ok(None),
            Err(status) => Err(self.peer.error(&status).await),
        }
    }

    /// Endpoints that the agent scrapes, and which of their series are watched.
    ///
    /// # Errors
    ///
    /// As [`status`](Self::status).
    pub async fn sources(&mut self) -> Result<SourcesReply, AgentError> {
        match self.client.sources(SourcesRequest {}).await {
            Ok(reply) => Ok(printable(reply.into_inner())),
            Err(status) => Err(self.peer.error(&status).await),
        }
    }

    /// The incidents that are kept, the newest first.
    ///
    /// # Errors
    ///
    /// As [`status`](Self::status).
    pub async fn incidents(&mut self) -> Result<IncidentsReply, AgentError> {
        match self.client.incidents(IncidentsRequest {}).await {
            Ok(reply) => Ok(printable(reply.into_inner())),
            Err(status) => Err(self.peer.error(&status).await),
        }
    }

    /// The incident that `id` names: an address, its unique beginning, or nothing for the newest.
    ///
    /// # Errors
    ///
    /// As [`status`](Self::status); [`AgentError::Declined`] if there is none, or several.
    pub async fn incident(&mut self, id: String) -> Result<IncidentReply, AgentError> {
        match self.client.incident(IncidentRequest { id }).await {
            Ok(reply) => Ok(printable(reply.into_inner())),
            Err(status) => Err(self.peer.error(&status).await),
        }
    }

    /// An address of the live page, which opens it once.
    ///
    /// # Errors
    ///
    /// As [`status`](Self::status); [`AgentError::Declined`] if there is no page.
    pub async fn open_page(&mut self) -> Result<OpenPageReply, AgentError> {
        match self.client.open_page(OpenPageRequest {}).await {
            Ok(reply) => Ok(printable(reply.into_inner())),
            Err(status) => Err(self.peer.error(&status).await),
        }
    }

    /// All LMAPs with their services, replicas and metrics.
    ///
    /// # Errors
    ///
    /// As [`status`](Self::status).
    pub async fn list(&mut self) -> Result<ListReply, AgentError> {
        match self.client.list(ListRequest {}).await {
            Ok(reply) => Ok(printable(reply.into_inner())),
            Err(status) => Err(self.peer.error(&status).await),
        }
    }

    /// Subscribes to every `every`th row of an LMAP and of those that follow it. The stream begins with the rows that
    /// the worker has buffered.
    ///
    /// # Errors
    ///
    /// As [`status`](Self::status). Later errors end the stream.
    pub async fn watch_rows(&mut self, lmap: u32, every: u32) -> Result<Messages<RowEvent>, AgentError> {
        match self.client.watch_rows(WatchRowsRequest { lmap, every, follow: true }).await {
            Ok(reply) => Ok(Messages::of(reply.into_inner())),
            Err(status) => Err(self.peer.error(&status).await),
        }
    }

    /// Subscribes to the verdicts of all LMAPs, from now on.
    ///
    /// # Errors
    ///
    /// As [`status`](Self::status). Later errors end the stream.
    pub async fn hook(&mut self) -> Result<Messages<HookEvent>, AgentError> {
        match self.client.register_hook(RegisterHookRequest::default()).await {
            Ok(reply) => Ok(Messages::of(reply.into_inner())),
            Err(status) => Err(self.peer.error(&status).await),
        }
    }

    /// The address of the agent.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.peer.address
    }
}

impl Peer {
    /// Sorts an error status: one from the agent has no source, one from the connection has.
    async fn error(&self, status: &tonic::Status) -> AgentError {
        use tonic::Code::{
            AlreadyExists, Cancelled, DeadlineExceeded, FailedPrecondition, InvalidArgument, NotFound, OutOfRange,
            PermissionDenied, ResourceExhausted, Unauthenticated, Unavailable,
        };
        // One that says Unavailable by itself is there, and cannot do what it would have to do.
        let is_silent = matches!(status.code(), Unavailable) && status.message().is_empty();
        if status.source().is_some() || is_silent || matches!(status.code(), Cancelled | DeadlineExceeded) {
            return self.unreachable(printable(innermost(status))).await;
        }
        let message = replies::text(status);
        match status.code() {
            PermissionDenied | Unauthenticated => AgentError::Denied(message),
            NotFound | AlreadyExists | FailedPrecondition | InvalidArgument | OutOfRange | ResourceExhausted
            | Unavailable => AgentError::Declined(message),
            _ => AgentError::Refused { address: self.address.clone(), message },
        }
    }

    /// Finds out whether TLS is the reason; else the error is `cause`.
    async fn unreachable(&self, cause: String) -> AgentError {
        let address = self.address.clone();
        if address.starts_with(UNIX) {
            return AgentError::Unreachable { address, cause };
        }
        let host = self.uri.host().unwrap_or_default().trim_matches(['[', ']']);
        let port = self.uri.port_u16().unwrap_or(if self.tls.is_some() { 443 } else { 80 });
        match tls::diagnose(host, port, self.tls.as_ref()).await {
            Some(problem) => AgentError::Tls { address, problem },
            None => AgentError::Unreachable { address, cause },
        }
    }
}

/// Connects and asks for the status once, on a runtime of its own.
///
/// # Errors
///
/// [`Failure`] to do `what`, if the agent cannot be asked.
pub fn status_once(target: &Target, what: &str) -> Result<StatusReply, Failure> {
    let request = async { Connection::open(target).await?.status().await };
    runtime(what)?.block_on(request).map_err(|error| error.into_failure(what))
}

/// A tokio runtime on the calling thread.
///
/// # Errors
///
/// [`Failure`] to do `what`, if the system has no resources for it.
pub fn runtime(what: &str) -> Result<tokio::runtime::Runtime, Failure> {
    let built = tokio::runtime::Builder::new_current_thread().enable_all().build();
    built.map_err(|error| Failure::to(what).because("the system has no event queue left").caused_by(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_argument_comes_before_the_environment_and_that_before_the_default() {
        let target = |argument: Option<&str>, environment: Option<&str>| {
            let args = AgentArgs { runtime_dir: argument.map(PathBuf::from), ..AgentArgs::default() };
            args.named_target(environment.map(PathBuf::from)).unwrap().runtime_dir
        };

        assert_eq!(target(Some("/a"), Some("/b")), Path::new("/a"));
        assert_eq!(target(None, Some("/b")), Path::new("/b"));
        assert_eq!(target(None, None), Path::new(RUNTIME_DIR));
    }

    #[test]
    fn a_missing_and_a_malformed_file_are_different_errors() {
        let directory = tempfile::tempdir().unwrap();

        assert!(matches!(ready(directory.path()), Err(AgentError::NotReady(_))));
        std::fs::write(directory.path().join(READY_FILE), b"[1, 2]").unwrap();
        assert!(matches!(ready(directory.path()), Err(AgentError::Malformed { .. })));
    }

    #[test]
    fn a_file_of_a_newer_agent_is_understood() {
        let directory = tempfile::tempdir().unwrap();
        let text =
            r#"{"pid": 12, "incarnation": 3, "operators": "unix:/a/operators.sock", "something": {"new": true}}"#;
        std::fs::write(directory.path().join(READY_FILE), text).unwrap();

        assert_eq!(
            ready(directory.path()).unwrap(),
            ReadyAgent { pid: 12, operators: "unix:/a/operators.sock".to_owned(), operators_listen: None }
        );
    }
}
