//! Why the NIC agent cannot run.

use agent_runtime::TlsError;
use agent_runtime::access::UnknownName;
use agent_runtime::listen::BindError;
use agent_runtime::socket_file::ListenError;

use crate::config::SwitchFileError;

/// Why the NIC agent cannot run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The address of the host agent is invalid.
    #[error("control.address {address:?} is not a valid address")]
    Address {
        /// The configured address.
        address: String,
        /// The invalid part.
        #[source]
        cause: tonic::transport::Error,
    },
    /// The certificates of `control.tls` cannot be used.
    #[error("control.tls")]
    Tls(#[from] TlsError),
    /// There is no usable RDMA device.
    #[error("no RDMA: {0}; run `uview check`, or set transport: shm if the host agent is on this machine")]
    Rdma(String),
    /// The fragment cannot have this size. Does not occur with a checked configuration.
    #[error("network.fragment")]
    Fragment(#[source] synopses::disaggregated::SettingsError),
    /// The address of `/metrics` cannot be bound.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The socket of the models cannot be listened on.
    #[error("models.socket")]
    Listen(#[from] ListenError),
    /// The configuration grants a role to somebody whom this system does not know.
    #[error(transparent)]
    Access(#[from] UnknownName),
    /// The constants of a stream's switch cannot be used.
    #[error("network.streams.switch.constants; `uview p4 constants` writes such a file")]
    Switch(#[source] SwitchFileError),
    /// The system cannot start a thread.
    #[error("cannot start a thread")]
    Thread(#[source] std::io::Error),
    /// The worker's thread ended unexpectedly.
    #[error("the worker's thread ended unexpectedly; this is a bug")]
    Broken,
}
