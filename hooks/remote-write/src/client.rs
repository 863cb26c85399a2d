//! HTTP/1.1 client with keep-alive and TLS. The only module of this crate with a socket.

mod get;

use core::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use agent_runtime::{OutwardTls, TlsError};
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
use tokio_rustls::rustls::pki_types::ServerName;

use crate::reply::{self, Reply};
use crate::shipper::Request;

pub use get::{GetError, Page};

/// Default path for a URL without one.
const PATH: &str = "/api/v1/write";
/// Maximum bytes read of a response body; a longer one closes the connection.
const MAX_BODY: usize = 64 * 1024;
/// Headers set by the protocol: they cannot be configured.
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

/// A receiver: address and credentials.
#[derive(Clone, PartialEq, Eq)]
pub struct Receiver {
    /// Such as `http://prometheus:9090/api/v1/write`.
    pub url: String,
    /// Headers of each request: tenant, authorization.
    pub headers: Vec<(String, String)>,
    /// PEM file of the certificate authority for HTTPS, which is read again for each connection; `None`: whom the
    /// system trusts, by SSL_CERT_FILE and SSL_CERT_DIR if they are set.
    pub ca: Option<PathBuf>,
    /// Time limit for a request, including connecting.
    pub timeout: Duration,
}

// Headers may be secret: not shown.
impl fmt::Debug for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").field("url", &self.url).field("ca", &self.ca).finish_non_exhaustive()
    }
}

/// Why a receiver cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiverError {
    /// Not an http or https URL.
    #[error("invalid URL `{url}`: {why}; use one such as http://prometheus:9090/api/v1/write")]
    Url {
        /// The configured URL.
        url: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// An invalid header, or one that the protocol sets.
    #[error("invalid header `{name}`: {why}")]
    Header {
        /// Name of the header.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The authority's certificate cannot be used, or the system trusts nobody.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// Result of a request, for the protocol and for logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendReport {
    /// The reply, for the shipper.
    pub reply: Reply,
    /// Error message of the receiver or of the transport; empty on success.
    pub text: String,
}

/// A client for one receiver, with its connection.
pub struct Client {
    host: String,
    port: u16,
    authority: HeaderValue,
    target: Uri,
    headers: HeaderMap,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    ca: Option<PathBuf>,
    timeout: Duration,
    open: Option<SendRequest<Full<Bytes>>>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("host", &self.host).field("port", &self.port).finish_non_exhaustive()
    }
}

/// Why a request got no response.
#[derive(Debug, thiserror::Error)]
enum SendError {
    #[error("no connection to {host}:{port}: {cause}")]
    Connect { host: String, port: u16, cause: io::Error },
    #[error("TLS handshake failed: {0}")]
    Tls(io::Error),
    #[error("no response: {0}")]
    Http(#[from] hyper::Error),
}

fn headers(configured: &[(String, String)]) -> Result<HeaderMap, ReceiverError> {
    let mut headers = HeaderMap::new();
    for (name, value) in configured {
        let refused = |why| ReceiverError::Header { name: name.clone(), why };
        let key = HeaderName::try_from(name.as_str()).map_err(|_| refused("its name is not legal"))?;
        if RESERVED.contains(&key.as_str()) {
            return Err(refused("it belongs to the protocol"));
        }
        let mut value = HeaderValue::try_from(value.as_str()).map_err(|_| refused("its value is not legal"))?;
        value.set_sensitive(true);
        headers.append(key, value);
    }
    Ok(headers)
}

/// Trusts the authority in `ca`, or whom the system trusts, as all clients of the agents do.
fn connector(ca: Option<&Path>) -> Result<TlsConnector, ReceiverError> {
    let tls = OutwardTls { ca: ca.map(Path::to_owned), ..OutwardTls::default() };
    Ok(TlsConnector::from(Arc::new(tls.load()?.library)))
}

impl Client {
    /// Reads the certificates. Connects when there is something to send.
    ///
    /// # Errors
    ///
    /// [`ReceiverError`] if the URL, a header or the authority's certificate cannot be used.
    pub fn new(receiver: &Receiver) -> Result<Self, ReceiverError> {
        Self::with_path(receiver, PATH)
    }

