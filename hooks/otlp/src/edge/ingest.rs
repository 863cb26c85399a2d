//! Requests on their way through the endpoint: edited, counted, sampled or queued.

use std::sync::{Arc, MutexGuard};

use bytes::Bytes;

use super::Edge;
use crate::bounds::Bound;
use crate::codec::{self, WireError};
use crate::counts::{RefusalReason, UpstreamLoss};
use crate::forwarded_headers::ForwardedHeaders;
use crate::json;
use crate::memory_budget::Reservation;
use crate::metric_watch::ForwardedMetrics;
use crate::outcome::{Acceptance, Refusal};
use crate::queue::{QueueError, RefusedRequest, UpstreamRequest};
use crate::senders::{Sender, SenderCheck, SenderRules};
use crate::signal::{Encoding, Signal};
use crate::tail::{IngestCounts, KeptRequest, TailSampler};
use crate::tenants::{DEFAULT, TenantId};
use crate::upstream::Upstream;
use crate::walk::walk;

/// A client's request.
#[derive(Debug)]
pub(crate) struct IncomingRequest {
    pub(crate) tenant: TenantId,
    pub(crate) signal: Signal,
    pub(crate) encoding: Encoding,
    /// Body after decompression.
    pub(crate) body: Bytes,
    /// Headers to forward.
    pub(crate) forwarded: ForwardedHeaders,
    /// Who sent it, and by which rules that is judged from its begin to its end.
    pub(crate) sender: Sender,
    pub(crate) rules: Arc<SenderRules>,
}

impl Edge {
    /// Accepts or refuses a request.
    pub(crate) fn ingest(
        &self,
        incoming: IncomingRequest,
        reservation: &mut Reservation<'_>,
    ) -> Result<Acceptance, Refusal> {
        let IncomingRequest { tenant, signal, encoding, body, forwarded, sender, rules } = incoming;
        let check = SenderCheck::new(&rules, &self.tenants, tenant, sender.clone());
        let (message, json) = match encoding {
            Encoding::Protobuf => (body, None),
            Encoding::Json => {
                // At worst two characters become eight bytes.
                reservation.grow(body.len().saturating_mul(4).min(self.request_bytes))?;
                (json::transcode(signal, &body, self.request_bytes)?.into(), Some(body))
            }
        };
        let (message, is_edited) = self.edit(tenant, signal, message, reservation)?;
        let samples = match signal {
            Signal::Traces => self.samples(tenant),
            Signal::Logs => self.samples_logs,
            Signal::Metrics => false,
        };
        if samples {
            return self.sample(tenant, signal, &message, &forwarded, check);
        }
        let items = codec::count(&message).map_err(malformed)?;
        if message.is_empty() {
            return Ok(Acceptance::default());
        }
        let wanted = self.span_metrics.is_some() || self.observer.is_some();
        let spans = (signal == Signal::Traces && wanted).then(|| message.clone());
        let watched = (signal == Signal::Metrics && self.metrics.is_some()).then(|| message.clone());
        // JSON is forwarded unchanged if the upstream accepts it.
        let takes_json = self.upstream.as_ref().is_some_and(Upstream::takes_json);
        let (encoding, body) = match json.filter(|_| takes_json && !is_edited) {
            Some(json) => (Encoding::Json, json),
            None => (Encoding::Protobuf, message),
        };
        let (holder, since) = (sender.holder(), self.now());
        let request = UpstreamRequest { tenant, signal, encoding, body, forwarded, holder, spans: 0, since };
        self.pass_on(request, items as u64).map_err(|refused| unqueued(&refused.why))?;
        self.counts.of(signal).items.add(items as u64);
        // Only after the request is queued: a client retries a refused one.
        if let Some(spans) = spans {
            self.count_spans(tenant, &spans, check)?;
        }
        if let (Some(inbox), Some(watched)) = (&self.metrics, watched)
            && let Err(full) = inbox.offer(ForwardedMetrics::new(tenant, watched, sender, rules))
        {
            self.counts.unwatched_metrics.add(1);
            self.full.note(Bound::WatchedMetrics, &full.to_string(), self.now());
        }
        Ok(Acceptance::default())
    }

