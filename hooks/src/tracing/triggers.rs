//! Which operations are out of the ordinary in which second: the OR over the LMAPs of the services on an operation's path, wherever they run;
//! services off the path never count (μView, Sec. 4.7.1).
//!
//! A verdict sets one bit of its service, whatever number of operations pass through it. An operation's bits are put together when they are
//! asked for, and kept until a bit or a path changes.
//!
//! A trace through several services in alarm is kept for one of them: one that calls none of the others. A caller waits for whom it calls, so that
//! its own score says nothing of whose fault it is. One whose alarm is that it has less to do than usual is not the cause either.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use wire::time::Nanos;

use crate::id::{OperationId, ServiceId};
use crate::paths::Paths;
use crate::time::UnixNanos;
use crate::tracing::policies::Known;
use crate::tracing::reason::Reason;

/// How many seconds back verdicts are remembered.
const SECONDS: u64 = u128::BITS as u64;
/// Among so many services in alarm the cause of a trace is looked for: with more of them nobody knows it.
const SUSPECTS: usize = 16;
/// A verdict from further ahead is from a clock that is wrong.
const AHEAD: Nanos = Nanos::from_secs(10);

/// That a service was out of the ordinary.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// Which one.
    pub service: ServiceId,
    /// When.
    pub at: UnixNanos,
    /// How far, as score over γ: of several verdicts of one service in a second the one that goes furthest counts.
    pub weight: f64,
    /// In words.
    pub reason: Arc<Reason>,
}

/// How verdicts become seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TriggerRule {
    /// Seconds before a verdict's own that are on as well: an episode begins some rows after what it is about. 1 by default.
    pub lead: u32,
}

impl Default for TriggerRule {
    fn default() -> Self {
        Self { lead: 1 }
    }
}

/// Seconds `from` to `to`, both included, for one reason.
#[derive(Clone, Debug)]
struct Spell {
    from: u64,
    to: u64,
    weight: f64,
    reason: Arc<Reason>,
}

/// Bit i is second `newest` − i.
#[derive(Clone, Debug, Default)]
struct Service {
    bits: u128,
    spells: VecDeque<Spell>,
}

