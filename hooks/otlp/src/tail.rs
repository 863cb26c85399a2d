//! Tail sampling on this node: requests and verdicts in, requests with kept spans out. Time is an argument: tests run
//! minutes in milliseconds.

mod coherence;
mod exemplars;
mod logs;
mod observer;

use crate::codec::{Group, RawSpan};
use hooks::id::{OperationId, OriginId, SenderId, ServiceId};
use hooks::paths::{
    CallCounts, FinishedRequest, FrontendRule, Frontends, Latencies, LatencyRule, LearningQueue, NameLimits, Names,
    OTHER, PathLimits, Paths,
};
use hooks::receipt::DailyLedger;
use hooks::tracing::{
    Account, Budget, BudgetError, BudgetRule, Completeness, DiscardReason, Keeper, Limits, LimitsError, LookBack,
    LossReason, Metric, OperatorRequest, OperatorRequestError, OrderKey, Origin, Policies, Policy, Reason,
    ScoreBreakdown, ServiceCatalog, ServicePolicies, Switches, TailBuffer, Tally, TraceId, TriggerRule, Triggers,
    Verdict,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use wire::time::{Nanos, Timestamp, UnixNanos};

use crate::bounds::Bound;
use crate::export_buffer::{Batch, ExportBuffer};
use crate::holders::Holder;
use crate::name_shares::NameShares;
use crate::origins::{Delivery, Origins};

use coherence::Coherence;
pub use coherence::CoherenceSettings;
pub use exemplars::KeptRequest;
use logs::KeptLogs;
pub use logs::LogSettings;
pub use observer::AnomalousOperation;
pub(crate) use observer::observer_settings;

/// Longest request: a span that began earlier has a wrong clock.
const LONGEST_REQUEST: Nanos = Nanos::from_secs(3600);
/// Maximum bytes of resources and scopes.
const ORIGIN_BYTES: usize = 16 << 20;
/// How often unused state is removed.
const SWEEP_EVERY: Nanos = Nanos::from_secs(30);

/// Settings of tail sampling.
#[derive(Clone, Debug)]
pub struct TailSettings {
    /// Memory and time limits of buffered spans.
    pub limits: Limits,
    /// Key of the eviction order: the same on all nodes, unknown to services.
    pub key: OrderKey,
    /// Policies that are on.
    pub switches: Switches,
    /// Budget for kept spans.
    pub budget: BudgetRule,
    /// Services at which requests enter the system; if empty, they are detected.
    pub frontends: Vec<String>,
    /// Name of this node in spans of incomplete traces.
    pub node: String,
}

/// Invalid settings of tail sampling.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TailError {
    /// Limits of memory or time.
    #[error(transparent)]
    Limits(#[from] LimitsError),
    /// Budget for kept spans.
    #[error(transparent)]
    Budget(#[from] BudgetError),
}

/// What became of the spans of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IngestCounts {
    /// Spans that were accepted.
    pub accepted: u64,
    /// Spans without valid ids, or malformed.
    pub malformed: u64,
    /// Spans rejected because their resource is new and the limit of resources is reached.
    pub over_limit: u64,
}

/// An LMAP (local metrics analysis pipeline) found its service anomalous.
#[derive(Clone, Debug)]
pub struct Finding<'a> {
    /// The service, named as in `service.name` of its spans.
    pub service: &'a str,
    /// Start of the period that the verdict is about; equal to [`at`](Self::at) if only the second is known.
    pub from: UnixNanos,
    /// End of the period that the verdict is about.
    pub at: UnixNanos,
    /// Breakdown of the newest row's own score; `None` if unknown.
    pub breakdown: Option<ScoreBreakdown>,
    /// Score of the verdict.
    pub score: f64,
    /// Threshold γ of the LMAP.
    pub gamma: f64,
    /// Metrics that contributed, largest first.
    pub metrics: Vec<Metric>,
    /// Address of the incident: node, slash, id; empty: unknown.
    pub incident: Box<str>,
}

/// An operation of a frontend, and the services on its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationPath {
    /// Name of the frontend.
    pub service: String,
    /// Name of the operation.
    pub operation: String,
    /// Requests that entered at this node since the operation is known.
    pub requests: u64,
    /// Services on its path, sorted by name.
    pub services: Vec<PathService>,
}

/// A service on the path of an operation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PathService {
    /// Name of the service.
    pub service: String,
    /// Time since a request was last seen to pass the service.
    pub age: Nanos,
    /// Operations of the service that are called on this path, as far as known. Once enough is known, verdicts about
    /// its other operations keep no request of this path.
    pub called: Vec<String>,
}

/// Service and origin of a group of spans.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source {
    pub(crate) service: ServiceId,
    pub(crate) origin: Option<OriginId>,
    pub(crate) sender: SenderId,
}

