//! Sends a request over HTTP/1.1, kept alive, or HTTPS. The one module of this crate that has a socket.

use core::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Request as HttpRequest, Response, Uri};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};

use crate::answer::Answer;
use crate::shipper::Request;

/// The path to write to, for a URL that has none.
const PATH: &str = "/api/v1/write";
/// So much of an answer's body is read; more ends the connection.
const LONGEST_BODY: usize = 64 * 1024;
/// So much of it is shown.
const SHOWN: usize = 400;
/// Where systems have the certificates that they trust.
const SYSTEM_ROOTS: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];
/// Headers that belong to the protocol: nobody configures them.
const RESERVED: [&str; 8] = [
    "content-encoding",
    "content-type",
    "content-length",
    "host",
    "retry-attempt",
    "transfer-encoding",
    "user-agent",
    "x-prometheus-remote-write-version",
];

/// Where samples are sent, and how.
#[derive(Clone, PartialEq, Eq)]
pub struct Receiver {
    /// Such as `http://prometheus:9090/api/v1/write`.
    pub url: String,
    /// Sent with each request: a tenant, an authorization.
    pub headers: Vec<(String, String)>,
    /// Whom to trust (PEM), for HTTPS; what the system trusts if left out.
    pub ca: Option<PathBuf>,
    /// How long a request may take, connecting included.
    pub timeout: Duration,
}

// Without the headers, which may be secret.
impl fmt::Debug for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").field("url", &self.url).field("ca", &self.ca).finish_non_exhaustive()
    }
}

/// A receiver that nothing can be sent to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiverError {
    /// No URL of HTTP.
    #[error("`{url}` is no URL such as http://prometheus:9090/api/v1/write: {why}")]
    Url {
        /// What it is.
        url: String,
        /// What is wrong.
        why: &'static str,
    },
    /// A header that is none, or that is not anybody's to set.
    #[error("the header `{name}` cannot be sent: {why}")]
    Header {
        /// Its name.
        name: String,
        /// What is wrong.
        why: &'static str,
    },
    /// A file.
    #[error("cannot read {}", .path.display())]
    Read {
        /// Which one.
        path: PathBuf,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// Nobody to trust.
    #[error("no certificate in PEM in {}: give the authority of the receiver's certificate", .0.display())]
    NoCertificate(PathBuf),
    /// The library lacks what it needs.
    #[error("TLS cannot be set up")]
    Tls(#[source] rustls::Error),
}

/// What came back, for the protocol and for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// For the protocol.
    pub answer: Answer,
    /// What the receiver wrote, or why there is no answer; empty if all is well.
    pub text: String,
}

/// One receiver, and the connection to it as long as it holds.
pub struct Client {
    host: String,
    port: u16,
    authority: HeaderValue,
    target: Uri,
    headers: HeaderMap,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    timeout: Duration,
    open: Option<SendRequest<Full<Bytes>>>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("host", &self.host).field("port", &self.port).finish_non_exhaustive()
    }
}

/// Why a request was not answered.
#[derive(Debug, thiserror::Error)]
enum SendError {
    #[error("no connection to {host}:{port}: {cause}")]
    Connect { host: String, port: u16, cause: io::Error },
    #[error("no TLS: {0}")]
    Tls(io::Error),
    #[error("no answer: {0}")]
    Http(#[from] hyper::Error),
}

fn headers(configured: &[(String, String)]) -> Result<HeaderMap, ReceiverError> {
    let mut headers = HeaderMap::new();
    for (name, value) in configured {
        let refused = |why| ReceiverError::Header { name: name.clone(), why };
        let key = HeaderName::try_from(name.as_str()).map_err(|_| refused("it has no legal name"))?;
        if RESERVED.contains(&key.as_str()) {
            return Err(refused("it belongs to the protocol"));
        }
        let mut value = HeaderValue::try_from(value.as_str()).map_err(|_| refused("its value is not legal"))?;
        value.set_sensitive(true);
        headers.append(key, value);
    }
    Ok(headers)
}

fn connector(ca: Option<&Path>) -> Result<TlsConnector, ReceiverError> {
    let system = || SYSTEM_ROOTS.iter().map(Path::new).find(|path| path.exists()).unwrap_or(Path::new(SYSTEM_ROOTS[0]));
    let path = ca.unwrap_or_else(system);
    let pem = std::fs::read(path).map_err(|cause| ReceiverError::Read { path: path.to_owned(), cause })?;
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&pem).flatten());
    if roots.is_empty() {
        return Err(ReceiverError::NoCertificate(path.to_owned()));
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().map_err(ReceiverError::Tls)?;
    Ok(TlsConnector::from(Arc::new(builder.with_root_certificates(roots).with_no_client_auth())))
}

impl Client {
    /// Reads what has to be read; connects when there is something to send.
    ///
    /// # Errors
    ///
    /// [`ReceiverError`] if the URL, a header or the authority's certificate cannot be used.
    pub fn new(receiver: &Receiver) -> Result<Self, ReceiverError> {
        Self::with_path(receiver, PATH)
    }

