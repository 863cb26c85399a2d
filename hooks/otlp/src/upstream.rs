//! OTLP client: sends one request to the upstream. What it replies is interpreted in `reply`.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf as _, BufMut as _, Bytes};
use flate2::Compression;
use flate2::write::GzEncoder;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::http::uri::PathAndQuery;
use hyper::{HeaderMap, Request, Uri};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};
use tonic::Status;
use tonic::codec::{Codec, CompressionEncoding, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::metadata::MetadataMap;
use tonic::transport::{Channel, ClientTlsConfig, Endpoint};

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
    /// Headers of every request.
    pub headers: Vec<(String, String)>,
    /// TLS settings; required for `https`. The system's certificates are not used here.
    pub tls: Option<UpstreamTls>,
    /// Compress bodies with gzip.
    pub gzip: bool,
    /// Time limit for the response.
    pub timeout: Duration,
}

/// TLS settings of a client, in the forms that gRPC and HTTP need.
#[derive(Clone)]
pub struct UpstreamTls {
    /// TLS for the gRPC channel.
    pub channel: ClientTlsConfig,
    /// TLS for HTTP, without ALPN.
    pub library: ClientConfig,
    /// Name in the upstream's certificate, if it differs from the endpoint's host.
    pub domain: Option<String>,
}

// Keys are secret: not shown.
impl core::fmt::Debug for UpstreamTls {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("UpstreamTls").field("domain", &self.domain).finish_non_exhaustive()
    }
}

/// Why an upstream cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UpstreamError {
    /// The endpoint is not an http or https URL.
    #[error("{0:?} is not an http or https URL: use an endpoint such as http://collector:4317")]
    Endpoint(String),
    /// The domain is not a valid name of a server.
    #[error("tls.domain {0:?} is not a valid server name")]
    Domain(String),
    /// An https endpoint without a certificate authority.
    #[error("{0:?} needs a certificate authority: set tls.ca")]
    NoAuthority(String),
    /// The header is not valid in HTTP.
    #[error("{0:?} is not a valid header")]
    Header(String),
    /// The channel rejects the certificates.
    #[error("the certificates cannot be used")]
    Tls(#[source] tonic::transport::Error),
    /// The TLS library rejects its configuration.
    #[error("TLS cannot be set up")]
    Library(#[source] rustls::Error),
}

enum Transport {
    Grpc { channel: Channel, headers: MetadataMap },
    Http { client: Box<HttpClient>, base: String, headers: HeaderMap },
}

type HttpClient = Client<HttpsConnector<HttpConnector>, FullBody>;

/// The upstream. It connects when needed, and again after a connection broke.
pub(crate) struct Upstream {
    transport: Transport,
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
        let headers = headers(&settings.headers)?;
        let transport = match settings.protocol {
            Protocol::Http => {
                let client = Box::new(Client::builder(TokioExecutor::new()).build(connector(settings, secure)?));
                Transport::Http { client, base: settings.endpoint.trim_end_matches('/').to_owned(), headers }
            }
            Protocol::Grpc => {
                let mut endpoint = Endpoint::from(uri)
                    .connect_timeout(CONNECT_TIMEOUT)
                    .http2_keep_alive_interval(CONNECT_TIMEOUT)
                    .keep_alive_timeout(CONNECT_TIMEOUT)
                    .tcp_nodelay(true);
                if secure {
                    let tls = settings.tls.clone().ok_or_else(|| no_authority(settings))?;
                    endpoint = endpoint.tls_config(tls.channel).map_err(UpstreamError::Tls)?;
                }
                Transport::Grpc { channel: endpoint.connect_lazy(), headers: MetadataMap::from_headers(headers) }
            }
        };
        Ok(Self { transport, gzip: settings.gzip, timeout: settings.timeout })
    }

    /// Whether JSON is forwarded as it is.
    pub(crate) const fn takes_json(&self) -> bool {
        matches!(self.transport, Transport::Http { .. })
    }

    /// Sends a request once. Returns the number of items that the upstream rejected.
    pub(crate) async fn send(&self, outgoing: &UpstreamRequest) -> Result<u64, Failure> {
        let sending = async {
            match &self.transport {
                Transport::Grpc { channel, headers } => by_grpc(channel.clone(), headers, self.gzip, outgoing).await,
                Transport::Http { client, base, headers } => by_http(client, base, headers, self.gzip, outgoing).await,
            }
        };
        let late =
            |_| Failure { text: format!("no response within {:?}", self.timeout), retryable: true, retry_after: None };
        tokio::time::timeout(self.timeout, sending).await.map_err(late)?
    }
}

