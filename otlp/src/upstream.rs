//! OTLP out: one request to the upstream, and what its answer means.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf as _, BufMut as _, Bytes};
use flate2::Compression;
use flate2::write::GzEncoder;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::http::uri::PathAndQuery;
use hyper::{HeaderMap, Request, StatusCode, Uri};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use prost::Message as _;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};
use tonic::codec::{Codec, CompressionEncoding, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::metadata::MetadataMap;
use tonic::transport::{Channel, ClientTlsConfig, Endpoint};
use tonic::{Code, Status};

use crate::frames::{self, Whole};
use crate::messages::{self, ExportResponse, RetryInfo};
use crate::queue::Parcel;
use crate::signal::{Encoding, Signal};

/// A connection is made within this, and a silent one is given up after it.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// An answer is cut after so many bytes.
const ANSWER: usize = 64 << 10;

/// How an upstream is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// OTLP/gRPC.
    Grpc,
    /// OTLP/HTTP, with Protocol Buffers; JSON goes on as JSON.
    Http,
}

/// Where requests go.
#[derive(Clone, Debug)]
pub struct UpstreamSettings {
    /// Such as `http://collector:4317`. With HTTP, `/v1/traces` and so on are put behind its path.
    pub endpoint: String,
    /// How it is spoken to.
    pub protocol: Protocol,
    /// Sent with every request.
    pub headers: Vec<(String, String)>,
    /// Certificates for an endpoint of `https`, which needs them: whom the system trusts is not asked here.
    pub tls: Option<UpstreamTls>,
    /// Bodies are packed with gzip.
    pub gzip: bool,
    /// An answer has to come within this.
    pub timeout: Duration,
}

/// Whom to trust, and what to show: as a channel of gRPC wants it, and as HTTP does.
#[derive(Clone)]
pub struct UpstreamTls {
    /// For gRPC.
    pub channel: ClientTlsConfig,
    /// For HTTP, without a protocol to speak inside.
    pub library: ClientConfig,
    /// The name in the upstream's certificate, if it is not the endpoint's host.
    pub domain: Option<String>,
}

// Without the key.
impl core::fmt::Debug for UpstreamTls {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("UpstreamTls").field("domain", &self.domain).finish_non_exhaustive()
    }
}

/// An upstream that cannot be.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UpstreamError {
    /// It is no address.
    #[error("{0:?} is no address of an upstream, such as http://collector:4317")]
    Endpoint(String),
    /// A name that no certificate can have.
    #[error("{0:?} is no name that a certificate can have (tls.domain)")]
    Domain(String),
    /// Nothing says whom to trust.
    #[error("{0:?}: the authority of its certificate is needed (tls.ca)")]
    NoAuthority(String),
    /// It cannot be sent.
    #[error("{0:?} is no header that can be sent")]
    Header(String),
    /// Certificates.
    #[error("the certificates cannot be used")]
    Tls(#[source] tonic::transport::Error),
    /// The library lacks what it needs.
    #[error("TLS cannot be set up")]
    Library(#[source] rustls::Error),
}

/// Why a request did not reach its goal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) text: String,
    /// It may go better next time.
    pub(crate) again: bool,
    /// Not before this, as the upstream says.
    pub(crate) after: Option<Duration>,
}

enum Way {
    Grpc { channel: Channel, headers: MetadataMap },
    Http { client: Box<HttpClient>, base: String, headers: HeaderMap },
}

type HttpClient = Client<HttpsConnector<HttpConnector>, Whole>;

/// The upstream. Connections are made when they are needed, and again when they broke.
pub(crate) struct Upstream {
    way: Way,
    gzip: bool,
    timeout: Duration,
}

impl core::fmt::Debug for Upstream {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Upstream").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

impl Upstream {
    /// Nothing is connected yet. Needs a tokio runtime.
    pub(crate) fn new(settings: &UpstreamSettings) -> Result<Self, UpstreamError> {
        let named = || UpstreamError::Endpoint(settings.endpoint.clone());
        let uri: Uri = settings.endpoint.parse().map_err(|_| named())?;
        let secure = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(named()),
        };
        let headers = headers(&settings.headers)?;
        let way = match settings.protocol {
            Protocol::Http => {
                let client = Box::new(Client::builder(TokioExecutor::new()).build(connector(settings, secure)?));
                Way::Http { client, base: settings.endpoint.trim_end_matches('/').to_owned(), headers }
            }
            Protocol::Grpc => {
                let mut endpoint = Endpoint::from(uri)
                    .connect_timeout(CONNECT_WITHIN)
                    .http2_keep_alive_interval(CONNECT_WITHIN)
                    .keep_alive_timeout(CONNECT_WITHIN)
                    .tcp_nodelay(true);
                if secure {
                    let tls = settings.tls.clone().ok_or_else(|| no_authority(settings))?;
                    endpoint = endpoint.tls_config(tls.channel).map_err(UpstreamError::Tls)?;
                }
                Way::Grpc { channel: endpoint.connect_lazy(), headers: MetadataMap::from_headers(headers) }
            }
        };
        Ok(Self { way, gzip: settings.gzip, timeout: settings.timeout })
    }

