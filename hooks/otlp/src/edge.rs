//! State that servers, senders and the clock share. Each child is one thing that the endpoint does with it. Nothing
//! that this file names knows an [`Edge`].

mod full;
mod gossip;
mod ingest;
mod local;
mod operations;
mod senders;
mod service_policies;
mod watches;

use core::net::IpAddr;
use std::borrow::Cow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_runtime::Count;
use agent_runtime::live_headers::LiveHeaders;
use agent_runtime::peers::Places;
use agent_runtime::reload::Reloadable;
use agent_runtime::socket_owner::OwnerLookup;
use tokio::net::TcpStream;
use wire::time::{Nanos, Timestamp, UnixNanos};

use crate::bounds::FullBounds;
use crate::cgroups::Cgroups;
use crate::clock::Clock;
use crate::counts::Counts;
use crate::forwarded_headers::ForwardedHeaderNames;
use crate::kept_watch::KeptInbox;
use crate::memory_budget::MemoryBudget;
use crate::metric_watch::MetricsInbox;
use crate::pod_senders::PodSenders;
use crate::queue::Queue;
use crate::senders::SenderRules;
use crate::settings::{Settings, StartError, TenantSettings};
use crate::signal::Signal;
use crate::span_metrics::SpanMetrics;
use crate::tail::{Finding, TailSampler, observer_settings};
use crate::tenants::{DEFAULT, TenantId, Tenants};
use crate::unverified::UnverifiedSpans;
use crate::upstream::Upstream;

pub(crate) use ingest::IncomingRequest;
pub use local::IngestError;

/// The OTLP endpoint: accepts requests, and forwards them or samples their traces, or watches them only.
#[derive(Debug)]
pub struct Edge {
    /// Counters of requests.
    pub counts: Counts,
    pub(crate) request_bytes: usize,
    /// Names of client headers to forward.
    pub(crate) forwarded_names: ForwardedHeaderNames,
    /// `None`: everything is watched, and forwarded to nobody.
    pub(crate) upstream: Option<Upstream>,
    tenants: Tenants,
    /// Who may send spans in which service's name.
    pub(crate) senders: Reloadable<SenderRules>,
    /// Pods of this node by address; `None`: not watched.
    pods: Option<Reloadable<PodSenders>>,
    socket_owner: OwnerLookup,
    cgroups: Cgroups,
    unverified: Mutex<Vec<UnverifiedSpans>>,
    full: FullBounds,
    /// One per tenant, by its number.
    tenant_states: Vec<TenantState>,
    /// Lock order: this before a tail sampler.
    span_metrics: Option<Mutex<SpanMetrics>>,
    /// Metrics for whoever watches them; `None`: nobody does.
    metrics: Option<MetricsInbox>,
    /// Kept spans for whoever watches them; `None`: nobody does.
    kept: Option<KeptInbox>,
    /// Kept log records for whoever watches them; `None`: nobody does.
    kept_logs: Option<KeptInbox>,
    /// A tail sampler that keeps nothing, where spans pass through.
    observer: Option<Mutex<TailSampler>>,
    redacted: Vec<String>,
    /// Log records do not pass through.
    samples_logs: bool,
    pub(crate) admits: fn(&TcpStream) -> bool,
    clock: Clock,
}

/// Memory, queues and connections of one tenant: a flood of another takes nothing of it.
#[derive(Debug)]
pub(crate) struct TenantState {
    pub(crate) budget: MemoryBudget,
    /// Of its connections, shared by who opens them.
    pub(crate) places: Arc<Places>,
    queues: [Queue; Signal::ALL.len()],
    tail: Option<Mutex<TailSampler>>,
    /// Requests with another tenant's service name.
    renamed: Count,
}

impl TenantState {
    fn new(settings: &Settings, tail: Option<TailSampler>) -> Self {
        Self {
            budget: MemoryBudget::new(settings.receive_memory_bytes),
            places: Places::new("OTLP", settings.connections, settings.connections),
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
        let upstream = settings.upstream.as_ref().map(Upstream::new).transpose()?;
        let table: Vec<_> = settings.tenants.iter().map(|tenant| tenant.who.clone()).collect();
        let tenants = Tenants::new(&table)?;
        let state = |own: Option<&TenantSettings>| {
            let tail = settings.tail.as_ref().map(|tail| own.map_or_else(|| tail.clone(), |own| own.tail(tail)));
            let mut tail = tail.map(|tail| TailSampler::new(&tail, clock.timestamp())).transpose()?;
            if let (Some(tail), Some(logs)) = (&mut tail, &settings.logs) {
                tail.keep_logs(logs)?;
            }
            Ok(TenantState::new(settings, tail))
        };
        let tenant_states = core::iter::once(None).chain(settings.tenants.iter().map(Some)).map(state);
        let tenant_states = tenant_states.collect::<Result<_, StartError>>()?;
        let observed = settings.observed.as_ref().filter(|_| settings.tail.is_none());
        let observer =
            observed.map(|frontends| observer_settings(frontends, settings.observed_key.unwrap_or_else(rand::random)));
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
            full: FullBounds::default(),
            tenant_states,
            metrics: settings.watched_metrics.map(MetricsInbox::new),
            kept: settings.watched_kept.map(KeptInbox::new),
            kept_logs: settings.watched_kept_logs.map(KeptInbox::new),
            samples_logs: settings.tail.is_some() && settings.logs.is_some(),
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

    /// Whether what comes goes on to an upstream. Without one it is watched only, and counted
    /// ([`SignalCounts::unforwarded`](crate::counts::SignalCounts::unforwarded)).
    #[must_use]
    pub const fn forwards(&self) -> bool {
        self.upstream.is_some()
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

    /// The headers of requests to the upstream, which may be replaced: those that begin later have the new ones. `None`
    /// without an upstream.
    pub fn upstream_headers(&self) -> Option<&LiveHeaders> {
        self.upstream.as_ref().map(Upstream::headers)
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

    /// A line for each tenant of which connections are refused now, or were within the last minute.
    pub fn full_listeners(&self) -> impl Iterator<Item = String> {
        self.tenant_states.iter().filter_map(|state| state.places.problem())
    }

    pub(crate) fn queue(&self, tenant: TenantId, signal: Signal) -> &Queue {
        &self.tenant_state(tenant).queues[signal as usize]
    }

    /// All queues, by tenant and signal.
    pub(crate) fn queues(&self) -> impl Iterator<Item = (TenantId, Signal)> + use<> {
        (0..self.tenant_states.len()).flat_map(|tenant| Signal::ALL.into_iter().map(move |signal| (tenant, signal)))
    }

    /// Monotonic time since the endpoint started.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.clock.now()
    }

    /// The name by which detectors know a service of `tenant`.
    fn detector_name(&self, tenant: TenantId) -> impl Fn(&str) -> Cow<'_, str> {
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

    fn span_metrics(&self) -> Option<MutexGuard<'_, SpanMetrics>> {
        self.span_metrics.as_ref().map(|span_metrics| span_metrics.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn observer(&self) -> Option<MutexGuard<'_, TailSampler>> {
        self.observer.as_ref().map(|tail| tail.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether the spans of `tenant` do not pass through.
    fn samples(&self, tenant: TenantId) -> bool {
        self.tenant_states.get(tenant).is_some_and(|state| state.tail.is_some())
    }

    fn tail(&self, tenant: TenantId) -> Option<MutexGuard<'_, TailSampler>> {
        self.tenant_states.get(tenant).and_then(TenantState::tail)
    }
}
