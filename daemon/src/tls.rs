//! Certificates of a server and of a client, in PEM: read, and known to fit together, before anybody needs them.

use core::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls_native_certs::CertificateResult;
use serde::Deserialize;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{self, ClientConfig, ConfigBuilder, RootCertStore, ServerConfig, WantsVerifier};
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

/// Whom a client of somebody else's server trusts, and what it shows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OutwardTls {
    /// The authority of the server's certificate; those that the system trusts if left out.
    pub ca: Option<PathBuf>,
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
    /// A file of something else.
    #[error("{} has no certificate in PEM", .0.display())]
    NoCertificate(PathBuf),
    /// A file of something else.
    #[error("{} has no private key in PEM", .0.display())]
    NoKey(PathBuf),
    /// Not a pair, or of a kind that is not known.
    #[error("the certificate {} cannot be used with the key {}", .certificate.display(), .key.display())]
    Pair {
        /// The one.
        certificate: PathBuf,
        /// The other.
        key: PathBuf,
        /// Why.
        #[source]
        cause: rustls::Error,
    },
    /// Neither a host's name nor an address.
    #[error("`{0}` is no name that a certificate can have")]
    Name(String),
    /// No authority in the system's store.
    #[error(
        "this system trusts no authority{}: install its certificates (Debian: ca-certificates), name a file in SSL_CERT_FILE, or one's own in tls.ca",
        .0.as_deref().map(|cause| format!(" ({cause})")).unwrap_or_default()
    )]
    NoSystemRoots(Option<String>),
    /// The library lacks what it needs.
    #[error("TLS cannot be set up")]
    Library(#[source] rustls::Error),
    /// The connection cannot be made with them.
    #[error("the certificates cannot be used")]
    Certificates(#[source] tonic::transport::Error),
}

/// Certificate and key of one side, in two forms: as bytes, and as the library below wants them.
struct Own {
    identity: Identity,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl Own {
    fn read(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let (chain, secret) = (read(certificate)?, read(key)?);
        let identity = Identity::from_pem(&chain, &secret);
        let secret = PrivateKeyDer::from_pem_slice(&secret).map_err(|_| TlsError::NoKey(key.to_owned()))?;
        Ok(Self { identity, chain: certificates(&chain, certificate)?, key: secret })
    }
}

/// Somebody to be trusted, and who that is.
fn authority(path: &Path) -> Result<(Certificate, RootCertStore), TlsError> {
    let pem = read(path)?;
    let mut roots = RootCertStore::empty();
    if roots.add_parsable_certificates(certificates(&pem, path)?).0 == 0 {
        return Err(TlsError::NoCertificate(path.to_owned()));
    }
    Ok((Certificate::from_pem(pem), roots))
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|cause| TlsError::Read { path: path.to_owned(), cause })
}

/// All certificates in `pem`, at least one.
fn certificates(pem: &[u8], path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let all = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>().unwrap_or_default();
    if all.is_empty() { Err(TlsError::NoCertificate(path.to_owned())) } else { Ok(all) }
}

/// The beginning of a client's configuration, with the versions of the protocol that are safe.
///
/// # Errors
///
/// [`TlsError::Library`] if the library lacks what these need.
pub fn tls_builder() -> Result<ConfigBuilder<ClientConfig, WantsVerifier>, TlsError> {
    let provider = Arc::new(ring::default_provider());
    ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().map_err(TlsError::Library)
}

impl ServerTls {
    /// What a server needs.
    ///
    /// # Errors
    ///
    /// [`TlsError`] if a file cannot be read or has something else in it, or certificate and key are no pair.
    pub fn server(&self) -> Result<ServerTlsConfig, TlsError> {
        let own = Own::read(&self.certificate, &self.key)?;
        let mut server = ServerTlsConfig::new().identity(own.identity);
        if let Some(path) = &self.client_ca {
            server = server.client_ca_root(authority(path)?.0);
        }
        self.library()?;
        Ok(server)
    }

    /// The same for the library below, without a protocol to speak inside.
    ///
    /// # Errors
    ///
    /// Those of [`server`](Self::server).
    pub fn library(&self) -> Result<ServerConfig, TlsError> {
        let own = Own::read(&self.certificate, &self.key)?;
        let provider = Arc::new(ring::default_provider());
        let versions = ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
        let builder = versions.map_err(TlsError::Library)?;
        let builder = match &self.client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let roots = Arc::new(authority(path)?.1);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).build();
                builder.with_client_cert_verifier(verifier.map_err(|_| TlsError::NoCertificate(path.clone()))?)
            }
        };
        builder.with_single_cert(own.chain, own.key).map_err(|cause| pair(&self.certificate, &self.key, cause))
    }
}

