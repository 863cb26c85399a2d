//! Errors and durations of every operation of every service, from all spans, before sampling. A detector can so watch a
//! service that exposes no metrics of its own.
//!
//! SDKs send spans in batches, every five seconds by default. If requests were counted on arrival, a steady service
//! would look like one that works in bursts. So a request is counted a fixed delay after it *ended*, by its own clock;
//! the delay is longer than a batch takes. The series lags by the delay, and is steady. A span that arrives even later
//! is counted at once.

use std::collections::{BTreeMap, VecDeque};

use crate::codec::RawSpan;
use crate::holders::Holder;
use crate::name_shares::NameShares;
use crate::numbered_incidents::NumberedIncidents;
use agent_runtime::shares::ShareError;
use hooks::id::{OperationId, OriginId, ServiceId};
use hooks::paths::{Exemplar, NameLimits, Names, Rate, Rates};
use wire::histogram::Scale;
use wire::name::ServiceName;
use wire::time::{Nanos, Timestamp, UnixNanos};

/// Resolution: requests that ended within one step are counted together.
const STEP: Nanos = Nanos::from_millis(100);
/// Maximum number of pending requests, 24 bytes each. Further ones are counted at once.
const MAX_PENDING: usize = 1 << 18;
/// Maximum number of pending steps: twice the longest delay.
const MAX_STEPS: usize = (2 * SpanMetricsSettings::LONGEST_DELAY.0 / STEP.0) as usize;
/// Calls of [`SpanMetrics::advance`] whose period is remembered: with rows of 100 ms the last 25 seconds.
const REMEMBERED_ADVANCES: usize = 256;
/// How often unused names are looked for.
const SWEEP_EVERY: Nanos = Nanos::from_secs(10);

/// Limits and delay of span metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanMetricsSettings {
    /// Operations of one service with series of their own; all others share `_other`. 16 by default; each takes five
    /// columns.
    pub operations: usize,
    /// Services, of which one sender may bring up three times what is free; spans of further ones are not counted. 256
    /// by default.
    pub services: usize,
    /// Delay from the end of a request until it is counted, 5 min at most. 6 s by default: SDKs send a batch every
    /// five.
    pub delay: Nanos,
    /// A service or operation without spans for this long loses its series. 10 min by default.
    pub forget: Nanos,
}

impl SpanMetricsSettings {
    /// Maximum of [`delay`](Self::delay).
    pub const LONGEST_DELAY: Nanos = Nanos::from_secs(300);
}

impl Default for SpanMetricsSettings {
    fn default() -> Self {
        Self { operations: 16, services: 256, delay: Nanos::from_secs(6), forget: Nanos::from_secs(600) }
    }
}

/// A request that is not yet counted.
#[derive(Clone, Copy, Debug)]
struct CompletedRequest {
    service: ServiceId,
    operation: OperationId,
    took: Nanos,
    error: bool,
}

/// Counters of requests that entered services. Cumulative.
#[derive(Debug)]
pub struct SpanMetrics {
    settings: SpanMetricsSettings,
    names: Names,
    shares: NameShares,
    services: BTreeMap<ServiceId, Rates>,
    /// Pending requests by step, the first is `step`.
    due: VecDeque<Vec<CompletedRequest>>,
    pending: usize,
    step: u64,
    /// For each call of `advance`: when it was, and the end of the requests counted by then.
    advances: VecDeque<(UnixNanos, UnixNanos)>,
    swept: Nanos,
    changes: u64,
    unnamed: u64,
    incidents: NumberedIncidents,
}

impl SpanMetrics {
    /// Buckets of durations, in µs.
    pub const SCALE: Scale = Scale::DEFAULT;

    /// All counters at zero.
    #[must_use]
    pub fn new(settings: SpanMetricsSettings, now: Timestamp) -> Self {
        let settings =
            SpanMetricsSettings { delay: settings.delay.min(SpanMetricsSettings::LONGEST_DELAY), ..settings };
        let SpanMetricsSettings { operations, services, forget: age, .. } = settings;
        let limits = NameLimits { services, operations_per_service: operations, age, ..NameLimits::default() };
        Self {
            settings,
            names: Names::new(limits),
            shares: NameShares::new("services with metrics from spans", "otlp.derived.services", services),
            services: BTreeMap::new(),
            due: VecDeque::new(),
            pending: 0,
            step: now.wall.0 / STEP.0,
            advances: VecDeque::new(),
            swept: now.monotonic,
            changes: 0,
            unnamed: 0,
            incidents: NumberedIncidents::default(),
        }
    }

