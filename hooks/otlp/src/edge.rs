//! State that servers, senders and the clock share.

use core::net::IpAddr;
use std::borrow::Cow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_runtime::Count;
use agent_runtime::reload::Reloadable;
use bytes::Bytes;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use wire::time::{Nanos, Timestamp, UnixNanos};

use crate::cgroups::Cgroups;
use crate::clock::Clock;
use crate::codec::WireError;
use crate::counts::{Counts, RefusalReason, UpstreamLoss};
use crate::forwarded_headers::{ForwardedHeaderNames, ForwardedHeaders};
use crate::json;
use crate::kept_watch::KeptInbox;
use crate::memory_budget::{MemoryBudget, Reservation};
use crate::metric_watch::{ForwardedMetrics, MetricsInbox};
use crate::observer;
use crate::pod_senders::PodSenders;
use crate::queue::{Queue, UpstreamRequest};
use crate::senders::{Sender, SenderCheck, SenderRules};
use crate::server::{Acceptance, Refusal};
use crate::settings::{Settings, StartError, TenantSettings};
use crate::signal::{Encoding, Signal};
use crate::socket_owner::OwnerLookup;
use crate::span_metrics::SpanMetrics;
use crate::tail::{Finding, IngestCounts, TailSampler};
use crate::tenants::{DEFAULT, TenantId, Tenants};
use crate::unverified::UnverifiedSpans;
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

/// The OTLP endpoint: accepts requests, and forwards them or samples their traces.
#[derive(Debug)]
pub struct Edge {
    /// Counters of requests.
    pub counts: Counts,
    pub(crate) request_bytes: usize,
    /// Names of client headers to forward.
    pub(crate) forwarded_names: ForwardedHeaderNames,
    pub(crate) upstream: Upstream,
    tenants: Tenants,
    /// Who may send spans in which service's name.
    pub(crate) senders: Reloadable<SenderRules>,
    /// Pods of this node by address; `None`: not watched.
    pub(crate) pods: Option<Reloadable<PodSenders>>,
    pub(crate) socket_owner: OwnerLookup,
    pub(crate) cgroups: Cgroups,
    pub(crate) unverified: Mutex<Vec<UnverifiedSpans>>,
    /// One per tenant, by its number.
    tenant_states: Vec<TenantState>,
    /// Lock order: this before a tail sampler.
    span_metrics: Option<Mutex<SpanMetrics>>,
    /// Metrics for whoever watches them; `None`: nobody does.
    pub(crate) metrics: Option<MetricsInbox>,
    /// Kept spans for whoever watches them; `None`: nobody does.
    pub(crate) kept: Option<KeptInbox>,
    /// A tail sampler that keeps nothing, where spans pass through.
    observer: Option<Mutex<TailSampler>>,
    redacted: Vec<String>,
    pub(crate) admits: fn(&TcpStream) -> bool,
    clock: Clock,
}

/// Memory, queues and connections of one tenant: a flood of another takes nothing of it.
#[derive(Debug)]
pub(crate) struct TenantState {
    pub(crate) budget: MemoryBudget,
    /// Connections that it may still open.
    pub(crate) free: Arc<Semaphore>,
    queues: [Queue; Signal::ALL.len()],
    tail: Option<Mutex<TailSampler>>,
    /// Requests with another tenant's service name.
    renamed: Count,
}

impl TenantState {
    fn new(settings: &Settings, tail: Option<TailSampler>) -> Self {
        Self {
            budget: MemoryBudget::new(settings.receive_memory_bytes),
            free: Arc::new(Semaphore::new(settings.connections)),
            queues: core::array::from_fn(|_| Queue::new(settings.queue_bytes)),
            tail: tail.map(Mutex::new),
            renamed: Count::default(),
        }
    }

