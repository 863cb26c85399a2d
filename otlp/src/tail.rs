//! Tail sampling of what comes to this node: requests and verdicts in, requests with what is kept out. Given the time, so that tests play
//! minutes in milliseconds.

use hooks::id::{OperationId, OriginId, ServiceId};
use hooks::otlp::{Group, RawSpan, WireError};
use hooks::paths::{
    FrontendRule, Frontends, Latencies, LatencyRule, Lesson, Lessons, NameLimits, Names, OTHER, PathLimits, Paths,
};
use hooks::receipt::Books;
use hooks::time::UnixNanos;
use hooks::tracing::{
    Account, Budget, BudgetError, BudgetRule, Gone, Keeper, Known, Limits, LimitsError, LookBack, Loss, Metric,
    OrderKey, Parts, Policies, Reason, Switches, TailBuffer, Tally, TraceId, TriggerRule, Triggers, Verdict,
};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use wire::time::Nanos;

use crate::origins::Origins;
use crate::outgoing::{Batch, Outgoing};
use crate::passed::Passed;
use crate::together::Together;
use crate::walk::{UNKNOWN, walk};

/// No request takes longer: a span that began earlier is taken for one with a wrong clock.
const LONGEST_REQUEST: Nanos = Nanos::from_secs(3600);
/// Bytes of resources and scopes.
const ORIGIN_BYTES: usize = 16 << 20;
/// How often what was not seen for long is looked for.
const SWEEP_EVERY: Nanos = Nanos::from_secs(30);

/// Now, by one's own clock and by the day's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Since some start; never goes back. What waits, waits by this.
    pub own: Nanos,
    /// Since 1970. What happened, happened at this.
    pub day: UnixNanos,
}

/// How traces are kept.
#[derive(Clone, Debug)]
pub struct TailSettings {
    /// Memory and time for waiting spans.
    pub limits: Limits,
    /// In which order traces give way; the same on all nodes, unknown to services.
    pub key: OrderKey,
    /// Which policies are on.
    pub switches: Switches,
    /// What may be kept.
    pub budget: BudgetRule,
    /// Services with which requests enter the system; if empty they are recognised.
    pub frontends: Vec<String>,
    /// How this node is called in spans of incomplete traces.
    pub node: String,
}

/// Settings that cannot be.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TailError {
    /// Memory and time.
    #[error(transparent)]
    Limits(#[from] LimitsError),
    /// The budget.
    #[error(transparent)]
    Budget(#[from] BudgetError),
}

/// What was found in a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Spans that were taken.
    pub taken: u64,
    /// What should have been spans and has no valid ids.
    pub malformed: u64,
    /// Spans of a resource that is new while there are too many.
    pub crowded: u64,
}

/// That an LMAP found its service out of the ordinary.
#[derive(Clone, Debug)]
pub struct Finding<'a> {
    /// The service, by the name that its spans carry as `service.name`.
    pub service: &'a str,
    /// When what was seen began; the same as [`at`](Self::at) where only the second is known.
    pub from: UnixNanos,
    /// When.
    pub at: UnixNanos,
    /// What its newest row says by itself; `None` if that is not known.
    pub parts: Option<Parts>,
    /// Its score.
    pub score: f64,
    /// Its threshold γ.
    pub gamma: f64,
    /// What speaks for it, the heaviest first.
    pub metrics: Vec<Metric>,
}

/// An operation of a frontend, and what its requests pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationPath {
    /// The frontend.
    pub service: String,
    /// What it calls the operation.
    pub operation: String,
    /// Requests that entered here since it is known.
    pub requests: u64,
    /// The services on its path, by name.
    pub services: Vec<PassedService>,
}

/// A service on a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PassedService {
    /// Its name.
    pub service: String,
    /// How long ago a request was last seen to pass it.
    pub age: Nanos,
    /// What it was asked for, by name, as far as that was seen: verdicts about other operations of it keep no such request, once enough was.
    pub asked: Vec<String>,
}

/// Who recorded the spans of a group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source {
    service: ServiceId,
    origin: Option<OriginId>,
}

/// Names, paths and a [`Keeper`], fed with requests.
#[derive(Debug)]
pub struct Tail {
    pub(crate) keeper: Keeper,
    pub(crate) names: Names,
    pub(crate) paths: Paths,
    pub(crate) latencies: Latencies,
    lessons: Lessons,
    /// Requests of each operation that entered here: bounded as their names are.
    entered: BTreeMap<OperationId, u64>,
    frontends: Frontends,
    pub(crate) origins: Origins,
    pub(crate) outgoing: Outgoing,
    /// How this node decides together with others; `None`: alone.
    pub(crate) together: Option<Together>,
    /// For how long an origin is kept that nothing came from: spans of it may still wait.
    origin_age: Nanos,
    swept: Nanos,
    /// When the first verdict came since it was asked which operations are out of the ordinary.
    pub(crate) first_verdict: Option<Nanos>,
}