    /// As [`Client::new`], for a receiver of something else: `path` is what is asked for where the URL has none.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn with_path(receiver: &Receiver, path: &str) -> Result<Self, ReceiverError> {
        let wrong = |why| ReceiverError::Url { url: receiver.url.clone(), why };
        let uri: Uri = receiver.url.parse().map_err(|_| wrong("it cannot be read"))?;
        let secure = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(wrong("it does not begin with http:// or https://")),
        };
        let authority = uri.authority().ok_or_else(|| wrong("it has no host"))?;
        if authority.as_str().contains('@') {
            return Err(wrong("a user does not belong there: use the header Authorization"));
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let tls = if secure {
            let name = ServerName::try_from(host.clone()).map_err(|_| wrong("no certificate can have this host"))?;
            Some((connector(receiver.ca.as_deref())?, name))
        } else {
            None
        };
        let target = match uri.path_and_query().map(hyper::http::uri::PathAndQuery::as_str) {
            None | Some("" | "/") => path,
            Some(target) => target,
        };
        Ok(Self {
            port: authority.port_u16().unwrap_or(if secure { 443 } else { 80 }),
            host,
            authority: HeaderValue::try_from(authority.as_str()).map_err(|_| wrong("it cannot be read"))?,
            target: target.parse().map_err(|_| wrong("its path cannot be read"))?,
            headers: headers(&receiver.headers)?,
            tls,
            timeout: receiver.timeout,
            open: None,
        })
    }

    /// Sends `request`, once. Whatever goes wrong ends the connection; the next request makes a new one.
    pub async fn send(&mut self, version: crate::encoding::Version, body: Bytes, failures: u32) -> Said {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("snappy"));
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(version.content_type()));
        headers.insert("x-prometheus-remote-write-version", HeaderValue::from_static(version.header()));
        if failures > 0 {
            headers.insert("retry-attempt", HeaderValue::from(failures));
        }
        self.post(headers, body).await
    }

    /// Sends JSON, once, as [`Client::send`] does.
    pub async fn send_json(&mut self, body: Vec<u8>) -> Said {
        let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
        self.post(headers, body.into()).await
    }

    async fn post(&mut self, headers: HeaderMap, body: Bytes) -> Said {
        let within = self.timeout;
        match tokio::time::timeout(within, self.exchange(headers, body)).await {
            Ok(Ok(said)) => said,
            Ok(Err(error)) => {
                self.open = None;
                Said { answer: Answer::None, text: error.to_string() }
            }
            Err(_) => {
                self.open = None;
                Said { answer: Answer::None, text: format!("no answer within {within:?}") }
            }
        }
    }

    async fn exchange(&mut self, about: HeaderMap, body: Bytes) -> Result<Said, SendError> {
        let mut request = HttpRequest::post(self.target.clone()).body(Full::new(body)).map_err(|cause| {
            let cause = io::Error::other(cause);
            SendError::Connect { host: self.host.clone(), port: self.port, cause }
        })?;
        let headers = request.headers_mut();
        headers.extend(self.headers.clone());
        headers.insert(header::HOST, self.authority.clone());
        headers.insert(header::USER_AGENT, HeaderValue::from_static(concat!("uview/", env!("CARGO_PKG_VERSION"))));
        headers.extend(about);
        let mut open = self.connection().await?;
        let response = open.send_request(request).await?;
        let (said, whole) = read(response).await?;
        self.open = whole.then_some(open);
        Ok(said)
    }

    /// The connection that is there, or a new one. It is taken out: whoever is dropped half-way leaves none behind.
    async fn connection(&mut self) -> Result<SendRequest<Full<Bytes>>, SendError> {
        if let Some(mut open) = self.open.take()
            && open.ready().await.is_ok()
        {
            return Ok(open);
        }
        let failed = |cause| SendError::Connect { host: self.host.clone(), port: self.port, cause };
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        match &self.tls {
            None => begin(stream).await,
            Some((connector, name)) => {
                begin(connector.connect(name.clone(), stream).await.map_err(SendError::Tls)?).await
            }
        }
    }
}

/// Speaks HTTP over `stream`, in a task that ends with the connection.
async fn begin(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
) -> Result<SendRequest<Full<Bytes>>, SendError> {
    let (sender, connection) = handshake(TokioIo::new(stream)).await?;
    // Whoever waits for an answer is told what goes wrong.
    tokio::spawn(async move { drop(connection.await) });
    Ok(sender)
}

/// Reads an answer; false if there was so much of it that the connection cannot be used again.
async fn read(response: Response<Incoming>) -> Result<(Said, bool), SendError> {
    let (parts, mut incoming) = response.into_parts();
    let mut body = Vec::new();
    let mut whole = true;
    while let Some(frame) = incoming.frame().await {
        body.extend_from_slice(frame?.data_ref().map_or(&[][..], |data| &data[..]));
        if body.len() > LONGEST_BODY {
            whole = false;
            break;
        }
    }
    let status = parts.status.as_u16();
    let text = if parts.status.is_success() { String::new() } else { shown(&body, status) };
    let number = |name: &str| parts.headers.get(name)?.to_str().ok()?.trim().parse().ok();
    let written = |what: &str| format!("x-prometheus-remote-write-{what}-written");
    let answer = Answer::Answered {
        status,
        samples_written: number(&written("samples")),
        exemplars_written: number(&written("exemplars")),
        any_written: ["samples", "histograms", "exemplars"]
            .iter()
            .any(|what| parts.headers.contains_key(written(what))),
        retry_after: parts.headers.get(header::RETRY_AFTER).and_then(|value| Some(value.to_str().ok()?.to_owned())),
    };
    Ok((Said { answer, text }, whole))
}

/// The beginning of what a receiver wrote, in one line.
fn shown(body: &[u8], status: u16) -> String {
    let text = String::from_utf8_lossy(body);
    let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(SHOWN).collect();
    format!("status {status}: {line}")
}

impl Request<'_> {
    /// A copy of the body, to be sent while others go on.
    #[must_use]
    pub fn copy(&self) -> Bytes {
        Bytes::copy_from_slice(self.body)
    }
}
