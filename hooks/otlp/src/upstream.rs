//! OTLP client: sends one request to the upstream. What it replies is interpreted in `reply`.

mod connector;

use std::io::Write as _;
use std::time::Duration;

use agent_runtime::clock::unix_now;
use agent_runtime::live_headers::LiveHeaders;
use agent_runtime::reload::Reloadable;
use agent_runtime::{ClientConfigs, chain};
use bytes::{Buf as _, BufMut as _, Bytes};
use flate2::Compression;
use flate2::write::GzEncoder;
use hyper::header::{self, HeaderValue};
use hyper::http::uri::{PathAndQuery, Scheme};
use hyper::{HeaderMap, Request, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tonic::Status;
use tonic::codec::{Codec, CompressionEncoding, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::metadata::MetadataMap;
use tonic::transport::{Channel, Endpoint};

use connector::UpstreamConnector;

use crate::frames::{self, FullBody};
use crate::queue::UpstreamRequest;
use crate::reply::{self, Failure};
use crate::signal::Encoding;

/// Time limit for connecting, and for the reply to a keep-alive ping.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum bytes read of a response.
const MAX_RESPONSE: usize = 64 << 10;

/// Protocol of the upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// OTLP/gRPC, with Protocol Buffers.
    Grpc,
    /// OTLP/HTTP, with Protocol Buffers; JSON is forwarded as JSON.
    Http,
}

/// The upstream: address, protocol, credentials.
#[derive(Clone, Debug)]
pub struct UpstreamSettings {
    /// Such as `http://collector:4317`. With HTTP, `/v1/traces` and so on are appended to its path.
    pub endpoint: String,
    /// gRPC or HTTP.
    pub protocol: Protocol,
    /// Headers of every request. They may be replaced while the endpoint runs.
    pub headers: Vec<(String, String)>,
    /// Certificates, which may be replaced while the endpoint runs; required for `https`. The system's certificates are
    /// not used here.
    pub tls: Option<Reloadable<ClientConfigs>>,
    /// Compress bodies with gzip.
    pub gzip: bool,
    /// Time limit for the response.
    pub timeout: Duration,
}

/// Why an upstream cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UpstreamError {
    /// The endpoint is not an http or https URL.
    #[error("{0:?} is not an http or https URL: use an endpoint such as http://collector:4317")]
    Endpoint(String),
    /// An https endpoint without a certificate authority.
    #[error("{0:?} needs a certificate authority: set tls.ca")]
    NoAuthority(String),
    /// The header is not valid in HTTP.
    #[error("{0:?} is not a valid header")]
    Header(String),
}

enum Transport {
    Grpc { channel: Channel },
    Http { client: Box<HttpClient>, base: String },
}

type HttpClient = Client<UpstreamConnector, FullBody>;

/// The upstream. It connects when needed, and again after a connection broke.
pub(crate) struct Upstream {
    transport: Transport,
    headers: LiveHeaders,
    gzip: bool,
    timeout: Duration,
}

impl core::fmt::Debug for Upstream {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Upstream").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

impl Upstream {
    /// Makes a client that connects at the first request. Needs a tokio runtime.
    pub(crate) fn new(settings: &UpstreamSettings) -> Result<Self, UpstreamError> {
        let named = || UpstreamError::Endpoint(settings.endpoint.clone());
        let uri: Uri = settings.endpoint.parse().map_err(|_| named())?;
        let secure = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(named()),
        };
        let tls = settings.tls.clone().filter(|_| secure);
        if secure && tls.is_none() {
            return Err(UpstreamError::NoAuthority(settings.endpoint.clone()));
        }
        // No name is reserved: what is configured takes the place of what a client says by itself.
        let headers = LiveHeaders::new(&settings.headers, |_| false);
        let headers = headers.map_err(|invalid| UpstreamError::Header(invalid.name))?;
        let connector = UpstreamConnector::new(uri.clone(), settings.protocol, tls, CONNECT_TIMEOUT);
        let transport = match settings.protocol {
            Protocol::Http => {
                let client = Box::new(Client::builder(TokioExecutor::new()).build(connector));
                Transport::Http { client, base: settings.endpoint.trim_end_matches('/').to_owned() }
            }
            Protocol::Grpc => {
                let channel = endpoint(uri).ok_or_else(named)?.connect_with_connector_lazy(connector);
                Transport::Grpc { channel }
            }
        };
        Ok(Self { transport, headers, gzip: settings.gzip, timeout: settings.timeout })
    }

    /// The headers of its requests, which may be replaced.
    pub(crate) const fn headers(&self) -> &LiveHeaders {
        &self.headers
    }

    /// Whether JSON is forwarded as it is.
    pub(crate) const fn takes_json(&self) -> bool {
        matches!(self.transport, Transport::Http { .. })
    }

    /// Sends a request once. Returns the number of items that the upstream rejected.
    pub(crate) async fn send(&self, outgoing: &UpstreamRequest) -> Result<u64, Failure> {
        let headers = HeaderMap::clone(&self.headers.load());
        let sending = async {
            match &self.transport {
                Transport::Grpc { channel } => by_grpc(channel.clone(), headers, self.gzip, outgoing).await,
                Transport::Http { client, base } => by_http(client, base, headers, self.gzip, outgoing).await,
            }
        };
        let late =
            |_| Failure { text: format!("no response within {:?}", self.timeout), retryable: true, retry_after: None };
        tokio::time::timeout(self.timeout, sending).await.map_err(late)?
    }
}