    fn tail(&self) -> Option<MutexGuard<'_, TailSampler>> {
        // Nothing under this lock panics. If something did, the state would still be usable.
        self.tail.as_ref().map(|tail| tail.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Edge {
    pub(crate) fn new(settings: &Settings) -> Result<Self, StartError> {
        let clock = Clock::start();
        let upstream = Upstream::new(&settings.upstream)?;
        let table: Vec<_> = settings.tenants.iter().map(|tenant| tenant.who.clone()).collect();
        let tenants = Tenants::new(&table)?;
        let state = |own: Option<&TenantSettings>| {
            let tail = settings.tail.as_ref().map(|tail| own.map_or_else(|| tail.clone(), |own| own.tail(tail)));
            let tail = tail.map(|tail| TailSampler::new(&tail, clock.timestamp())).transpose()?;
            Ok(TenantState::new(settings, tail))
        };
        let tenant_states = core::iter::once(None).chain(settings.tenants.iter().map(Some)).map(state);
        let tenant_states = tenant_states.collect::<Result<_, StartError>>()?;
        let observed = settings.observed.as_ref().filter(|_| settings.tail.is_none());
        let observer =
            observed.map(|frontends| observer::settings(frontends, settings.observed_key.unwrap_or_else(rand::random)));
        let observer = observer.map(|tail| TailSampler::new(&tail, clock.timestamp())).transpose()?;
        Ok(Self {
            counts: Counts::default(),
            request_bytes: settings.request_bytes,
            forwarded_names: ForwardedHeaderNames::new(&settings.forwarded_headers)
                .map_err(StartError::ForwardedHeader)?,
            upstream,
            tenants,
            senders: settings.senders.clone(),
            pods: settings.pods.clone(),
            socket_owner: settings.socket_owner,
            cgroups: Cgroups::of_this_machine(),
            unverified: Mutex::default(),
            tenant_states,
            metrics: settings.watched_metrics.map(MetricsInbox::new),
            kept: settings.watched_kept.map(KeptInbox::new),
            observer: observer.map(Mutex::new),
            redacted: settings.redacted.clone(),
            admits: settings.admits,
            span_metrics: settings
                .span_metrics
                .map(|span_metrics| Mutex::new(SpanMetrics::new(span_metrics, clock.timestamp()))),
            clock,
        })
    }

    /// An LMAP found its service anomalous: requests through it are kept. Does nothing where spans pass through.
    pub fn verdict(&self, finding: Finding<'_>) {
        let (tenant, service) = self.tenants.owner_of(finding.service);
        if let Some(mut observer) = self.observer().filter(|_| tenant == DEFAULT) {
            observer.verdict(Finding { service, ..finding.clone() }, self.clock.timestamp());
        }
        if let Some(mut tail) = self.tail(tenant) {
            let now = self.clock.timestamp();
            if service != finding.service {
                tail.verdict(Finding { service, ..finding.clone() }, now);
            }
            tail.verdict(finding, now);
        }
    }

    /// Calls `look` with the default tenant's tail sampler and the time; `None` where spans pass through.
    pub fn with_tail<R>(&self, look: impl FnOnce(&TailSampler, Timestamp) -> R) -> Option<R> {
        self.with_tail_of(DEFAULT, look)
    }

    /// Calls `look` with a tenant's tail sampler and the time; `None` where spans pass through, or without such a
    /// tenant.
    pub fn with_tail_of<R>(&self, tenant: TenantId, look: impl FnOnce(&TailSampler, Timestamp) -> R) -> Option<R> {
        self.tail(tenant).map(|tail| look(&tail, self.clock.timestamp()))
    }

    /// The table of tenants.
    pub(crate) const fn tenant_table(&self) -> &Tenants {
        &self.tenants
    }

    /// Numbers and names of all tenants; the first is `default`.
    pub fn tenants(&self) -> impl Iterator<Item = (TenantId, &str)> {
        (0..self.tenants.count()).map(|tenant| (tenant, self.tenants.name(tenant)))
    }

    /// Requests in which the tenant used another one's service name, which was replaced.
    pub fn renamed_requests(&self, tenant: TenantId) -> u64 {
        self.tenant_states.get(tenant).map_or(0, |part| part.renamed.get())
    }

    /// Counts what is due, then calls `look` with the span metrics; `None` if they are off. Incoming spans wait
    /// meanwhile.
    pub fn with_span_metrics<R>(&self, look: impl FnOnce(&SpanMetrics) -> R) -> Option<R> {
        self.span_metrics().map(|mut span_metrics| {
            span_metrics.advance(self.clock.timestamp());
            look(&span_metrics)
        })
    }

    /// The period in which the requests of a row ended, read at `at`, one `interval` after the row before: see
    /// [`SpanMetrics::covered_period`]. `None` if span metrics are off.
    pub fn covered_period(&self, at: UnixNanos, interval: Nanos) -> Option<(UnixNanos, UnixNanos)> {
        self.span_metrics().map(|span_metrics| span_metrics.covered_period(at, interval))
    }

    /// Bytes of `signal` queued for the upstream or in flight.
    pub fn queued_bytes(&self, signal: Signal) -> usize {
        self.tenant_states.iter().map(|part| part.queues[signal as usize].bytes()).sum()
    }

    /// Bytes reserved by requests that are being read.
    pub fn receiving_bytes(&self) -> usize {
        self.tenant_states.iter().map(|part| part.budget.reserved()).sum()
    }

    /// Tenant of a peer.
    pub(crate) fn tenant(&self, peer: IpAddr) -> TenantId {
        self.tenants.tenant_of(peer)
    }

    /// State of `tenant`; of the default tenant if there is no such one.
    pub(crate) fn tenant_state(&self, tenant: TenantId) -> &TenantState {
        self.tenant_states.get(tenant).unwrap_or(&self.tenant_states[DEFAULT])
    }

    pub(crate) fn queue(&self, tenant: TenantId, signal: Signal) -> &Queue {
        &self.tenant_state(tenant).queues[signal as usize]
    }

    /// All queues, by tenant and signal.
    pub(crate) fn queues(&self) -> impl Iterator<Item = (TenantId, Signal)> + use<> {
        (0..self.tenant_states.len()).flat_map(|tenant| Signal::ALL.into_iter().map(move |signal| (tenant, signal)))
    }

    pub(crate) fn timestamp(&self) -> Timestamp {
        self.clock.timestamp()
    }

    /// Monotonic time since the endpoint started.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.clock.now()
    }

    /// Accepts or refuses a request.
    pub(crate) fn ingest(
        &self,
        incoming: IncomingRequest,
        reservation: &mut Reservation<'_>,
    ) -> Result<Acceptance, Refusal> {
        let IncomingRequest { tenant, signal, encoding, body, forwarded, sender, rules } = incoming;
        let mut check = SenderCheck::new(&rules, &self.tenants, tenant, sender.clone());
        let (message, json) = match encoding {
            Encoding::Protobuf => (body, None),
            Encoding::Json => {
                // At worst two characters become eight bytes.
                reservation.grow(body.len().saturating_mul(4).min(self.request_bytes))?;
                (json::transcode(signal, &body, self.request_bytes)?.into(), Some(body))
            }
        };
        let (message, is_edited) = self.edit(tenant, signal, message, reservation)?;
        if signal == Signal::Traces
            && let (mut span_metrics, Some(mut tail)) = (self.span_metrics(), self.tail(tenant))
        {
            let span_metrics_to =
                span_metrics.as_deref_mut().map(|span_metrics| (span_metrics, self.detector_name(tenant)));
            let tail_to = Some((&mut *tail, &forwarded));
            let counts = walk(&message, span_metrics_to, tail_to, Some(&mut check), self.clock.timestamp());
            let counts = counts.map_err(malformed)?;
            drop(span_metrics);
            self.record_unverified(check, signal);
            self.counts.of(signal).items.add(counts.accepted + counts.malformed + counts.over_limit);
            self.queue_kept(tenant, tail);
            return Ok(acceptance(counts));
        }
        let items = crate::codec::count(&message).map_err(malformed)?;
        if message.is_empty() {
            return Ok(Acceptance::default());
        }
        let wanted = self.span_metrics.is_some() || self.observer.is_some();
        let spans = (signal == Signal::Traces && wanted).then(|| message.clone());
        let watched = (signal == Signal::Metrics && self.metrics.is_some()).then(|| message.clone());
        // JSON is forwarded unchanged if the upstream accepts it.
        let (encoding, body) = match json.filter(|_| self.upstream.takes_json() && !is_edited) {
            Some(json) => (Encoding::Json, json),
            None => (Encoding::Protobuf, message),
        };
        let request = UpstreamRequest { tenant, signal, encoding, body, forwarded, spans: 0, since: self.now() };
        let full = |_| Refusal::new(RefusalReason::Busy, "the queue to the upstream is full");
        self.queue(tenant, signal).offer(request).map_err(full)?;
        self.counts.of(signal).items.add(items as u64);
        // Only after the request is queued: a client retries a refused one.
        if let Some(spans) = spans {
            let mut span_metrics = self.span_metrics();
            let mut observer = self.observer().filter(|_| tenant == DEFAULT);
            let span_metrics_to =
                span_metrics.as_deref_mut().map(|span_metrics| (span_metrics, self.detector_name(tenant)));
            let no_headers = ForwardedHeaders::default();
            let observer = observer.as_deref_mut().map(|observer| (observer, &no_headers));
            walk(&spans, span_metrics_to, observer, Some(&mut check), self.clock.timestamp()).map_err(malformed)?;
            self.record_unverified(check, signal);
        }
        if let (Some(inbox), Some(watched)) = (&self.metrics, watched)
            && !inbox.offer(ForwardedMetrics::new(tenant, watched, sender, rules))
        {
            self.counts.unwatched_metrics.add(1);
        }
        Ok(Acceptance::default())
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
        if signal == Signal::Traces && !self.redacted.is_empty() {
            reservation.grow(message.len())?;
            if let Some(masked) = crate::codec::mask(&message, &self.redacted).map_err(malformed)? {
                (message, is_edited) = (masked.into(), true);
            }
        }
        if self.tenants.count() > 1 {
            reservation.grow(message.len())?;
            let name = |service: &str| self.tenants.replacement_name(tenant, service);
            if let Some(renamed) = crate::codec::rename(&message, &name).map_err(malformed)? {
                (message, is_edited) = (renamed.into(), true);
                self.tenant_state(tenant).renamed.add(1);
            }
        }
        Ok((message, is_edited))
    }

    /// The name by which detectors know a service of `tenant`.
    pub(crate) fn detector_name(&self, tenant: TenantId) -> impl Fn(&str) -> Cow<'_, str> {
        // Owned: the result must not borrow from the tenants.
        move |service| Cow::Owned(self.tenants.detector_name(tenant, service).into_owned())
    }

