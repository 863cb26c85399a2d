//! Errors and durations of every operation of every service, from the spans that pass, before anything is sampled: what a detector can watch
//! of a service that exposes nothing else.
//!
//! SDKs send spans in batches, five seconds apart by default. Counted as they come, a steady service would look like one that works for an
//! instant and then rests. So a request is counted a fixed time after it *ended*, by its own clock, which is longer than a batch takes: the
//! series is late by that, and steady. What comes later still is counted at once.

use std::collections::{BTreeMap, VecDeque};

use hooks::id::{OperationId, OriginId, ServiceId};
use hooks::otlp::RawSpan;
use hooks::paths::{Exemplar, NameLimits, Names, Rate, Rates};
use hooks::time::UnixNanos;
use wire::histogram::Scale;
use wire::name::ServiceName;
use wire::time::Nanos;

use crate::tail::Moment;

/// Requests that ended within so long of each other are counted together.
const STEP: Nanos = Nanos::from_millis(100);
/// Requests that wait to be counted: 24 bytes each. What is beyond is counted at once.
const WAITING: usize = 1 << 18;
/// Steps that may wait: twice the longest delay.
const LONGEST_LINE: usize = (2 * DerivedSettings::LONGEST_DELAY.0 / STEP.0) as usize;
/// Looks of which is known what they counted: for rows of 100 ms the last 25 seconds.
const LOOKS: usize = 256;
/// How often names are looked through for what was not seen for long.
const SWEEP_EVERY: Nanos = Nanos::from_secs(10);

/// What is derived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DerivedSettings {
    /// Operations of one service that have series of their own; the others are one, `_other`. 16 by default: each is five columns.
    pub operations: usize,
    /// Services. 256 by default; spans of others are not counted.
    pub services: usize,
    /// A request is counted so long after it ended, 5 min at most. 6 s by default: SDKs send a batch every five.
    pub delay: Nanos,
    /// A service or operation that no span came from for so long has no series any more. 10 min by default.
    pub forget: Nanos,
}

impl DerivedSettings {
    /// No request waits longer to be counted.
    pub const LONGEST_DELAY: Nanos = Nanos::from_secs(300);
}

impl Default for DerivedSettings {
    fn default() -> Self {
        Self { operations: 16, services: 256, delay: Nanos::from_secs(6), forget: Nanos::from_secs(600) }
    }
}

/// A request that ended and is not yet counted.
#[derive(Clone, Copy, Debug)]
struct Ended {
    service: ServiceId,
    operation: OperationId,
    took: Nanos,
    error: bool,
}

/// What was counted of the requests that entered services. Cumulative.
#[derive(Debug)]
pub struct Derived {
    settings: DerivedSettings,
    names: Names,
    services: BTreeMap<ServiceId, Rates>,
    /// What is counted in a step from `step` on, one after the other.
    due: VecDeque<Vec<Ended>>,
    waiting: usize,
    step: u64,
    /// When was counted, and what had ended until when.
    looks: VecDeque<(UnixNanos, UnixNanos)>,
    swept: Nanos,
    changes: u64,
    unnamed: u64,
}

impl Derived {
    /// The buckets of durations, in µs.
    pub const SCALE: Scale = Scale::DEFAULT;

    /// Nothing counted.
    #[must_use]
    pub fn new(settings: DerivedSettings, now: Moment) -> Self {
        let settings = DerivedSettings { delay: settings.delay.min(DerivedSettings::LONGEST_DELAY), ..settings };
        let DerivedSettings { operations, services, forget: age, .. } = settings;
        let limits = NameLimits { services, operations_per_service: operations, age, ..NameLimits::default() };
        Self {
            settings,
            names: Names::new(limits),
            services: BTreeMap::new(),
            due: VecDeque::new(),
            waiting: 0,
            step: now.day.0 / STEP.0,
            looks: VecDeque::new(),
            swept: now.own,
            changes: 0,
            unnamed: 0,
        }
    }

