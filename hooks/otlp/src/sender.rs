//! Sends queued requests to the upstream, with exponential back-off, until they expire.

use std::sync::Arc;

use wire::backoff::{Pauses, RetryRule};
use wire::time::Nanos;

use crate::counts::UpstreamLoss;
use crate::edge::Edge;
use crate::queue::UpstreamRequest;
use crate::reply::Failure;
use crate::signal::Signal;
use crate::tenants::TenantId;
use crate::upstream::Upstream;

/// The longest pause, whatever the upstream asks for.
const LONGEST: Nanos = Nanos::from_secs(30);
/// Pauses after failures.
const RETRIES: RetryRule =
    RetryRule { pauses: Pauses::new(Nanos::from_millis(200), LONGEST), max_retry_after: LONGEST };
/// A request expires after this.
const MAX_AGE: Nanos = Nanos::from_secs(300);

/// Sends requests of `tenant` and `signal` until their queue is closed and empty. Without an upstream none is queued.
pub(crate) async fn run(edge: Arc<Edge>, tenant: TenantId, signal: Signal) {
    let Some(upstream) = &edge.upstream else { return };
    let queue = edge.queue(tenant, signal);
    while let Some(request) = queue.take().await {
        deliver(&edge, upstream, &request).await;
        queue.done(&request);
    }
}

async fn deliver(edge: &Edge, upstream: &Upstream, request: &UpstreamRequest) {
    let (counts, queue) = (edge.counts.of(request.signal), edge.queue(request.tenant, request.signal));
    for failures in 1_u32.. {
        let sent = tokio::select! {
            biased;
            () = queue.abandoned() => return edge.record_loss(request, UpstreamLoss::Ended),
            sent = upstream.send(request) => sent,
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
        let pause = pause(&failure, failures, rand::random());
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

/// The pause after `failure`, the last of so many in a row: what the upstream asks for, but none without the back-off.
/// `random` is uniform in \[0, 1).
fn pause(failure: &Failure, failures: u32, random: f64) -> Nanos {
    RETRIES.pause(failures, failure.retry_after.map(Nanos::from), random)
}

#[cfg(test)]
mod tests {
    use hyper::StatusCode;
    use wire::time::UnixNanos;

    use super::*;
    use crate::reply::http_failure;

    #[test]
    fn an_upstream_may_ask_for_a_longer_pause_and_a_date_that_is_over_asks_for_none() {
        let now = UnixNanos::from_secs(784_111_770);
        let after =
            |failures, asked| pause(&http_failure(StatusCode::SERVICE_UNAVAILABLE, Some(asked), now), failures, 0.0);

        assert_eq!(after(1, "Sun, 06 Nov 1994 08:49:37 GMT"), Nanos::from_secs(7));
        assert_eq!(after(1, "3600"), Nanos::from_secs(30));
        for over in ["Sun, 06 Nov 1994 08:40:00 GMT", "0", "soon"] {
            assert_eq!(after(1, over), Nanos::from_millis(200), "{over}");
            assert_eq!(after(3, over), Nanos::from_millis(800), "{over}");
        }
    }
}