/// Tail sampling of one tenant: a [`Keeper`], and the names and paths that it needs, fed with requests.
#[derive(Debug)]
pub struct TailSampler {
    keeper: Keeper,
    names: Names,
    /// Who brought up which name of a service.
    shares: NameShares,
    /// Senders by their numbers; of several with one number the last.
    senders: BTreeMap<SenderId, Holder>,
    paths: Paths,
    latencies: Latencies,
    lessons: LearningQueue,
    /// Requests that entered here, by operation. Bounded like their names.
    entered: BTreeMap<OperationId, u64>,
    frontends: Frontends,
    origins: Origins,
    export_buffer: ExportBuffer,
    kept_logs: KeptLogs,
    /// Coherence with other nodes; `None`: this node decides alone.
    coherence: Option<Coherence>,
    /// Age at which an unused origin is removed: its spans may still be buffered before.
    origin_age: Nanos,
    swept: Nanos,
    /// Time of the first verdict since [`anomalous_operations`](Self::anomalous_operations) was called.
    first_verdict: Option<Nanos>,
}

impl TailSampler {
    /// Makes an empty sampler that has learnt nothing.
    ///
    /// # Errors
    ///
    /// [`TailError`] if the settings are invalid.
    pub fn new(settings: &TailSettings, now: Timestamp) -> Result<Self, TailError> {
        let TailSettings { limits, key, switches, budget, frontends: configured, node } = settings;
        let buffer = TailBuffer::new(*limits, *key, now.monotonic)?;
        let policies = Policies::new(*switches, Budget::new(*budget, now.monotonic)?);
        let name_limits = NameLimits::default();
        let mut names = Names::new(name_limits);
        let mut frontends = Frontends::new(FrontendRule::default());
        for name in configured {
            frontends.configure(names.service(name, Nanos::NEVER));
        }
        Ok(Self {
            keeper: Keeper::new(buffer, Triggers::new(TriggerRule::default()), policies),
            names,
            shares: NameShares::new("names of services", "a limit of the program", name_limits.services),
            senders: BTreeMap::new(),
            paths: Paths::new(PathLimits::default()),
            latencies: Latencies::new(LatencyRule::default()),
            lessons: LearningQueue::default(),
            entered: BTreeMap::new(),
            frontends,
            origins: Origins::new(ORIGIN_BYTES),
            export_buffer: ExportBuffer::new(node),
            kept_logs: KeptLogs::default(),
            coherence: None,
            origin_age: limits.age.plus(SWEEP_EVERY),
            swept: now.monotonic,
            first_verdict: None,
        })
    }

    /// Ingests a span of `source`, or the bytes of a malformed one.
    pub(crate) fn ingest_span(
        &mut self,
        span: &Result<RawSpan<'_>, &[u8]>,
        source: Source,
        counts: &mut IngestCounts,
        now: Timestamp,
    ) {
        let (bytes, root, failed) = match span {
            Ok(span) => (span.encoded.len(), span.parent.is_none(), span.error),
            Err(bytes) => (bytes.len(), false, false),
        };
        let (service, ledger) = (source.service, &mut self.export_buffer.ledger);
        ledger.turn(now.wall);
        ledger.seen(service, self.names.service_name(service), bytes, root, failed);
        match (span, source.origin) {
            (Err(_), _) => {
                self.keeper.malformed(bytes);
                ledger.gone(service, DiscardReason::Lost(LossReason::Malformed), Tally::one(bytes));
                counts.malformed += 1;
            }
            (Ok(span), Some(origin)) => {
                counts.accepted += 1;
                self.span(span, (source, origin), now);
                self.record_removed();
            }
            (Ok(_), None) => {
                self.keeper.over_limit(bytes);
                ledger.gone(service, DiscardReason::Lost(LossReason::OverLimit), Tally::one(bytes));
                counts.over_limit += 1;
            }
        }
    }

    /// Records spans that were dropped or lost in the ledger.
    fn record_removed(&mut self) {
        for (service, why, tally) in self.keeper.discarded().take() {
            self.export_buffer.ledger.gone(service, why, tally);
        }
    }

    /// From now on these hold for single services. Traces that are decided stay decided.
    pub fn set_service_policies(&mut self, services: Arc<ServicePolicies>) {
        self.keeper.set_service_policies(services);
    }

