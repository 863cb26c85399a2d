//! HTTP and gRPC on either port. A server of gRPC is not needed for one unary call: the request is one frame in a body, the answer one frame
//! and trailers.

use core::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use prost::Message as _;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::answer::{Answer, Parameters};

/// The path of the gRPC method.
const METHOD: &str = "/jaeger.api_v2.SamplingManager/GetSamplingStrategy";
/// A request is a service's name.
const MOST_BYTES: usize = 4_096;
/// Bytes of a name.
const NAME_BYTES: usize = 512;
/// Connections at one time.
const CONNECTIONS: usize = 1_024;
/// A connection that takes longer to say what it wants is closed.
const HEAD_WITHIN: Duration = Duration::from_secs(10);
/// A request that takes longer is given up.
const BODY_WITHIN: Duration = Duration::from_secs(10);
/// What a frame has before its message: a flag and a length.
const FRAME: usize = 5;

type Body = BoxBody<Bytes, Infallible>;

/// Whoever knows what a service is to be told.
pub trait Adviser: Send + Sync + 'static {
    /// What `service` is to be told now.
    fn answer(&self, service: &str) -> Answer;
}

/// What became of requests.
#[derive(Debug, Default)]
pub struct Counts {
    answered: AtomicU64,
    refused: AtomicU64,
}

impl Counts {
    /// Requests that were answered.
    pub fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// Requests that asked for something else, or could not be read.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

/// Answers what comes to `listener`, for as long as it is polled. Needs a tokio runtime with time and network.
pub async fn serve<A: Adviser>(listener: TcpListener, adviser: Arc<A>, counts: Arc<Counts>) {
    let free = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        // The semaphore is never closed.
        let Ok(place) = Arc::clone(&free).acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a connection for head sampling could not be accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let (adviser, counts) = (Arc::clone(&adviser), Arc::clone(&counts));
        tokio::spawn(async move {
            let service =
                hyper::service::service_fn(move |request| answer(request, Arc::clone(&adviser), Arc::clone(&counts)));
            let mut server = auto::Builder::new(TokioExecutor::new());
            server.http1().timer(hyper_util::rt::TokioTimer::new()).header_read_timeout(HEAD_WITHIN);
            server.http2().max_concurrent_streams(16);
            if let Err(error) = server.serve_connection(TokioIo::new(stream), service).await {
                tracing::debug!(%error, "a connection for head sampling broke");
            }
            drop(place);
        });
    }
}

async fn answer<A: Adviser>(
    request: Request<Incoming>,
    adviser: Arc<A>,
    counts: Arc<Counts>,
) -> Result<Response<Body>, Infallible> {
    let grpc = request.headers().get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
    let response = if grpc { by_grpc(request, &*adviser).await } else { by_http(&request, &*adviser) };
    let count = if response.is_ok() { &counts.answered } else { &counts.refused };
    count.fetch_add(1, Ordering::Relaxed);
    Ok(response.unwrap_or_else(Refusal::response))
}

/// The name that may be asked for, or why not.
fn named(service: &str) -> Result<&str, &'static str> {
    match service.len() {
        0 => Err("'service' parameter must be provided once"),
        1..=NAME_BYTES => Ok(service),
        _ => Err("the service's name is longer than 512 bytes"),
    }
}

fn by_http<A: Adviser>(request: &Request<Incoming>, adviser: &A) -> Result<Response<Body>, Refusal> {
    // The agent's path, and the collector's.
    if !matches!(request.uri().path(), "/sampling" | "/api/sampling" | "/") {
        return Err(Refusal::Http(StatusCode::NOT_FOUND, "/sampling?service=NAME is here"));
    }
    if request.method() != Method::GET {
        return Err(Refusal::Http(StatusCode::METHOD_NOT_ALLOWED, "only GET is possible"));
    }
    let service = service_of(request.uri()).unwrap_or_default();
    let service = named(&service).map_err(|why| Refusal::Http(StatusCode::BAD_REQUEST, why))?;
    let mut response = Response::new(Full::new(adviser.answer(service).json().into()).boxed());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

/// Why there is no answer, in the words of the protocol that was spoken.
enum Refusal {
    /// By HTTP.
    Http(StatusCode, &'static str),
    /// By gRPC, with its code.
    Grpc(u8, &'static str),
}

impl Refusal {
    fn response(self) -> Response<Body> {
        match self {
            Self::Http(status, text) => {
                let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())).boxed());
                *response.status_mut() = status;
                response
            }
            Self::Grpc(code, text) => {
                let mut response = grpc(Full::new(Bytes::new()).boxed());
                response.headers_mut().extend(status(code, text));
                response
            }
        }
    }
}

/// The value of `service`, if it is there once and can be read.
fn service_of(uri: &Uri) -> Option<String> {
    let mut values = uri.query()?.split('&').filter_map(|pair| pair.strip_prefix("service="));
    let value = values.next().filter(|_| values.next().is_none())?;
    let (mut bytes, mut rest) = (Vec::with_capacity(value.len()), value.bytes());
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
                (digit(rest.next())? * 16 + digit(rest.next())?) as u8
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

async fn by_grpc<A: Adviser>(request: Request<Incoming>, adviser: &A) -> Result<Response<Body>, Refusal> {
    const INVALID: u8 = 3;
    const UNIMPLEMENTED: u8 = 12;
    if request.uri().path() != METHOD {
        return Err(Refusal::Grpc(UNIMPLEMENTED, "only GetSamplingStrategy is here"));
    }
    let body = tokio::time::timeout(BODY_WITHIN, Limited::new(request.into_body(), MOST_BYTES).collect()).await;
    let Ok(Ok(body)) = body else { return Err(Refusal::Grpc(INVALID, "the request is too long or takes too long")) };
    let parameters = unframed(&body.to_bytes()).and_then(|message| Parameters::decode(message).ok());
    let parameters = parameters.ok_or(Refusal::Grpc(INVALID, "no SamplingStrategyParameters, unpacked"))?;
    let service = named(&parameters.service_name).map_err(|why| Refusal::Grpc(INVALID, why))?;
    Ok(framed(&adviser.answer(service)))
}

/// The message of the one frame that `body` has to be, not packed.
fn unframed(body: &Bytes) -> Option<Bytes> {
    let head: [u8; FRAME] = body.get(..FRAME)?.try_into().ok()?;
    let [packed, length @ ..] = head;
    let message = body.slice(FRAME..);
    (packed == 0 && message.len() == u32::from_be_bytes(length) as usize).then_some(message)
}

fn status(code: u8, text: &'static str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(HeaderName::from_static("grpc-status"), HeaderValue::from(u16::from(code)));
    headers.insert(HeaderName::from_static("grpc-message"), HeaderValue::from_static(text));
    headers
}

fn grpc(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}

fn framed(answer: &Answer) -> Response<Body> {
    let message = answer.encode_to_vec();
    let mut frame = BytesMut::with_capacity(FRAME + message.len());
    frame.put_u8(0);
    frame.put_u32(message.len() as u32);
    frame.put_slice(&message);
    let full = Full::new(frame.freeze());
    grpc(full.with_trailers(async { Some(Ok(status(0, ""))) }).boxed())
}
