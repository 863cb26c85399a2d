//! What is wrong when TLS does not work. A client's error says that the connection broke: a server refuses a client's certificate after the
//! client has taken the connection for good. So the connection is made once more, and listened to until the server's first word.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{AlertDescription, CertificateError, ClientConfig, Error, RootCertStore};

use daemon::tls_builder;

use super::{PROTOCOL, Tls};

/// How long a handshake may take.
pub(super) const WITHIN: Duration = Duration::from_secs(2);

/// Why operator and agent do not come together, though somebody listens.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Trouble {
    /// The agent has TLS, the operator has not.
    #[error("it speaks TLS, and this command was not told to")]
    OnlyTls,
    /// The operator has TLS, the agent has not.
    #[error("it does not speak TLS")]
    NoTls,
    /// Somebody else's certificate, or the wrong authority.
    #[error("its certificate was not signed by the authority in {}", .0.display())]
    Authority(PathBuf),
    /// A certificate for another name.
    #[error("its certificate is not for `{asked}`, but for {names}")]
    Name {
        /// Who was wanted.
        asked: String,
        /// Whose it is.
        names: String,
    },
    /// A certificate that ran out.
    #[error("its certificate has expired")]
    Expired,
    /// A certificate from the future: one of the two clocks is wrong.
    #[error("its certificate is not valid yet")]
    NotYet,
    /// The agent asks who the operator is.
    #[error("it asks for your certificate, and got none")]
    Anonymous,
    /// The agent does not like the operator's certificate.
    #[error("it refuses the certificate in {}: {refusal}", .certificate.display())]
    Refused {
        /// The operator's certificate.
        certificate: PathBuf,
        /// What the agent says about it.
        refusal: Refusal,
    },
    /// Something else, in the library's words.
    #[error("TLS fails: {0}")]
    Other(Error),
}

/// What an agent says about a certificate that it refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// Signed by somebody whom the agent does not know.
    #[error("it was not signed by the authority that the agent trusts")]
    Authority,
    /// It ran out.
    #[error("it has expired")]
    Expired,
    /// Something else.
    #[error("the agent says {0:?}")]
    Other(AlertDescription),
}

impl Trouble {
    /// What can be done.
    #[must_use]
    pub fn advice(&self) -> &'static str {
        match self {
            Self::OnlyTls => "--tls-ca FILE, with the authority that signed the agent's certificate",
            Self::NoTls => {
                "without --tls-ca, if the network is to be trusted; else operators.tls in the agent's configuration"
            }
            Self::Authority(_) => {
                "--tls-ca with the authority of operators.tls.certificate in the agent's configuration"
            }
            Self::Name { .. } => "--tls-name with a name of the certificate, if it is the right agent",
            Self::Expired => "a new certificate for the agent, or the right time on this machine",
            Self::NotYet => "the right time on this machine or on the one that signed the certificate",
            Self::Anonymous => "--tls-cert FILE --tls-key FILE, signed by the agent's operators.tls.client_ca",
            Self::Refused { .. } => {
                "--tls-cert with one that the agent's operators.tls.client_ca signed and that is valid"
            }
            Self::Other(_) => "the agent's log says what it makes of this",
        }
    }
}

/// Why nobody answers at `host` and `port`, if TLS has to do with it: spoken as in `tls`, or not spoken.
pub(crate) async fn diagnose(host: &str, port: u16, tls: Option<&Tls>) -> Option<Trouble> {
    let (config, name) = match tls {
        Some(tls) => (Arc::clone(&tls.config), tls.args.tls_name.as_deref().unwrap_or(host)),
        None => (Arc::new(stranger()?), host),
    };
    let name = ServerName::try_from(name.to_owned()).ok()?;
    let error = timeout(WITHIN, first_word(host, port, config, name.clone())).await.ok()??;
    match tls {
        Some(tls) => Some(trouble(error, tls, &name.to_str())),
        // Whoever shows a certificate, or complains in the words of TLS, speaks it.
        None => matches!(error, Failure::Tls(Error::InvalidCertificate(_) | Error::AlertReceived(_)))
            .then_some(Trouble::OnlyTls),
    }
}

/// Somebody who trusts nobody.
fn stranger() -> Option<ClientConfig> {
    let mut config = tls_builder().ok()?.with_root_certificates(RootCertStore::empty()).with_no_client_auth();
    config.alpn_protocols.push(PROTOCOL.to_vec());
    Some(config)
}

/// How a handshake fails.
#[derive(Debug)]
enum Failure {
    Tls(Error),
    /// Closed without a word of TLS.
    Closed,
}

/// Connects and waits for the server's first word; `None` if there is one, or nobody listens.
async fn first_word(host: &str, port: u16, config: Arc<ClientConfig>, name: ServerName<'static>) -> Option<Failure> {
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

fn trouble(failure: Failure, tls: &Tls, asked: &str) -> Trouble {
    match failure {
        Failure::Closed | Failure::Tls(Error::InvalidMessage(_)) => Trouble::NoTls,
        Failure::Tls(Error::InvalidCertificate(error)) => certificate(error, tls, asked),
        Failure::Tls(Error::AlertReceived(alert)) => refusal(alert, tls),
        Failure::Tls(error) => Trouble::Other(error),
    }
}

fn certificate(error: CertificateError, tls: &Tls, asked: &str) -> Trouble {
    let asked = asked.to_owned();
    match error {
        // One of the same name with another key signed it.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => Trouble::Authority(tls.ca.clone()),
        CertificateError::NotValidForName => Trouble::Name { asked, names: "another".to_owned() },
        CertificateError::NotValidForNameContext { presented, .. } => Trouble::Name {
            asked,
            names: if presented.is_empty() { "nobody".to_owned() } else { presented.join(", ") },
        },
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => Trouble::Expired,
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => Trouble::NotYet,
        other => Trouble::Other(Error::InvalidCertificate(other)),
    }
}

fn refusal(alert: AlertDescription, tls: &Tls) -> Trouble {
    use AlertDescription::{
        BadCertificate, CertificateExpired, CertificateRequired, CertificateRevoked, CertificateUnknown, DecryptError,
        UnknownCA, UnsupportedCertificate,
    };
    let refusal = match alert {
        CertificateRequired => return Trouble::Anonymous,
        // A signature by a key that only has the right name.
        UnknownCA | DecryptError => Refusal::Authority,
        CertificateExpired => Refusal::Expired,
        BadCertificate | CertificateRevoked | CertificateUnknown | UnsupportedCertificate => Refusal::Other(alert),
        _ => return Trouble::Other(Error::AlertReceived(alert)),
    };
    match &tls.args.tls_cert {
        Some(certificate) => Trouble::Refused { certificate: certificate.clone(), refusal },
        None => Trouble::Other(Error::AlertReceived(alert)),
    }
}
