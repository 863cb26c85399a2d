//! Sends what waits: again after a pause that grows, until it is too old.

use std::sync::Arc;
use std::time::Duration;

use wire::time::Nanos;

use crate::counts::Lost;
use crate::edge::Edge;
use crate::queue::Parcel;
use crate::signal::Signal;
use crate::tenants::TenantId;

/// The pause after the first failure; twice as long after each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// No pause is longer, whatever the upstream says.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// What waited for so long is given up.
const GIVE_UP: Nanos = Nanos::from_secs(300);

/// Sends requests of `tenant` and `signal` until their queue is closed and empty.
pub(crate) async fn run(edge: Arc<Edge>, tenant: TenantId, signal: Signal) {
    let queue = edge.queue(tenant, signal);
    while let Some(parcel) = queue.take().await {
        deliver(&edge, &parcel).await;
        queue.done(&parcel);
    }
}

async fn deliver(edge: &Edge, parcel: &Parcel) {
    let (counts, queue) = (edge.counts.of(parcel.signal), edge.queue(parcel.tenant, parcel.signal));
    let mut pause = FIRST_PAUSE;
    loop {
        let sent = tokio::select! {
            biased;
            () = queue.abandoned() => return edge.lose(parcel, Lost::Ended),
            sent = edge.upstream.send(parcel) => sent,
        };
        let failure = match sent {
            Ok(rejected) => {
                counts.sent.add(1);
                counts.sent_bytes.add(parcel.body.len() as u64);
                counts.rejected.add(rejected);
                return;
            }
            Err(failure) => failure,
        };
        if !failure.again {
            tracing::debug!(signal = parcel.signal.name(), text = failure.text, "the upstream refused a request");
            return edge.lose(parcel, Lost::Refused);
        }
        tracing::debug!(signal = parcel.signal.name(), text = failure.text, "a request was not delivered yet");
        // Up to a half less, so that not all come back at once.
        let pause_now = failure.after.unwrap_or_else(|| pause.mul_f64(1.0 - rand::random::<f64>() / 2.0));
        let pause_now = pause_now.min(LONGEST_PAUSE);
        pause = (pause * 2).min(LONGEST_PAUSE);
        let waited = edge.now().since(parcel.since).unwrap_or_default();
        if waited.plus(pause_now.into()) > GIVE_UP {
            return edge.lose(parcel, Lost::Expired);
        }
        tokio::select! {
            () = tokio::time::sleep(pause_now) => counts.retries.add(1),
            () = queue.closed() => return edge.lose(parcel, Lost::Ended),
        }
    }
}