    /// Ten times a second: queues what is kept by now, drops what waited long enough.
    pub(crate) fn tick(&self) {
        if let Some(mut observer) = self.observer() {
            observer.tick(self.clock.timestamp());
        }
        for tenant in 0..self.tenant_states.len() {
            if let Some(mut tail) = self.tail(tenant) {
                tail.tick(self.clock.timestamp());
                self.queue_kept(tenant, tail);
            }
        }
    }

    /// Counts a request that will not be sent.
    pub(crate) fn record_loss(&self, request: &UpstreamRequest, why: UpstreamLoss) {
        self.counts.of(request.signal).lost(why).add(1);
        self.counts.lost_spans.add(request.spans);
    }

    /// Queues what is kept, then records its exemplars. What exceeds the queue is lost: its decision is made, and no
    /// client would send it again.
    pub(crate) fn queue_kept(&self, tenant: TenantId, mut tail: MutexGuard<'_, TailSampler>) {
        let (batches, requests) = (tail.take_batches(), tail.take_kept_requests());
        for batch in batches {
            let (signal, encoding) = (Signal::Traces, Encoding::Protobuf);
            let (body, spans, forwarded) = (Bytes::from(batch.request), batch.spans as u64, batch.forwarded);
            if let Some(inbox) = &self.kept {
                inbox.offer(body.clone());
            }
            let request = UpstreamRequest { tenant, signal, encoding, body, forwarded, spans, since: self.now() };
            if let Err(request) = self.queue(tenant, signal).offer(request) {
                self.record_loss(&request, UpstreamLoss::QueueFull);
            }
        }
        drop(tail);
        self.record_kept(tenant, &requests);
    }

    pub(crate) fn span_metrics(&self) -> Option<MutexGuard<'_, SpanMetrics>> {
        self.span_metrics.as_ref().map(|span_metrics| span_metrics.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn observer(&self) -> Option<MutexGuard<'_, TailSampler>> {
        self.observer.as_ref().map(|tail| tail.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn tail(&self, tenant: TenantId) -> Option<MutexGuard<'_, TailSampler>> {
        self.tenant_states.get(tenant).and_then(TenantState::tail)
    }
}

fn malformed(error: WireError) -> Refusal {
    Refusal::new(RefusalReason::Malformed, error.to_string())
}

/// The response for what was ingested.
fn acceptance(counts: IngestCounts) -> Acceptance {
    let IngestCounts { malformed, over_limit, .. } = counts;
    let no_ids = (malformed > 0).then(|| format!("{malformed} spans have no valid trace id or span id"));
    let too_many = (over_limit > 0)
        .then(|| format!("{over_limit} spans have a new resource, and the limit of resources is reached"));
    let text: Vec<_> = no_ids.into_iter().chain(too_many).collect();
    Acceptance { rejected: malformed + over_limit, text: text.join("; ") }
}
