//! Where requests go, and what they show there.

use core::fmt;
use std::path::PathBuf;
use std::time::Duration;

use hyper::Uri;
use hyper::header::HeaderValue;
use hyper::http::uri::PathAndQuery;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::live_headers::InvalidHeader;
use crate::tls::TlsError;

/// Headers that the client sets by itself: they cannot be configured.
const RESERVED: [&str; 6] =
    ["content-encoding", "content-type", "content-length", "host", "transfer-encoding", "user-agent"];

/// Whether the client sets the header `name` by itself, in lower case.
#[must_use]
pub fn is_reserved(name: &str) -> bool {
    RESERVED.contains(&name)
}

/// An HTTP endpoint: address and credentials.
#[derive(Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Such as `http://prometheus:9090/api/v1/write`.
    pub url: String,
    /// Headers of each request: tenant, authorization. They may be replaced later.
    pub headers: Vec<(String, String)>,
    /// PEM file of the certificate authority for HTTPS, which is read again for each connection; `None`: whom the
    /// system trusts, by SSL_CERT_FILE and SSL_CERT_DIR if they are set.
    pub ca: Option<PathBuf>,
    /// Time limit for a request, including connecting.
    pub timeout: Duration,
}

// Headers may be secret: not shown.
impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("url", &self.url).field("ca", &self.ca).finish_non_exhaustive()
    }
}

/// Why an endpoint cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// Not an http or https URL.
    #[error("invalid URL `{url}`: {why}; use one such as http://host:9090{path}")]
    Url {
        /// The configured URL.
        url: String,
        /// What is wrong with it.
        why: &'static str,
        /// The path that its requests have by default.
        path: String,
    },
    /// An invalid header, or one that the protocol sets.
    #[error(transparent)]
    Header(#[from] InvalidHeader),
    /// The authority's certificate cannot be used, or the system trusts nobody.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// An endpoint's address, taken apart.
pub(super) struct Destination {
    pub(super) host: String,
    pub(super) port: u16,
    /// Value of the header `Host`.
    pub(super) authority: HeaderValue,
    /// Path and query of its requests.
    pub(super) target: Uri,
    /// The name in its certificate; `None` without TLS.
    pub(super) name: Option<ServerName<'static>>,
}

impl Destination {
    /// That of `endpoint`; `path` is for a URL without one.
    ///
    /// # Errors
    ///
    /// [`EndpointError::Url`] if its URL is not one of HTTP, or has no host.
    pub(super) fn new(endpoint: &Endpoint, path: &str) -> Result<Self, EndpointError> {
        let wrong = |why| EndpointError::Url { url: endpoint.url.clone(), why, path: path.to_owned() };
        let uri: Uri = endpoint.url.parse().map_err(|_| wrong("it cannot be read"))?;
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
        let name = secure.then(|| ServerName::try_from(host.clone())).transpose();
        let target = match uri.path_and_query().map(PathAndQuery::as_str) {
            None | Some("" | "/") => path,
            Some(target) => target,
        };
        Ok(Self {
            port: authority.port_u16().unwrap_or(if secure { 443 } else { 80 }),
            host,
            authority: HeaderValue::try_from(authority.as_str()).map_err(|_| wrong("it cannot be read"))?,
            target: target.parse().map_err(|_| wrong("its path cannot be read"))?,
            name: name.map_err(|_| wrong("its host is not a valid server name"))?,
        })
    }
}