    /// The id under which spans of `service` are counted; `None` if its name is no valid service name, or there are too
    /// many services.
    pub fn service(&mut self, service: &str, now: Nanos) -> Option<ServiceId> {
        self.service_of(&Holder::AGENT, service, now)
    }

    /// As [`service`](Self::service), of spans that `holder` sends: if it is new, it is of the holder's share.
    pub fn service_of(&mut self, holder: &Holder, service: &str, now: Nanos) -> Option<ServiceId> {
        let Self { names, shares, .. } = self;
        let id = ServiceName::new(service).is_ok().then(|| shares.service(names, service, holder, now));
        // `_other` mixes services: a model of it would be meaningless.
        id.filter(|id| names.service_name(*id) == service)
    }

    /// The last service since the last call for which its sender had no room.
    pub(crate) const fn take_refusal(&mut self) -> Option<ShareError<Holder>> {
        self.shares.take_refusal()
    }

    /// Records a span of `service`. It is counted later, if a request entered the service with it.
    pub fn record_span(&mut self, service: Option<ServiceId>, span: &RawSpan<'_>, now: Timestamp) {
        if !span.kind.enters() {
            return;
        }
        let Some(service) = service else {
            self.unnamed += 1;
            return;
        };
        let operation = self.operation(service, span.name, now.monotonic);
        let index = span.index(service, operation, OriginId(0));
        let ended = CompletedRequest { service, operation, took: index.duration(), error: index.error };
        // A service's clock that is ahead must not delay counting.
        self.schedule(ended, index.end.min(now.wall));
    }

    /// Records a request of `service` that ended just now.
    pub fn record_request(&mut self, service: ServiceId, operation: &str, took: Nanos, error: bool, now: Timestamp) {
        let operation = self.operation(service, operation, now.monotonic);
        self.schedule(CompletedRequest { service, operation, took, error }, now.wall);
    }

    /// A trace with a request of `service` was kept, for an alarm of the `incident` at this address unless that is
    /// empty. Ignored if no such request is known.
    pub fn keep_exemplar(&mut self, service: &str, operation: &str, exemplar: Exemplar, incident: &str) {
        let Some(operation) = self.names.known_operation(service, operation) else { return };
        let service = self.names.service_of(operation);
        if let Some(rates) = service.and_then(|service| self.services.get_mut(&service)) {
            rates.keep(operation, Exemplar { incident: self.incidents.number(incident), ..exemplar });
        }
    }

    /// Address of the incident of an exemplar; `None` if it has none, or one that is long over.
    #[must_use]
    pub fn incident(&self, exemplar: &Exemplar) -> Option<&str> {
        self.incidents.address(exemplar.incident?)
    }

    /// Counts what is due, and forgets names that were not used for long.
    pub fn advance(&mut self, now: Timestamp) {
        let next = now.wall.0 / STEP.0 + 1;
        // After the wall clock was set back, everything is due: nothing may wait until it is there again.
        let over = if next + 1 < self.step { usize::MAX } else { next.saturating_sub(self.step) as usize };
        for ended in self.due.drain(..over.min(self.due.len())).flatten().collect::<Vec<_>>() {
            self.pending -= 1;
            self.count(ended);
        }
        self.step = if over == usize::MAX { next } else { next.max(self.step) };
        self.advances.retain(|(at, _)| *at < now.wall);
        if self.advances.len() >= REMEMBERED_ADVANCES {
            self.advances.pop_front();
        }
        self.advances.push_back((now.wall, UnixNanos(self.step * STEP.0).minus(self.settings.delay)));
        self.sweep(now.monotonic);
    }

