//! Asking over HTTP/1.1, with a limit on how long.

use core::net::SocketAddr;
use std::time::Duration;

use axum::body::{self, Body};
use axum::http::{HeaderMap, Method, Request, StatusCode, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

/// More than any answer of the shop.
const LONGEST_ANSWER: usize = 1 << 20;

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// With an answer.
    Answered(StatusCode, Vec<u8>),
    /// With none in time.
    TimedOut,
    /// The connection failed or broke.
    Broken,
}

impl Answer {
    /// Whether it is an answer, and no error of the server.
    pub(crate) fn is_fine(&self) -> bool {
        matches!(self, Self::Answered(status, _) if !status.is_server_error())
    }
}

/// Asks, keeping connections.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    client: Client<HttpConnector, Body>,
    within: Duration,
}

impl Caller {
    /// Waits for an answer for at most `within`.
    pub(crate) fn new(within: Duration) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(within));
        Self { client: Client::builder(TokioExecutor::new()).build(connector), within }
    }

    /// Sends `method` for `target` (path and query) to `address`.
    pub(crate) async fn ask(&self, method: Method, address: SocketAddr, target: &str) -> Answer {
        self.ask_with(method, address, target, HeaderMap::new(), Vec::new()).await.0
    }

    /// The same with `headers` and `body`; brings the answer's headers, too, which are none without an answer.
    pub(crate) async fn ask_with(
        &self,
        method: Method,
        address: SocketAddr,
        target: &str,
        headers: HeaderMap,
        body: Vec<u8>,
    ) -> (Answer, HeaderMap) {
        match tokio::time::timeout(self.within, self.exchange(method, address, target, headers, body)).await {
            Ok(Some((status, bytes, headers))) => (Answer::Answered(status, bytes), headers),
            Ok(None) => (Answer::Broken, HeaderMap::new()),
            Err(_) => (Answer::TimedOut, HeaderMap::new()),
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
        let bytes = body::to_bytes(Body::new(response.into_body()), LONGEST_ANSWER).await.ok()?;
        Some((status, bytes.to_vec(), headers))
    }
}
