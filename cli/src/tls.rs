//! TLS to the operators' port: whom to trust, who this operator is.

mod diagnosis;

use core::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

pub(crate) use diagnosis::diagnose;
pub use diagnosis::{Refusal, Trouble};

/// What operators' ports speak, inside TLS.
const PROTOCOL: &[u8] = b"h2";

/// Files with certificates in PEM, and a name.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub struct TlsArgs {
    /// Speak TLS, and trust an agent whose certificate this authority signed (PEM)
    #[arg(long, value_name = "FILE")]
    pub tls_ca: Option<PathBuf>,
    /// Your own certificate, if the agent asks for one (PEM)
    #[arg(long, value_name = "FILE", requires_all = ["tls_ca", "tls_key"])]
    pub tls_cert: Option<PathBuf>,
    /// Its key (PEM)
    #[arg(long, value_name = "FILE", requires_all = ["tls_ca", "tls_cert"])]
    pub tls_key: Option<PathBuf>,
    /// The name in the agent's certificate [default: the host of the address]
    #[arg(long, value_name = "NAME", requires = "tls_ca")]
    pub tls_name: Option<String>,
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
        cause: io::Error,
    },
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
    /// The library lacks what it needs.
    #[error("TLS cannot be set up")]
    Library(#[source] rustls::Error),
}

/// How to speak TLS with an agent: all of it read, and known to fit together.
#[derive(Clone)]
pub struct Tls {
    args: TlsArgs,
    ca: PathBuf,
    client: ClientTlsConfig,
    // The same for the library below, which tells what is wrong.
    config: Arc<ClientConfig>,
}

// Without the key.
impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("args", &self.args).finish_non_exhaustive()
    }
}

impl Tls {
    /// Reads the files; `None` if the arguments name no authority.
    ///
    /// # Errors
    ///
    /// [`TlsError`] if a file cannot be read or has something else in it, certificate and key are no pair, or the name is none.
    pub fn load(args: &TlsArgs) -> Result<Option<Self>, TlsError> {
        let Some(ca) = &args.tls_ca else { return Ok(None) };
        let trusted = read(ca)?;
        let mut roots = RootCertStore::empty();
        if roots.add_parsable_certificates(certificates(&trusted, ca)?).0 == 0 {
            return Err(TlsError::NoCertificate(ca.clone()));
        }
        let mut client =
            ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&trusted)).timeout(diagnosis::WITHIN);
        if let Some(name) = &args.tls_name {
            ServerName::try_from(name.as_str()).map_err(|_| TlsError::Name(name.clone()))?;
            client = client.domain_name(name);
        }
        let mut identity = None;
        if let (Some(certificate), Some(key)) = (&args.tls_cert, &args.tls_key) {
            let (chain, secret) = (read(certificate)?, read(key)?);
            client = client.identity(Identity::from_pem(&chain, &secret));
            let secret = PrivateKeyDer::from_pem_slice(&secret).map_err(|_| TlsError::NoKey(key.clone()))?;
            identity = Some((certificates(&chain, certificate)?, secret));
        }
        let builder = builder()?.with_root_certificates(roots);
        let mut config = match identity {
            None => builder.with_no_client_auth(),
            Some((chain, secret)) => builder.with_client_auth_cert(chain, secret).map_err(|cause| {
                let file = |file: &Option<PathBuf>| file.clone().unwrap_or_default();
                TlsError::Pair { certificate: file(&args.tls_cert), key: file(&args.tls_key), cause }
            })?,
        };
        config.alpn_protocols.push(PROTOCOL.to_vec());
        Ok(Some(Self { args: args.clone(), ca: ca.clone(), client, config: Arc::new(config) }))
    }

    /// What a client needs.
    pub(crate) fn client(&self) -> ClientTlsConfig {
        self.client.clone()
    }
}

fn builder() -> Result<rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier>, TlsError> {
    let provider = Arc::new(ring::default_provider());
    ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().map_err(TlsError::Library)
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|cause| TlsError::Read { path: path.to_owned(), cause })
}

/// All certificates in `pem`, at least one.
fn certificates(pem: &[u8], path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let all = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>().unwrap_or_default();
    if all.is_empty() { Err(TlsError::NoCertificate(path.to_owned())) } else { Ok(all) }
}