    /// What the spans of `service` are counted under; `None` if nothing can watch a service of this name, or there are too many.
    pub fn service(&mut self, service: &str, now: Nanos) -> Option<ServiceId> {
        let id = ServiceName::new(service).is_ok().then(|| self.names.service(service, now));
        // `_other` mixes services: what is usual of it is usual of none.
        id.filter(|id| self.names.service_name(*id) == service)
    }

    /// A span of `service` came. Counts it later, if a request entered the service with it.
    pub fn see(&mut self, service: Option<ServiceId>, span: &RawSpan<'_>, now: Moment) {
        if !span.kind.enters() {
            return;
        }
        let Some(service) = service else {
            self.unnamed += 1;
            return;
        };
        let operation = self.operation(service, span.name, now.own);
        let index = span.index(service, operation, OriginId(0));
        let ended = Ended { service, operation, took: index.duration(), error: index.error };
        // A clock that is ahead of ours must not hold anything back for longer than we would.
        self.later(ended, index.end.min(now.day));
    }

    /// A request of `service` ended just now.
    pub fn count_request(&mut self, service: ServiceId, operation: &str, took: Nanos, error: bool, now: Moment) {
        let operation = self.operation(service, operation, now.own);
        self.later(Ended { service, operation, took, error }, now.day);
    }

    /// A trace with a request of `service` was kept. Nothing, if no such request is known.
    pub fn keep(&mut self, service: &str, operation: &str, exemplar: Exemplar) {
        let Some(operation) = self.names.known_operation(service, operation) else { return };
        let service = self.names.service_of(operation);
        if let Some(rates) = service.and_then(|service| self.services.get_mut(&service)) {
            rates.keep(operation, exemplar);
        }
    }

    /// Counts what is due by now, and forgets what was not seen for long.
    pub fn advance(&mut self, now: Moment) {
        let next = now.day.0 / STEP.0 + 1;
        // Where the day's clock was set back nothing waits until it is again where it was.
        let over = if next + 1 < self.step { usize::MAX } else { next.saturating_sub(self.step) as usize };
        for ended in self.due.drain(..over.min(self.due.len())).flatten().collect::<Vec<_>>() {
            self.waiting -= 1;
            self.count(ended);
        }
        self.step = if over == usize::MAX { next } else { next.max(self.step) };
        self.looks.retain(|(at, _)| *at < now.day);
        if self.looks.len() >= LOOKS {
            self.looks.pop_front();
        }
        self.looks.push_back((now.day, UnixNanos(self.step * STEP.0).minus(self.settings.delay)));
        self.sweep(now.own);
    }

    /// When requests ended that a row is about which was read at `at`, and the one before `interval` earlier, from counts that are written at every
    /// [`advance`](Self::advance): after the first, and not after the second. Where that is no longer known, the longest time that it can be.
    #[must_use]
    pub fn ended(&self, at: UnixNanos, interval: Nanos) -> (UnixNanos, UnixNanos) {
        let until = |at: UnixNanos| self.looks.iter().rev().find(|(look, _)| *look <= at).map(|(_, until)| *until);
        let before = at.minus(interval);
        let from = until(before).unwrap_or_else(|| before.minus(interval).minus(self.settings.delay));
        (from, until(at).unwrap_or_else(|| at.minus(self.settings.delay).plus(STEP)))
    }

