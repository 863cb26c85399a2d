//! Certificates that are replaced while their listener listens, or their client runs. Connections that are open keep
//! what they began with; each new handshake takes the current certificate, key and authority.
//!
//! Sessions are not resumed: a resumed one would not be checked against the current authority.

use core::fmt;
use core::hash::{Hash as _, Hasher as _};
use std::hash::DefaultHasher;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::rustls::client::danger::HandshakeSignatureValid;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::{CertificateDer, UnixTime};
use tokio_rustls::rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use tokio_rustls::rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{
    self, CertificateError, DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig, SignatureScheme,
};

use tokio_rustls::TlsAcceptor;

use crate::certificate::common_name;
use crate::reload::Reloadable;
use crate::tls::{ClientConfigs, ClientTls, Credentials, ServerTls, TlsError, authority, pair, read, roots};

/// Certificate, key and authority of a listener, read and checked.
#[derive(Clone)]
pub struct ServerFiles {
    certified: Arc<CertifiedKey>,
    verifier: Arc<dyn ClientCertVerifier>,
    fingerprint: u64,
}

// Does not print the key.
impl fmt::Debug for ServerFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerFiles").field("fingerprint", &self.fingerprint).finish_non_exhaustive()
    }
}

/// A number that changes with the content of files.
fn fingerprint<'a>(paths: impl Iterator<Item = &'a Path>) -> Result<u64, TlsError> {
    let mut hasher = DefaultHasher::new();
    for path in paths {
        read(path)?.hash(&mut hasher);
    }
    Ok(hasher.finish())
}

impl ServerFiles {
    /// Reads and checks the files.
    ///
    /// # Errors
    ///
    /// [`TlsError`] if a file cannot be read or has something else in it, or certificate and key do not match.
    pub fn load(tls: &ServerTls) -> Result<Self, TlsError> {
        Self::load_with(tls, verifier)
    }

    /// Reads and checks the files, for a listener whose clients may leave out their certificate: they show something
    /// else. One that is shown has to be good.
    ///
    /// # Errors
    ///
    /// Those of [`load`](Self::load).
    pub fn load_optional(tls: &ServerTls) -> Result<Self, TlsError> {
        Self::load_with(tls, optional_verifier)
    }

    fn load_with(
        tls: &ServerTls,
        verifier: impl FnOnce(RootCertStore, &Path) -> Result<Arc<dyn ClientCertVerifier>, TlsError>,
    ) -> Result<Self, TlsError> {
        let fingerprint = fingerprint(tls.files().map(PathBuf::as_path))?;
        let verifier = match &tls.client_ca {
            None => WebPkiClientVerifier::no_client_auth(),
            Some(path) => verifier(authority(path)?.1, path)?,
        };
        Ok(Self { certified: certified(&tls.certificate, &tls.key)?, verifier, fingerprint })
    }

    /// Reads and checks certificate and key, for a listener that takes `clients` only.
    ///
    /// # Errors
    ///
    /// Those of [`load`](Self::load); [`TlsError::NoCertificate`] if the authority is no certificate in PEM.
    pub fn load_for(certificate: &Path, key: &Path, clients: &NamedClients) -> Result<Self, TlsError> {
        let mut hasher = DefaultHasher::new();
        fingerprint([certificate, key].into_iter())?.hash(&mut hasher);
        clients.hash(&mut hasher);
        let source = Path::new(&clients.source);
        let inner = verifier(roots(clients.authority.as_bytes(), source)?, source)?;
        let verifier = Arc::new(NamedVerifier { inner, names: clients.names.clone() });
        Ok(Self { certified: certified(certificate, key)?, verifier, fingerprint: hasher.finish() })
    }
}

fn certified(certificate: &Path, key: &Path) -> Result<Arc<CertifiedKey>, TlsError> {
    let own = Credentials::read(certificate, key)?;
    let certified = CertifiedKey::from_der(own.chain, own.key, &ring::default_provider());
    certified.map(Arc::new).map_err(|cause| pair(certificate, key, cause))
}

fn verifier(roots: RootCertStore, source: &Path) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
    verifier.map_err(|_| TlsError::NoCertificate(source.to_owned()))
}

fn optional_verifier(roots: RootCertStore, source: &Path) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    builder.allow_unauthenticated().build().map_err(|_| TlsError::NoCertificate(source.to_owned()))
}

/// Clients that are known by an authority that is in no file, and by the common names of their certificates.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NamedClients {
    /// What the authority is from, for error messages.
    pub source: String,
    /// The authority, in PEM.
    pub authority: String,
    /// Common names that a client may have; none: any.
    pub names: Vec<String>,
}

/// Checks the common name, too.
#[derive(Debug)]
struct NamedVerifier {
    inner: Arc<dyn ClientCertVerifier>,
    names: Vec<String>,
}

impl ClientCertVerifier for NamedVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let verified = self.inner.verify_client_cert(end_entity, intermediates, now)?;
        let is_allowed = |name: &str| self.names.iter().any(|allowed| allowed == name);
        if self.names.is_empty() || common_name(end_entity).is_some_and(is_allowed) {
            return Ok(verified);
        }
        Err(CertificateError::ApplicationVerificationFailure.into())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

