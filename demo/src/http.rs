//! An HTTP/1.1 client with a timeout.

use core::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use axum::body::{self, Body};
use axum::http::{HeaderMap, Method, Request, StatusCode, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

/// Maximal length of a response in bytes; the shop's are shorter.
const MAX_RESPONSE: usize = 1 << 20;

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CallOutcome {
    /// With a response: its status and body.
    Response(StatusCode, Vec<u8>),
    /// Without a response in time.
    TimedOut,
    /// The connection could not be made, or broke.
    Broken,
}

impl CallOutcome {
    /// Whether there is a response other than 5xx.
    pub(crate) fn is_fine(&self) -> bool {
        matches!(self, Self::Response(status, _) if !status.is_server_error())
    }
}

/// A client with a connection pool.
#[derive(Clone, Debug)]
pub(crate) struct HttpClient {
    client: Client<HttpConnector, Body>,
    within: Duration,
}

impl HttpClient {
    /// A client that waits for each response for at most `within`.
    pub(crate) fn new(within: Duration) -> Self {
        Self::with(HttpConnector::new(), within)
    }

    /// The same, whose connections come from `address`.
    pub(crate) fn from_address(address: Ipv4Addr, within: Duration) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_local_address(Some(address.into()));
        Self::with(connector, within)
    }

    fn with(mut connector: HttpConnector, within: Duration) -> Self {
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(within));
        Self { client: Client::builder(TokioExecutor::new()).build(connector), within }
    }

    /// Sends a request with `method` for `target` (path and query) to `address`.
    pub(crate) async fn request(&self, method: Method, address: SocketAddr, target: &str) -> CallOutcome {
        self.request_with(method, address, target, HeaderMap::new(), Vec::new()).await.0
    }

    /// The same with `headers` and `body`. Also returns the response's headers, empty without a response.
    pub(crate) async fn request_with(
        &self,
        method: Method,
        address: SocketAddr,
        target: &str,
        headers: HeaderMap,
        body: Vec<u8>,
    ) -> (CallOutcome, HeaderMap) {
        match tokio::time::timeout(self.within, self.exchange(method, address, target, headers, body)).await {
            Ok(Some((status, bytes, headers))) => (CallOutcome::Response(status, bytes), headers),
            Ok(None) => (CallOutcome::Broken, HeaderMap::new()),
            Err(_) => (CallOutcome::TimedOut, HeaderMap::new()),
        }
    }

    async fn exchange(
        &self,
        method: Method,
        address: SocketAddr,
        target: &str,
        headers: HeaderMap,
        body: Vec<u8>,
    ) -> Option<(StatusCode, Vec<u8>, HeaderMap)> {
        let uri: Uri = format!("http://{address}{target}").parse().ok()?;
        let mut request = Request::new(Body::from(body));
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        *request.headers_mut() = headers;
        let mut response = self.client.request(request).await.ok()?;
        let (status, headers) = (response.status(), core::mem::take(response.headers_mut()));
        let bytes = body::to_bytes(Body::new(response.into_body()), MAX_RESPONSE).await.ok()?;
        Some((status, bytes.to_vec(), headers))
    }
}