    /// Samples the spans of `message`, and counts them for LMAPs; or samples its log records.
    fn sample(
        &self,
        tenant: TenantId,
        signal: Signal,
        message: &[u8],
        forwarded: &ForwardedHeaders,
        mut check: SenderCheck<'_>,
    ) -> Result<Acceptance, Refusal> {
        let mut span_metrics = if signal == Signal::Traces { self.span_metrics() } else { None };
        let Some(mut tail) = self.tail(tenant) else { return Ok(Acceptance::default()) };
        let now = self.clock.timestamp();
        let counts = if signal == Signal::Logs {
            tail.ingest_logs_of(message, forwarded, Some(&mut check), now)
        } else {
            let span_metrics_to =
                span_metrics.as_deref_mut().map(|span_metrics| (span_metrics, self.detector_name(tenant)));
            walk(message, span_metrics_to, Some((&mut *tail, forwarded)), Some(&mut check), now)
        };
        let counts = counts.map_err(malformed)?;
        self.note_full(span_metrics.as_deref_mut(), Some(&mut *tail));
        drop(span_metrics);
        self.record_unverified(check, signal);
        self.counts.of(signal).items.add(counts.accepted + counts.malformed + counts.over_limit);
        self.queue_kept(tenant, tail);
        Ok(acceptance(counts, signal))
    }

    /// Counts `spans` that were queued for LMAPs, and for finding anomalous operations.
    fn count_spans(&self, tenant: TenantId, spans: &[u8], mut check: SenderCheck<'_>) -> Result<(), Refusal> {
        let mut span_metrics = self.span_metrics();
        let mut observer = self.observer().filter(|_| tenant == DEFAULT);
        let span_metrics_to =
            span_metrics.as_deref_mut().map(|span_metrics| (span_metrics, self.detector_name(tenant)));
        let no_headers = ForwardedHeaders::default();
        let observer_to = observer.as_deref_mut().map(|observer| (observer, &no_headers));
        walk(spans, span_metrics_to, observer_to, Some(&mut check), self.clock.timestamp()).map_err(malformed)?;
        // Of what the observer has no room for nothing is lost.
        self.note_full(span_metrics.as_deref_mut(), None);
        self.record_unverified(check, Signal::Traces);
        Ok(())
    }

    /// Masks attributes, and replaces service names of other tenants. Returns whether anything changed.
    fn edit(
        &self,
        tenant: TenantId,
        signal: Signal,
        message: Bytes,
        reservation: &mut Reservation<'_>,
    ) -> Result<(Bytes, bool), Refusal> {
        let (mut message, mut is_edited) = (message, false);
        let mask = match signal {
            Signal::Traces => Some(codec::mask as Mask),
            // What passes through does so byte for byte.
            Signal::Logs if self.samples_logs => Some(codec::mask_logs as Mask),
            Signal::Logs | Signal::Metrics => None,
        };
        if let Some(mask) = mask.filter(|_| !self.redacted.is_empty()) {
            reservation.grow(message.len())?;
            if let Some(masked) = mask(&message, &self.redacted).map_err(malformed)? {
                (message, is_edited) = (masked.into(), true);
            }
        }
        if self.tenants.count() > 1 {
            reservation.grow(message.len())?;
            let name = |service: &str| self.tenants.replacement_name(tenant, service);
            if let Some(renamed) = codec::rename(&message, &name).map_err(malformed)? {
                (message, is_edited) = (renamed.into(), true);
                self.tenant_state(tenant).renamed.add(1);
            }
        }
        Ok((message, is_edited))
    }