/// The endpoint of a gRPC channel to `uri`, whose connector brings TLS along; `None` without a host.
fn endpoint(uri: Uri) -> Option<Endpoint> {
    // A channel refuses https without certificates of its own. Requests name `uri` all the same.
    let mut parts = uri.clone().into_parts();
    parts.scheme = Some(Scheme::HTTP);
    let plain = Uri::from_parts(parts).ok()?;
    let endpoint = Endpoint::from(plain).origin(uri).connect_timeout(CONNECT_TIMEOUT);
    Some(endpoint.http2_keep_alive_interval(CONNECT_TIMEOUT).keep_alive_timeout(CONNECT_TIMEOUT))
}

async fn by_grpc(
    channel: Channel,
    mut headers: HeaderMap,
    gzip: bool,
    outgoing: &UpstreamRequest,
) -> Result<u64, Failure> {
    let mut client = tonic::client::Grpc::new(channel).max_decoding_message_size(MAX_RESPONSE);
    if gzip {
        client = client.send_compressed(CompressionEncoding::Gzip);
    }
    let unreachable =
        |error: tonic::transport::Error| Failure { text: chain(&error), retryable: true, retry_after: None };
    client.ready().await.map_err(unreachable)?;
    let mut request = tonic::Request::new(outgoing.body.clone());
    outgoing.forwarded.apply(&mut headers);
    *request.metadata_mut() = MetadataMap::from_headers(headers);
    let path = PathAndQuery::from_static(outgoing.signal.grpc_path());
    let response = client.unary(request, path, BytesCodec).await.map_err(|status| reply::grpc_failure(&status))?;
    Ok(reply::rejected(outgoing.signal, Encoding::Protobuf, response.get_ref(), outgoing.body.len()))
}

async fn by_http(
    client: &HttpClient,
    base: &str,
    headers: HeaderMap,
    gzip: bool,
    outgoing: &UpstreamRequest,
) -> Result<u64, Failure> {
    let failed = |text: String, retryable| Failure { text, retryable, retry_after: None };
    let content = match outgoing.encoding {
        Encoding::Protobuf => "application/x-protobuf",
        Encoding::Json => "application/json",
    };
    let uri = format!("{base}{}", outgoing.signal.http_path());
    let request = Request::post(uri).header(header::CONTENT_TYPE, content).body(FullBody::new(if gzip {
        compressed(&outgoing.body)
    } else {
        outgoing.body.clone()
    }));
    let mut request = request.map_err(|error| failed(error.to_string(), false))?;
    if gzip {
        request.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    request.headers_mut().extend(headers);
    outgoing.forwarded.apply(request.headers_mut());
    let response = client.request(request).await.map_err(|error| failed(chain(&error), true))?;
    let (head, mut body) = response.into_parts();
    let mut text = Vec::new();
    while let Some(Ok(frame)) = frames::next(&mut body).await {
        if let Ok(data) = frame.into_data()
            && text.len() < MAX_RESPONSE
        {
            text.extend_from_slice(&data);
        }
    }
    if head.status.is_success() {
        return Ok(reply::rejected(outgoing.signal, outgoing.encoding, &text, outgoing.body.len()));
    }
    let after = head.headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
    Err(reply::http_failure(head.status, after, unix_now()))
}

/// Compresses `body` with gzip. Fast rather than small: spans repeat so much that either gives a tenth.
fn compressed(body: &[u8]) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::with_capacity(body.len() / 4 + 64), Compression::fast());
    // Writing into memory does not fail.
    _ = encoder.write_all(body);
    encoder.finish().unwrap_or_default().into()
}

/// A codec that passes messages as raw bytes: they are forwarded byte for byte.
#[derive(Clone, Copy, Debug, Default)]
struct BytesCodec;

impl Codec for BytesCodec {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for BytesCodec {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        into.put(message);
        Ok(())
    }
}

impl Decoder for BytesCodec {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(endpoint: &str, protocol: Protocol) -> UpstreamSettings {
        let endpoint = endpoint.to_owned();
        UpstreamSettings { endpoint, protocol, headers: Vec::new(), tls: None, gzip: false, timeout: CONNECT_TIMEOUT }
    }

    #[tokio::test]
    async fn an_upstream_that_cannot_be_is_named() {
        let refused = |endpoint, protocol| Upstream::new(&settings(endpoint, protocol)).unwrap_err().to_string();

        assert!(refused("collector:4317", Protocol::Grpc).contains("such as http://collector"));
        assert!(refused("ftp://x", Protocol::Http).contains("such as http://collector"));
        assert!(refused("https://x", Protocol::Http).contains("tls.ca"));
        assert!(refused("https://x", Protocol::Grpc).contains("tls.ca"));
        let mut settings = settings("http://x", Protocol::Http);
        settings.headers.push(("a b".to_owned(), String::new()));
        assert!(Upstream::new(&settings).unwrap_err().to_string().contains("\"a b\" is not a valid header"));
    }
}
