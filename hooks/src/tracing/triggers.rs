//! Which operations are out of the ordinary in which second: the OR over the LMAPs of the services on an operation's path, wherever they run;
//! services off the path never count (μView, Sec. 4.7.1).
//!
//! A verdict sets one bit of its service, whatever number of operations pass through it. An operation's bits are put together when they are
//! asked for, and kept until a bit or a path changes.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use wire::time::Nanos;

use crate::id::{OperationId, ServiceId};
use crate::paths::Paths;
use crate::time::UnixNanos;
use crate::tracing::reason::Reason;

/// How many seconds back verdicts are remembered.
const SECONDS: u64 = u128::BITS as u64;
/// A verdict from further ahead is from a clock that is wrong.
const AHEAD: Nanos = Nanos::from_secs(10);

/// That a service was out of the ordinary.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// Which one.
    pub service: ServiceId,
    /// When.
    pub at: UnixNanos,
    /// How far, as score over γ: of several verdicts on one trace the one that goes furthest is its reason.
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
    implausible: u64,
}

impl Triggers {
    /// No verdicts yet.
    #[must_use]
    pub const fn new(rule: TriggerRule) -> Self {
        Self { rule, newest: 0, services: BTreeMap::new(), version: 0, cached: BTreeMap::new(), implausible: 0 }
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
        match service.spells.iter_mut().rev().find(|spell| spell.to == second) {
            Some(spell) if spell.weight >= verdict.weight => {}
            Some(spell) => (spell.weight, spell.reason) = (verdict.weight, Arc::clone(&verdict.reason)),
            None => {
                let Verdict { weight, reason, .. } = verdict.clone();
                service.spells.push_back(Spell { from, to: second, weight, reason });
            }
        }
        self.version += u64::from(new);
        new
    }

    /// Why a request of `operation` that lasted from `start` to `end` is to be kept: the verdict that goes furthest of those about services on
    /// its path in these seconds.
    #[must_use]
    pub fn wanted(
        &mut self,
        paths: &Paths,
        operation: OperationId,
        (start, end): (UnixNanos, UnixNanos),
    ) -> Option<&Arc<Reason>> {
        let (from, to) = (start.second(), end.second());
        let seconds = self.between(from, to);
        if self.bits(paths, operation) & seconds == 0 {
            return None;
        }
        let services = paths.services(operation).filter_map(|service| self.services.get(&service));
        let spells = services.filter(|service| service.bits & seconds != 0).flat_map(|service| &service.spells);
        let spells = spells.filter(|spell| spell.from <= to && from <= spell.to);
        spells.max_by(|a, b| a.weight.total_cmp(&b.weight)).map(|spell| &spell.reason)
    }

    /// Whether `operation` is out of the ordinary in the second of `at`.
    #[must_use]
    pub fn on(&mut self, paths: &Paths, operation: OperationId, at: UnixNanos) -> bool {
        self.bits(paths, operation) & self.between(at.second(), at.second()) != 0
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
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::paths::PathLimits;

    const PAY: OperationId = OperationId(1);
    const LIST: OperationId = OperationId(2);

    fn paths() -> Paths {
        let mut paths = Paths::new(PathLimits::default());
        for (operation, service) in [(PAY, 1), (PAY, 2), (LIST, 1), (LIST, 3)] {
            paths.learn(operation, ServiceId(service), Nanos(0));
        }
        paths
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
        let (paths, mut triggers) = (paths(), Triggers::new(TriggerRule::default()));

        assert!(triggers.take(&verdict(2, 1_000, 1.5), secs(1_001)));
        assert!(!triggers.take(&verdict(2, 1_000, 1.2), secs(1_001)));

        assert!(triggers.on(&paths, PAY, secs(1_000)));
        assert!(triggers.on(&paths, PAY, secs(999)));
        assert!(!triggers.on(&paths, PAY, secs(998)));
        assert!(!triggers.on(&paths, PAY, secs(1_001)));
        assert!(!triggers.on(&paths, LIST, secs(1_000)));
        assert!(triggers.wanted(&paths, PAY, (secs(990), secs(1_005))).is_some());
        assert!(triggers.wanted(&paths, PAY, (secs(990), secs(998))).is_none());
    }

    #[test]
    fn the_furthest_verdict_on_the_path_is_the_reason() {
        let (paths, mut triggers) = (paths(), Triggers::new(TriggerRule { lead: 0 }));
        for verdict in [verdict(1, 1_000, 1.1), verdict(2, 1_001, 3.0), verdict(3, 1_000, 9.0), verdict(1, 1_000, 1.3)]
        {
            let _ = triggers.take(&verdict, secs(1_001));
        }

        let mut why = |from, to| triggers.wanted(&paths, PAY, (secs(from), secs(to))).map(ToString::to_string);

        assert_eq!(why(1_000, 1_001).unwrap(), "asked for: 2 at 1001");
        assert_eq!(why(1_000, 1_000).unwrap(), "asked for: 1 at 1000");
        assert_eq!(why(1_002, 1_003), None);
    }

    #[test]
    fn a_path_that_is_learnt_later_counts_for_verdicts_before() {
        let (mut paths, mut triggers) = (paths(), Triggers::new(TriggerRule::default()));
        let _ = triggers.take(&verdict(3, 1_000, 1.5), secs(1_000));
        assert!(!triggers.on(&paths, PAY, secs(1_000)));

        paths.learn(PAY, ServiceId(3), Nanos(0));

        assert!(triggers.on(&paths, PAY, secs(1_000)));
    }

    #[test]
    fn a_clock_that_is_wrong_turns_nothing_on_and_erases_nothing() {
        let (paths, mut triggers) = (paths(), Triggers::new(TriggerRule::default()));
        let _ = triggers.take(&verdict(2, 1_000, 1.5), secs(1_000));

        assert!(!triggers.take(&verdict(2, 1_000_000, 1.5), secs(1_001)));
        assert!(!triggers.take(&verdict(1, 800, 1.5), secs(1_001)));

        assert_eq!(triggers.implausible(), 2);
        assert!(triggers.on(&paths, PAY, secs(1_000)));
        assert!(!triggers.on(&paths, LIST, secs(800)));
    }

    proptest! {
        /// Against the definition: some verdict about a service on the path, within a second of the trace.
        #[test]
        fn a_trace_is_wanted_exactly_where_a_verdict_overlaps_it(
            verdicts in proptest::collection::vec((1..4_u32, 0..200_u64), 0..30),
            traces in proptest::collection::vec((0..200_u64, 0..150_u64), 1..20),
        ) {
            let (paths, mut triggers) = (paths(), Triggers::new(TriggerRule { lead: 0 }));
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
                    let wanted = triggers.wanted(&paths, operation, (secs(from), secs(to)));
                    prop_assert_eq!(wanted.is_some(), expected);
                }
            }
        }
    }
}