    /// Counts a request that will not be sent.
    pub(crate) fn record_loss(&self, request: &UpstreamRequest, why: UpstreamLoss) {
        self.counts.of(request.signal).lost(why).add(1);
        let lost = if request.signal == Signal::Logs { &self.counts.lost_logs } else { &self.counts.lost_spans };
        lost.add(request.spans);
    }

    /// Queues `request`, with so many `items`, for the upstream. Without one it ends here and is counted: a client that
    /// is told otherwise would send it again, for nothing.
    fn pass_on(&self, request: UpstreamRequest, items: u64) -> Result<(), Box<RefusedRequest>> {
        if self.forwards() {
            return self.queue(request.tenant, request.signal).offer(request);
        }
        self.counts.of(request.signal).unforwarded.add(items);
        Ok(())
    }

    /// Queues what is kept, then records its exemplars. What exceeds the queue is lost: its decision is made, and no
    /// client would send it again.
    pub(crate) fn queue_kept(&self, tenant: TenantId, mut tail: MutexGuard<'_, TailSampler>) {
        let (batches, requests) = (tail.take_batches(), tail.take_kept_requests());
        let logs = tail.take_log_batches().into_iter().map(|batch| (Signal::Logs, &self.kept_logs, batch));
        for (signal, inbox, batch) in batches.into_iter().map(|batch| (Signal::Traces, &self.kept, batch)).chain(logs) {
            let encoding = Encoding::Protobuf;
            let (body, spans, forwarded) = (Bytes::from(batch.request), batch.spans as u64, batch.forwarded);
            if let Some(inbox) = inbox {
                inbox.offer(body.clone());
            }
            let (holder, since) = (batch.holder, self.now());
            let request = UpstreamRequest { tenant, signal, encoding, body, forwarded, holder, spans, since };
            if let Err(refused) = self.pass_on(request, spans) {
                self.record_loss(&refused.request, UpstreamLoss::QueueFull);
                self.note_refusal(&unqueued(&refused.why));
            }
        }
        drop(tail);
        // An exemplar is to be opened where traces go to.
        if self.forwards() {
            self.record_kept(tenant, &requests);
        }
    }

    /// Records what `tenant`'s tail sampler kept as exemplars. No tail sampler is locked meanwhile.
    fn record_kept(&self, tenant: TenantId, kept: &[KeptRequest]) {
        if kept.is_empty() {
            return;
        }
        let Some(mut span_metrics) = self.span_metrics() else { return };
        let name = self.detector_name(tenant);
        for KeptRequest { service, operation, exemplar, incident } in kept {
            span_metrics.keep_exemplar(&name(service), operation, *exemplar, incident);
        }
    }
}

/// Replaces values of attributes with these keys in a request; `None`: nothing matches.
type Mask = fn(&[u8], &[String]) -> Result<Option<Vec<u8>>, WireError>;

fn unqueued(why: &QueueError) -> Refusal {
    match why {
        QueueError::Closed => Refusal::new(RefusalReason::Busy, why.to_string()),
        QueueError::Full(_) => Refusal::full(Bound::Queue, why.to_string()),
    }
}

fn malformed(error: WireError) -> Refusal {
    Refusal::new(RefusalReason::Malformed, error.to_string())
}

/// The response for what was ingested.
fn acceptance(counts: IngestCounts, signal: Signal) -> Acceptance {
    let IngestCounts { malformed, over_limit, .. } = counts;
    let (items, wrong) = match signal {
        Signal::Logs => ("log records", "cannot be read"),
        _ => ("spans", "have no valid trace id or span id"),
    };
    let not_read = (malformed > 0).then(|| format!("{malformed} {items} {wrong}"));
    let too_many = (over_limit > 0)
        .then(|| format!("{over_limit} {items} have a new resource, and the limit of resources is reached"));
    let text: Vec<_> = not_read.into_iter().chain(too_many).collect();
    Acceptance { rejected: malformed + over_limit, text: text.join("; ") }
}
