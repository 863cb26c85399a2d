//! An OTLP receiver that accepts and records every message, byte by byte.

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

/// HTTP/2 window in bytes: so large that flow control never delays a client.
const WINDOW: u32 = 1 << 30;

/// The Protocol Buffers message of one request, without its gRPC frame.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Message {
    pub signal: Signal,
    pub bytes: Bytes,
}

/// All received messages in order. Receivers at several addresses can share one.
#[derive(Clone, Debug, Default)]
pub struct MessageLog(Arc<Mutex<Vec<Message>>>);

impl MessageLog {
    /// All messages received so far.
    pub fn all(&self) -> Vec<Message> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Removes all messages.
    pub fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn add(&self, message: Message) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(message);
    }
}

/// A receiver at one address. Dropping it also closes its connections.
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
    /// Listens at `address`, and records messages in `received`.
    ///
    /// # Errors
    ///
    /// The address is in use.
    pub async fn at(address: SocketAddr, received: MessageLog) -> Result<Self> {
        let listener = TcpListener::bind(address).await.with_context(|| format!("a receiver at {address}"))?;
        let address = listener.local_addr()?;
        Ok(Self { address, task: tokio::spawn(accept(listener, received)) })
    }

    /// Ends the receiver. The address is free when this returns.
    pub async fn end(mut self) {
        self.task.abort();
        // The error only says that it was aborted.
        _ = (&mut self.task).await;
    }
}

async fn accept(listener: TcpListener, received: MessageLog) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let received = received.clone();
        connections.spawn(async move {
            let service = service_fn(|request| take(request, received.clone()));
            let mut builder = Builder::new(TokioExecutor::new());
            builder.http2().initial_stream_window_size(WINDOW).initial_connection_window_size(WINDOW);
            // The client reconnects if a connection breaks.
            _ = builder.serve_connection(TokioIo::new(stream), service).await;
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn take(request: Request<Incoming>, received: MessageLog) -> Result<Response<EmptyBody>, Infallible> {
    let (head, mut body) = request.into_parts();
    let grpc = head.headers.get("content-type").is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
    let mut bytes = BytesMut::new();
    while let Some(frame) = core::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        // An incomplete request is not recorded.
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
        received.add(Message { signal, bytes });
    }
    Ok(answer(grpc))
}

fn answer(grpc: bool) -> Response<EmptyBody> {
    let mut response = Response::new(EmptyBody::default());
    if grpc {
        response.headers_mut().insert("content-type", hyper::header::HeaderValue::from_static("application/grpc"));
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", hyper::header::HeaderValue::from_static("0"));
        *response.body_mut() = EmptyBody { data: Some(Bytes::from_static(&[0; 5])), trailers: Some(trailers) };
    } else {
        response
            .headers_mut()
            .insert("content-type", hyper::header::HeaderValue::from_static("application/x-protobuf"));
    }
    response
}

/// An empty response body with optional trailers.
#[derive(Debug, Default)]
struct EmptyBody {
    data: Option<Bytes>,
    trailers: Option<HeaderMap>,
}

impl Body for EmptyBody {
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