    /// An LMAP found its service anomalous. Buffered spans are searched at the next [`tick`](Self::tick). If LMAPs keep
    /// no traces because of this service, nobody is told.
    pub fn verdict(&mut self, finding: Finding<'_>, now: Timestamp) {
        let Finding { service: name, from, at, breakdown, score, gamma, metrics, incident } = finding;
        if self.policies().services().is_off(name, Policy::Lmap) {
            return;
        }
        self.first_verdict.get_or_insert(now.monotonic);
        let service = self.names.service(name, now.monotonic);
        let reason = Reason::Lmap { service: name.into(), score, gamma, metrics: metrics.into(), incident };
        let weight = if gamma > 0.0 { score / gamma } else { score };
        let verdict = Verdict {
            service,
            origin: Origin::Here,
            author: None,
            from,
            at,
            breakdown: breakdown.map(Arc::new),
            weight,
            reason: Arc::new(reason),
        };
        self.keeper.verdict(&verdict, now.wall);
        self.announce_verdict(name, &verdict, now);
    }

    /// A service triggers the keeping of `trace`, for `reason`, with the spans of all services. Buffered spans are kept
    /// now, later ones when they arrive.
    pub fn trigger(&mut self, trace: TraceId, reason: &str, now: Timestamp) -> bool {
        let Self { keeper, origins, export_buffer, .. } = self;
        keeper.request(trace, reason, now.monotonic, |span| export_buffer.add(&span, origins))
    }

    /// An operator asks for the traces through a service: later ones are selected as their spans arrive, those that are
    /// buffered with the next [`tick`](Self::tick)s. Returns how far back they are buffered.
    ///
    /// # Errors
    ///
    /// [`OperatorRequestError`]; then nothing has changed.
    pub fn ask(&mut self, request: &OperatorRequest, now: Timestamp) -> Result<LookBack, OperatorRequestError> {
        self.keeper.ask(request, &self.names, now.monotonic)?;
        Ok(self.look_back(now.monotonic))
    }

    /// Ten times a second: keeps what is wanted by now, drops what waited long enough.
    pub fn tick(&mut self, now: Timestamp) {
        let Self { keeper, names, paths, latencies, origins, export_buffer, .. } = self;
        export_buffer.ledger.turn(now.wall);
        let known = ServiceCatalog { names, paths, latencies };
        keeper.tick(&known, now.monotonic, |span| export_buffer.add(&span, origins));
        self.record_removed();
        for (trace, reason) in self.keeper.cut() {
            self.export_buffer.mark(trace, &reason, Completeness::Unknown, None, now.wall);
        }
        if !self.exchange(now) {
            self.paths.take_calls(self.keeper.calls(), now.monotonic);
            for passed in self.keeper.path_steps() {
                self.paths.take(&passed, now.monotonic);
            }
            // No other node to announce them to: this node decides alone.
            drop(self.keeper.decided());
        }
        self.tick_logs(now.monotonic);
        self.learn(now.monotonic);
        if now.monotonic.since(self.swept).is_some_and(|length| length >= SWEEP_EVERY) {
            self.sweep(now.monotonic);
        }
    }

    /// Drains the requests with kept spans.
    pub fn take_batches(&mut self) -> Vec<Batch> {
        self.export_buffer.take()
    }

    /// Account of all spans: seen = waiting + kept + dropped + lost.
    #[must_use]
    pub const fn account(&self) -> &Account {
        self.keeper.buffer().account()
    }

    /// Ledger of spans seen and kept of each service, day by day.
    #[must_use]
    pub const fn ledger(&self) -> &DailyLedger {
        &self.export_buffer.ledger
    }

    /// Spans rejected because the limit of resources is reached.
    #[must_use]
    pub const fn over_limit(&self) -> u64 {
        self.account().lost(LossReason::OverLimit).spans
    }

    /// Counters of the policies.
    #[must_use]
    pub const fn policies(&self) -> &Policies {
        self.keeper.policies()
    }

    /// Memory of buffered spans, decisions and origins, in bytes.
    #[must_use]
    pub const fn memory(&self) -> usize {
        self.keeper.buffer().memory() + self.origins.bytes()
    }

    /// How often a name counted as [`OTHER`], and how often something of a path was not learnt, because of limits.
    #[must_use]
    pub const fn unlearnt(&self) -> (u64, u64) {
        (self.names.others(), self.paths.refused())
    }

    /// How far back a trigger at `now` reaches.
    #[must_use]
    pub fn look_back(&self, now: Nanos) -> LookBack {
        self.keeper.buffer().look_back(now)
    }

    /// All known operations with the services on their paths: service, operation, services, by name.
    pub fn paths(&self) -> impl Iterator<Item = (&str, &str, Vec<&str>)> {
        self.paths.operations().map(|operation| {
            let service = self.names.service_of(operation).map_or(OTHER, |service| self.names.service_name(service));
            let through = self.paths.services(operation).map(|service| self.names.service_name(service)).collect();
            (service, self.names.operation_name(operation), through)
        })
    }

    /// Calls between services, by name: caller and callee.
    pub fn calls(&self) -> impl Iterator<Item = (&str, &str)> {
        let names = |(caller, callee)| (self.names.service_name(caller), self.names.service_name(callee));
        self.paths.calls().map(names)
    }

