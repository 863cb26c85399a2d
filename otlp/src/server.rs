//! OTLP in: gRPC and HTTP, either on either port.

mod answer;
mod ask;

use core::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use hyper::body::{Body as _, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

pub(crate) use answer::{Refusal, Taken};
use ask::Ask;

use crate::counts::Refused;
use crate::edge::{Asked, Edge};
use crate::frames::{self, Whole};
use crate::passed::Passed;
use crate::room::{self, Share};
use crate::tenants::TenantId;

/// A request has to come to its end within this.
const READ_WITHIN: Duration = Duration::from_secs(10);
/// The head of a request has to come within this, and a silent connection has to answer.
const SILENT_FOR: Duration = Duration::from_secs(20);
/// Calls at one time on one connection.
const CALLS: u32 = 64;
/// Bytes of headers of one request.
const HEADERS: usize = 32 << 10;
/// A client that sends this many times what it may is not listened to until it is done.
const PATIENCE: usize = 4;
/// After an error of `accept` (too many open files), the next one is tried after this.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Takes connections from `listener`, inside of TLS if it is given, until `stop` comes, and answers what was asked before.
pub(crate) async fn serve(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    edge: Arc<Edge>,
    stop: impl Future<Output = ()>,
) {
    let graceful = GracefulShutdown::new();
    let builder = builder();
    let mut stop = core::pin::pin!(stop);
    loop {
        let accepted = tokio::select! {
            () = &mut stop => break,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, peer)) = accepted else {
            edge.counts.accept_errors.add(1);
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let tenant = edge.tenant(peer.ip());
        let Ok(permit) = Arc::clone(&edge.part(tenant).free).try_acquire_owned() else {
            edge.counts.refused_connections.add(1);
            continue;
        };
        _ = stream.set_nodelay(true);
        let (edge, tls, builder, watcher) = (Arc::clone(&edge), tls.clone(), builder.clone(), graceful.watcher());
        tokio::spawn(async move {
            // However it ended: what it brought is counted by request.
            match tls {
                None => _ = watcher.watch(connection(&builder, stream, tenant, edge)).await,
                Some(tls) => match tokio::time::timeout(READ_WITHIN, tls.accept(stream)).await {
                    Ok(Ok(stream)) => _ = watcher.watch(connection(&builder, stream, tenant, edge)).await,
                    Ok(Err(error)) => {
                        tracing::debug!(%peer, %error, "a client was not let in");
                        edge.counts.refused_handshakes.add(1);
                    }
                    Err(_) => edge.counts.refused_handshakes.add(1),
                },
            }
            drop(permit);
        });
    }
    graceful.shutdown().await;
}

fn builder() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(SILENT_FOR).max_buf_size(HEADERS);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(SILENT_FOR)
        .keep_alive_timeout(SILENT_FOR)
        .max_concurrent_streams(CALLS)
        .max_header_list_size(HEADERS as u32);
    builder
}

/// One connection, whichever of the protocols it turns out to speak.
fn connection<S: AsyncRead + AsyncWrite + Send + Unpin + 'static>(
    builder: &Builder<TokioExecutor>,
    stream: S,
    tenant: TenantId,
    edge: Arc<Edge>,
) -> impl hyper_util::server::graceful::GracefulConnection<Error = Box<dyn core::error::Error + Send + Sync>> + use<S> {
    let service = service_fn(move |request| {
        let edge = Arc::clone(&edge);
        async move { Ok::<_, Infallible>(respond(&edge, tenant, request).await) }
    });
    builder.serve_connection(TokioIo::new(stream), service).into_owned()
}

async fn respond(edge: &Edge, tenant: TenantId, request: Request<Incoming>) -> Response<Whole> {
    let (parts, body) = request.into_parts();
    let ask = match Ask::of(&parts) {
        Ok(ask) => ask,
        Err(stranger) => {
            let counts = &edge.counts;
            stranger.signal.map_or(&counts.foreign, |signal| counts.of(signal).refused(Refused::Foreign)).add(1);
            return stranger.answer();
        }
    };
    let passed = edge.passing.of(&parts.headers);
    let outcome = take(edge, tenant, ask, passed, body).await;
    let counts = edge.counts.of(ask.signal);
    match &outcome {
        Ok(_) => counts.taken.add(1),
        Err(refusal) => {
            counts.refused(refusal.why).add(1);
            tracing::debug!(signal = ask.signal.name(), why = refusal.why.name(), text = refusal.text, "refused");
        }
    }
    answer::answer(ask, outcome)
}

async fn take(edge: &Edge, tenant: TenantId, ask: Ask, passed: Passed, body: Incoming) -> Result<Taken, Refusal> {
    let mut share = edge.part(tenant).room.share();
    let limit = edge.request_bytes;
    let reading = tokio::time::timeout(READ_WITHIN, read(body, limit, &mut share));
    let late = |_| Refusal::new(Refused::Unfinished, format!("the request took longer than {READ_WITHIN:?}"));
    let came = reading.await.map_err(late)??;
    let (message, packed) = ask.message(came)?;
    let plain = if packed { room::inflate(&message, limit, &mut share)? } else { message };
    let asked = Asked { tenant, signal: ask.signal, encoding: ask.dialect.encoding(), body: plain, passed };
    edge.take(asked, &mut share)
}

/// The body, at most `limit` bytes. What is too long is still read for a while, so that the client gets to read the answer.
async fn read(mut body: Incoming, limit: usize, share: &mut Share<'_>) -> Result<Bytes, Refusal> {
    // A gRPC frame's head comes on top.
    let most = limit.saturating_add(5);
    let too_large = || Refusal::new(Refused::TooLarge, format!("more than {limit} bytes"));
    if body.size_hint().lower() > most.saturating_mul(PATIENCE) as u64 {
        return Err(too_large());
    }
    let mut bytes = BytesMut::new();
    let (mut came, mut refusal) = (0_usize, None);
    while let Some(frame) = frames::next(&mut body).await {
        let broken = |error| Refusal::new(Refused::Unfinished, format!("the request broke off: {error}"));
        let Ok(data) = frame.map_err(broken)?.into_data() else { continue };
        came += data.len();
        if came > most.saturating_mul(PATIENCE) {
            break;
        }
        if refusal.is_none() && came > most {
            refusal = Some(too_large());
        }
        if refusal.is_none()
            && let Err(crowded) = share.grow(data.len())
        {
            refusal = Some(crowded.into());
        }
        if refusal.is_none() {
            bytes.extend_from_slice(&data);
        } else {
            bytes = BytesMut::new();
        }
    }
    refusal.map_or_else(|| Ok(bytes.freeze()), Err)
}
