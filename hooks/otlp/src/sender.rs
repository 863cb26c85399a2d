//! Sends queued requests to the upstream, with exponential back-off, until they expire.

use std::sync::Arc;
use std::time::Duration;

use wire::time::Nanos;

use crate::counts::UpstreamLoss;
use crate::edge::Edge;
use crate::queue::UpstreamRequest;
use crate::signal::Signal;
use crate::tenants::TenantId;

/// Back-off after the first failure. It doubles with each further one.
const INITIAL_BACKOFF: Duration = Duration::from_millis(200);
/// Maximum back-off, whatever the upstream asks for.
const MAX_BACKOFF: Duration = Duration::from_secs(30);
/// A request expires after this.
const MAX_AGE: Nanos = Nanos::from_secs(300);

/// Sends requests of `tenant` and `signal` until their queue is closed and empty.
pub(crate) async fn run(edge: Arc<Edge>, tenant: TenantId, signal: Signal) {
    let queue = edge.queue(tenant, signal);
    while let Some(request) = queue.take().await {
        deliver(&edge, &request).await;
        queue.done(&request);
    }
}

async fn deliver(edge: &Edge, request: &UpstreamRequest) {
    let (counts, queue) = (edge.counts.of(request.signal), edge.queue(request.tenant, request.signal));
    let mut pause = INITIAL_BACKOFF;
    loop {
        let sent = tokio::select! {
            biased;
            () = queue.abandoned() => return edge.record_loss(request, UpstreamLoss::Ended),
            sent = edge.upstream.send(request) => sent,
        };
        let failure = match sent {
            Ok(rejected) => {
                counts.sent.add(1);
                counts.sent_bytes.add(request.body.len() as u64);
                counts.rejected.add(rejected);
                return;
            }
            Err(failure) => failure,
        };
        if !failure.retryable {
            tracing::debug!(signal = request.signal.name(), reason = failure.text, "the upstream refused a request");
            return edge.record_loss(request, UpstreamLoss::Refused);
        }
        tracing::debug!(signal = request.signal.name(), reason = failure.text, "a request failed and is retried");
        // Jitter, up to a half less: requests should not retry all at once.
        let pause_now = failure.retry_after.unwrap_or_else(|| pause.mul_f64(1.0 - rand::random::<f64>() / 2.0));
        let pause_now = pause_now.min(MAX_BACKOFF);
        pause = (pause * 2).min(MAX_BACKOFF);
        let waited = edge.now().since(request.since).unwrap_or_default();
        if waited.plus(pause_now.into()) > MAX_AGE {
            return edge.record_loss(request, UpstreamLoss::Expired);
        }
        tokio::select! {
            () = tokio::time::sleep(pause_now) => counts.retries.add(1),
            () = queue.closed() => return edge.record_loss(request, UpstreamLoss::Ended),
        }
    }
}