    /// Whether what a client sent as JSON goes on as it came.
    pub(crate) const fn takes_json(&self) -> bool {
        matches!(self.way, Way::Http { .. })
    }

    /// Sends it once. Returns how many of its items the upstream did not take.
    pub(crate) async fn send(&self, parcel: &Parcel) -> Result<u64, Failure> {
        let sending = async {
            match &self.way {
                Way::Grpc { channel, headers } => by_grpc(channel.clone(), headers, self.gzip, parcel).await,
                Way::Http { client, base, headers } => by_http(client, base, headers, self.gzip, parcel).await,
            }
        };
        let late = |_| Failure { text: format!("no answer within {:?}", self.timeout), again: true, after: None };
        tokio::time::timeout(self.timeout, sending).await.map_err(late)?
    }
}

fn no_authority(settings: &UpstreamSettings) -> UpstreamError {
    UpstreamError::NoAuthority(settings.endpoint.clone())
}

/// What connects by HTTP, inside of TLS if the endpoint is `secure`.
fn connector(settings: &UpstreamSettings, secure: bool) -> Result<HttpsConnector<HttpConnector>, UpstreamError> {
    let mut connector = HttpConnector::new();
    connector.set_connect_timeout(Some(CONNECT_WITHIN));
    connector.set_nodelay(true);
    // What is no http:// is not for it, but for what is around it.
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
        // Mostly a key to someone's account: nothing prints it.
        value.set_sensitive(true);
        Ok((name, value))
    });
    pairs.collect()
}

/// How many items an answer says were not taken. What cannot be read says nothing.
fn rejected(answer: &[u8]) -> u64 {
    let partial = ExportResponse::decode(answer).ok().and_then(|answer| answer.partial_success);
    partial.map_or(0, |partial| u64::try_from(partial.rejected).unwrap_or(0))
}

async fn by_grpc(channel: Channel, headers: &MetadataMap, gzip: bool, parcel: &Parcel) -> Result<u64, Failure> {
    let mut client = tonic::client::Grpc::new(channel).max_decoding_message_size(ANSWER);
    if gzip {
        client = client.send_compressed(CompressionEncoding::Gzip);
    }
    let unreachable = |error: tonic::transport::Error| Failure { text: causes(&error), again: true, after: None };
    client.ready().await.map_err(unreachable)?;
    let mut request = tonic::Request::new(parcel.body.clone());
    let mut said = headers.clone().into_headers();
    parcel.passed.apply(&mut said);
    *request.metadata_mut() = MetadataMap::from_headers(said);
    let path = PathAndQuery::from_static(parcel.signal.grpc_path());
    let answer = client.unary(request, path, Raw).await.map_err(|status| failure(&status))?;
    Ok(rejected(answer.get_ref()))
}

/// What OTLP says about each gRPC status.
fn failure(status: &Status) -> Failure {
    let info = messages::Status::decode(status.details()).unwrap_or_default().details.into_iter();
    let info = info.filter(|detail| detail.type_url == RetryInfo::TYPE).find_map(|detail| {
        let info = RetryInfo::decode(detail.value.as_slice()).ok()?;
        info.pause()
    });
    let again = match status.code() {
        Code::Cancelled
        | Code::DeadlineExceeded
        | Code::Aborted
        | Code::OutOfRange
        | Code::Unavailable
        | Code::DataLoss => true,
        Code::ResourceExhausted => info.is_some(),
        // What a connection that broke amid a call becomes.
        Code::Unknown => core::error::Error::source(status).is_some(),
        _ => false,
    };
    Failure { text: format!("{:?}: {}", status.code(), status.message()), again, after: info }
}