impl Tail {
    /// Nothing waits, nothing is learnt.
    ///
    /// # Errors
    ///
    /// [`TailError`] if the settings contradict each other.
    pub fn new(settings: &TailSettings, now: Moment) -> Result<Self, TailError> {
        let TailSettings { limits, key, switches, budget, frontends: configured, node } = settings;
        let buffer = TailBuffer::new(*limits, *key, now.own)?;
        let policies = Policies::new(*switches, Budget::new(*budget, now.own)?);
        let mut names = Names::new(NameLimits::default());
        let mut frontends = Frontends::new(FrontendRule::default());
        for name in configured {
            frontends.configure(names.service(name, Nanos::NEVER));
        }
        Ok(Self {
            keeper: Keeper::new(buffer, Triggers::new(TriggerRule::default()), policies),
            names,
            paths: Paths::new(PathLimits::default()),
            latencies: Latencies::new(LatencyRule::default()),
            lessons: Lessons::default(),
            entered: BTreeMap::new(),
            frontends,
            origins: Origins::new(ORIGIN_BYTES),
            outgoing: Outgoing::new(node),
            together: None,
            origin_age: limits.age.plus(SWEEP_EVERY),
            swept: now.own,
            first_verdict: None,
        })
    }

    /// Takes an `ExportTraceServiceRequest`.
    ///
    /// # Errors
    ///
    /// [`WireError`] if it is none; nothing of it was taken then.
    pub fn take(&mut self, request: &[u8], now: Moment) -> Result<Found, WireError> {
        walk(request, None::<(_, fn(&str) -> Cow<'_, str>)>, Some((self, &Passed::default())), now)
    }

    /// Takes a span of `source`, or what should have been one.
    pub(crate) fn see(&mut self, span: &Result<RawSpan<'_>, &[u8]>, source: Source, found: &mut Found, now: Moment) {
        let (bytes, root, failed) = match span {
            Ok(span) => (span.encoded.len(), span.parent.is_none(), span.error),
            Err(bytes) => (bytes.len(), false, false),
        };
        let (service, books) = (source.service, &mut self.outgoing.books);
        books.turn(now.day);
        books.seen(service, self.names.service_name(service), bytes, root, failed);
        match (span, source.origin) {
            (Err(_), _) => {
                self.keeper.malformed(bytes);
                books.gone(service, Gone::Lost(Loss::Malformed), Tally::one(bytes));
                found.malformed += 1;
            }
            (Ok(span), Some(origin)) => {
                found.taken += 1;
                self.span(span, service, origin, now);
                self.book_departed();
            }
            (Ok(_), None) => {
                self.keeper.crowded(bytes);
                books.gone(service, Gone::Lost(Loss::Crowded), Tally::one(bytes));
                found.crowded += 1;
            }
        }
    }

    /// Books what was dropped and lost of each service.
    fn book_departed(&mut self) {
        for (service, why, tally) in self.keeper.departed().take() {
            self.outgoing.books.gone(service, why, tally);
        }
    }

    /// An LMAP found its service out of the ordinary. What waits is looked through at the next [`tick`](Self::tick).
    pub fn verdict(&mut self, finding: Finding<'_>, now: Moment) {
        let Finding { service: name, from, at, parts, score, gamma, metrics } = finding;
        self.first_verdict.get_or_insert(now.own);
        let service = self.names.service(name, now.own);
        let reason = Reason::Lmap { service: name.into(), score, gamma, metrics: metrics.into() };
        let weight = if gamma > 0.0 { score / gamma } else { score };
        let verdict = Verdict { service, from, at, parts: parts.map(Arc::new), weight, reason: Arc::new(reason) };
        self.keeper.verdict(&verdict, now.day);
        self.tell_verdict(name, &verdict, now);
    }

    /// A service asks for `trace` to be kept, whichever service's spans it has: those that wait are kept now, those to come when they come.
    pub fn ask(&mut self, trace: TraceId, why: &str, now: Moment) -> bool {
        let Self { keeper, origins, outgoing, .. } = self;
        keeper.ask(trace, why, now.own, |given| outgoing.add(&given, origins))
    }

    /// Ten times a second or so: keeps what is wanted by now, drops what waited long enough.
    pub fn tick(&mut self, now: Moment) {
        let Self { keeper, names, paths, latencies, origins, outgoing, .. } = self;
        outgoing.books.turn(now.day);
        let known = Known { names, paths, latencies };
        keeper.tick(&known, now.own, |given| outgoing.add(&given, origins));
        self.book_departed();
        if !self.tell_others(now) {
            for (caller, callee) in self.keeper.calls() {
                self.paths.learn_call(caller, callee, now.own);
            }
            for passed in self.keeper.passed() {
                self.paths.take(&passed, now.own);
            }
            // Nobody to announce them to: this node decides for itself.
            drop(self.keeper.decided());
        }
        self.learn(now.own);
        if now.own.since(self.swept).is_some_and(|length| length >= SWEEP_EVERY) {
            self.sweep(now.own);
        }
    }

    /// Takes what is kept and to be sent.
    pub fn kept(&mut self) -> Vec<Batch> {
        self.outgoing.take()
    }

    /// What became of every span.
    #[must_use]
    pub const fn account(&self) -> &Account {
        self.keeper.buffer().account()
    }

    /// What was seen and kept of each service, day by day.
    #[must_use]
    pub const fn books(&self) -> &Books {
        &self.outgoing.books
    }

    /// Spans that were refused because too many resources are known.
    #[must_use]
    pub const fn crowded(&self) -> u64 {
        self.account().lost(Loss::Crowded).spans
    }

    /// What the policies did.
    #[must_use]
    pub const fn policies(&self) -> &Policies {
        self.keeper.policies()
    }

    /// Bytes of memory that waiting spans, decisions and origins take.
    #[must_use]
    pub const fn memory(&self) -> usize {
        self.keeper.buffer().memory() + self.origins.bytes()
    }

    /// How far back a trigger at `now` reaches.
    #[must_use]
    pub fn look_back(&self, now: Nanos) -> LookBack {
        self.keeper.buffer().look_back(now)
    }

    /// Every operation that is known with the services on its path: service and name of the operation, then names.
    pub fn paths(&self) -> impl Iterator<Item = (&str, &str, Vec<&str>)> {
        self.paths.operations().map(|operation| {
            let service = self.names.service_of(operation).map_or(OTHER, |service| self.names.service_name(service));
            let through = self.paths.services(operation).map(|service| self.names.service_name(service)).collect();
            (service, self.names.operation_name(operation), through)
        })
    }

    /// Who calls whom, by name: caller and callee.
    pub fn calls(&self) -> impl Iterator<Item = (&str, &str)> {
        let names = |(caller, callee)| (self.names.service_name(caller), self.names.service_name(callee));
        self.paths.calls().map(names)
    }

    /// Whose spans these are, that came with `passed`.
    pub(crate) fn source(&mut self, group: &Group<'_>, passed: &Passed, now: Nanos) -> Source {
        let service = self.names.service(group.service_name().unwrap_or(UNKNOWN), now);
        Source { service, origin: self.origins.id(group, passed, now) }
    }

    /// Every operation that is known, with the services on its path, at `now`; by name.
    #[must_use]
    pub fn operations(&self, now: Nanos) -> Vec<OperationPath> {
        let path = |operation| {
            let service = self.names.service_of(operation).map_or(OTHER, |service| self.names.service_name(service));
            let age =
                |service| self.paths.seen(operation, service).and_then(|seen| now.since(seen)).unwrap_or_default();
            let passed = |service| {
                let asked = self.paths.seen_asked(operation, service);
                let mut asked: Vec<_> = asked.map(|asked| self.names.operation_name(asked).to_owned()).collect();
                asked.sort();
                PassedService { service: self.names.service_name(service).to_owned(), age: age(service), asked }
            };
            let mut services: Vec<_> = self.paths.services(operation).map(passed).collect();
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

    fn span(&mut self, raw: &RawSpan<'_>, service: ServiceId, origin: OriginId, now: Moment) {
        let operation = self.names.operation(service, raw.name, now.own);
        let index = raw.index(service, operation, origin).plausible(now.day, LONGEST_REQUEST);
        let entry = self.frontends.enters(&index, now.own);
        if entry {
            *self.entered.entry(operation).or_default() += 1;
        }
        let Self { keeper, names, paths, latencies, origins, outgoing, .. } = self;
        let known = Known { names, paths, latencies };
        keeper.span(&raw.span(index, entry), &known, now.own, |given| outgoing.add(&given, origins));
        // Judged first: what is learnt from a request must not excuse it. One that failed says nothing of how long they take.
        if entry && !index.error {
            let (start, end, took) = (index.start, index.end, index.duration());
            self.lessons.add(Lesson { operation, start, end, took }, now.own);
        }
    }

    /// Learns what is usual from requests of which it is known by now whether they were made during an alarm.
    fn learn(&mut self, now: Nanos) {
        while let Some(Lesson { operation, start, end, took }) = self.lessons.due(now) {
            let Self { keeper, names, paths, latencies, .. } = self;
            let alarm = keeper.in_alarm(&Known { names, paths, latencies }, operation, (start, end));
            self.latencies.learn(operation, took, alarm, now);
        }
    }

    fn sweep(&mut self, now: Nanos) {
        self.swept = now;
        self.origins.forget(self.origin_age, now);
        self.frontends.forget(now);
        self.paths.forget(now);
        let forgotten = self.names.forget(now);
        for operation in forgotten.operations {
            self.latencies.forget(operation);
            self.entered.remove(&operation);
            self.keeper.forget(operation);
        }
        forgotten.services.into_iter().for_each(|service| self.outgoing.books.forget(service));
    }
}
