//! Metrics on their way to the upstream, for whoever watches them: a queue of requests that were forwarded, bounded by
//! bytes, of which one sender may have three times what is free. A request that finds no room is forwarded all the
//! same, and not watched.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_runtime::shares::{ShareError, Shares};
use bytes::Bytes;
use tokio::sync::Notify;

use crate::holders::Holder;
use crate::senders::{Sender, SenderRules};
use crate::tenants::TenantId;

/// Bookkeeping bytes per request, beside its own.
const COST: usize = 128;

/// An `ExportMetricsServiceRequest` that was forwarded.
#[derive(Debug)]
pub struct ForwardedMetrics {
    pub(crate) tenant: TenantId,
    pub(crate) body: Bytes,
    pub(crate) sender: Sender,
    pub(crate) rules: Arc<SenderRules>,
}

impl ForwardedMetrics {
    pub(crate) const fn new(tenant: TenantId, body: Bytes, sender: Sender, rules: Arc<SenderRules>) -> Self {
        Self { tenant, body, sender, rules }
    }

    fn cost(&self) -> u64 {
        (self.body.len() + COST) as u64
    }

    /// Length of the encoded request in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.body.len()
    }
}

/// Who exports metrics, and what: one resource of a request.
#[derive(Clone, Debug)]
pub struct MetricExport<'a> {
    /// Name by which detectors know the service: its sender may use it.
    pub service: Cow<'a, str>,
    /// The sender's pod; if that is unknown `service.instance.id`; without one, the address of the sender.
    pub instance: Cow<'a, str>,
    /// Whose share what is stored of it is of.
    pub holder: &'a Holder,
    /// The encoded `ResourceMetrics`.
    pub encoded: &'a [u8],
}

#[derive(Debug)]
struct InboxState {
    requests: VecDeque<ForwardedMetrics>,
    shares: Shares<Holder>,
}

/// Requests that wait to be watched.
#[derive(Debug)]
pub(crate) struct MetricsInbox {
    waiting: Mutex<InboxState>,
    changed: Notify,
}

impl MetricsInbox {
    /// An empty inbox for `limit` bytes.
    pub(crate) fn new(limit: usize) -> Self {
        let shares = Shares::new("bytes of metrics to watch", "otlp.request_bytes", limit as u64);
        let state = InboxState { requests: VecDeque::new(), shares };
        Self { waiting: Mutex::new(state), changed: Notify::new() }
    }

    /// Appends `request`, unless there is no room for its sender.
    pub(crate) fn offer(&self, request: ForwardedMetrics) -> Result<(), ShareError<Holder>> {
        let mut waiting = self.lock();
        waiting.shares.take(request.sender.holder(), request.cost())?;
        waiting.requests.push_back(request);
        drop(waiting);
        self.changed.notify_one();
        Ok(())
    }

    /// Waits for the oldest request. One task calls it.
    pub(crate) async fn next(&self) -> ForwardedMetrics {
        loop {
            let changed = self.changed.notified();
            if let Some(request) = self.take() {
                return request;
            }
            changed.await;
        }
    }

    fn take(&self) -> Option<ForwardedMetrics> {
        let mut waiting = self.lock();
        let request = waiting.requests.pop_front()?;
        waiting.shares.release(&request.sender.holder(), request.cost());
        Some(request)
    }

    fn lock(&self) -> MutexGuard<'_, InboxState> {
        // Nothing under this lock panics. If something did, the state would still be usable.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use wire::id::Owner;

    use super::*;

    fn request(uid: u32, bytes: usize) -> ForwardedMetrics {
        ForwardedMetrics::new(0, vec![0; bytes].into(), Sender::Agent(Owner::User(uid)), Arc::default())
    }

    #[tokio::test]
    async fn what_does_not_fit_is_told_and_what_was_taken_makes_room() {
        let inbox = MetricsInbox::new(4 * (100 + COST));

        for _ in 0..3 {
            inbox.offer(request(7, 100)).unwrap();
        }
        let refused = inbox.offer(request(7, 1)).unwrap_err();
        assert_eq!(refused.owner, Holder::Owner(Owner::User(7)));
        inbox.offer(request(8, 0)).unwrap();
        assert!(inbox.offer(request(8, 0)).is_err(), "one sender has left room for one more");
        assert_eq!(inbox.next().await.bytes(), 100);

        inbox.offer(request(8, 0)).unwrap();
    }
}
