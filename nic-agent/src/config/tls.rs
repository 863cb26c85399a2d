//! Certificates of a client, and of its server.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

/// Files with certificates in PEM.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// The authority of the host agent's certificate.
    pub ca: PathBuf,
    /// The name in it; the host of the address if left out.
    pub domain: Option<String>,
    /// This worker's own certificate; none if left out.
    pub certificate: Option<PathBuf>,
    /// Its key.
    pub key: Option<PathBuf>,
}

/// Why certificates cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file.
    #[error("cannot read {}", .path.display())]
    Read {
        /// Which one.
        path: PathBuf,
        /// Why.
        #[source]
        cause: std::io::Error,
    },
    /// A certificate without its key, or a key without its certificate.
    #[error("control.tls.certificate and control.tls.key belong together, one is missing")]
    Half,
    /// They are no certificates.
    #[error("the certificates cannot be used")]
    Certificates(#[source] tonic::transport::Error),
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|cause| TlsError::Read { path: path.to_owned(), cause })
}

impl Tls {
    /// What a client needs.
    ///
    /// # Errors
    ///
    /// [`TlsError`] if a file cannot be read, or half of the client's identity is missing.
    pub fn client(&self) -> Result<ClientTlsConfig, TlsError> {
        let mut client = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(&self.ca)?));
        if let Some(domain) = &self.domain {
            client = client.domain_name(domain);
        }
        match (&self.certificate, &self.key) {
            (None, None) => Ok(client),
            (Some(certificate), Some(key)) => Ok(client.identity(Identity::from_pem(read(certificate)?, read(key)?))),
            _ => Err(TlsError::Half),
        }
    }
}