    /// The period in which the requests of a row ended: the row was read at `at`, and the one before `interval`
    /// earlier, from counters that are written at every [`advance`](Self::advance). Exclusive start, inclusive end.
    /// Where the period is no longer remembered, the longest possible one.
    #[must_use]
    pub fn covered_period(&self, at: UnixNanos, interval: Nanos) -> (UnixNanos, UnixNanos) {
        let until =
            |at: UnixNanos| self.advances.iter().rev().find(|(advance, _)| *advance <= at).map(|(_, until)| *until);
        let before = at.minus(interval);
        let from = until(before).unwrap_or_else(|| before.minus(interval).minus(self.settings.delay));
        (from, until(at).unwrap_or_else(|| at.minus(self.settings.delay).plus(STEP)))
    }

    /// Services with their operations and counters, in the order in which they were first seen.
    pub fn services(&self) -> impl Iterator<Item = ServiceSpanMetrics<'_>> {
        self.services.iter().map(|(&id, rates)| ServiceSpanMetrics { id, names: &self.names, rates })
    }

    /// Increases whenever a service or an operation is added or forgotten.
    #[must_use]
    pub const fn changes(&self) -> u64 {
        self.changes
    }

    /// Requests not counted: too many services, or a name that no metric can have.
    #[must_use]
    pub const fn unnamed(&self) -> u64 {
        self.unnamed
    }

    /// Requests that are not yet counted.
    #[must_use]
    pub const fn pending(&self) -> usize {
        self.pending
    }

    /// The id of an operation, which is listed from now on.
    fn operation(&mut self, service: ServiceId, name: &str, now: Nanos) -> OperationId {
        let operation = self.names.operation(service, name, now);
        let rates = self.services.entry(service).or_insert_with(|| Rates::new(Self::SCALE));
        if rates.get(operation).is_none() {
            rates.entry(operation);
            self.changes += 1;
        }
        operation
    }

    /// Holds a request until it is due.
    fn schedule(&mut self, ended: CompletedRequest, end: UnixNanos) {
        let due = end.plus(self.settings.delay).0 / STEP.0;
        if self.pending >= MAX_PENDING || due < self.step {
            return self.count(ended);
        }
        let place = (due - self.step) as usize;
        if place > MAX_STEPS {
            // The wall clock was set forward a moment ago.
            return self.count(ended);
        }
        if self.due.len() <= place {
            self.due.resize_with(place + 1, Vec::new);
        }
        self.due[place].push(ended);
        self.pending += 1;
    }

    fn count(&mut self, ended: CompletedRequest) {
        let CompletedRequest { service, operation, took, error } = ended;
        // The operation may have been forgotten meanwhile.
        if let Some(rates) = self.services.get_mut(&service).filter(|rates| rates.get(operation).is_some()) {
            rates.count(operation, took, error);
        }
    }

    fn sweep(&mut self, now: Nanos) {
        if now.since(self.swept).is_none_or(|length| length < SWEEP_EVERY.min(self.settings.forget)) {
            return;
        }
        self.swept = now;
        let forgotten = self.names.forget(now);
        self.shares.forget(&forgotten.services);
        for service in &forgotten.services {
            self.services.remove(service);
        }
        for &operation in &forgotten.operations {
            self.services.values_mut().for_each(|rates| rates.forget(operation));
        }
        self.services.retain(|_, rates| rates.iter().next().is_some());
        self.changes += (forgotten.services.len() + forgotten.operations.len()) as u64;
    }
}

/// Counters of one service.
#[derive(Clone, Copy, Debug)]
pub struct ServiceSpanMetrics<'a> {
    /// Its id; never reused.
    pub id: ServiceId,
    names: &'a Names,
    rates: &'a Rates,
}

impl<'a> ServiceSpanMetrics<'a> {
    /// Name of the service.
    #[must_use]
    pub fn name(&self) -> &'a str {
        self.names.service_name(self.id)
    }

    /// Operations and their counters. Ids are never reused.
    pub fn operations(&self) -> impl Iterator<Item = (OperationId, &'a str, &'a Rate)> + use<'a> {
        let names = self.names;
        self.rates.iter().map(move |(id, rate)| (id, names.operation_name(id), rate))
    }
}

#[cfg(test)]
mod tests {
    use crate::codec::scan;
    use hooks::tracing::TraceId;

    use super::*;

    /// Noon of some day, in seconds.
    const NOON: u64 = 1_700_000_000;

    fn at(millis: u64) -> Timestamp {
        let monotonic = Nanos::from_millis(millis);
        Timestamp { monotonic, wall: UnixNanos::from_secs(NOON).plus(monotonic) }
    }

