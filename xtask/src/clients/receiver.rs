//! Where OTLP goes: notes every message, byte for byte, and takes it.

use core::convert::Infallible;
use core::pin::Pin;
use core::task::{Context, Poll};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result};
use bytes::{Bytes, BytesMut};
use hyper::body::{Body, Frame, Incoming};
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use otlp::Signal;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

/// Bytes that a client may send unasked: no client waits for this receiver, be it one that only overhears.
const WINDOW: u32 = 1 << 30;

/// One request's message, of Protocol Buffers, out of its frame.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Message {
    pub signal: Signal,
    pub bytes: Bytes,
}

/// What came, in order. Shared by receivers at several addresses.
#[derive(Clone, Debug, Default)]
pub struct Came(Arc<Mutex<Vec<Message>>>);

impl Came {
    /// All that came so far.
    pub fn all(&self) -> Vec<Message> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Forgets all that came.
    pub fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn add(&self, message: Message) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(message);
    }
}

/// A receiver at one address. Its connections end with this value, too.
#[derive(Debug)]
pub struct Receiver {
    pub address: SocketAddr,
    task: JoinHandle<()>,
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Receiver {
    /// Takes at `address` what `came` is to note.
    ///
    /// # Errors
    ///
    /// The address is taken.
    pub async fn at(address: SocketAddr, came: Came) -> Result<Self> {
        let listener = TcpListener::bind(address).await.with_context(|| format!("a receiver at {address}"))?;
        let address = listener.local_addr()?;
        Ok(Self { address, task: tokio::spawn(accept(listener, came)) })
    }

    /// Nobody listens there any more when this returns.
    pub async fn end(mut self) {
        self.task.abort();
        // That it was aborted is what was asked for.
        _ = (&mut self.task).await;
    }
}

async fn accept(listener: TcpListener, came: Came) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let came = came.clone();
        connections.spawn(async move {
            let service = service_fn(|request| take(request, came.clone()));
            let mut builder = Builder::new(TokioExecutor::new());
            builder.http2().initial_stream_window_size(WINDOW).initial_connection_window_size(WINDOW);
            // A connection that breaks is the client's to make again.
            _ = builder.serve_connection(TokioIo::new(stream), service).await;
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn take(request: Request<Incoming>, came: Came) -> Result<Response<Parts>, Infallible> {
    let (head, mut body) = request.into_parts();
    let grpc = head.headers.get("content-type").is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
    let mut bytes = BytesMut::new();
    while let Some(frame) = core::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        // A request that broke off did not come.
        let Ok(frame) = frame else { return Ok(answer(grpc)) };
        bytes.extend(frame.into_data());
    }
    let mut bytes = bytes.freeze();
    if grpc {
        bytes = bytes.slice(bytes.len().min(5)..);
    }
    let path = head.uri.path();
    let named = |signal: &Signal| path == signal.grpc_path() || path == signal.http_path();
    if let Some(signal) = Signal::ALL.into_iter().find(named) {
        came.add(Message { signal, bytes });
    }
    Ok(answer(grpc))
}

fn answer(grpc: bool) -> Response<Parts> {
    let mut response = Response::new(Parts::default());
    if grpc {
        response.headers_mut().insert("content-type", hyper::header::HeaderValue::from_static("application/grpc"));
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", hyper::header::HeaderValue::from_static("0"));
        *response.body_mut() = Parts { data: Some(Bytes::from_static(&[0; 5])), trailers: Some(trailers) };
    } else {
        response
            .headers_mut()
            .insert("content-type", hyper::header::HeaderValue::from_static("application/x-protobuf"));
    }
    response
}

/// An empty answer, and how it went.
#[derive(Debug, Default)]
struct Parts {
    data: Option<Bytes>,
    trailers: Option<HeaderMap>,
}

impl Body for Parts {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let data = self.data.take().map(Frame::data);
        Poll::Ready(data.or_else(|| self.trailers.take().map(Frame::trailers)).map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.data.is_none() && self.trailers.is_none()
    }
}
