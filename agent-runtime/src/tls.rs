//! Certificates of a server and of a client, in PEM. They are read and checked as a whole before the first connection.

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

/// The certificate of a server, and whether its clients need one.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerTls {
    /// The server's certificate chain: its own certificate, then the intermediate ones.
    pub certificate: PathBuf,
    /// The private key of the certificate.
    pub key: PathBuf,
    /// The authority that signs clients' certificates. Without one, clients need no certificate.
    pub client_ca: Option<PathBuf>,
}

/// The authority that a client trusts, and its own certificate.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientTls {
    /// The authority that signed the server's certificate.
    pub ca: PathBuf,
    /// The name in the server's certificate; by default the host of the address.
    pub domain: Option<String>,
    /// The client's own certificate; by default none.
    pub certificate: Option<PathBuf>,
    /// The private key of the client's certificate.
    pub key: Option<PathBuf>,
}

/// The same for a server that is not an agent, such as a collector: by default the client trusts what the system
/// trusts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OutwardTls {
    /// The authority that signed the server's certificate; by default those that the system trusts.
    pub ca: Option<PathBuf>,
    /// The name in the server's certificate; by default the host of the address.
    pub domain: Option<String>,
    /// The client's own certificate; by default none.
    pub certificate: Option<PathBuf>,
    /// The private key of the client's certificate.
    pub key: Option<PathBuf>,
}

/// Why certificates cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {}", .path.display())]
    Read {
        /// The certificate or key file.
        path: PathBuf,
        /// What the operating system reported.
        #[source]
        cause: std::io::Error,
    },
    /// A certificate without its key, or a key without its certificate.
    #[error("certificate and key belong together, one is missing")]
    Incomplete,
    /// The file has something else than certificates.
    #[error("{} has no certificate in PEM", .0.display())]
    NoCertificate(PathBuf),
    /// The file has something else than a private key.
    #[error("{} has no private key in PEM", .0.display())]
    NoKey(PathBuf),
    /// Certificate and key do not match, or their algorithm is not supported.
    #[error("the certificate {} cannot be used with the key {}", .certificate.display(), .key.display())]
    Pair {
        /// The certificate file.
        certificate: PathBuf,
        /// The key file.
        key: PathBuf,
        /// What rustls reported.
        #[source]
        cause: rustls::Error,
    },
    /// Neither a host name nor an IP address.
    #[error("`{0}` is no name that a certificate can have")]
    Name(String),
    /// The system's certificate store is empty or cannot be read.
    #[error(
        "this system trusts no authority{}: install ca-certificates, or name a file in SSL_CERT_FILE or as ca (tls.ca) in the configuration",
        .0.as_deref().map(|cause| format!(" ({cause})")).unwrap_or_default()
    )]
    NoSystemRoots(Option<String>),
    /// rustls lacks a cipher or protocol version that is needed.
    #[error("TLS cannot be set up")]
    Library(#[source] rustls::Error),
    /// tonic refuses the certificates.
    #[error("the certificates cannot be used")]
    Certificates(#[source] tonic::transport::Error),
}

/// Certificate chain and key of one side, in two forms: PEM for tonic, DER for rustls.
pub(crate) struct Credentials {
    identity: Identity,
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
}

impl Credentials {
    pub(crate) fn read(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let (chain, secret) = (read(certificate)?, read(key)?);
        let identity = Identity::from_pem(&chain, &secret);
        let secret = PrivateKeyDer::from_pem_slice(&secret).map_err(|_| TlsError::NoKey(key.to_owned()))?;
        Ok(Self { identity, chain: certificates(&chain, certificate)?, key: secret })
    }
}

/// The authority in `path`, in two forms: for tonic and for rustls.
pub(crate) fn authority(path: &Path) -> Result<(Certificate, RootCertStore), TlsError> {
    let pem = read(path)?;
    let roots = roots(&pem, path)?;
    Ok((Certificate::from_pem(pem), roots))
}

/// The authorities in `pem`, which is from `path`, for rustls.
pub(crate) fn roots(pem: &[u8], path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    if roots.add_parsable_certificates(certificates(pem, path)?).0 == 0 {
        return Err(TlsError::NoCertificate(path.to_owned()));
    }
    Ok(roots)
}

pub(crate) fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|cause| TlsError::Read { path: path.to_owned(), cause })
}

/// All certificates in `pem`, at least one.
pub(crate) fn certificates(pem: &[u8], path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let all = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>().unwrap_or_default();
    if all.is_empty() { Err(TlsError::NoCertificate(path.to_owned())) } else { Ok(all) }
}

/// A builder of a client's configuration, with ring and the protocol versions that rustls considers safe.
///
/// # Errors
///
/// [`TlsError::Library`] if rustls does not support them.
pub fn tls_builder() -> Result<ConfigBuilder<ClientConfig, WantsVerifier>, TlsError> {
    let provider = Arc::new(ring::default_provider());
    ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().map_err(TlsError::Library)
}

impl ServerTls {
    /// The files that it names.
    pub fn files(&self) -> impl Iterator<Item = &PathBuf> {
        [&self.certificate, &self.key].into_iter().chain(&self.client_ca)
    }

    /// The configuration of a tonic server.
    ///
    /// # Errors
    ///
    /// [`TlsError`] if a file cannot be read or has something else in it, or certificate and key do not match.
    pub fn server(&self) -> Result<ServerTlsConfig, TlsError> {
        let own = Credentials::read(&self.certificate, &self.key)?;
        let mut server = ServerTlsConfig::new().identity(own.identity);
        if let Some(path) = &self.client_ca {
            server = server.client_ca_root(authority(path)?.0);
        }
        self.library()?;
        Ok(server)
    }

