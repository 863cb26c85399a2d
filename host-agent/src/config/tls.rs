//! Certificates of a server, and of its clients.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use tonic::transport::{Certificate, Identity, ServerTlsConfig};

/// Files with certificates in PEM.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// The server's certificate, and those between it and the authority.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// The authority of clients' certificates. Without, clients need none.
    pub client_ca: Option<PathBuf>,
}

/// A file with a certificate or key that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {}", .path.display())]
pub struct TlsError {
    path: PathBuf,
    #[source]
    cause: std::io::Error,
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|cause| TlsError { path: path.to_owned(), cause })
}

impl Tls {
    /// What a server needs. Whether the certificates are any good is found out when it starts.
    ///
    /// # Errors
    ///
    /// [`TlsError`] with the file that cannot be read.
    pub fn server(&self) -> Result<ServerTlsConfig, TlsError> {
        let identity = Identity::from_pem(read(&self.certificate)?, read(&self.key)?);
        let server = ServerTlsConfig::new().identity(identity);
        Ok(match &self.client_ca {
            Some(path) => server.client_ca_root(Certificate::from_pem(read(path)?)),
            None => server,
        })
    }
}