    /// Services, and of each its operations by name with what was counted of them, in the order in which they were first seen.
    pub fn services(&self) -> impl Iterator<Item = Watched<'_>> {
        self.services.iter().map(|(&id, rates)| Watched { id, names: &self.names, rates })
    }

    /// Rises whenever a service or an operation comes or goes.
    #[must_use]
    pub const fn changes(&self) -> u64 {
        self.changes
    }

    /// Requests of services that are too many, or whose name no metric can have.
    #[must_use]
    pub const fn unnamed(&self) -> u64 {
        self.unnamed
    }

    /// Requests that wait to be counted.
    #[must_use]
    pub const fn waiting(&self) -> usize {
        self.waiting
    }

    /// The id of an operation, which is listed from now on.
    fn operation(&mut self, service: ServiceId, name: &str, now: Nanos) -> OperationId {
        let operation = self.names.operation(service, name, now);
        let rates = self.services.entry(service).or_insert_with(|| Rates::new(Self::SCALE));
        if rates.get(operation).is_none() {
            rates.know(operation);
            self.changes += 1;
        }
        operation
    }

    /// Keeps a request until it is due.
    fn later(&mut self, ended: Ended, end: UnixNanos) {
        let due = end.plus(self.settings.delay).0 / STEP.0;
        if self.waiting >= WAITING || due < self.step {
            return self.count(ended);
        }
        let place = (due - self.step) as usize;
        if place > LONGEST_LINE {
            // The day's clock was set forward a moment ago.
            return self.count(ended);
        }
        if self.due.len() <= place {
            self.due.resize_with(place + 1, Vec::new);
        }
        self.due[place].push(ended);
        self.waiting += 1;
    }

    fn count(&mut self, ended: Ended) {
        let Ended { service, operation, took, error } = ended;
        // It may have been forgotten meanwhile.
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

/// One service of which requests were counted.
#[derive(Clone, Copy, Debug)]
pub struct Watched<'a> {
    /// Which. Never given to another one.
    pub id: ServiceId,
    names: &'a Names,
    rates: &'a Rates,
}

impl<'a> Watched<'a> {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &'a str {
        self.names.service_name(self.id)
    }

    /// Its operations and what was counted of each. The id of an operation is never given to another one.
    pub fn operations(&self) -> impl Iterator<Item = (OperationId, &'a str, &'a Rate)> + use<'a> {
        let names = self.names;
        self.rates.iter().map(move |(id, rate)| (id, names.operation_name(id), rate))
    }
}

#[cfg(test)]
mod tests {
    use hooks::otlp::scan;
    use hooks::tracing::TraceId;

    use super::*;

    /// Noon of some day, in seconds.
    const NOON: u64 = 1_700_000_000;

    fn at(millis: u64) -> Moment {
        let own = Nanos::from_millis(millis);
        Moment { own, day: UnixNanos::from_secs(NOON).plus(own) }
    }

    #[test]
    fn it_is_known_when_requests_ended_that_a_row_is_about() {
        let day = |millis: u64| at(millis).day;
        let mut derived = Derived::new(DerivedSettings::default(), at(0));
        for second in 10..20 {
            derived.advance(at(second * 1_000 + 30));
        }

        // Counted in steps of 100 ms, six seconds after they ended.
        let second = Nanos::from_secs(1);
        assert_eq!(derived.ended(day(15_500), second), (day(8_100), day(9_100)));
        assert_eq!(derived.ended(day(16_029), second), (day(8_100), day(9_100)));
        assert_eq!(derived.ended(day(16_030), second), (day(9_100), day(10_100)));
        assert_eq!(derived.ended(day(15_500), Nanos::from_secs(2)), (day(7_100), day(9_100)));
        // Before the first look.
        assert_eq!(derived.ended(day(10_500), second), (day(2_500), day(4_100)));
        assert_eq!(derived.ended(day(9_000), second), (day(1_000), day(3_100)));
        // A clock that was set back.
        derived.advance(at(15_030));
        assert_eq!(derived.ended(day(15_500), second).0, day(8_100));
        assert_eq!(derived.looks.len(), 6);
    }

    /// A request of one SERVER span called `name` that ended at `end` and took 2 ms.
    fn request(name: &str, end: Moment, error: bool) -> Vec<u8> {
        let field = |number: u8, bytes: &[u8]| [&[number << 3 | 2, bytes.len() as u8], bytes].concat();
        let fixed = |number: u8, nanos: u64| [&[number << 3 | 1], &nanos.to_le_bytes()[..]].concat();
        let mut span = [field(1, &[1; 16]), field(2, &[1; 8]), field(5, name.as_bytes()), vec![6 << 3, 2]].concat();
        span.extend(fixed(7, end.day.0 - 2_000_000));
        span.extend(fixed(8, end.day.0));
        if error {
            span.extend(field(15, &[3 << 3, 2]));
        }
        field(1, &field(2, &field(2, &span)))
    }

    fn see(derived: &mut Derived, service: &str, request: &[u8], now: Moment) {
        scan(request, |_, span| {
            let id = derived.service(service, now.own);
            derived.see(id, &span.unwrap(), now);
        })
        .unwrap();
    }

