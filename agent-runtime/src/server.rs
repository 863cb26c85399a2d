//! HTTP servers of the agents: gRPC and plain HTTP, on Unix sockets and TCP. Connections are bounded in number and per
//! peer, and each request knows who sent it (an extension, [`Identity`]).

mod reply_shares;
mod request_bounds;

use core::pin::pin;
use core::sync::atomic::{AtomicBool, Ordering};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tower_service::Service as _;
use webpki::EndEntityCert;

pub use self::reply_shares::{ReplyShares, with_reply_shares};
pub use self::request_bounds::{AdmittedRequest, with_bounded_requests};
use crate::access::{Identity, peer};
use crate::count::Count;
use crate::descriptors;
use crate::peers::{ConnectionPermit, Peer, Places};

/// Time limit for a TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Time limit for the first request of a connection, for the head of each, and for an idle connection over HTTP/1.
const IDLE: Duration = Duration::from_secs(20);
/// HTTP/2 keep-alive interval and timeout: a peer that does not reply within this is treated as gone, whatever TCP
/// says.
const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// Maximum bytes of headers of one request.
const MAX_HEADER_BYTES: usize = 32 << 10;
/// Concurrent requests on one connection.
const MAX_REQUESTS: u32 = 64;
/// Pause after an error of `accept`, usually for lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A listening socket.
#[derive(Debug)]
pub enum Listener {
    /// Users of this machine.
    Unix(UnixListener),
    /// Plain TCP: everybody is [`Identity::Anyone`].
    Tcp(TcpListener),
}

/// How many connections a server takes.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Concurrent connections of all peers. One of them may have three times what is free.
    pub connections: usize,
    /// Most concurrent connections of one user of this machine, or from one address of another one.
    pub connections_per_peer: usize,
}

/// What happened to connections, since the start.
#[derive(Debug, Default)]
pub struct Counts {
    /// Refused because the server, or this peer's share, was full.
    pub refused: Count,
    /// Refused because the descriptors that are left are kept back for services.
    pub reserved: Count,
    /// TLS handshakes that failed or took too long.
    pub handshakes: Count,
    /// Errors of `accept`.
    pub accept_errors: Count,
}

/// A server of one API, on one or more listeners.
#[derive(Clone, Debug)]
pub struct Server {
    /// Name in logs.
    pub name: &'static str,
    /// What answers the requests.
    pub router: Router,
    /// How many connections it takes.
    pub limits: Limits,
    /// What happens to them.
    pub counts: Arc<Counts>,
}

impl Server {
    /// Serves connections of `listeners` until `stop` resolves; then finishes the requests in flight. `tls` is for TCP;
    /// without it, everybody there is [`Identity::Anyone`].
    pub async fn serve(self, listeners: Vec<Listener>, tls: Option<TlsAcceptor>, stop: impl Future<Output = ()>) {
        let graceful = GracefulShutdown::new();
        let places = Places::new(self.limits.connections, self.limits.connections_per_peer);
        let (sender, mut admitted) = mpsc::channel(1);
        // Aborted on drop.
        let mut accepting = JoinSet::new();
        for listener in listeners {
            accepting.spawn(self.clone().accept(listener, Arc::clone(&places), sender.clone()));
        }
        drop(sender);
        let builder = builder();
        let mut stop = pin!(stop);
        loop {
            let next = tokio::select! {
                next = admitted.recv() => next,
                () = &mut stop => None,
            };
            let Some(Admitted { stream, identity, place }) = next else { break };
            let (server, tls) = (self.clone(), tls.clone());
            let (builder, watcher) = (builder.clone(), graceful.watcher());
            tokio::spawn(async move {
                server.serve_connection(stream, tls, identity, &builder, watcher).await;
                drop(place);
            });
        }
        drop(accepting);
        graceful.shutdown().await;
    }

