//! Sends requests of remote write over HTTP. The only module of this crate that acts.

use agent_runtime::http_client::{self, Endpoint, EndpointError, Response};
use agent_runtime::live_headers::LiveHeaders;
use bytes::Bytes;
use hyper::header::{self, HeaderMap, HeaderValue};

use crate::encoding::Version;
use crate::reply::Reply;
use crate::shipper::Request;

/// Default path for a URL without one.
const PATH: &str = "/api/v1/write";
/// How many times a request was sent before.
const ATTEMPT: &str = "retry-attempt";
/// The version of the protocol.
const VERSION: &str = "x-prometheus-remote-write-version";

/// Whether remote write, or HTTP, sets the header `name` by itself, in lower case.
fn is_reserved(name: &str) -> bool {
    http_client::is_reserved(name) || [ATTEMPT, VERSION].contains(&name)
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
#[derive(Debug)]
pub struct Client(http_client::Client);

impl Client {
    /// Reads the certificates. Connects when there is something to send.
    ///
    /// # Errors
    ///
    /// [`EndpointError`] if the URL, a header or the authority's certificate cannot be used.
    pub fn new(receiver: &Endpoint) -> Result<Self, EndpointError> {
        http_client::Client::reserving(receiver, PATH, is_reserved).map(Self)
    }

    /// The headers of its requests, which may be replaced: those that begin later have the new ones.
    #[must_use]
    pub const fn headers(&self) -> &LiveHeaders {
        self.0.headers()
    }

    /// Sends a request, once. After a failure the connection is closed; the next request makes a new one.
    pub async fn send(&mut self, version: Version, body: Bytes, failures: u32) -> SendReport {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("snappy"));
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(version.content_type()));
        headers.insert(VERSION, HeaderValue::from_static(version.header()));
        if failures > 0 {
            headers.insert(ATTEMPT, HeaderValue::from(failures));
        }
        match self.0.post(headers, body).await {
            Ok(response) => SendReport { reply: reply(&response), text: response.refusal() },
            Err(error) => SendReport { reply: Reply::None, text: error.to_string() },
        }
    }
}

/// What a response says about samples and exemplars.
fn reply(response: &Response) -> Reply {
    let written = |what: &str| format!("x-prometheus-remote-write-{what}-written");
    let number = |what: &str| response.text(&written(what))?.trim().parse().ok();
    Reply::Http {
        status: response.status,
        samples_written: number("samples"),
        exemplars_written: number("exemplars"),
        any_written: ["samples", "histograms", "exemplars"]
            .iter()
            .any(|what| response.headers.contains_key(written(what))),
        retry_after: response.retry_after().map(str::to_owned),
    }
}

impl Request<'_> {
    /// A copy of the body, to be sent while the shipper goes on.
    #[must_use]
    pub fn copy(&self) -> Bytes {
        Bytes::copy_from_slice(self.body)
    }
}