    /// As [`Client::new`], for another protocol: `path` is the default where the URL has none.
    ///
    /// # Errors
    ///
    /// As for [`Client::new`].
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
            return Err(wrong("it contains a user: use the header Authorization"));
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let tls = if secure {
            let name = ServerName::try_from(host.clone()).map_err(|_| wrong("its host is not a valid server name"))?;
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
            ca: receiver.ca.clone(),
            timeout: receiver.timeout,
            open: None,
        })
    }

    /// Sends a remote write request, once. After a failure the connection is closed; the next request makes a new one.
    pub async fn send(&mut self, version: crate::encoding::Version, body: Bytes, failures: u32) -> SendReport {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("snappy"));
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(version.content_type()));
        headers.insert("x-prometheus-remote-write-version", HeaderValue::from_static(version.header()));
        if failures > 0 {
            headers.insert("retry-attempt", HeaderValue::from(failures));
        }
        self.post(headers, body).await
    }

    /// Sends JSON, once, like [`Client::send`].
    pub async fn send_json(&mut self, body: Vec<u8>) -> SendReport {
        let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
        self.post(headers, body.into()).await
    }

    async fn post(&mut self, headers: HeaderMap, body: Bytes) -> SendReport {
        let within = self.timeout;
        match tokio::time::timeout(within, self.exchange(headers, body)).await {
            Ok(Ok(report)) => report,
            Ok(Err(error)) => {
                self.open = None;
                SendReport { reply: Reply::None, text: error.to_string() }
            }
            Err(_) => {
                self.open = None;
                SendReport { reply: Reply::None, text: format!("no response within {within:?}") }
            }
        }
    }

    async fn exchange(&mut self, extra: HeaderMap, body: Bytes) -> Result<SendReport, SendError> {
        let mut request = HttpRequest::post(self.target.clone()).body(Full::new(body)).map_err(|cause| {
            let cause = io::Error::other(cause);
            SendError::Connect { host: self.host.clone(), port: self.port, cause }
        })?;
        let headers = request.headers_mut();
        headers.extend(self.headers.clone());
        headers.insert(header::HOST, self.authority.clone());
        headers.insert(header::USER_AGENT, HeaderValue::from_static(concat!("uview/", env!("CARGO_PKG_VERSION"))));
        headers.extend(extra);
        let mut open = self.connection().await?;
        let response = open.send_request(request).await?;
        let (report, reusable) = read(response).await?;
        self.open = reusable.then_some(open);
        Ok(report)
    }

    /// The open connection, or a new one. It is taken out of `self`: a cancelled request leaves no half-used connection
    /// behind.
    async fn connection(&mut self) -> Result<SendRequest<Full<Bytes>>, SendError> {
        if let Some(mut open) = self.open.take()
            && open.ready().await.is_ok()
        {
            return Ok(open);
        }
        let failed = |cause| SendError::Connect { host: self.host.clone(), port: self.port, cause };
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        if let (Some((current, _)), Some(ca)) = (&mut self.tls, &self.ca)
            && let Ok(renewed) = connector(Some(ca))
        {
            // A file that cannot be used now leaves the authority of before.
            *current = renewed;
        }
        match &self.tls {
            None => begin(stream).await,
            Some((connector, name)) => {
                begin(connector.connect(name.clone(), stream).await.map_err(SendError::Tls)?).await
            }
        }
    }
}

/// Starts HTTP over `stream`, in a task that ends with the connection.
async fn begin(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
) -> Result<SendRequest<Full<Bytes>>, SendError> {
    let (sender, connection) = handshake(TokioIo::new(stream)).await?;
    // The pending request gets the error.
    tokio::spawn(async move { drop(connection.await) });
    Ok(sender)
}

/// Reads a response; `false` if its body was too long to reuse the connection.
async fn read(response: Response<Incoming>) -> Result<(SendReport, bool), SendError> {
    let (parts, mut incoming) = response.into_parts();
    let mut body = Vec::new();
    let mut reusable = true;
    while let Some(frame) = incoming.frame().await {
        body.extend_from_slice(frame?.data_ref().map_or(&[][..], |data| &data[..]));
        if body.len() > MAX_BODY {
            reusable = false;
            break;
        }
    }
    let status = parts.status.as_u16();
    let text = if parts.status.is_success() { String::new() } else { reply::excerpt(&body, status) };
    let number = |name: &str| parts.headers.get(name)?.to_str().ok()?.trim().parse().ok();
    let written = |what: &str| format!("x-prometheus-remote-write-{what}-written");
    let reply = Reply::Http {
        status,
        samples_written: number(&written("samples")),
        exemplars_written: number(&written("exemplars")),
        any_written: ["samples", "histograms", "exemplars"]
            .iter()
            .any(|what| parts.headers.contains_key(written(what))),
        retry_after: parts.headers.get(header::RETRY_AFTER).and_then(|value| Some(value.to_str().ok()?.to_owned())),
    };
    Ok((SendReport { reply, text }, reusable))
}

impl Request<'_> {
    /// A copy of the body, to be sent while the shipper goes on.
    #[must_use]
    pub fn copy(&self) -> Bytes {
        Bytes::copy_from_slice(self.body)
    }
}