    /// Accepts for ever.
    async fn accept(self, listener: Listener, places: Arc<Places>, admitted: mpsc::Sender<Admitted>) {
        loop {
            let stream = match listener.accept().await {
                Ok(stream) => stream,
                Err(error) => {
                    self.counts.accept_errors.one_more();
                    tracing::warn!(server = self.name, %error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            if !stream.leaves_enough() {
                if self.counts.reserved.is_first() {
                    tracing::warn!(server = self.name, "connections are refused: few file descriptors are left");
                }
                continue;
            }
            let (identity, peer) = match &stream {
                Stream::Tcp(stream, _) => (Identity::Anyone, Peer::of(stream)),
                Stream::Unix(stream) => match peer(stream) {
                    Ok(peer) => (Identity::User { uid: peer.uid, groups: peer.groups }, Peer::User(peer.uid)),
                    Err(error) => {
                        tracing::warn!(server = self.name, %error, "cannot get the credentials of a peer");
                        continue;
                    }
                },
            };
            let Some(place) = places.take(peer.clone()) else {
                if self.counts.refused.is_first() {
                    tracing::warn!(server = self.name, %peer, "connections are refused: too many are open");
                }
                continue;
            };
            if admitted.send(Admitted { stream, identity, place }).await.is_err() {
                return;
            }
        }
    }

    async fn serve_connection(
        self,
        stream: Stream,
        tls: Option<TlsAcceptor>,
        identity: Identity,
        builder: &Builder<TokioExecutor>,
        watcher: Watcher,
    ) {
        match (stream, tls) {
            (Stream::Unix(stream), _) => requests(self.router, stream, identity, builder, watcher).await,
            (Stream::Tcp(stream, _), None) => requests(self.router, stream, identity, builder, watcher).await,
            (Stream::Tcp(stream, address), Some(tls)) => {
                match tokio::time::timeout(HANDSHAKE, tls.accept(stream)).await {
                    Ok(Ok(stream)) => {
                        let identity = certified(stream.get_ref().1.peer_certificates());
                        requests(self.router, stream, identity, builder, watcher).await;
                    }
                    failed => {
                        self.counts.handshakes.one_more();
                        let error = failed.map(|result| result.err().map(|error| error.to_string()));
                        tracing::debug!(server = self.name, %address, ?error, "TLS handshake failed");
                    }
                }
            }
        }
    }
}

fn builder() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(IDLE).max_buf_size(MAX_HEADER_BYTES);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE)
        .max_concurrent_streams(MAX_REQUESTS)
        .max_header_list_size(MAX_HEADER_BYTES as u32);
    builder
}

/// A connection, before TLS.
enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream, IpAddr),
}

impl Stream {
    fn leaves_enough(&self) -> bool {
        match self {
            Self::Unix(stream) => descriptors::leaves_enough(stream),
            Self::Tcp(stream, _) => descriptors::leaves_enough(stream),
        }
    }
}

/// A connection that has a place.
struct Admitted {
    stream: Stream,
    identity: Identity,
    place: ConnectionPermit,
}

impl Listener {
    async fn accept(&self) -> std::io::Result<Stream> {
        match self {
            Self::Unix(listener) => Ok(Stream::Unix(listener.accept().await?.0)),
            Self::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                _ = stream.set_nodelay(true);
                Ok(Stream::Tcp(stream, address.ip()))
            }
        }
    }
}

/// Serves the requests of one connection. Closes it if the first one does not come within [`IDLE`].
async fn requests<S: AsyncRead + AsyncWrite + Send + Unpin + 'static>(
    router: Router,
    stream: S,
    identity: Identity,
    builder: &Builder<TokioExecutor>,
    watcher: Watcher,
) {
    let began = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&began);
    let answer = service_fn(move |mut request: Request<Incoming>| {
        flag.store(true, Ordering::Relaxed);
        request.extensions_mut().insert(identity.clone());
        router.clone().call(request)
    });
    let connection = builder.serve_connection(TokioIo::new(stream), answer).into_owned();
    let mut connection = pin!(watcher.watch(connection));
    tokio::select! {
        // Errors are of the peer's making, and each request has had its own answer.
        _ = &mut connection => return,
        () = tokio::time::sleep(IDLE) => {}
    }
    if began.load(Ordering::Relaxed) {
        _ = connection.await;
    }
}

/// The identity in the first of the peer's certificates.
pub(crate) fn certified(certificates: Option<&[CertificateDer<'_>]>) -> Identity {
    let Some(first) = certificates.and_then(<[_]>::first) else { return Identity::Anyone };
    let Ok(certificate) = EndEntityCert::try_from(first) else { return Identity::Certificate(Vec::new()) };
    let names = certificate.valid_dns_names().chain(certificate.valid_uri_names());
    Identity::of_certificate(names.map(str::to_owned))
}