    #[test]
    fn it_is_known_when_requests_ended_that_a_row_is_about() {
        let day = |millis: u64| at(millis).wall;
        let mut derived = SpanMetrics::new(SpanMetricsSettings::default(), at(0));
        for second in 10..20 {
            derived.advance(at(second * 1_000 + 30));
        }

        // Counted in steps of 100 ms, six seconds after they ended.
        let second = Nanos::from_secs(1);
        assert_eq!(derived.covered_period(day(15_500), second), (day(8_100), day(9_100)));
        assert_eq!(derived.covered_period(day(16_029), second), (day(8_100), day(9_100)));
        assert_eq!(derived.covered_period(day(16_030), second), (day(9_100), day(10_100)));
        assert_eq!(derived.covered_period(day(15_500), Nanos::from_secs(2)), (day(7_100), day(9_100)));
        // Before the first call of `advance`.
        assert_eq!(derived.covered_period(day(10_500), second), (day(2_500), day(4_100)));
        assert_eq!(derived.covered_period(day(9_000), second), (day(1_000), day(3_100)));
        // A clock that was set back.
        derived.advance(at(15_030));
        assert_eq!(derived.covered_period(day(15_500), second).0, day(8_100));
        assert_eq!(derived.advances.len(), 6);
    }

    /// A request of one SERVER span called `name` that ended at `end` and took 2 ms.
    fn request(name: &str, end: Timestamp, error: bool) -> Vec<u8> {
        let field = |number: u8, bytes: &[u8]| [&[number << 3 | 2, bytes.len() as u8], bytes].concat();
        let fixed = |number: u8, nanos: u64| [&[number << 3 | 1], &nanos.to_le_bytes()[..]].concat();
        let mut span = [field(1, &[1; 16]), field(2, &[1; 8]), field(5, name.as_bytes()), vec![6 << 3, 2]].concat();
        span.extend(fixed(7, end.wall.0 - 2_000_000));
        span.extend(fixed(8, end.wall.0));
        if error {
            span.extend(field(15, &[3 << 3, 2]));
        }
        field(1, &field(2, &field(2, &span)))
    }

    fn see(derived: &mut SpanMetrics, service: &str, request: &[u8], now: Timestamp) {
        scan(request, |_, span| {
            let id = derived.service(service, now.monotonic);
            derived.record_span(id, &span.unwrap(), now);
        })
        .unwrap();
    }

    /// Service, operation, requests and errors.
    fn counted(derived: &SpanMetrics) -> Vec<(String, String, u64, u64)> {
        let all = derived.services().flat_map(|service| {
            let of = move |(_, name, rate): (_, &str, &Rate)| {
                (service.name().to_owned(), name.to_owned(), rate.requests, rate.errors)
            };
            service.operations().map(of)
        });
        all.collect()
    }

    fn requests(derived: &SpanMetrics) -> u64 {
        counted(derived).iter().map(|(_, _, requests, _)| requests).sum()
    }

    #[test]
    fn requests_are_counted_so_long_after_they_ended_however_they_came() {
        let mut derived = SpanMetrics::new(SpanMetricsSettings::default(), at(0));
        // A batch of five seconds, ten requests in each.
        for millis in (0..5_000).step_by(100) {
            see(&mut derived, "payment", &request("POST /pay", at(millis), millis == 0), at(5_000));
        }

        let mut seen = Vec::new();
        for second in 6..12 {
            derived.advance(at(second * 1_000 - 1));
            seen.push(requests(&derived));
        }

        assert_eq!(seen, [0, 10, 20, 30, 40, 50]);
        assert_eq!(counted(&derived), [("payment".to_owned(), "POST /pay".to_owned(), 50, 1)]);
        assert_eq!(derived.pending(), 0);
        // A later span is counted at once; one from the future is counted as if it had ended now.
        see(&mut derived, "payment", &request("POST /pay", at(4_000), false), at(12_000));
        see(&mut derived, "payment", &request("POST /pay", at(900_000), false), at(12_000));
        assert_eq!((requests(&derived), derived.pending()), (51, 1));
        derived.advance(at(18_000));
        assert_eq!(requests(&derived), 52);
    }

