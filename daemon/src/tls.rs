//! Certificates of a server and of a client, in PEM.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use tonic::transport::{Certificate, ClientTlsConfig, Identity, ServerTlsConfig};

/// What a server shows, and what it asks of its clients.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerTls {
    /// The server's certificate, and those between it and the authority.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// The authority of clients' certificates. Without, clients need none.
    pub client_ca: Option<PathBuf>,
}

/// Whom a client trusts, and what it shows.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientTls {
    /// The authority of the server's certificate.
    pub ca: PathBuf,
    /// The name in it; the host of the address if left out.
    pub domain: Option<String>,
    /// The client's own certificate; none if left out.
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
    #[error("certificate and key belong together, one is missing")]
    Half,
    /// They are no certificates.
    #[error("the certificates cannot be used")]
    Certificates(#[source] tonic::transport::Error),
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|cause| TlsError::Read { path: path.to_owned(), cause })
}

impl ServerTls {
    /// What a server needs. Whether the certificates are any good is found out when it starts.
    ///
    /// # Errors
    ///
    /// [`TlsError::Read`] with the file that cannot be read.
    pub fn server(&self) -> Result<ServerTlsConfig, TlsError> {
        let identity = Identity::from_pem(read(&self.certificate)?, read(&self.key)?);
        let server = ServerTlsConfig::new().identity(identity);
        Ok(match &self.client_ca {
            Some(path) => server.client_ca_root(Certificate::from_pem(read(path)?)),
            None => server,
        })
    }
}

impl ClientTls {
    /// What a client needs.
    ///
    /// # Errors
    ///
    /// [`TlsError::Read`] if a file cannot be read, [`TlsError::Half`] if half of the client's identity is missing.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_an_identity_and_a_file_that_is_not_there_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let ca = folder.path().join("ca.pem");
        std::fs::write(&ca, "").unwrap();
        let half = ClientTls { ca: ca.clone(), domain: None, certificate: Some(ca), key: None };
        let missing = ServerTls { certificate: "/nowhere.pem".into(), key: "/nowhere.key".into(), client_ca: None };

        assert!(matches!(half.client(), Err(TlsError::Half)));
        assert_eq!(missing.server().unwrap_err().to_string(), "cannot read /nowhere.pem");
    }
}
