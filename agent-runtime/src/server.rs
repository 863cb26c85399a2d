//! HTTP servers of the agents: gRPC and plain HTTP, on Unix sockets and TCP. Connections are bounded in number and per
//! peer, and each request knows who sent it (an extension, [`Identity`]).

mod exchanges;
mod limits;
mod reply_shares;
mod request_bounds;

use core::pin::pin;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
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

pub use self::exchanges::{Exchange, Exchanges, Overdue, Patience, WatchedBody};
pub use self::limits::{HttpLimits, Limits, Traffic};
pub use self::reply_shares::{ReplyShares, with_page_shares, with_reply_shares};
pub use self::request_bounds::{AdmittedRequest, with_bounded_requests};
use crate::access::{Identity, peer};
use crate::clock::Clock;
use crate::count::Count;
use crate::descriptors;
use crate::listen::ACCEPT_PAUSE;
use crate::peers::{ConnectionPermit, FullListeners, Peer, Places};
use crate::repeated_events::RepeatedEvents;

/// Time limit for a TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// HTTP/2 keep-alive interval and timeout: a peer that does not reply within this is treated as gone, whatever TCP
/// says.
const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// What one connection may send over HTTP/2 before any of it is read, over all requests and for each. All bodies are
/// read at once, into bounds of their own, or dropped.
const WINDOW_BYTES: u32 = 64 << 10;

/// A listening socket.
#[derive(Debug)]
pub enum Listener {
    /// Users of this machine.
    Unix(UnixListener),
    /// Plain TCP: everybody is [`Identity::Anyone`].
    Tcp(TcpListener),
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
    /// Closed because a reply was not read in time.
    pub unread: Count,
    /// Requests for pages that were refused: their sender had its share of pages that were not read.
    pub refused_pages: Count,
    /// Which listeners are full.
    pub full: FullListeners,
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
        let places = Places::new(self.name, self.limits.connections, self.limits.connections_per_peer);
        self.counts.full.watch(&places);
        let (sender, mut admitted) = mpsc::channel(1);
        // Aborted on drop.
        let mut accepting = JoinSet::new();
        for listener in listeners {
            accepting.spawn(self.clone().accept(listener, Arc::clone(&places), sender.clone()));
        }
        drop(sender);
        let builder = builder(limits::FIRST_REQUEST, KEEP_ALIVE, self.limits.traffic.http());
        let mut stop = pin!(stop);
        loop {
            let next = tokio::select! {
                next = admitted.recv() => next,
                () = &mut stop => None,
            };
            let Some(AdmittedConnection { stream, identity, place }) = next else { break };
            let (server, tls) = (self.clone(), tls.clone());
            let (builder, watcher) = (builder.clone(), graceful.watcher());
            tokio::spawn(async move {
                let caller = Caller { identity, peer: place.peer().clone() };
                server.serve_connection(stream, tls, caller, &builder, watcher).await;
                drop(place);
            });
        }
        drop(accepting);
        graceful.shutdown().await;
    }

    /// Accepts for ever.
    async fn accept(self, listener: Listener, places: Arc<Places>, admitted: mpsc::Sender<AdmittedConnection>) {
        let (failures, clock) = (RepeatedEvents::default(), Clock::start());
        loop {
            let stream = match listener.accept().await {
                Ok(stream) => stream,
                Err(error) => {
                    self.counts.accept_errors.one_more();
                    if let Some(times) = failures.count(clock.now(), error.kind()) {
                        tracing::warn!(server = self.name, %error, times, "cannot accept a connection");
                    }
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
                        if let Some(times) = failures.count(clock.now(), "credentials") {
                            tracing::warn!(server = self.name, %error, times, "cannot get the credentials of a peer");
                        }
                        continue;
                    }
                },
            };
            let Some(place) = places.take(peer) else {
                self.counts.refused.one_more();
                continue;
            };
            if admitted.send(AdmittedConnection { stream, identity, place }).await.is_err() {
                return;
            }
        }
    }

    async fn serve_connection(
        self,
        stream: Stream,
        tls: Option<TlsAcceptor>,
        caller: Caller,
        builder: &Builder<TokioExecutor>,
        watcher: Watcher,
    ) {
        match (stream, tls) {
            (Stream::Unix(stream), _) => self.requests(stream, caller, builder, watcher).await,
            (Stream::Tcp(stream, _), None) => self.requests(stream, caller, builder, watcher).await,
            (Stream::Tcp(stream, address), Some(tls)) => {
                match tokio::time::timeout(HANDSHAKE, tls.accept(stream)).await {
                    Ok(Ok(stream)) => {
                        let identity = certified(stream.get_ref().1.peer_certificates());
                        self.requests(stream, Caller { identity, ..caller }, builder, watcher).await;
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

    /// Serves the requests of one connection, until it has rested too long.
    async fn requests<S: AsyncRead + AsyncWrite + Send + Unpin + 'static>(
        self,
        stream: S,
        caller: Caller,
        builder: &Builder<TokioExecutor>,
        watcher: Watcher,
    ) {
        let Self { router, limits: Limits { traffic, .. }, counts, .. } = self;
        let exchanges = Exchanges::default();
        let begun = exchanges.clone();
        let answer = service_fn(move |mut request: Request<Incoming>| {
            let exchange = begun.begin();
            request.extensions_mut().insert(caller.identity.clone());
            request.extensions_mut().insert(caller.peer.clone());
            let reply = router.clone().call(request);
            async move { reply.await.map(|reply| replied(traffic, exchange, reply)) }
        });
        let connection = builder.serve_connection(TokioIo::new(stream), answer).into_owned();
        // Errors are of the peer's making, and each request has had its own answer.
        if let Err(Overdue::Reply) = exchanges.within(traffic.patience(), watcher.watch(connection)).await {
            counts.unread.one_more();
        }
    }
}

/// The `reply` that ends this exchange.
fn replied(traffic: Traffic, exchange: Exchange, reply: Response) -> Response {
    match traffic {
        Traffic::Pages => reply.map(|body| Body::new(exchange.reply(body))),
        Traffic::Streams => reply,
    }
}

/// How connections are served, over either version of HTTP: the head of a request comes within `idle`. Over HTTP/2 a
/// peer replies to a ping within `keep_alive`.
#[must_use]
pub fn builder(idle: Duration, keep_alive: Duration, limits: HttpLimits) -> Builder<TokioExecutor> {
    let HttpLimits { requests, head_bytes } = limits;
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(idle).max_buf_size(head_bytes as usize);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(keep_alive)
        .keep_alive_timeout(keep_alive)
        .initial_connection_window_size(WINDOW_BYTES)
        .initial_stream_window_size(WINDOW_BYTES)
        .max_concurrent_streams(requests)
        .max_header_list_size(head_bytes);
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

/// Who is at the other end of a connection.
struct Caller {
    identity: Identity,
    peer: Peer,
}

/// A connection that has a place.
struct AdmittedConnection {
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

/// The identity in the first of the peer's certificates.
pub(crate) fn certified(certificates: Option<&[CertificateDer<'_>]>) -> Identity {
    let Some(first) = certificates.and_then(<[_]>::first) else { return Identity::Anyone };
    let Ok(certificate) = EndEntityCert::try_from(first) else { return Identity::Certificate(Vec::new()) };
    let names = certificate.valid_dns_names().chain(certificate.valid_uri_names());
    Identity::of_certificate(names.map(str::to_owned))
}

#[cfg(test)]
mod tests;