/// Certificate, key and authority of a client, read and checked.
#[derive(Clone)]
pub struct ClientFiles {
    /// The configuration of a client.
    pub configs: ClientConfigs,
    fingerprint: u64,
}

// Does not print the key.
impl fmt::Debug for ClientFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientFiles").field("fingerprint", &self.fingerprint).finish_non_exhaustive()
    }
}

impl ClientFiles {
    /// Reads and checks the files.
    ///
    /// # Errors
    ///
    /// Those of [`ClientTls::load`].
    pub fn load(tls: &ClientTls) -> Result<Self, TlsError> {
        let mut hasher = DefaultHasher::new();
        fingerprint(tls.files().map(PathBuf::as_path))?.hash(&mut hasher);
        // A channel holds the name that it expects, so that another one is another channel.
        tls.domain.hash(&mut hasher);
        Ok(Self { configs: tls.load()?, fingerprint: hasher.finish() })
    }

    /// Whether the content of a file differs, or the name that the server must have.
    #[must_use]
    pub const fn differs(&self, other: &Self) -> bool {
        self.fingerprint != other.fingerprint
    }
}

/// The files of a listener. Clones share them.
#[derive(Clone, Debug)]
pub struct LiveServer(Reloadable<ServerFiles>);

impl LiveServer {
    /// Begins with `files`.
    #[must_use]
    pub fn new(files: ServerFiles) -> Self {
        Self(Reloadable::new(files))
    }

    /// A configuration for rustls, without ALPN, whose handshakes take the current files.
    ///
    /// # Errors
    ///
    /// [`TlsError::Library`] if rustls does not support its own protocol versions.
    pub fn config(&self) -> Result<ServerConfig, TlsError> {
        let provider: Arc<CryptoProvider> = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.map_err(TlsError::Library)?.with_client_cert_verifier(Arc::new(self.clone()));
        let mut config = builder.with_cert_resolver(Arc::new(self.clone()));
        config.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(config)
    }

    /// The acceptor of a listener that speaks `protocol` (ALPN).
    ///
    /// # Errors
    ///
    /// Those of [`config`](Self::config).
    pub fn acceptor(&self, protocol: &[u8]) -> Result<TlsAcceptor, TlsError> {
        let mut config = self.config()?;
        config.alpn_protocols = vec![protocol.to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }

    /// Takes over new files for the handshakes to come. Returns whether they differ.
    pub fn replace(&self, files: ServerFiles) -> bool {
        let differs = self.0.load().fingerprint != files.fingerprint;
        self.0.replace(files);
        differs
    }
}

impl ResolvesServerCert for LiveServer {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.load().certified))
    }
}

impl ClientCertVerifier for LiveServer {
    fn offer_client_auth(&self) -> bool {
        self.0.load().verifier.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.0.load().verifier.client_auth_mandatory()
    }

    /// None: they are only a hint, and would outlive the authority that they name.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.0.load().verifier.verify_client_cert(end_entity, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.load().verifier.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.load().verifier.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use support::certificates::Subject;

    use super::*;

    #[test]
    fn a_key_of_another_certificate_is_refused_and_equal_files_do_not_differ() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["a", "b"] {
            Subject::new(&[name]).self_signed().write(folder.path(), name);
        }
        let tls = |certificate, key, ca| ServerTls {
            certificate: path(certificate),
            key: path(key),
            client_ca: Some(path(ca)),
        };
        let load = |certificate, key, ca| ServerFiles::load(&tls(certificate, key, ca));

        assert!(matches!(load("a.pem", "b.key", "a.pem"), Err(TlsError::Pair { .. })));
        assert!(matches!(load("a.pem", "a.key", "a.key"), Err(TlsError::NoCertificate(_))));
        let live = LiveServer::new(load("a.pem", "a.key", "a.pem").unwrap());
        assert!(!live.replace(load("a.pem", "a.key", "a.pem").unwrap()));
        assert!(live.replace(load("a.pem", "a.key", "b.pem").unwrap()), "another authority");
        assert!(live.config().is_ok());
        let optional = ServerFiles::load_optional(&tls("a.pem", "a.key", "a.pem")).unwrap();
        assert!(live.client_auth_mandatory() && !optional.verifier.client_auth_mandatory());
        assert!(optional.verifier.offer_client_auth(), "who has a certificate is asked for it");
    }

    #[test]
    fn a_client_differs_by_the_content_of_its_files_and_by_the_name_that_it_expects() {
        let folder = tempfile::tempdir().unwrap();
        let ca = folder.path().join("ca.pem");
        let write = || std::fs::write(&ca, Subject::new(&["a"]).self_signed().pem()).unwrap();
        let load = |domain: Option<&str>| {
            let domain = domain.map(str::to_owned);
            ClientFiles::load(&ClientTls { ca: ca.clone(), domain, certificate: None, key: None }).unwrap()
        };
        write();
        let before = load(Some("a.example"));

        assert!(!before.differs(&load(Some("a.example"))));
        assert!(before.differs(&load(Some("b.example"))), "another name");
        assert!(before.differs(&load(None)), "the address's own name");
        write();
        assert!(before.differs(&load(Some("a.example"))), "another authority");
    }
}
