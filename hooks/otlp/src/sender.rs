//! Sends queued requests to the upstream, with exponential back-off, until they expire.

use std::sync::Arc;

use wire::backoff::Pauses;
use wire::time::Nanos;

use crate::counts::UpstreamLoss;
use crate::edge::Edge;
use crate::queue::UpstreamRequest;
use crate::signal::Signal;
use crate::tenants::TenantId;

/// Pauses after failures. The longest holds whatever the upstream asks for.
const PAUSES: Pauses = Pauses::new(Nanos::from_millis(200), Nanos::from_secs(30));
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
    for failures in 1_u32.. {
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
        let asked = failure.retry_after.map(Nanos::from);
        let pause = asked.unwrap_or_else(|| PAUSES.after(failures, rand::random())).min(PAUSES.longest());
        let waited = edge.now().since(request.since).unwrap_or_default();
        if waited.plus(pause) > MAX_AGE {
            return edge.record_loss(request, UpstreamLoss::Expired);
        }
        tokio::select! {
            () = tokio::time::sleep(pause.into()) => counts.retries.add(1),
            () = queue.closed() => return edge.record_loss(request, UpstreamLoss::Ended),
        }
    }
}
