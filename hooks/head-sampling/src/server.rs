//! HTTP and gRPC server, both on either port. A gRPC library is not needed for one unary call: the request is one frame
//! in a body, the response one frame and trailers.

use core::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use agent_runtime::Count;
use bytes::{BufMut as _, Bytes, BytesMut};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use prost::Message as _;
use tokio::net::{TcpListener, TcpStream};

use crate::request::{self, FRAME};
use crate::strategy::StrategyResponse;

/// The path of the gRPC method.
const METHOD: &str = "/jaeger.api_v2.SamplingManager/GetSamplingStrategy";
/// Maximum bytes of a gRPC request, which is a service's name.
const MAX_BODY_BYTES: usize = 4_096;
/// Time limit for the headers of a request.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for the body of a request.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

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
}

impl Counts {
    /// Requests that got a strategy.
    pub fn answered(&self) -> u64 {
        self.answered.get()
    }

    /// Requests that were malformed, or for something else.
    pub fn refused(&self) -> u64 {
        self.refused.get()
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
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection for head sampling");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let Some(place) = admits(&stream) else {
            counts.refused.one_more();
            continue;
        };
        let (provider, counts) = (Arc::clone(&provider), Arc::clone(&counts));
        tokio::spawn(async move {
            let service =
                hyper::service::service_fn(move |request| answer(request, Arc::clone(&provider), Arc::clone(&counts)));
            let mut server = auto::Builder::new(TokioExecutor::new());
            server.http1().timer(hyper_util::rt::TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
            server.http2().max_concurrent_streams(16);
            if let Err(error) = server.serve_connection(TokioIo::new(stream), service).await {
                tracing::debug!(%error, "connection for head sampling failed");
            }
            drop(place);
        });
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