async fn by_http(
    client: &HttpClient,
    base: &str,
    headers: &HeaderMap,
    gzip: bool,
    parcel: &Parcel,
) -> Result<u64, Failure> {
    let failed = |text: String, again| Failure { text, again, after: None };
    let content = match parcel.encoding {
        Encoding::Protobuf => "application/x-protobuf",
        Encoding::Json => "application/json",
    };
    let uri = format!("{base}{}", parcel.signal.http_path());
    let request = Request::post(uri).header(header::CONTENT_TYPE, content).body(Whole::new(if gzip {
        packed(&parcel.body)
    } else {
        parcel.body.clone()
    }));
    let mut request = request.map_err(|error| failed(error.to_string(), false))?;
    if gzip {
        request.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    request.headers_mut().extend(headers.clone());
    parcel.passed.apply(request.headers_mut());
    let answer = client.request(request).await.map_err(|error| failed(causes(&error), true))?;
    let (head, mut body) = answer.into_parts();
    let mut text = Vec::new();
    while let Some(Ok(frame)) = frames::next(&mut body).await {
        if let Ok(data) = frame.into_data()
            && text.len() < ANSWER
        {
            text.extend_from_slice(&data);
        }
    }
    if head.status.is_success() {
        return Ok(if parcel.encoding == Encoding::Json {
            rejected_in_json(parcel.signal, &text)
        } else {
            rejected(&text)
        });
    }
    let again = matches!(
        head.status,
        StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT
    );
    let after = head.headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    Err(Failure { text: head.status.to_string(), again, after: after.map(Duration::from_secs) })
}

/// `body` as gzip. Fast rather than small: spans repeat themselves so much that either is a tenth.
fn packed(body: &[u8]) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::with_capacity(body.len() / 4 + 64), Compression::fast());
    // Writing into memory does not fail.
    _ = encoder.write_all(body);
    encoder.finish().unwrap_or_default().into()
}

fn rejected_in_json(signal: Signal, answer: &[u8]) -> u64 {
    let answer: serde_json::Value = serde_json::from_slice(answer).unwrap_or_default();
    let number = &answer["partialSuccess"][signal.rejected()];
    number.as_u64().or_else(|| number.as_str()?.parse().ok()).unwrap_or(0)
}

/// An error with all that caused it: the outermost alone says "transport error".
fn causes(error: &dyn core::error::Error) -> String {
    let chain = core::iter::successors(Some(error), |error| error.source());
    chain.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Messages as the bytes that they are: what came is sent on, byte for byte.
#[derive(Clone, Copy, Debug, Default)]
struct Raw;

impl Codec for Raw {
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

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        into.put(message);
        Ok(())
    }
}

impl Decoder for Raw {
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
        UpstreamSettings { endpoint, protocol, headers: Vec::new(), tls: None, gzip: false, timeout: CONNECT_WITHIN }
    }

    #[tokio::test]
    async fn an_upstream_that_cannot_be_is_named() {
        let refused = |endpoint, protocol| Upstream::new(&settings(endpoint, protocol)).unwrap_err().to_string();

        assert!(refused("collector:4317", Protocol::Grpc).contains("such as http://"));
        assert!(refused("ftp://x", Protocol::Http).contains("such as http://"));
        assert!(refused("https://x", Protocol::Http).contains("tls.ca"));
        assert!(refused("https://x", Protocol::Grpc).contains("tls.ca"));
        let mut settings = settings("http://x", Protocol::Http);
        settings.headers.push(("a b".to_owned(), String::new()));
        assert!(Upstream::new(&settings).unwrap_err().to_string().contains("\"a b\" is no header"));
    }

    #[test]
    fn resource_exhausted_is_tried_again_only_if_the_upstream_says_when() {
        let pause = Duration::from_millis(1_500);
        let info =
            messages::Any { type_url: RetryInfo::TYPE.to_owned(), value: RetryInfo::after(pause).encode_to_vec() };
        let details = messages::Status { details: vec![info], ..messages::Status::default() }.encode_to_vec();

        let told = failure(&Status::with_details(Code::ResourceExhausted, "later", details.into()));
        let full = failure(&Status::resource_exhausted("too long"));
        let down = failure(&Status::unavailable("down"));
        let wrong = failure(&Status::invalid_argument("no spans"));

        assert_eq!((told.again, told.after), (true, Some(pause)));
        assert_eq!((full.again, down.again, wrong.again), (false, true, false));
    }
}
