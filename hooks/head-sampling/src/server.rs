//! HTTP and gRPC server, both on either port. A gRPC library is not needed for one unary call: the request is one frame
//! in a body, the response one frame and trailers.

use core::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use agent_runtime::Count;
use agent_runtime::listen::ACCEPT_PAUSE;
use agent_runtime::server::{Exchanges, HttpLimits, Patience, builder};
use bytes::{BufMut as _, Bytes, BytesMut};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use prost::Message as _;
use tokio::net::{TcpListener, TcpStream};

use crate::request::{self, FRAME};
use crate::strategy::StrategyResponse;

/// The path of the gRPC method.
const METHOD: &str = "/jaeger.api_v2.SamplingManager/GetSamplingStrategy";
/// Maximum bytes of a gRPC request, which is a service's name.
const MAX_BODY_BYTES: usize = 4_096;
/// Time limit for the first request of a connection, and for the headers of each.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for the body of a request, and for its reply to be read.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// HTTP/2 keep-alive interval, and time limit for the reply to a ping.
const KEEP_ALIVE: Duration = Duration::from_secs(20);
/// How long a connection may rest: clients connect again.
const PATIENCE: Patience =
    Patience { first_request: HEADER_TIMEOUT, reply: Some(BODY_TIMEOUT), idle: Some(Duration::from_mins(10)) };
/// Concurrent requests on one connection, and the longest head of each.
const HTTP: HttpLimits = HttpLimits { requests: 4, head_bytes: 16 << 10 };

type Body = BoxBody<Bytes, Infallible>;

/// Provides the sampling strategy of services.
pub trait StrategyProvider: Send + Sync + 'static {
    /// The current strategy for `service`.
    fn strategy(&self, service: &str) -> StrategyResponse;
}

/// Counters of requests.
#[derive(Debug, Default)]
pub struct Counts {
    answered: Count,
    refused: Count,
    accept_errors: Count,
}

impl Counts {
    /// Requests that got a strategy.
    pub fn answered(&self) -> u64 {
        self.answered.get()
    }

    /// Requests that were malformed, or for something else; and connections without a place.
    pub fn refused(&self) -> u64 {
        self.refused.get()
    }

    /// Errors of `accept`.
    pub fn accept_errors(&self) -> u64 {
        self.accept_errors.get()
    }
}

/// Serves `listener` for as long as it is polled; closes connections for which `admits` gives no place. A place is
/// dropped with its connection. Needs a tokio runtime with time and network.
pub async fn serve<A: StrategyProvider, P: Send + 'static>(
    listener: TcpListener,
    provider: Arc<A>,
    counts: Arc<Counts>,
    admits: impl Fn(&TcpStream) -> Option<P>,
) {
    let builder = builder(HEADER_TIMEOUT, KEEP_ALIVE, HTTP);
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                if counts.accept_errors.is_first() {
                    tracing::warn!(%error, "cannot accept a connection for head sampling");
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Some(place) = admits(&stream) else {
            counts.refused.one_more();
            continue;
        };
        let (provider, counts, builder) = (Arc::clone(&provider), Arc::clone(&counts), builder.clone());
        tokio::spawn(async move {
            requests(&builder, stream, provider, counts).await;
            drop(place);
        });
    }
}

/// Serves one connection. Closes it if it rests longer than [`PATIENCE`] allows.
async fn requests<A: StrategyProvider>(
    builder: &Builder<TokioExecutor>,
    stream: TcpStream,
    provider: Arc<A>,
    counts: Arc<Counts>,
) {
    let exchanges = Exchanges::default();
    let begun = exchanges.clone();
    let service = service_fn(move |request| {
        let exchange = begun.begin();
        let answer = answer(request, Arc::clone(&provider), Arc::clone(&counts));
        async move { answer.await.map(|response| response.map(|body| exchange.reply(body))) }
    });
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    if let Ok(Err(error)) = exchanges.within(PATIENCE, connection).await {
        tracing::debug!(%error, "connection for head sampling failed");
    }
}

async fn answer<A: StrategyProvider>(
    request: Request<Incoming>,
    provider: Arc<A>,
    counts: Arc<Counts>,
) -> Result<Response<Body>, Infallible> {
    let grpc = request.headers().get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
    let response = if grpc { by_grpc(request, &*provider).await } else { by_http(&request, &*provider) };
    let count = if response.is_ok() { &counts.answered } else { &counts.refused };
    count.one_more();
    Ok(response.unwrap_or_else(Refusal::response))
}

fn by_http<A: StrategyProvider>(request: &Request<Incoming>, provider: &A) -> Result<Response<Body>, Refusal> {
    // The paths of Jaeger's agent and collector.
    if !matches!(request.uri().path(), "/sampling" | "/api/sampling" | "/") {
        return Err(Refusal::Http(StatusCode::NOT_FOUND, "not found: use /sampling?service=NAME"));
    }
    if request.method() != Method::GET {
        return Err(Refusal::Http(StatusCode::METHOD_NOT_ALLOWED, "method not allowed: use GET"));
    }
    let service = request::service_in_query(request.uri().query().unwrap_or_default());
    let service = service.map_err(|why| Refusal::Http(StatusCode::BAD_REQUEST, why))?;
    let mut response = Response::new(Full::new(provider.strategy(&service).json().into()).boxed());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

/// Why a request got no strategy, with the status of its protocol.
enum Refusal {
    /// HTTP status and text.
    Http(StatusCode, &'static str),
    /// gRPC code and text.
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

async fn by_grpc<A: StrategyProvider>(request: Request<Incoming>, provider: &A) -> Result<Response<Body>, Refusal> {
    const INVALID: u8 = 3;
    const UNIMPLEMENTED: u8 = 12;
    if request.uri().path() != METHOD {
        return Err(Refusal::Grpc(UNIMPLEMENTED, "unknown method: use GetSamplingStrategy"));
    }
    let body = tokio::time::timeout(BODY_TIMEOUT, Limited::new(request.into_body(), MAX_BODY_BYTES).collect()).await;
    let Ok(Ok(body)) = body else {
        return Err(Refusal::Grpc(INVALID, "the request is longer than 4096 bytes or took longer than 10 s"));
    };
    let service = request::service_in_frame(&body.to_bytes()).map_err(|why| Refusal::Grpc(INVALID, why))?;
    Ok(framed(&provider.strategy(&service)))
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

fn framed(answer: &StrategyResponse) -> Response<Body> {
    let message = answer.encode_to_vec();
    let mut frame = BytesMut::with_capacity(FRAME + message.len());
    frame.put_u8(0);
    frame.put_u32(message.len() as u32);
    frame.put_slice(&message);
    let full = Full::new(frame.freeze());
    grpc(full.with_trailers(async { Some(Ok(status(0, ""))) }).boxed())
}
