//! Metrics on their way to the upstream, for whoever watches them: a bounded queue of requests that were forwarded.
//! A request that finds it full is forwarded all the same, and not watched.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::Notify;

use crate::codec::resources;
use crate::edge::Edge;
use crate::senders::{Sender, SenderCheck, SenderRules};
use crate::signal::Signal;
use crate::tenants::TenantId;
use crate::walk::UNKNOWN;

/// Bookkeeping bytes per request, beside its own.
const COST: usize = 128;
/// The resource attribute that names a replica.
const INSTANCE: &[u8] = b"service.instance.id";

/// An `ExportMetricsServiceRequest` that was forwarded.
#[derive(Debug)]
pub struct ForwardedMetrics {
    tenant: TenantId,
    body: Bytes,
    sender: Sender,
    rules: Arc<SenderRules>,
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
    async fn next(&self) -> ForwardedMetrics {
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

impl Edge {
    /// Waits for the next request with metrics that was forwarded; for ever if metrics are not watched. For one caller.
    pub async fn next_metrics(&self) -> ForwardedMetrics {
        match &self.metrics {
            Some(inbox) => inbox.next().await,
            None => core::future::pending().await,
        }
    }

    /// Calls `visit` with each resource of `request` whose sender may use its service's name; counts the others.
    pub fn each_export(&self, request: &ForwardedMetrics, mut visit: impl FnMut(MetricExport<'_>)) {
        let ForwardedMetrics { tenant, body, sender, rules } = request;
        let mut check = SenderCheck::new(rules, self.tenant_table(), *tenant, sender.clone());
        let (own, pod) = (check.service().map(Cow::into_owned), sender.pod());
        // What cannot be read was refused before it was forwarded.
        let _ = resources(body, |resource| {
            if let (Some(service), Some(pod)) = (&own, &pod) {
                let (service, instance) = (self.detector_name(*tenant)(service), pod.instance().into());
                return visit(MetricExport { service, instance, encoded: resource.encoded });
            }
            let service = resource.service_name().unwrap_or(UNKNOWN);
            if !check.may_send(service) {
                return check.refuse(service);
            }
            let instance = resource.text(INSTANCE).filter(|id| !id.is_empty());
            let instance = instance.map_or_else(|| sender.address().into(), Cow::Borrowed);
            let service = self.detector_name(*tenant)(service);
            visit(MetricExport { service, instance, encoded: resource.encoded });
        });
        self.record_unverified(check, Signal::Metrics);
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