impl Service {
    /// Notes what was said of a second. A score falls slowly after what made it rise: one that has fallen to less than half within the same alarm is
    /// about what was said before, and its own row shows nothing any more.
    fn note(&mut self, mut spell: Spell) {
        let before = self.spells.iter().rev().find(|before| before.to + 1 == spell.to);
        if let Some(before) = before.filter(|before| spell.weight < before.weight / 2.0) {
            spell.reason = Arc::clone(&before.reason);
        }
        match self.spells.iter_mut().rev().find(|said| said.to == spell.to) {
            Some(said) if said.weight >= spell.weight => {}
            Some(said) => *said = spell,
            None => self.spells.push_back(spell),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Cached {
    versions: (u64, u64),
    bits: u128,
}

/// What all verdicts of the last two minutes say about operations. Memory: per service that had one at most 128 reasons, per operation that
/// was asked for 40 bytes.
#[derive(Debug)]
pub struct Triggers {
    rule: TriggerRule,
    newest: u64,
    services: BTreeMap<ServiceId, Service>,
    version: u64,
    cached: BTreeMap<OperationId, Cached>,
    /// Whom services in alarm call, themselves or through others, as of `calls_version`.
    below: BTreeMap<ServiceId, BTreeSet<ServiceId>>,
    calls_version: u64,
    implausible: u64,
}

impl Triggers {
    /// No verdicts yet.
    #[must_use]
    pub const fn new(rule: TriggerRule) -> Self {
        Self {
            rule,
            newest: 0,
            services: BTreeMap::new(),
            version: 0,
            cached: BTreeMap::new(),
            below: BTreeMap::new(),
            calls_version: 0,
            implausible: 0,
        }
    }

    /// Takes a verdict at `now`. Returns whether a second is on that was not: waiting traces are to be looked through again. A verdict more
    /// than 10 s ahead or two minutes behind is counted and not taken. O(1), but for the first one of a second: O(services).
    pub fn take(&mut self, verdict: &Verdict, now: UnixNanos) -> bool {
        let second = verdict.at.second();
        if verdict.at > now.plus(AHEAD) || second + SECONDS <= self.newest.max(now.second()) {
            self.implausible += 1;
            return false;
        }
        self.advance(second);
        let from = second.saturating_sub(u64::from(self.rule.lead));
        let bits = self.between(from, second);
        let service = self.services.entry(verdict.service).or_default();
        let new = service.bits & bits != bits;
        service.bits |= bits;
        service.note(Spell { from, to: second, weight: verdict.weight, reason: Arc::clone(&verdict.reason) });
        self.version += u64::from(new);
        new
    }

    /// Why a request of `operation` that lasted from `start` to `end` is to be kept: of the verdicts about services on its path in these seconds the
    /// one about the suspected cause, looked for among the 16 heaviest. O(services on the path).
    #[must_use]
    pub fn wanted(
        &mut self,
        known: &Known<'_>,
        operation: OperationId,
        (start, end): (UnixNanos, UnixNanos),
    ) -> Option<Arc<Reason>> {
        let (from, to) = (start.second(), end.second());
        if self.bits(known.paths, operation) & self.between(from, to) == 0 {
            return None;
        }
        self.follow_calls(known.paths, operation);
        let mut spells: Vec<_> = self.about(known, operation, from, to).collect();
        spells.sort_by(|(_, a), (_, b)| b.weight.total_cmp(&a.weight));
        spells.truncate(SUSPECTS);
        let is_below = |one: ServiceId, caller| self.below.get(&caller).is_some_and(|below| below.contains(&one));
        let waits = |caller: ServiceId| {
            let mut suspects = spells.iter().filter(|(_, spell)| !spell.reason.says_less());
            suspects.any(|(other, _)| is_below(*other, caller) && !is_below(caller, *other))
        };
        // The first of the least: the heaviest where nothing else tells them apart.
        let cause = spells.iter().min_by_key(|(service, spell)| (waits(*service), spell.reason.says_less()));
        cause.map(|(_, spell)| Arc::clone(&spell.reason))
    }

    /// Finds whom those services on the path of `operation` call of which something was said, once for as long as calls are as they were.
    fn follow_calls(&mut self, paths: &Paths, operation: OperationId) {
        if self.calls_version != paths.calls_version() {
            self.below.clear();
            self.calls_version = paths.calls_version();
        }
        for service in paths.services(operation).filter(|service| self.services.contains_key(service)) {
            self.below.entry(service).or_insert_with(|| paths.below(service));
        }
    }

    /// Whether `operation` is out of the ordinary in the second of `at`.
    #[must_use]
    pub fn on(&mut self, known: &Known<'_>, operation: OperationId, at: UnixNanos) -> bool {
        let second = at.second();
        self.bits(known.paths, operation) & self.between(second, second) != 0
            && self.about(known, operation, second, second).next().is_some()
    }

    /// What was said between the seconds `from` and `to` of services on the path of `operation`, but for what its frontend says of others of its
    /// operations; of each service the heaviest.
    fn about<'a>(
        &'a self,
        known: &'a Known<'_>,
        operation: OperationId,
        from: u64,
        to: u64,
    ) -> impl Iterator<Item = (ServiceId, &'a Spell)> {
        let (frontend, name) = (known.names.service_of(operation), known.names.operation_name(operation));
        known.paths.services(operation).filter_map(move |id| {
            let spells = self.services.get(&id)?.spells.iter().filter(|spell| spell.from <= to && from <= spell.to);
            let spells = spells.filter(|spell| frontend != Some(id) || !spell.reason.spares(name));
            Some((id, spells.max_by(|a, b| a.weight.total_cmp(&b.weight))?))
        })
    }

    /// Verdicts that were not taken, because their time cannot be right.
    #[must_use]
    pub const fn implausible(&self) -> u64 {
        self.implausible
    }

    /// Drops what is kept of `operation`, whose name was forgotten.
    pub fn forget(&mut self, operation: OperationId) {
        self.cached.remove(&operation);
    }

    fn bits(&mut self, paths: &Paths, operation: OperationId) -> u128 {
        let versions = (self.version, paths.version());
        if self.services.is_empty() {
            return 0;
        }
        if let Some(cached) = self.cached.get(&operation)
            && cached.versions == versions
        {
            return cached.bits;
        }
        let services = paths.services(operation).filter_map(|service| self.services.get(&service));
        let bits = services.fold(0, |bits, service| bits | service.bits);
        self.cached.insert(operation, Cached { versions, bits });
        bits
    }

    /// The bits of the seconds `from` to `to` that are still remembered.
    fn between(&self, from: u64, to: u64) -> u128 {
        let oldest = self.newest.saturating_sub(SECONDS - 1);
        let (from, to) = (from.max(oldest), to.min(self.newest));
        if from > to {
            return 0;
        }
        let (low, high) = (self.newest - to, self.newest - from);
        (u128::MAX >> (SECONDS - 1 - (high - low))) << low
    }

    fn advance(&mut self, second: u64) {
        if second <= self.newest {
            return;
        }
        let by = second - self.newest;
        self.newest = second;
        self.version += 1;
        self.services.retain(|_, service| {
            service.bits = if by < SECONDS { service.bits << by } else { 0 };
            while service.spells.front().is_some_and(|spell| spell.to + SECONDS <= second) {
                service.spells.pop_front();
            }
            service.bits != 0
        });
        self.below.retain(|service, _| self.services.contains_key(service));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::paths::{Latencies, LatencyRule, NameLimits, Names, PathLimits};
    use crate::tracing::reason::Metric;

    const PAY: OperationId = OperationId(1);
    const LIST: OperationId = OperationId(2);

    /// What is known of requests through 1 and 2, and 1 and 3.
    struct Learnt {
        names: Names,
        paths: Paths,
        latencies: Latencies,
    }

    impl Learnt {
        fn new() -> Self {
            let mut paths = Paths::new(PathLimits::default());
            for (operation, service) in [(PAY, 1), (PAY, 2), (LIST, 1), (LIST, 3)] {
                paths.learn(operation, ServiceId(service), Nanos(0));
            }
            let (names, latencies) = (Names::new(NameLimits::default()), Latencies::new(LatencyRule::default()));
            Self { names, paths, latencies }
        }

        fn known(&self) -> Known<'_> {
            Known { names: &self.names, paths: &self.paths, latencies: &self.latencies }
        }
    }

    fn verdict(service: u32, second: u64, weight: f64) -> Verdict {
        let reason = Arc::new(Reason::Code { text: format!("{service} at {second}").into() });
        Verdict { service: ServiceId(service), at: UnixNanos::from_secs(second), weight, reason }
    }

    fn secs(second: u64) -> UnixNanos {
        UnixNanos::from_secs(second)
    }

    #[test]
    fn a_verdict_counts_for_the_operations_through_its_service_in_its_seconds() {
        let (learnt, mut triggers) = (Learnt::new(), Triggers::new(TriggerRule::default()));

        assert!(triggers.take(&verdict(2, 1_000, 1.5), secs(1_001)));
        assert!(!triggers.take(&verdict(2, 1_000, 1.2), secs(1_001)));

        assert!(triggers.on(&learnt.known(), PAY, secs(1_000)));
        assert!(triggers.on(&learnt.known(), PAY, secs(999)));
        assert!(!triggers.on(&learnt.known(), PAY, secs(998)));
        assert!(!triggers.on(&learnt.known(), PAY, secs(1_001)));
        assert!(!triggers.on(&learnt.known(), LIST, secs(1_000)));
        assert!(triggers.wanted(&learnt.known(), PAY, (secs(990), secs(1_005))).is_some());
        assert!(triggers.wanted(&learnt.known(), PAY, (secs(990), secs(998))).is_none());
    }

    #[test]
    fn the_furthest_verdict_on_the_path_is_the_reason() {
        let (learnt, mut triggers) = (Learnt::new(), Triggers::new(TriggerRule { lead: 0 }));
        for verdict in [verdict(1, 1_000, 1.1), verdict(2, 1_001, 3.0), verdict(3, 1_000, 9.0), verdict(1, 1_000, 1.3)]
        {
            let _ = triggers.take(&verdict, secs(1_001));
        }

        let mut why =
            |from, to| triggers.wanted(&learnt.known(), PAY, (secs(from), secs(to))).map(|reason| reason.to_string());

        assert_eq!(why(1_000, 1_001).unwrap(), "asked for: 2 at 1001");
        assert_eq!(why(1_000, 1_000).unwrap(), "asked for: 1 at 1000");
        assert_eq!(why(1_002, 1_003), None);
    }

    /// About that metric, and one that is as usual.
    fn lmap(service: u32, second: u64, weight: f64, (title, seen, expected): (&str, f64, f64)) -> Verdict {
        let metric = Metric { title: title.into(), unit: "".into(), seen, expected };
        let usual = Metric { title: "usual".into(), unit: "".into(), seen: 1.0, expected: 1.0 };
        let service_name = service.to_string().into();
        let reason = Reason::Lmap { service: service_name, score: weight, gamma: 1.0, metrics: [metric, usual].into() };
        Verdict { reason: Arc::new(reason), ..verdict(service, second, weight) }
    }

    /// Whose verdict keeps a trace of PAY in this second.
    fn blamed(triggers: &mut Triggers, learnt: &Learnt, second: u64) -> Option<String> {
        let reason = triggers.wanted(&learnt.known(), PAY, (secs(second), secs(second)))?;
        Some(reason.to_string().chars().next().unwrap().to_string())
    }

    #[test]
    fn of_services_that_call_each_other_the_called_one_is_blamed_unless_it_has_less_to_do() {
        let (slow, idle) = (("duration", 0.18, 0.02), ("count", 1.0, 5.0));
        let blamed = |calls: &[(u32, u32)], verdicts: &[(u32, f64, (&str, f64, f64))]| {
            let (mut learnt, mut triggers) = (Learnt::new(), Triggers::new(TriggerRule { lead: 0 }));
            for (one, other) in calls {
                learnt.paths.learn_call(ServiceId(*one), ServiceId(*other), Nanos(0));
            }
            for (service, weight, metric) in verdicts {
                let _ = triggers.take(&lmap(*service, 1_000, *weight, *metric), secs(1_000));
            }
            blamed(&mut triggers, &learnt, 1_000).unwrap()
        };

        assert_eq!(blamed(&[(1, 2)], &[(1, 17.0, slow), (2, 5.0, slow)]), "2");
        assert_eq!(blamed(&[(1, 9), (9, 2)], &[(1, 17.0, slow), (2, 5.0, slow)]), "2", "called through another");
        assert_eq!(blamed(&[], &[(1, 17.0, slow), (2, 5.0, slow)]), "1", "as long as it is not known who calls whom");
        assert_eq!(blamed(&[(1, 2)], &[(1, 3.0, slow), (2, 5.0, idle)]), "1", "the called one only misses calls");
        assert_eq!(blamed(&[(1, 2)], &[(2, 5.0, idle)]), "2", "nobody else has said anything");
        assert_eq!(blamed(&[(1, 2), (2, 1)], &[(1, 7.0, slow), (2, 5.0, slow)]), "1", "they call each other");
        assert_eq!(blamed(&[(1, 3)], &[(1, 7.0, slow), (3, 9.0, slow)]), "1", "3 is not on the path");
    }

    #[test]
    fn what_the_frontend_says_of_one_operation_keeps_no_trace_of_another() {
        let (mut learnt, mut triggers) = (Learnt::new(), Triggers::new(TriggerRule { lead: 0 }));
        let frontend = learnt.names.service("frontend", Nanos(0));
        let [pay, list] = ["POST /pay", "GET /list"].map(|name| learnt.names.operation(frontend, name, Nanos(0)));
        let payment = learnt.names.service("payment", Nanos(0));
        for (operation, service) in [(pay, frontend), (pay, payment), (list, frontend), (list, payment)] {
            learnt.paths.learn(operation, service, Nanos(0));
        }
        let about_pay = ("duration.mean{span.name=\"POST /pay\"}", 0.18, 0.02);
        let _ = triggers.take(&lmap(frontend.0, 1_000, 9.0, about_pay), secs(1_001));
        let _ = triggers.take(&lmap(payment.0, 1_001, 9.0, about_pay), secs(1_001));
        let mut wanted = |operation, at| {
            let known = learnt.known();
            let wanted = triggers.wanted(&known, operation, (secs(at), secs(at))).is_some();
            assert_eq!(triggers.on(&known, operation, secs(at)), wanted);
            wanted
        };

        assert!(wanted(pay, 1_000) && !wanted(list, 1_000));
        assert!(wanted(pay, 1_001) && wanted(list, 1_001), "operations of another service are not those of its own");
    }

    #[test]
    fn a_score_that_falls_is_about_what_made_it_rise() {
        let (learnt, mut triggers) = (Learnt::new(), Triggers::new(TriggerRule { lead: 0 }));
        for (second, weight) in [(1_000, 9.0), (1_001, 4.0), (1_001, 4.4), (1_002, 2.3), (1_005, 1.0)] {
            let _ = triggers.take(&verdict(1, second, weight), secs(second));
        }
        let mut why = |at| triggers.wanted(&learnt.known(), PAY, (secs(at), secs(at))).unwrap().to_string();

        assert_eq!(why(1_001), "asked for: 1 at 1000");
        assert_eq!(why(1_002), "asked for: 1 at 1002", "more than half: it goes on for what is seen now");
        assert_eq!(why(1_005), "asked for: 1 at 1005", "another alarm");
    }

    #[test]
    fn a_path_that_is_learnt_later_counts_for_verdicts_before() {
        let (mut learnt, mut triggers) = (Learnt::new(), Triggers::new(TriggerRule::default()));
        let _ = triggers.take(&verdict(3, 1_000, 1.5), secs(1_000));
        assert!(!triggers.on(&learnt.known(), PAY, secs(1_000)));

        learnt.paths.learn(PAY, ServiceId(3), Nanos(0));

        assert!(triggers.on(&learnt.known(), PAY, secs(1_000)));
    }

    #[test]
    fn a_clock_that_is_wrong_turns_nothing_on_and_erases_nothing() {
        let (learnt, mut triggers) = (Learnt::new(), Triggers::new(TriggerRule::default()));
        let _ = triggers.take(&verdict(2, 1_000, 1.5), secs(1_000));

        assert!(!triggers.take(&verdict(2, 1_000_000, 1.5), secs(1_001)));
        assert!(!triggers.take(&verdict(1, 800, 1.5), secs(1_001)));

        assert_eq!(triggers.implausible(), 2);
        assert!(triggers.on(&learnt.known(), PAY, secs(1_000)));
        assert!(!triggers.on(&learnt.known(), LIST, secs(800)));
    }

    proptest! {
        /// Against the definition: some verdict about a service on the path, within a second of the trace.
        #[test]
        fn a_trace_is_wanted_exactly_where_a_verdict_overlaps_it(
            verdicts in proptest::collection::vec((1..4_u32, 0..200_u64), 0..30),
            traces in proptest::collection::vec((0..200_u64, 0..150_u64), 1..20),
        ) {
            let (learnt, mut triggers) = (Learnt::new(), Triggers::new(TriggerRule { lead: 0 }));
            let (start, mut newest) = (10_000, 0);
            let mut taken = Vec::new();
            for (service, second) in verdicts {
                let verdict = verdict(service, start + second, 1.5);
                let old = start + second + SECONDS <= newest;
                let _ = triggers.take(&verdict, secs(start + second));
                if !old {
                    newest = newest.max(start + second);
                    taken.push((service, start + second));
                }
            }
            for (from, length) in traces {
                let (from, to) = (start + from, start + from + length);
                for (operation, through) in [(PAY, [1, 2]), (LIST, [1, 3])] {
                    let expected = taken.iter().any(|(service, second)| {
                        through.contains(service) && (from..=to).contains(second) && second + SECONDS > newest
                    });
                    let wanted = triggers.wanted(&learnt.known(), operation, (secs(from), secs(to)));
                    prop_assert_eq!(wanted.is_some(), expected);
                }
            }
        }
    }
}