fn no_authority(settings: &UpstreamSettings) -> UpstreamError {
    UpstreamError::NoAuthority(settings.endpoint.clone())
}

/// The HTTP connector, with TLS if the endpoint is `secure`.
fn connector(settings: &UpstreamSettings, secure: bool) -> Result<HttpsConnector<HttpConnector>, UpstreamError> {
    let mut connector = HttpConnector::new();
    connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
    connector.set_nodelay(true);
    // The HTTPS layer around it handles https.
    connector.enforce_http(false);
    let Some(tls) = settings.tls.as_ref().filter(|_| secure) else {
        if secure {
            return Err(no_authority(settings));
        }
        let nobody = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let nobody = nobody.with_safe_default_protocol_versions().map_err(UpstreamError::Library)?;
        let nobody = nobody.with_root_certificates(RootCertStore::empty()).with_no_client_auth();
        return Ok((connector, nobody).into());
    };
    let builder = HttpsConnectorBuilder::new().with_tls_config(tls.library.clone()).https_only();
    let builder = match &tls.domain {
        None => builder.enable_http1(),
        Some(domain) => {
            let name = ServerName::try_from(domain.clone()).map_err(|_| UpstreamError::Domain(domain.clone()))?;
            builder.with_server_name_resolver(FixedServerNameResolver::new(name)).enable_http1()
        }
    };
    Ok(builder.wrap_connector(connector))
}

fn headers(pairs: &[(String, String)]) -> Result<HeaderMap, UpstreamError> {
    let pairs = pairs.iter().map(|(key, value)| {
        let wrong = || UpstreamError::Header(key.clone());
        let name = HeaderName::try_from(key.to_ascii_lowercase()).map_err(|_| wrong())?;
        let mut value = HeaderValue::try_from(value).map_err(|_| wrong())?;
        // Mostly a credential: never printed.
        value.set_sensitive(true);
        Ok((name, value))
    });
    pairs.collect()
}

async fn by_grpc(
    channel: Channel,
    headers: &MetadataMap,
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
    let mut all = headers.clone().into_headers();
    outgoing.forwarded.apply(&mut all);
    *request.metadata_mut() = MetadataMap::from_headers(all);
    let path = PathAndQuery::from_static(outgoing.signal.grpc_path());
    let response = client.unary(request, path, BytesCodec).await.map_err(|status| reply::grpc_failure(&status))?;
    Ok(reply::rejected(outgoing.signal, Encoding::Protobuf, response.get_ref(), outgoing.body.len()))
}

async fn by_http(
    client: &HttpClient,
    base: &str,
    headers: &HeaderMap,
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
    request.headers_mut().extend(headers.clone());
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
    Err(reply::http_failure(head.status, after))
}

/// Compresses `body` with gzip. Fast rather than small: spans repeat so much that either gives a tenth.
fn compressed(body: &[u8]) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::with_capacity(body.len() / 4 + 64), Compression::fast());
    // Writing into memory does not fail.
    _ = encoder.write_all(body);
    encoder.finish().unwrap_or_default().into()
}

/// An error with its causes in one line: the outermost alone says only "transport error".
fn chain(error: &dyn core::error::Error) -> String {
    let causes = core::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
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
