//! An upstream that records what it receives byte for byte, and replies as configured.

use core::convert::Infallible;
use core::pin::Pin;
use core::task::{Context, Poll};
use std::io::Read as _;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::{Bytes, BytesMut};
use flate2::read::GzDecoder;
use hyper::body::{Body, Frame, Incoming};
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

/// A request as received.
#[derive(Clone, Debug, PartialEq)]
pub struct ReceivedRequest {
    pub path: String,
    pub content: String,
    pub tenant: Option<String>,
    /// Compressed with gzip.
    pub packed: bool,
    /// All headers of the request.
    pub headers: HeaderMap,
    /// The message without its frame.
    pub message: Bytes,
}

/// Reply to all requests from now on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reply {
    Taken,
    /// gRPC's INVALID_ARGUMENT, HTTP's 400.
    Refused,
    /// gRPC's UNAVAILABLE, HTTP's 503.
    Later,
    /// No reply: the request hangs.
    Never,
}

pub struct Upstream {
    pub address: SocketAddr,
    seen: Arc<Mutex<Vec<ReceivedRequest>>>,
    answer: Arc<Mutex<Reply>>,
    task: JoinHandle<()>,
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Upstream {
    pub async fn start() -> Self {
        Self::at("127.0.0.1:0".parse().unwrap()).await
    }

    pub async fn at(address: SocketAddr) -> Self {
        Self::listen(address, None).await
    }

    /// An upstream with TLS.
    pub async fn secure(tls: ServerConfig) -> Self {
        Self::secure_at("127.0.0.1:0".parse().unwrap(), tls).await
    }

    pub async fn secure_at(address: SocketAddr, tls: ServerConfig) -> Self {
        Self::listen(address, Some(TlsAcceptor::from(Arc::new(tls)))).await
    }

    async fn listen(address: SocketAddr, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (seen, answer) = (Arc::default(), Arc::new(Mutex::new(Reply::Taken)));
        let task = tokio::spawn(accept(listener, tls, Arc::clone(&seen), Arc::clone(&answer)));
        Self { address, seen, answer, task }
    }

    /// Ends it with its connections, so that its address is free.
    pub async fn end(mut self) {
        self.task.abort();
        _ = (&mut self.task).await;
    }

    pub fn answer(&self, answer: Reply) {
        *self.answer.lock().unwrap() = answer;
    }

    /// Messages received at `path`.
    pub fn messages(&self, path: &str) -> Vec<Bytes> {
        self.seen().into_iter().filter(|seen| seen.path == path).map(|seen| seen.message).collect()
    }

    pub fn seen(&self) -> Vec<ReceivedRequest> {
        self.seen.lock().unwrap().clone()
    }
}

async fn accept(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    seen: Arc<Mutex<Vec<ReceivedRequest>>>,
    answer: Arc<Mutex<Reply>>,
) {
    // Dropped with this task, which closes the connections.
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let (seen, answer) = (Arc::clone(&seen), Arc::clone(&answer));
        let service = service_fn(move |request| respond(request, Arc::clone(&seen), Arc::clone(&answer)));
        let tls = tls.clone();
        connections.spawn(async move {
            let builder = Builder::new(TokioExecutor::new());
            match tls {
                None => _ = builder.serve_connection(TokioIo::new(stream), service).await,
                Some(tls) => {
                    let Ok(stream) = tls.accept(stream).await else { return };
                    _ = builder.serve_connection(TokioIo::new(stream), service).await;
                }
            }
        });
    }
}

async fn respond(
    request: Request<Incoming>,
    seen: Arc<Mutex<Vec<ReceivedRequest>>>,
    answer: Arc<Mutex<Reply>>,
) -> Result<Response<TestBody>, Infallible> {
    let (head, body) = request.into_parts();
    let mut message = collect(body).await.freeze();
    let header = |key: &str| head.headers.get(key).map(|value| value.to_str().unwrap().to_owned());
    let content = header("content-type").unwrap_or_default();
    let grpc = content == "application/grpc";
    let packed = header(if grpc { "grpc-encoding" } else { "content-encoding" }).is_some_and(|value| value == "gzip");
    if grpc {
        assert_eq!(message[0] == 1, packed);
        message = message.slice(5..);
    }
    if packed {
        let mut plain = Vec::new();
        GzDecoder::new(&message[..]).read_to_end(&mut plain).unwrap();
        message = plain.into();
    }
    let answer = *answer.lock().unwrap();
    if answer == Reply::Never {
        core::future::pending::<()>().await;
    }
    if answer == Reply::Taken {
        let path = head.uri.path().to_owned();
        seen.lock().unwrap().push(ReceivedRequest {
            path,
            content,
            packed,
            tenant: header("x-tenant"),
            headers: head.headers.clone(),
            message,
        });
    }
    let (code, status) = match answer {
        Reply::Refused => ("3", 400),
        Reply::Later => ("14", 503),
        _ => ("0", 200),
    };
    let mut response = Response::new(TestBody::default());
    if grpc {
        response.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", code.parse().unwrap());
        // An empty message, and the status.
        *response.body_mut() = TestBody { data: Some(Bytes::from_static(&[0; 5])), trailers: Some(trailers) };
    } else {
        *response.status_mut() = status.try_into().unwrap();
    }
    Ok(response)
}

#[derive(Default)]
pub struct TestBody {
    pub data: Option<Bytes>,
    pub trailers: Option<HeaderMap>,
}

impl Body for TestBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let data = self.data.take().map(Frame::data);
        Poll::Ready(data.or_else(|| self.trailers.take().map(Frame::trailers)).map(Ok))
    }
}

pub async fn collect(mut body: Incoming) -> BytesMut {
    let mut bytes = BytesMut::new();
    while let Some(Ok(frame)) = core::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        if let Ok(data) = frame.into_data() {
            bytes.extend_from_slice(&data);
        }
    }
    bytes
}