    /// The same with the calls that were counted.
    pub fn counted_calls(&self) -> impl Iterator<Item = (&str, &str, CallCounts)> {
        let name = |service| self.names.service_name(service);
        self.paths.counted_calls().map(move |(caller, callee, counts)| (name(caller), name(callee), counts))
    }

    /// Service and origin of a group, which came with `delivery` and counts as `service`.
    pub(crate) fn source(&mut self, service: &str, group: &Group<'_>, delivery: &Delivery<'_>, now: Nanos) -> Source {
        let service = self.shares.service(&mut self.names, service, delivery.holder, now);
        let sender = delivery.holder.sender();
        if self.senders.get(&sender) != Some(delivery.holder) {
            self.senders.insert(sender, delivery.holder.clone());
        }
        Source { service, origin: self.origins.id(group, delivery, now), sender }
    }

    /// What senders had no room for since the last call, and who has most of it.
    pub(crate) fn take_refusals(&mut self) -> impl Iterator<Item = (Bound, String)> + use<> {
        let names = self.shares.take_refusal().map(|error| (Bound::Names, error.to_string()));
        let resources = self.origins.take_refusal().map(|error| (Bound::Resources, error.to_string()));
        let greedy = self.keeper.take_greedy().and_then(|sender| self.senders.get(&sender));
        let traces = greedy.map(|holder| {
            let why = format!("{holder} has more than three quarters of them: raise otlp.traces.memory_bytes");
            (Bound::Traces, why)
        });
        names.into_iter().chain(resources).chain(traces)
    }

    /// All known operations with the services on their paths at `now`, sorted by name.
    #[must_use]
    pub fn operations(&self, now: Nanos) -> Vec<OperationPath> {
        let path = |operation| {
            let service = self.names.service_of(operation).map_or(OTHER, |service| self.names.service_name(service));
            let age =
                |service| self.paths.seen(operation, service).and_then(|seen| now.since(seen)).unwrap_or_default();
            let path_service = |service| {
                let called = self.paths.seen_requested(operation, service);
                let mut called: Vec<_> = called.map(|called| self.names.operation_name(called).to_owned()).collect();
                called.sort();
                PathService { service: self.names.service_name(service).to_owned(), age: age(service), called }
            };
            let mut services: Vec<_> = self.paths.services(operation).map(path_service).collect();
            services.sort();
            OperationPath {
                service: service.to_owned(),
                operation: self.names.operation_name(operation).to_owned(),
                requests: self.entered.get(&operation).copied().unwrap_or(0),
                services,
            }
        };
        let mut operations: Vec<_> = self.paths.operations().map(path).collect();
        operations.sort_by(|a, b| (&a.service, &a.operation).cmp(&(&b.service, &b.operation)));
        operations
    }

    fn span(&mut self, raw: &RawSpan<'_>, (source, origin): (Source, OriginId), now: Timestamp) {
        let Source { service, sender, .. } = source;
        let operation = self.names.operation(service, raw.name, now.monotonic);
        let index = raw.index(service, operation, origin).plausible(now.wall, LONGEST_REQUEST);
        let entry = self.frontends.enters(&index, now.monotonic);
        if entry {
            *self.entered.entry(operation).or_default() += 1;
        }
        let Self { keeper, names, paths, latencies, origins, export_buffer, .. } = self;
        let known = ServiceCatalog { names, paths, latencies };
        let span = raw.span(index, sender, entry);
        keeper.span(&span, &known, now.monotonic, |span| export_buffer.add(&span, origins));
        // Policies decide first: the sampler must not learn from a request that it has not judged. A failed request
        // does not show how long requests take.
        if entry && !index.error {
            let (start, end, took) = (index.start, index.end, index.duration());
            self.lessons.add(FinishedRequest { operation, start, end, took }, now.monotonic);
        }
    }

    /// Learns usual latencies from requests of which it is known by now whether they ran during an alarm.
    fn learn(&mut self, now: Nanos) {
        while let Some(FinishedRequest { operation, start, end, took }) = self.lessons.due(now) {
            let Self { keeper, names, paths, latencies, .. } = self;
            let alarm = keeper.in_alarm(&ServiceCatalog { names, paths, latencies }, operation, (start, end));
            self.latencies.learn(operation, took, alarm, now);
        }
    }

    fn sweep(&mut self, now: Nanos) {
        self.swept = now;
        self.origins.forget(self.origin_age, now);
        self.frontends.forget(now);
        self.paths.forget(now);
        let forgotten = self.names.forget(now);
        self.shares.forget(&forgotten.services);
        for operation in forgotten.operations {
            self.latencies.forget(operation);
            self.entered.remove(&operation);
            self.keeper.forget(operation);
        }
        forgotten.services.into_iter().for_each(|service| self.export_buffer.ledger.forget(service));
    }
}
