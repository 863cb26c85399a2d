//! Why the agent does not run.

use std::io;
use std::path::PathBuf;

use agent_runtime::TlsError;
use agent_runtime::access::UnknownName;
use agent_runtime::listen::BindError;
use agent_runtime::socket_file::ListenError;

use crate::config::ConfigError;
use crate::otlp_endpoint::OtlpError;

/// Why the agent did not start, or stopped by itself.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The configuration is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// `transport: verbs` is configured and RDMA cannot be used.
    #[error("no RDMA: {0}; run `uview check` for details, or set transport: auto to start without RDMA")]
    Rdma(String),
    /// A certificate cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The configuration grants a role to somebody whom this system does not know.
    #[error(transparent)]
    Access(#[from] UnknownName),
    /// A Unix socket cannot be listened on.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// A TCP address cannot be listened on.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The runtime directory, or a file in it, cannot be written.
    #[error("cannot write {}", .path.display())]
    Runtime {
        /// The directory or file.
        path: PathBuf,
        /// The cause, from the operating system.
        #[source]
        cause: io::Error,
    },
    /// A gRPC or HTTP server could not be set up, or failed.
    #[error("the {0} server failed")]
    Server(&'static str, #[source] Box<dyn core::error::Error + Send + Sync>),
    /// The OTLP endpoint could not be started.
    #[error("the OTLP endpoint cannot start")]
    Otlp(#[from] OtlpError),
    /// Cgroups cannot be read.
    #[error("sources.cgroups cannot be read; mount cgroup2 at /sys/fs/cgroup, or leave it out")]
    Cgroups(#[source] io::Error),
    /// There is no service account.
    #[error(
        "kubernetes.pods or kubernetes.tokens is on, and this is no pod with a service account: \
         automountServiceAccountToken has to be true"
    )]
    Kubernetes(#[source] Box<dyn core::error::Error + Send + Sync>),
    /// A thread could not be started.
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
}