/// What a client needs, in two forms.
#[derive(Clone)]
pub struct ClientConfigs {
    /// For a channel.
    pub channel: ClientTlsConfig,
    /// For the library below, without a protocol to speak inside.
    pub library: ClientConfig,
}

// Without the key.
impl fmt::Debug for ClientConfigs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientConfigs").finish_non_exhaustive()
    }
}

impl ClientTls {
    /// What a channel needs.
    ///
    /// # Errors
    ///
    /// Those of [`load`](Self::load).
    pub fn client(&self) -> Result<ClientTlsConfig, TlsError> {
        Ok(self.load()?.channel)
    }

    /// Reads the files.
    ///
    /// # Errors
    ///
    /// [`TlsError`] if a file cannot be read or has something else in it, half of the client's identity is missing, certificate and key
    /// are no pair, or the name is none.
    pub fn load(&self) -> Result<ClientConfigs, TlsError> {
        let Self { ca, domain, certificate, key } = self;
        configs(authority(ca)?.1, domain.as_deref(), certificate.as_deref(), key.as_deref())
    }
}

impl OutwardTls {
    /// Reads the files, and the system's store where there is no authority of its own: SSL_CERT_FILE and SSL_CERT_DIR, where they are set, else where
    /// OpenSSL of this system has it.
    ///
    /// # Errors
    ///
    /// Those of [`ClientTls::load`], and [`TlsError::NoSystemRoots`] if the store is empty or cannot be read.
    pub fn load(&self) -> Result<ClientConfigs, TlsError> {
        let Self { ca, domain, certificate, key } = self;
        let roots = match ca {
            Some(path) => authority(path)?.1,
            None => system_roots(rustls_native_certs::load_native_certs())?,
        };
        configs(roots, domain.as_deref(), certificate.as_deref(), key.as_deref())
    }
}

/// What was found in the system's store, if that is anything. What cannot be read among others is left out.
fn system_roots(found: CertificateResult) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    if roots.add_parsable_certificates(found.certs).0 == 0 {
        return Err(TlsError::NoSystemRoots(found.errors.first().map(ToString::to_string)));
    }
    Ok(roots)
}

/// A client that trusts `roots`.
fn configs(
    roots: RootCertStore,
    domain: Option<&str>,
    certificate: Option<&Path>,
    key: Option<&Path>,
) -> Result<ClientConfigs, TlsError> {
    let mut channel = ClientTlsConfig::new().trust_anchors(roots.roots.iter().cloned());
    if let Some(domain) = domain {
        ServerName::try_from(domain).map_err(|_| TlsError::Name(domain.to_owned()))?;
        channel = channel.domain_name(domain);
    }
    let builder = tls_builder()?.with_root_certificates(roots);
    let library = match (certificate, key) {
        (None, None) => builder.with_no_client_auth(),
        (Some(certificate), Some(key)) => {
            let own = Own::read(certificate, key)?;
            channel = channel.identity(own.identity);
            builder.with_client_auth_cert(own.chain, own.key).map_err(|cause| pair(certificate, key, cause))?
        }
        _ => return Err(TlsError::Half),
    };
    Ok(ClientConfigs { channel, library })
}