    /// Service, operation, requests and errors.
    fn counted(derived: &Derived) -> Vec<(String, String, u64, u64)> {
        let all = derived.services().flat_map(|service| {
            let of = move |(_, name, rate): (_, &str, &Rate)| {
                (service.name().to_owned(), name.to_owned(), rate.requests, rate.errors)
            };
            service.operations().map(of)
        });
        all.collect()
    }

    fn requests(derived: &Derived) -> u64 {
        counted(derived).iter().map(|(_, _, requests, _)| requests).sum()
    }

    #[test]
    fn requests_are_counted_so_long_after_they_ended_however_they_came() {
        let mut derived = Derived::new(DerivedSettings::default(), at(0));
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
        assert_eq!(derived.waiting(), 0);
        // What is later than that is counted at once, what is from the future when it would be if it had ended now.
        see(&mut derived, "payment", &request("POST /pay", at(4_000), false), at(12_000));
        see(&mut derived, "payment", &request("POST /pay", at(900_000), false), at(12_000));
        assert_eq!((requests(&derived), derived.waiting()), (51, 1));
        derived.advance(at(18_000));
        assert_eq!(requests(&derived), 52);
    }

    #[test]
    fn a_kept_trace_stands_with_the_requests_that_are_counted_and_with_no_others() {
        let settings = DerivedSettings { operations: 1, delay: Nanos::ZERO, ..DerivedSettings::default() };
        let mut derived = Derived::new(settings, at(0));
        for name in ["GET /a", "GET /b"] {
            see(&mut derived, "a", &request(name, at(0), false), at(0));
        }
        derived.advance(at(100));
        let trace = |n| TraceId::new([n; 16]).unwrap();
        let exemplar = |n| Exemplar { trace: trace(n), took: Nanos::from_millis(2), at: at(0).day };

        derived.keep("a", "GET /a", exemplar(1));
        derived.keep("a", "GET /b", exemplar(2));
        derived.keep("nobody", "GET /a", exemplar(3));

        let kept = |(_, name, rate): (_, &str, &Rate)| (name.to_owned(), rate.classes.exemplars().flatten().collect());
        let kept: Vec<(String, Vec<Exemplar>)> =
            derived.services().flat_map(|service| service.operations().map(kept).collect::<Vec<_>>()).collect();
        assert_eq!(kept, [("GET /a".to_owned(), vec![exemplar(1)]), ("_other".to_owned(), vec![exemplar(2)])]);
    }

    #[test]
    fn operations_and_services_are_bounded_and_forgotten() {
        let settings = DerivedSettings { operations: 3, services: 2, delay: Nanos::ZERO, ..DerivedSettings::default() };
        let mut derived = Derived::new(settings, at(0));
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
        let mut derived = Derived::new(DerivedSettings::default(), at(7_200_000));
        see(&mut derived, "a", &request("x", at(7_200_000), false), at(7_200_000));

        // An hour back, then a year forward.
        derived.advance(at(3_600_000));
        assert_eq!((requests(&derived), derived.waiting()), (1, 0));
        see(&mut derived, "a", &request("x", at(3_600_000), false), at(3_600_000));
        assert_eq!((requests(&derived), derived.waiting()), (1, 1));
        let year = at(31_000_000_000);
        see(&mut derived, "a", &request("x", year, false), Moment { own: at(3_600_100).own, ..year });
        assert_eq!((requests(&derived), derived.waiting()), (2, 1));
        assert!(derived.due.len() <= LONGEST_LINE);
        derived.advance(Moment { own: at(3_600_200).own, ..year });
        assert_eq!((requests(&derived), derived.waiting()), (3, 0));
    }

    #[test]
    fn what_waits_is_bounded_and_what_is_beyond_is_counted_at_once() {
        let mut derived = Derived::new(DerivedSettings::default(), at(0));
        let request = request("x", at(0), false);
        for _ in 0..WAITING + 10 {
            see(&mut derived, "a", &request, at(0));
        }

        assert_eq!((requests(&derived), derived.waiting()), (10, WAITING));
    }
}
