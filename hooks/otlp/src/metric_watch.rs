//! Metrics on their way to the upstream, for whoever watches them: a bounded queue of requests that were forwarded.
//! A request that finds it full is forwarded all the same, and not watched.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::Notify;

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

    fn cost(&self) -> usize {
        self.body.len() + COST
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
    /// The encoded `ResourceMetrics`.
    pub encoded: &'a [u8],
}

#[derive(Debug, Default)]
struct InboxState {
    requests: VecDeque<ForwardedMetrics>,
    bytes: usize,
}

/// Requests that wait to be watched.
#[derive(Debug)]
pub(crate) struct MetricsInbox {
    waiting: Mutex<InboxState>,
    limit: usize,
    changed: Notify,
}

impl MetricsInbox {
    /// An empty inbox for `limit` bytes.
    pub(crate) fn new(limit: usize) -> Self {
        Self { waiting: Mutex::default(), limit, changed: Notify::new() }
    }

    /// Appends `request`. False if there is no room.
    pub(crate) fn offer(&self, request: ForwardedMetrics) -> bool {
        let mut waiting = self.lock();
        if waiting.bytes + request.cost() > self.limit {
            return false;
        }
        waiting.bytes += request.cost();
        waiting.requests.push_back(request);
        drop(waiting);
        self.changed.notify_one();
        true
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
        waiting.bytes -= request.cost();
        Some(request)
    }

    fn lock(&self) -> MutexGuard<'_, InboxState> {
        // Nothing under this lock panics. If something did, the state would still be usable.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(bytes: usize) -> ForwardedMetrics {
        ForwardedMetrics::new(0, vec![0; bytes].into(), Sender::Agent, Arc::default())
    }

    #[tokio::test]
    async fn what_does_not_fit_is_told_and_what_was_taken_makes_room() {
        let inbox = MetricsInbox::new(2 * (100 + COST));

        assert!(inbox.offer(request(100)) && inbox.offer(request(100)));
        assert!(!inbox.offer(request(1)));
        assert_eq!(inbox.next().await.bytes(), 100);

        assert!(inbox.offer(request(100)) && !inbox.offer(request(1)));
    }
}