fn pair(certificate: &Path, key: &Path, cause: rustls::Error) -> TlsError {
    TlsError::Pair { certificate: certificate.to_owned(), key: key.to_owned(), cause }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Files(tempfile::TempDir);

    impl Files {
        /// Two certificates `a.pem` and `b.pem` with their keys `a.key` and `b.key`, and `empty`.
        fn new() -> Self {
            let files = Self(tempfile::tempdir().unwrap());
            for name in ["a", "b"] {
                let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
                std::fs::write(files.path(&format!("{name}.pem")), made.cert.pem()).unwrap();
                std::fs::write(files.path(&format!("{name}.key")), made.signing_key.serialize_pem()).unwrap();
            }
            std::fs::write(files.path("empty"), "").unwrap();
            files
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn server(&self, certificate: &str, key: &str, ca: &str) -> Result<ServerTlsConfig, TlsError> {
            let client_ca = Some(self.path(ca));
            ServerTls { certificate: self.path(certificate), key: self.path(key), client_ca }.server()
        }

        fn client(&self, ca: &str, domain: &str, own: [Option<&str>; 2]) -> Result<ClientTlsConfig, TlsError> {
            let [certificate, key] = own.map(|name| name.map(|name| self.path(name)));
            ClientTls { ca: self.path(ca), domain: Some(domain.to_owned()), certificate, key }.client()
        }
    }

    #[test]
    fn what_fits_together_is_taken() {
        let files = Files::new();

        assert!(files.server("a.pem", "a.key", "b.pem").is_ok());
        assert!(files.client("a.pem", "agent", [Some("b.pem"), Some("b.key")]).is_ok());
        assert!(files.client("a.pem", "agent", [None, None]).is_ok());
    }

    #[test]
    fn a_server_is_told_which_file_is_wrong() {
        let files = Files::new();
        let cases = [("nowhere", "a.key", "b.pem"), ("empty", "a.key", "b.pem"), ("a.pem", "empty", "b.pem")];

        let [missing, no_certificate, no_key] = cases.map(|(pem, key, ca)| files.server(pem, key, ca).unwrap_err());

        assert!(matches!(missing, TlsError::Read { .. }), "{missing}");
        assert!(matches!(no_certificate, TlsError::NoCertificate(_)), "{no_certificate}");
        assert!(matches!(no_key, TlsError::NoKey(_)), "{no_key}");
        assert!(matches!(files.server("a.pem", "b.key", "b.pem"), Err(TlsError::Pair { .. })));
        assert!(matches!(files.server("a.pem", "a.key", "a.key"), Err(TlsError::NoCertificate(_))));
    }

    #[test]
    fn a_client_is_told_which_file_is_wrong() {
        let files = Files::new();

        assert!(matches!(files.client("a.key", "agent", [None, None]), Err(TlsError::NoCertificate(_))));
        assert!(matches!(files.client("a.pem", "not a name", [None, None]), Err(TlsError::Name(_))));
        assert!(matches!(files.client("a.pem", "agent", [Some("b.pem"), None]), Err(TlsError::Half)));
        assert!(matches!(files.client("a.pem", "agent", [Some("b.pem"), Some("a.key")]), Err(TlsError::Pair { .. })));
    }

    #[test]
    fn whom_the_system_trusts_is_trusted_and_an_empty_store_is_named() {
        let files = Files::new();
        let store = |name: &str| rustls_native_certs::load_certs_from_paths(Some(&files.path(name)), None);

        assert_eq!(system_roots(store("a.pem")).unwrap().roots.len(), 1);
        for name in ["empty", "nowhere"] {
            let error = system_roots(store(name)).unwrap_err();
            assert!(matches!(error, TlsError::NoSystemRoots(_)), "{error:?}");
            assert!(error.to_string().contains("tls.ca"), "{error}");
        }
        // What it trusts itself comes before the store.
        assert!(OutwardTls { ca: Some(files.path("a.pem")), ..OutwardTls::default() }.load().is_ok());
        let wrong = OutwardTls { ca: Some(files.path("empty")), ..OutwardTls::default() };
        assert!(matches!(wrong.load(), Err(TlsError::NoCertificate(_))));
    }
}