    /// The same configuration for rustls, without ALPN.
    ///
    /// # Errors
    ///
    /// Those of [`server`](Self::server).
    pub fn library(&self) -> Result<ServerConfig, TlsError> {
        let own = Credentials::read(&self.certificate, &self.key)?;
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

/// The TLS configuration of a client, in two forms.
#[derive(Clone)]
pub struct ClientConfigs {
    /// For a tonic channel.
    pub channel: ClientTlsConfig,
    /// For rustls, without ALPN.
    pub library: ClientConfig,
    /// The name that the server's certificate must have, if not the host of the address.
    pub domain: Option<String>,
}

// Does not print the key.
impl fmt::Debug for ClientConfigs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientConfigs").finish_non_exhaustive()
    }
}

impl ClientTls {
    /// The files that it names.
    pub fn files(&self) -> impl Iterator<Item = &PathBuf> {
        [&self.ca].into_iter().chain(&self.certificate).chain(&self.key)
    }

    /// The configuration of a tonic channel.
    ///
    /// # Errors
    ///
    /// Those of [`load`](Self::load).
    pub fn client(&self) -> Result<ClientTlsConfig, TlsError> {
        Ok(self.load()?.channel)
    }

    /// Reads and checks the files.
    ///
    /// # Errors
    ///
    /// [`TlsError`] if a file cannot be read or has something else in it, only one of certificate and key is named,
    /// they do not match, or the domain is no valid name.
    pub fn load(&self) -> Result<ClientConfigs, TlsError> {
        let Self { ca, domain, certificate, key } = self;
        configs(authority(ca)?.1, domain.as_deref(), certificate.as_deref(), key.as_deref())
    }
}

impl From<&ClientTls> for OutwardTls {
    fn from(tls: &ClientTls) -> Self {
        let ClientTls { ca, domain, certificate, key } = tls.clone();
        Self { ca: Some(ca), domain, certificate, key }
    }
}

impl OutwardTls {
    /// The files that it names.
    pub fn files(&self) -> impl Iterator<Item = &PathBuf> {
        self.ca.iter().chain(&self.certificate).chain(&self.key)
    }

    /// Reads and checks the files. Without `ca`, the client trusts the system's store: SSL_CERT_FILE and SSL_CERT_DIR
    /// if they are set, else the directory of this system's OpenSSL.
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

/// The authorities of the system's store. Certificates that cannot be parsed are left out, unless none is left.
fn system_roots(found: CertificateResult) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    if roots.add_parsable_certificates(found.certs).0 == 0 {
        return Err(TlsError::NoSystemRoots(found.errors.first().map(ToString::to_string)));
    }
    Ok(roots)
}

/// The configuration of a client that trusts `roots`.
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
            let own = Credentials::read(certificate, key)?;
            channel = channel.identity(own.identity);
            builder.with_client_auth_cert(own.chain, own.key).map_err(|cause| pair(certificate, key, cause))?
        }
        _ => return Err(TlsError::Incomplete),
    };
    Ok(ClientConfigs { channel, library, domain: domain.map(str::to_owned) })
}

pub(crate) fn pair(certificate: &Path, key: &Path, cause: rustls::Error) -> TlsError {
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
                support::certificates::Subject::new(&[name]).self_signed().write(files.0.path(), name);
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
    fn matching_certificates_and_keys_are_accepted() {
        let files = Files::new();

        assert!(files.server("a.pem", "a.key", "b.pem").is_ok());
        assert!(files.client("a.pem", "agent", [Some("b.pem"), Some("b.key")]).is_ok());
        assert!(files.client("a.pem", "agent", [None, None]).is_ok());
    }

    #[test]
    fn the_error_of_a_server_names_the_wrong_file() {
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
    fn the_error_of_a_client_names_the_wrong_file() {
        let files = Files::new();

        assert!(matches!(files.client("a.key", "agent", [None, None]), Err(TlsError::NoCertificate(_))));
        assert!(matches!(files.client("a.pem", "not a name", [None, None]), Err(TlsError::Name(_))));
        assert!(matches!(files.client("a.pem", "agent", [Some("b.pem"), None]), Err(TlsError::Incomplete)));
        assert!(matches!(files.client("a.pem", "agent", [Some("b.pem"), Some("a.key")]), Err(TlsError::Pair { .. })));
    }

    #[test]
    fn the_systems_store_is_trusted_and_an_empty_one_is_an_error() {
        let files = Files::new();
        let store = |name: &str| rustls_native_certs::load_certs_from_paths(Some(&files.path(name)), None);

        assert_eq!(system_roots(store("a.pem")).unwrap().roots.len(), 1);
        for name in ["empty", "nowhere"] {
            let error = system_roots(store(name)).unwrap_err();
            assert!(matches!(error, TlsError::NoSystemRoots(_)), "{error:?}");
            assert!(error.to_string().contains("tls.ca"), "{error}");
        }
        // `ca` comes before the store.
        assert!(OutwardTls { ca: Some(files.path("a.pem")), ..OutwardTls::default() }.load().is_ok());
        let wrong = OutwardTls { ca: Some(files.path("empty")), ..OutwardTls::default() };
        assert!(matches!(wrong.load(), Err(TlsError::NoCertificate(_))));
    }
}
