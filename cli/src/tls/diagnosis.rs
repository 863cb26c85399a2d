//! Diagnosis of TLS failures.
//!
//! The error of a tonic client is only "connection broken": in TLS 1.3 a server refuses the client's certificate after
//! the client has finished its handshake. So the diagnosis connects once more with rustls and reads until the server's
//! first byte or alert.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{AlertDescription, CertificateError, ClientConfig, Error, RootCertStore};

use agent_runtime::tls_builder;

use super::{PROTOCOL, Tls};

/// How long a handshake may take.
pub(super) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(2);

/// Why the TLS handshake with an agent fails.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TlsProblem {
    /// The agent speaks TLS, the operator does not.
    #[error("it speaks TLS, but this command was started without --tls-ca")]
    OnlyTls,
    /// The operator speaks TLS, the agent does not.
    #[error("it does not speak TLS")]
    NoTls,
    /// The authority in the file did not sign the agent's certificate.
    #[error("its certificate was not signed by the authority in {}", .0.display())]
    Authority(PathBuf),
    /// The agent's certificate is for another name.
    #[error("its certificate is not for `{expected}`, but for {names}")]
    Name {
        /// The expected name.
        expected: String,
        /// The names in the certificate.
        names: String,
    },
    /// The agent's certificate has expired.
    #[error("its certificate has expired")]
    Expired,
    /// The agent's certificate is valid from a later time on: one of the two clocks is wrong.
    #[error("its certificate is not valid yet")]
    NotYet,
    /// The agent requires a client certificate.
    #[error("it requires a client certificate, and got none")]
    Anonymous,
    /// The agent refuses the operator's certificate.
    #[error("it refuses the certificate in {}: {refusal}", .certificate.display())]
    Refused {
        /// The file of the operator's certificate.
        certificate: PathBuf,
        /// The reason that the agent reported.
        refusal: Refusal,
    },
    /// Another error of rustls.
    #[error("TLS fails: {0}")]
    Other(Error),
}

/// The reason for which an agent refuses a client certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The agent does not trust the authority that signed it.
    #[error("it was not signed by the authority that the agent trusts")]
    Authority,
    /// The certificate has expired.
    #[error("it has expired")]
    Expired,
    /// Another TLS alert.
    #[error("the agent reports {0:?}")]
    Other(AlertDescription),
}

impl TlsProblem {
    /// What the operator can do.
    #[must_use]
    pub fn advice(&self) -> &'static str {
        match self {
            Self::OnlyTls => "--tls-ca FILE with the authority that signed the agent's certificate",
            Self::NoTls => "connect without --tls-ca, or set operators.tls in the agent's configuration",
            Self::Authority(_) => "--tls-ca with the authority that signed operators.tls.certificate of the agent",
            Self::Name { .. } => "if it is the right agent, --tls-name with a name in its certificate",
            Self::Expired => "renew the agent's certificate, or set the right time on this machine",
            Self::NotYet => "set the right time on this machine, or on the one that signed the certificate",
            Self::Anonymous => {
                "--tls-cert FILE --tls-key FILE with a certificate signed by the agent's operators.tls.client_ca"
            }
            Self::Refused { .. } => "--tls-cert with a valid certificate signed by the agent's operators.tls.client_ca",
            Self::Other(_) => "see the agent's log",
        }
    }
}

/// Why the connection to `host` and `port` fails, if TLS is the reason. `tls` is the configuration of the failed
/// connection, `None` if it was plain text.
pub(crate) async fn diagnose(host: &str, port: u16, tls: Option<&Tls>) -> Option<TlsProblem> {
    let (config, name) = match tls {
        Some(tls) => (Arc::clone(&tls.config), tls.args.tls_name.as_deref().unwrap_or(host)),
        None => (Arc::new(untrusting()?), host),
    };
    let name = ServerName::try_from(name.to_owned()).ok()?;
    let error = timeout(HANDSHAKE_TIMEOUT, handshake_failure(host, port, config, name.clone())).await.ok()??;
    match tls {
        Some(tls) => Some(problem(error, tls, &name.to_str())),
        // A server that sends a certificate or a TLS alert speaks TLS.
        None => matches!(error, Failure::Tls(Error::InvalidCertificate(_) | Error::AlertReceived(_)))
            .then_some(TlsProblem::OnlyTls),
    }
}

/// A client that trusts no authority.
fn untrusting() -> Option<ClientConfig> {
    let mut config = tls_builder().ok()?.with_root_certificates(RootCertStore::empty()).with_no_client_auth();
    config.alpn_protocols.push(PROTOCOL.to_vec());
    Some(config)
}

/// Why a handshake failed.
#[derive(Debug)]
enum Failure {
    Tls(Error),
    /// The server closed the connection without a TLS message.
    Closed,
}

/// Connects and waits for the server's first byte; `None` if there is one, or nothing listens.
async fn handshake_failure(
    host: &str,
    port: u16,
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
) -> Option<Failure> {
    let stream = TcpStream::connect((host, port)).await.ok()?;
    let connected = TlsConnector::from(config).connect(name, stream).await;
    let mut stream = match connected {
        Ok(stream) => stream,
        Err(error) => return Some(failure(&error).unwrap_or(Failure::Closed)),
    };
    failure(&stream.read_u8().await.err()?)
}

fn failure(error: &std::io::Error) -> Option<Failure> {
    error.get_ref()?.downcast_ref::<Error>().cloned().map(Failure::Tls)
}

fn problem(failure: Failure, tls: &Tls, expected: &str) -> TlsProblem {
    match failure {
        Failure::Closed | Failure::Tls(Error::InvalidMessage(_)) => TlsProblem::NoTls,
        Failure::Tls(Error::InvalidCertificate(error)) => certificate(error, tls, expected),
        Failure::Tls(Error::AlertReceived(alert)) => refusal(alert, tls),
        Failure::Tls(error) => TlsProblem::Other(error),
    }
}

fn certificate(error: CertificateError, tls: &Tls, expected: &str) -> TlsProblem {
    let expected = expected.to_owned();
    match error {
        // Bad signature: an authority of the same name with another key signed it.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => TlsProblem::Authority(tls.ca.clone()),
        CertificateError::NotValidForName => TlsProblem::Name { expected, names: "another".to_owned() },
        CertificateError::NotValidForNameContext { presented, .. } => TlsProblem::Name {
            expected,
            names: if presented.is_empty() { "no name".to_owned() } else { presented.join(", ") },
        },
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => TlsProblem::Expired,
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => TlsProblem::NotYet,
        other => TlsProblem::Other(Error::InvalidCertificate(other)),
    }
}

fn refusal(alert: AlertDescription, tls: &Tls) -> TlsProblem {
    use AlertDescription::{
        BadCertificate, CertificateExpired, CertificateRequired, CertificateRevoked, CertificateUnknown, DecryptError,
        UnknownCA, UnsupportedCertificate,
    };
    let refusal = match alert {
        CertificateRequired => return TlsProblem::Anonymous,
        // DecryptError: signed by an authority of the same name with another key.
        UnknownCA | DecryptError => Refusal::Authority,
        CertificateExpired => Refusal::Expired,
        BadCertificate | CertificateRevoked | CertificateUnknown | UnsupportedCertificate => Refusal::Other(alert),
        _ => return TlsProblem::Other(Error::AlertReceived(alert)),
    };
    match &tls.args.tls_cert {
        Some(certificate) => TlsProblem::Refused { certificate: certificate.clone(), refusal },
        None => TlsProblem::Other(Error::AlertReceived(alert)),
    }
}
