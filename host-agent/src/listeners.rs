//! The sockets that the host agent listens on, and the file that names them.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use agent_runtime::TlsError;
use agent_runtime::listen::tcp;
use agent_runtime::live_tls::LiveServer;
use agent_runtime::server::Listener;
use agent_runtime::socket_file::SocketFile;
use serde::Serialize;
use tokio::net::{TcpListener, UnixListener};
use tokio_rustls::TlsAcceptor;
use wire::id::Incarnation;

use crate::config::Config;
use crate::run_error::RunError;

/// Contents of `host-agent.json`, by which others find the running agent.
#[derive(Debug, Serialize)]
struct Addresses<'a> {
    pid: u32,
    incarnation: u64,
    /// `unix:` and the path of the workers' socket.
    control: String,
    /// Where workers of other machines connect.
    control_listen: Option<SocketAddr>,
    /// `unix:` and the path of the operators' socket.
    operators: String,
    operators_listen: Option<SocketAddr>,
    metrics: SocketAddr,
    page: Option<SocketAddr>,
    /// The gRPC and the HTTP address; empty if OTLP is off.
    otlp: Vec<SocketAddr>,
    services: &'a Path,
    regions: &'a Path,
}

/// `host-agent.json`, removed on drop.
pub(crate) struct AddressFile(PathBuf);

impl Drop for AddressFile {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.0) {
            tracing::warn!(path = %self.0.display(), %error, "cannot remove the file");
        }
    }
}

/// All listening sockets of the agent.
pub(crate) struct Listeners {
    pub(crate) services: (UnixListener, SocketFile),
    pub(crate) regions: (UnixListener, SocketFile),
    pub(crate) regions_uid: u32,
    pub(crate) control: ApiListeners,
    pub(crate) operators: ApiListeners,
    pub(crate) metrics: (TcpListener, SocketAddr),
    /// `None`: there is no page.
    pub(crate) page: Option<(TcpListener, SocketAddr)>,
    pub(crate) otlp: Vec<(TcpListener, SocketAddr)>,
}

/// The listeners of a gRPC API.
pub(crate) struct ApiListeners {
    unix: (UnixListener, SocketFile),
    tcp: Option<(TcpListener, SocketAddr)>,
}

impl ApiListeners {
    /// Everybody may connect to the socket, to be refused with the reason.
    async fn open(socket: &Path, key: &'static str, listen: Option<SocketAddr>) -> Result<Self, RunError> {
        let tcp = match listen {
            Some(address) => Some(tcp(key, address).await?),
            None => None,
        };
        Ok(Self { unix: unix(socket, 0o666)?, tcp })
    }

    /// `unix:` and the path of the socket.
    pub(crate) fn endpoint(&self) -> String {
        format!("unix:{}", self.unix.1.path().display())
    }

    fn address(&self) -> Option<SocketAddr> {
        self.tcp.as_ref().map(|(_, address)| *address)
    }

    /// The listeners, and the socket's file.
    pub(crate) fn split(self) -> (Vec<Listener>, SocketFile) {
        let (unix, file) = self.unix;
        let tcp = self.tcp.map(|(listener, _)| Listener::Tcp(listener));
        ([Listener::Unix(unix)].into_iter().chain(tcp).collect(), file)
    }
}

impl Listeners {
    /// Opens the sockets that `config` names, whose runtime directory there is.
    ///
    /// # Errors
    ///
    /// [`RunError`] if an address or socket is in use.
    pub(crate) async fn open(config: &Config) -> Result<Self, RunError> {
        let folder = &config.runtime_dir.0;
        let own_uid = rustix::process::geteuid().as_raw();
        let regions_uid = config.regions.uid.unwrap_or(own_uid);
        let mut otlp = Vec::new();
        if config.otlp.is_on() {
            otlp.push(tcp("otlp.listen_grpc", config.otlp.listen_grpc).await?);
            otlp.push(tcp("otlp.listen_http", config.otlp.listen_http).await?);
        }
        // Other users must be able to connect, to be refused by uid with a log line.
        let regions_mode = if regions_uid == own_uid { 0o600 } else { 0o666 };
        Ok(Self {
            services: unix(&folder.join("services.sock"), 0o666)?,
            regions: unix(&folder.join("regions.sock"), regions_mode)?,
            regions_uid,
            control: ApiListeners::open(&folder.join("control.sock"), "control.listen", config.control.listen).await?,
            operators: {
                let listen = config.operators.listen;
                ApiListeners::open(&folder.join("operators.sock"), "operators.listen", listen).await?
            },
            metrics: tcp("metrics.listen", config.metrics.listen).await?,
            page: if config.page.enabled { Some(tcp("page.listen", config.page.listen).await?) } else { None },
            otlp,
        })
    }

    /// Logs where the agent is reached, and what is open to anybody.
    pub(crate) fn log_start(&self, config: &Config, incarnation: Incarnation, transports: &str) {
        tracing::info!(
            %incarnation, control = self.control.endpoint(), operators = self.operators.endpoint(),
            metrics = %self.metrics.1, runtime_dir = %config.runtime_dir.0.display(), transports, "host agent started"
        );
        for warning in config.warnings() {
            tracing::warn!("{warning}");
        }
    }

    /// Writes `host-agent.json` atomically (rename).
    pub(crate) fn announce(&self, folder: &Path, incarnation: Incarnation) -> Result<AddressFile, RunError> {
        let addresses = Addresses {
            pid: std::process::id(),
            incarnation: incarnation.0,
            control: self.control.endpoint(),
            control_listen: self.control.address(),
            operators: self.operators.endpoint(),
            operators_listen: self.operators.address(),
            metrics: self.metrics.1,
            page: self.page.as_ref().map(|(_, address)| *address),
            otlp: self.otlp.iter().map(|(_, address)| *address).collect(),
            services: self.services.1.path(),
            regions: self.regions.1.path(),
        };
        let path = folder.join("host-agent.json");
        let draft = folder.join(".host-agent.json.new");
        let written = serde_json::to_vec(&addresses).map_err(io::Error::from).and_then(|mut text| {
            text.push(b'\n');
            std::fs::write(&draft, text)?;
            std::fs::rename(&draft, &path)
        });
        written.map_err(|cause| RunError::Runtime { path: path.clone(), cause })?;
        Ok(AddressFile(path))
    }
}

/// The TLS of a gRPC API over TCP.
pub(crate) fn acceptor(tls: Option<&LiveServer>) -> Result<Option<TlsAcceptor>, TlsError> {
    tls.map(|tls| tls.acceptor(b"h2")).transpose()
}

fn unix(path: &Path, mode: u32) -> Result<(UnixListener, SocketFile), RunError> {
    let (listener, listening) = SocketFile::bind(path, mode)?;
    let listener = UnixListener::from_std(listener).map_err(|cause| RunError::Runtime { path: path.into(), cause })?;
    Ok((listener, listening))
}
