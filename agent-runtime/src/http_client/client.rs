//! The connection to an endpoint: opened when there is something to send, kept, and opened again after it broke.

use core::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Method, Request, Uri};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use super::endpoint::{Destination, Endpoint, EndpointError, is_reserved};
use crate::live_headers::LiveHeaders;
use crate::socket_owner::{self, Listener};
use crate::tls::{OutwardTls, TlsError};

/// A client for one endpoint, with its connection.
pub struct Client {
    pub(super) destination: Destination,
    headers: LiveHeaders,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    ca: Option<PathBuf>,
    pub(super) timeout: Duration,
    /// Whether it is found out who listens.
    asks_who_listens: bool,
    listener: Option<Listener>,
    /// The connection that is kept; `None` while it is used.
    pub(super) open: Option<SendRequest<Full<Bytes>>>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Destination { host, port, .. } = &self.destination;
        f.debug_struct("Client").field("host", host).field("port", port).finish_non_exhaustive()
    }
}

/// Why a request got no response. Whether it was accepted is unknown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// Nobody listens there, or the host is unknown.
    #[error("no connection to {host}:{port}: {cause}")]
    Connect {
        /// Host of the endpoint.
        host: String,
        /// Port of the endpoint.
        port: u16,
        /// What the operating system reported.
        cause: io::Error,
    },
    /// The endpoint does not speak TLS, or its certificate is not trusted.
    #[error("TLS handshake failed: {0}")]
    Tls(io::Error),
    /// The connection broke, or it is not HTTP.
    #[error("no response: {0}")]
    Http(hyper::Error),
    /// There was no response within the time limit.
    #[error("no response within {0:?}")]
    Deadline(Duration),
}

/// Trusts the authority in `ca`, or whom the system trusts, as all clients of the agents do.
fn connector(ca: Option<&Path>) -> Result<TlsConnector, TlsError> {
    let tls = OutwardTls { ca: ca.map(Path::to_owned), ..OutwardTls::default() };
    Ok(TlsConnector::from(Arc::new(tls.load()?.library)))
}

impl Client {
    /// Reads the certificates. Connects when there is something to send. `path` is the default where the URL has none.
    ///
    /// # Errors
    ///
    /// [`EndpointError`] if the URL, a header or the authority's certificate cannot be used.
    pub fn new(endpoint: &Endpoint, path: &str) -> Result<Self, EndpointError> {
        Self::reserving(endpoint, path, is_reserved)
    }

    /// As [`new`](Self::new), for a protocol that sets further headers by itself: `is_reserved` is asked for names in
    /// lower case, and says yes to those of HTTP ([`is_reserved`]), too.
    ///
    /// # Errors
    ///
    /// Those of [`new`](Self::new).
    pub fn reserving(endpoint: &Endpoint, path: &str, is_reserved: fn(&str) -> bool) -> Result<Self, EndpointError> {
        let destination = Destination::new(endpoint, path)?;
        let headers = LiveHeaders::new(&endpoint.headers, is_reserved)?;
        let tls = match &destination.name {
            None => None,
            Some(name) => Some((connector(endpoint.ca.as_deref())?, name.clone())),
        };
        let (ca, timeout) = (endpoint.ca.clone(), endpoint.timeout);
        Ok(Self { destination, headers, tls, ca, timeout, asks_who_listens: false, listener: None, open: None })
    }

    /// The headers of its requests, which may be replaced: those that begin later have the new ones.
    #[must_use]
    pub const fn headers(&self) -> &LiveHeaders {
        &self.headers
    }

    /// Finds out who listens whenever it connects.
    #[must_use]
    pub fn asking_who_listens(mut self) -> Self {
        self.asks_who_listens = true;
        self
    }

    /// Who listened where the latest connection leads; `None` before the first one, and if it was not to be found out.
    #[must_use]
    pub const fn listener(&self) -> Option<Listener> {
        self.listener
    }

    /// A request with the headers of now, and those of any request.
    pub(super) fn request(&self, method: Method, target: Uri, body: Bytes) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = target;
        let headers = request.headers_mut();
        headers.extend(HeaderMap::clone(&self.headers.load()));
        headers.insert(header::HOST, self.destination.authority.clone());
        headers.insert(header::USER_AGENT, HeaderValue::from_static(concat!("uview/", env!("CARGO_PKG_VERSION"))));
        request
    }

    /// The open connection, or a new one. It is taken out of `self`: a cancelled request leaves no half-used
    /// connection behind.
    pub(super) async fn connection(&mut self) -> Result<SendRequest<Full<Bytes>>, SendError> {
        if let Some(mut open) = self.open.take()
            && open.ready().await.is_ok()
        {
            return Ok(open);
        }
        let Destination { host, port, .. } = &self.destination;
        let failed = |cause| SendError::Connect { host: host.clone(), port: *port, cause };
        let stream = TcpStream::connect((host.as_str(), *port)).await.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        self.listener =
            if self.asks_who_listens { Some(socket_owner::listener_of(&stream).map_err(failed)?) } else { None };
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
    let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(SendError::Http)?;
    // The pending request gets the error.
    tokio::spawn(async move { drop(connection.await) });
    Ok(sender)
}
