//! OTLP server: gRPC and HTTP, either on either port.

mod request_head;
mod response;

use core::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use agent_runtime::Count;
use agent_runtime::listen::ACCEPT_PAUSE;
use agent_runtime::peers::Peer;
use agent_runtime::server::{Exchanges, HttpLimits, Patience, builder};
use bytes::{Bytes, BytesMut};
use hyper::body::{Body as _, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use request_head::RequestHead;

use crate::counts::RefusalReason;
use crate::edge::{Edge, IncomingRequest};
use crate::forwarded_headers::ForwardedHeaders;
use crate::frames::{self, FullBody};
use crate::memory_budget::{self, Reservation};
use crate::outcome::{Acceptance, Refusal};
use crate::senders::{Sender, SenderRules};
use crate::tenants::TenantId;
use crate::unverified::SenderConnection;

/// Time limit for receiving a request.
const READ_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for the first request of a connection, for the head of each, and for the reply to a keep-alive ping.
const IDLE_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a connection may rest: clients connect again.
const PATIENCE: Patience =
    Patience { first_request: IDLE_TIMEOUT, reply: Some(READ_TIMEOUT), idle: Some(Duration::from_mins(10)) };
/// Concurrent calls on one connection, and the longest head of each: a Collector sends ten requests at a time.
const HTTP: HttpLimits = HttpLimits { requests: 16, head_bytes: 16 << 10 };
/// A body is read to its end for a polite refusal, unless it exceeds the limit this many times.
const OVERREAD_FACTOR: usize = 4;

/// Serves connections of `listener`, with TLS if it is given, until `stop` resolves; then finishes the requests in
/// flight.
pub(crate) async fn serve(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    edge: Arc<Edge>,
    stop: impl Future<Output = ()>,
) {
    let graceful = GracefulShutdown::new();
    let builder = builder(IDLE_TIMEOUT, IDLE_TIMEOUT, HTTP);
    let unaffordable = Count::default();
    let mut stop = core::pin::pin!(stop);
    loop {
        let accepted = tokio::select! {
            () = &mut stop => break,
            accepted = listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                if edge.counts.accept_errors.is_first() {
                    tracing::warn!(%error, "cannot accept a connection to OTLP");
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        if !(edge.admits)(&stream) {
            edge.counts.refused_connections.add(1);
            if unaffordable.is_first() {
                tracing::warn!("connections to OTLP are refused: few file descriptors are left");
            }
            continue;
        }
        let (tenant, who) = (edge.tenant(peer.ip()), Peer::of(&stream));
        let Some(place) = edge.tenant_state(tenant).places.take(who.clone()) else {
            edge.counts.refused_connections.add(1);
            continue;
        };
        let from = (tenant, Arc::new(edge.connection(peer, stream.local_addr().ok(), who.into())));
        _ = stream.set_nodelay(true);
        let (edge, tls, builder, watcher) = (Arc::clone(&edge), tls.clone(), builder.clone(), graceful.watcher());
        tokio::spawn(async move {
            match tls {
                None => requests(&builder, stream, from, edge, watcher).await,
                Some(tls) => match tokio::time::timeout(READ_TIMEOUT, tls.accept(stream)).await {
                    Ok(Ok(stream)) => requests(&builder, stream, from, edge, watcher).await,
                    Ok(Err(error)) => {
                        tracing::debug!(%peer, %error, "TLS handshake with a client failed");
                        edge.counts.refused_handshakes.add(1);
                    }
                    Err(_) => edge.counts.refused_handshakes.add(1),
                },
            }
            drop(place);
        });
    }
    graceful.shutdown().await;
}

/// Serves one connection. Closes it if it rests longer than [`PATIENCE`] allows.
async fn requests<S: AsyncRead + AsyncWrite + Send + Unpin + 'static>(
    builder: &Builder<TokioExecutor>,
    stream: S,
    from: (TenantId, Arc<SenderConnection>),
    edge: Arc<Edge>,
    watcher: Watcher,
) {
    let exchanges = Exchanges::default();
    let connection = connection(builder, stream, from, edge, exchanges.clone());
    // The result does not matter: its requests are counted one by one.
    _ = exchanges.within(PATIENCE, watcher.watch(connection)).await;
}

/// A connection, whichever protocol it turns out to speak. Its requests are among `exchanges`.
fn connection<S: AsyncRead + AsyncWrite + Send + Unpin + 'static>(
    builder: &Builder<TokioExecutor>,
    stream: S,
    (tenant, from): (TenantId, Arc<SenderConnection>),
    edge: Arc<Edge>,
    exchanges: Exchanges,
) -> impl hyper_util::server::graceful::GracefulConnection<Error = Box<dyn core::error::Error + Send + Sync>> + use<S> {
    let service = service_fn(move |request| {
        let exchange = exchanges.begin();
        let (edge, from) = (Arc::clone(&edge), Arc::clone(&from));
        async move {
            let response = respond(&edge, (tenant, &from), request).await;
            Ok::<_, Infallible>(response.map(|body| exchange.reply(body)))
        }
    });
    builder.serve_connection(TokioIo::new(stream), service).into_owned()
}

async fn respond(
    edge: &Edge,
    (tenant, from): (TenantId, &SenderConnection),
    request: Request<Incoming>,
) -> Response<FullBody> {
    let (parts, body) = request.into_parts();
    let head = match RequestHead::of(&parts) {
        Ok(head) => head,
        Err(unsupported) => {
            let counts = &edge.counts;
            unsupported
                .signal
                .map_or(&counts.unexpected, |signal| counts.of(signal).refused(RefusalReason::Unexpected))
                .add(1);
            return unsupported.response();
        }
    };
    let forwarded = edge.forwarded_names.of(&parts.headers);
    let rules = edge.senders.load();
    let sender = edge.sender(from, &rules, &parts.headers).await;
    // The body may take its time: nothing of the head waits for it.
    drop(parts);
    let outcome = ingest(edge, (tenant, sender, rules), head, forwarded, body).await;
    let counts = edge.counts.of(head.signal);
    match &outcome {
        Ok(_) => counts.accepted.add(1),
        Err(refusal) => {
            counts.refused(refusal.why).add(1);
            edge.note_refusal(refusal);
            tracing::debug!(
                signal = head.signal.name(),
                why = refusal.why.name(),
                text = refusal.text,
                "refused a request"
            );
        }
    }
    response::respond(head, outcome)
}

async fn ingest(
    edge: &Edge,
    (tenant, sender, rules): (TenantId, Sender, Arc<SenderRules>),
    head: RequestHead,
    forwarded: ForwardedHeaders,
    body: Incoming,
) -> Result<Acceptance, Refusal> {
    let mut reservation = edge.tenant_state(tenant).budget.reservation(sender.holder());
    let limit = edge.request_bytes;
    let reading = tokio::time::timeout(READ_TIMEOUT, read(head, body, limit, &mut reservation));
    let late =
        |_| Refusal::new(RefusalReason::Incomplete, format!("the request was not complete after {READ_TIMEOUT:?}"));
    let received = reading.await.map_err(late)??;
    let (message, compressed) = head.message(received)?;
    let plain = if compressed { memory_budget::inflate(&message, limit, &mut reservation)? } else { message };
    let (signal, encoding) = (head.signal, head.dialect.encoding());
    let incoming = IncomingRequest { tenant, signal, encoding, body: plain, forwarded, sender, rules };
    edge.ingest(incoming, &mut reservation)
}

/// Reads the body, at most `limit` bytes. A longer one is still read for a while, so that the client gets to read the
/// response. One allocation, if its length is announced: by HTTP, or by the gRPC frame in it.
async fn read(
    head: RequestHead,
    mut body: Incoming,
    limit: usize,
    reservation: &mut Reservation<'_>,
) -> Result<Bytes, Refusal> {
    // Plus the header of a gRPC frame.
    let max = limit.saturating_add(5);
    let too_large = || Refusal::new(RefusalReason::TooLarge, format!("the request is longer than {limit} bytes"));
    if body.size_hint().lower() > max.saturating_mul(OVERREAD_FACTOR) as u64 {
        return Err(too_large());
    }
    let exact = body.size_hint().exact().and_then(|bytes| usize::try_from(bytes).ok());
    let mut bytes = BytesMut::new();
    let (mut received, mut refusal) = (0_usize, None);
    while let Some(frame) = frames::next(&mut body).await {
        let broken = |error| {
            Refusal::new(RefusalReason::Incomplete, format!("the connection broke within the request: {error}"))
        };
        let Ok(data) = frame.map_err(broken)?.into_data() else { continue };
        received += data.len();
        if received > max.saturating_mul(OVERREAD_FACTOR) {
            break;
        }
        if refusal.is_none() && received > max {
            refusal = Some(too_large());
        }
        if refusal.is_none()
            && let Err(over_budget) = reservation.grow(data.len())
        {
            refusal = Some(over_budget.into());
        }
        if refusal.is_none() {
            let announced = exact.or_else(|| head.announced(&data)).filter(|_| bytes.capacity() == 0);
            if let Some(length) = announced.filter(|length| (received..=max).contains(length))
                && reservation.announce(length - received)
            {
                bytes = BytesMut::with_capacity(length);
            }
            bytes.extend_from_slice(&data);
        } else {
            bytes = BytesMut::new();
        }
    }
    refusal.map_or_else(|| Ok(bytes.freeze()), Err)
}