    #[test]
    fn a_kept_trace_stands_with_the_requests_that_are_counted_and_with_no_others() {
        let settings = SpanMetricsSettings { operations: 1, delay: Nanos::ZERO, ..SpanMetricsSettings::default() };
        let mut derived = SpanMetrics::new(settings, at(0));
        for name in ["GET /a", "GET /b"] {
            see(&mut derived, "a", &request(name, at(0), false), at(0));
        }
        derived.advance(at(100));
        let trace = |n| TraceId::new([n; 16]).unwrap();
        let exemplar = |n| Exemplar { trace: trace(n), took: Nanos::from_millis(2), at: at(0).wall, incident: None };

        derived.keep_exemplar("a", "GET /a", exemplar(1), "");
        derived.keep_exemplar("a", "GET /b", exemplar(2), "node-1/20261127-064215-123");
        derived.keep_exemplar("nobody", "GET /a", exemplar(3), "");

        let mut kept = Vec::new();
        for service in derived.services() {
            for (_, name, rate) in service.operations() {
                let of = |kept: Exemplar| (name, kept.trace, derived.incident(&kept).unwrap_or_default());
                kept.extend(rate.classes.exemplars().flatten().map(of));
            }
        }
        assert_eq!(kept, [("GET /a", trace(1), ""), ("_other", trace(2), "node-1/20261127-064215-123")]);
    }

    #[test]
    fn operations_and_services_are_bounded_and_forgotten() {
        let settings =
            SpanMetricsSettings { operations: 3, services: 2, delay: Nanos::ZERO, ..SpanMetricsSettings::default() };
        let mut derived = SpanMetrics::new(settings, at(0));
        for number in 0..100 {
            see(&mut derived, "a", &request(&format!("GET /{number}"), at(0), false), at(0));
        }
        for service in ["b", "c", "no name", ""] {
            see(&mut derived, service, &request("x", at(0), false), at(0));
        }
        derived.advance(at(100));

        let names: Vec<_> = counted(&derived).into_iter().map(|(service, name, n, _)| (service, name, n)).collect();
        let expected = [("a", "GET /0", 1), ("a", "GET /1", 1), ("a", "GET /2", 1), ("a", "_other", 97), ("b", "x", 1)];
        assert_eq!(names, expected.map(|(service, name, n)| (service.to_owned(), name.to_owned(), n)));
        assert_eq!(derived.unnamed(), 3);

        let changes = derived.changes();
        see(&mut derived, "a", &request("GET /2", at(500_000), false), at(500_000));
        derived.advance(at(600_000));
        assert_eq!(counted(&derived).len(), 1);
        assert!(derived.changes() > changes);
        derived.advance(at(1_200_000));
        assert_eq!(derived.services().count(), 0);
    }

    #[test]
    fn a_clock_that_is_set_holds_nothing_back_and_takes_no_memory() {
        let mut derived = SpanMetrics::new(SpanMetricsSettings::default(), at(7_200_000));
        see(&mut derived, "a", &request("x", at(7_200_000), false), at(7_200_000));

        // An hour back, then a year forward.
        derived.advance(at(3_600_000));
        assert_eq!((requests(&derived), derived.pending()), (1, 0));
        see(&mut derived, "a", &request("x", at(3_600_000), false), at(3_600_000));
        assert_eq!((requests(&derived), derived.pending()), (1, 1));
        let year = at(31_000_000_000);
        see(&mut derived, "a", &request("x", year, false), Timestamp { monotonic: at(3_600_100).monotonic, ..year });
        assert_eq!((requests(&derived), derived.pending()), (2, 1));
        assert!(derived.due.len() <= MAX_STEPS);
        derived.advance(Timestamp { monotonic: at(3_600_200).monotonic, ..year });
        assert_eq!((requests(&derived), derived.pending()), (3, 0));
    }

    #[test]
    fn what_waits_is_bounded_and_what_is_beyond_is_counted_at_once() {
        let mut derived = SpanMetrics::new(SpanMetricsSettings::default(), at(0));
        let request = request("x", at(0), false);
        for _ in 0..MAX_PENDING + 10 {
            see(&mut derived, "a", &request, at(0));
        }

        assert_eq!((requests(&derived), derived.pending()), (10, MAX_PENDING));
    }
}
