//! The service graph, learnt from traces as they leave the tail buffer: services on the path of an operation, and who
//! calls whom. Paths include services on other nodes; calls are those of which this node saw both spans.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use wire::time::Nanos;

use crate::id::{OperationId, ServiceId};
use crate::tracing::PathStep;

/// Limits of the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathLimits {
    /// Number of operations. 10,000 by default.
    pub operations: usize,
    /// Number of services on one path. 256 by default.
    pub services: usize,
    /// Operations of one service that requests of one operation may need. 64 by default. Beyond that it is unknown
    /// which operations are not needed.
    pub requested: usize,
    /// Pairs of operation and service, operations that are requested of them, and pairs of caller and callee: about 100
    /// bytes each. 262,144 by default.
    pub pairs: usize,
    /// A service that was not seen on a path for so long is removed from it. 30 min by default.
    pub age: Nanos,
}

impl Default for PathLimits {
    fn default() -> Self {
        Self { operations: 10_000, services: 256, requested: 64, pairs: 1 << 18, age: Nanos::from_secs(1_800) }
    }
}

/// After so many observations the set of requested operations counts as complete.
const SETTLED: u32 = 32;

/// Calls of one service to another: about one in [`CALLS_FROM`] is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallCounts {
    /// Number of calls.
    pub calls: u64,
    /// Number of those that failed, as the callee says, or the caller.
    pub failed: u64,
    /// Sum of the times that they took in the callee.
    pub took: Nanos,
}

/// Calls are counted of one trace in so many, by the hash of its id.
pub const CALLS_FROM: u64 = 16;

impl CallCounts {
    /// A call that took `took`, and may have `failed`.
    #[must_use]
    pub const fn one(took: Nanos, failed: bool) -> Self {
        Self { calls: 1, failed: failed as u64, took }
    }

    /// Counts `other`, too.
    pub fn add(&mut self, other: Self) {
        self.calls = self.calls.saturating_add(other.calls);
        self.failed = self.failed.saturating_add(other.failed);
        self.took = self.took.plus(other.took);
    }
}

/// Calls that were seen, and when the last one was.
#[derive(Clone, Copy, Debug, Default)]
struct Call {
    seen: Nanos,
    counts: CallCounts,
}

/// A service on a path.
#[derive(Clone, Debug, Default)]
struct Step {
    seen: Nanos,
    /// Requested operations, and when each was last seen.
    requested: BTreeMap<OperationId, Nanos>,
    /// More operations were requested than the limit.
    much: bool,
    /// Number of observations of requested operations, and the time of the last one.
    moments: (u32, Option<Nanos>),
}

/// Operation → services on its path, with the requested operations, and back; caller → callees. Memory: about 100 bytes
/// for each pair, 30 for each operation that is requested of a service on a path.
#[derive(Debug)]
pub struct Paths {
    limits: PathLimits,
    passed: BTreeMap<OperationId, BTreeMap<ServiceId, Step>>,
    through: BTreeMap<ServiceId, BTreeSet<OperationId>>,
    calls: BTreeMap<ServiceId, BTreeMap<ServiceId, Call>>,
    /// How many of [`PathLimits::pairs`] there are.
    pairs: usize,
    version: u64,
    calls_version: u64,
    refused: u64,
}

impl Paths {
    /// An empty graph.
    #[must_use]
    pub const fn new(limits: PathLimits) -> Self {
        Self {
            limits,
            passed: BTreeMap::new(),
            through: BTreeMap::new(),
            calls: BTreeMap::new(),
            pairs: 0,
            version: 0,
            calls_version: 0,
            refused: 0,
        }
    }

    /// A request of `operation` passed `service`, at `now`. What exceeds the limits is counted and not learnt.
    pub fn learn(&mut self, operation: OperationId, service: ServiceId, now: Nanos) {
        if let Some(step) = self.passed.get_mut(&operation).and_then(|path| path.get_mut(&service)) {
            step.seen = step.seen.max(now);
            return;
        }
        let is_long = self
            .passed
            .get(&operation)
            .map_or(self.passed.len() >= self.limits.operations, |path| path.len() >= self.limits.services);
        if is_long || self.pairs >= self.limits.pairs {
            self.refused += 1;
            return;
        }
        self.pairs += 1;
        let path = self.passed.entry(operation).or_default();
        path.insert(service, Step { seen: now, ..Step::default() });
        self.through.entry(service).or_default().insert(operation);
        self.version += 1;
    }

    /// Learns a step from a trace, at `now`: [`learn`](Self::learn), and the requested operation.
    pub fn take(&mut self, passed: &PathStep, now: Nanos) {
        let PathStep { operation, service, requested } = *passed;
        self.learn(operation, service, now);
        let is_full = self.pairs >= self.limits.pairs;
        let step = self.passed.get_mut(&operation).and_then(|path| path.get_mut(&service));
        let (Some(step), Some(requested)) = (step, requested) else { return };
        if step.moments.1 != Some(now) {
            step.moments = (step.moments.0.saturating_add(1), Some(now));
        }
        if let Some(seen) = step.requested.get_mut(&requested) {
            *seen = now.max(*seen);
        } else if step.requested.len() < self.limits.requested && !is_full {
            step.requested.insert(requested, now);
            self.pairs += 1;
        } else {
            step.much = true;
            self.refused += 1;
        }
    }

    /// All operations that requests of `operation` need from `service`; `None` before 32 observations, and above the
    /// limit.
    pub fn requested(&self, operation: OperationId, service: ServiceId) -> Option<impl Iterator<Item = OperationId>> {
        let step = self.passed.get(&operation)?.get(&service)?;
        let known = step.moments.0 >= SETTLED && !step.much && !step.requested.is_empty();
        known.then(|| step.requested.keys().copied())
    }

    /// Operations that requests of `operation` were seen to need from `service`, as far as learnt.
    pub fn seen_requested(&self, operation: OperationId, service: ServiceId) -> impl Iterator<Item = OperationId> {
        let step = self.passed.get(&operation).and_then(|path| path.get(&service));
        step.into_iter().flat_map(|step| step.requested.keys().copied())
    }

    /// `caller` called `callee`, at `now`: a span of the one is the parent of a span of the other. At most
    /// [`PathLimits::services`] callees each, and as many callers as operations; calls beyond that are counted and not
    /// learnt.
    pub fn learn_call(&mut self, caller: ServiceId, callee: ServiceId, now: Nanos) {
        self.count_calls((caller, callee), CallCounts::default(), now);
    }

    /// As [`learn_call`](Self::learn_call), with what is known of the calls since the last time.
    pub fn count_calls(&mut self, (caller, callee): (ServiceId, ServiceId), counts: CallCounts, now: Nanos) {
        let known = self.calls.get(&caller);
        let is_known = known.is_some_and(|callees| callees.contains_key(&callee));
        let is_long =
            known.map_or(self.calls.len() >= self.limits.operations, |callees| callees.len() >= self.limits.services);
        let full = !is_known && (is_long || self.pairs >= self.limits.pairs);
        if full {
            self.refused += 1;
            return;
        }
        match self.calls.entry(caller).or_default().entry(callee) {
            Entry::Occupied(mut known) => {
                let call = known.get_mut();
                call.seen = now.max(call.seen);
                call.counts.add(counts);
            }
            Entry::Vacant(new) => {
                new.insert(Call { seen: now, counts });
                self.pairs += 1;
                self.calls_version += 1;
            }
        }
    }

    /// Pairs of caller and callee.
    pub fn calls(&self) -> impl Iterator<Item = (ServiceId, ServiceId)> {
        self.calls.iter().flat_map(|(caller, callees)| callees.keys().map(move |callee| (*caller, *callee)))
    }

    /// Pairs of caller and callee, with the calls that were counted since the pair is known.
    pub fn counted_calls(&self) -> impl Iterator<Item = (ServiceId, ServiceId, CallCounts)> {
        let of = |(caller, callees): (&ServiceId, &BTreeMap<ServiceId, Call>)| {
            let caller = *caller;
            callees.iter().map(|(callee, call)| (caller, *callee, call.counts)).collect::<Vec<_>>()
        };
        self.calls.iter().flat_map(of)
    }

    /// All direct and indirect callees of `caller`, without itself. O(known calls).
    #[must_use]
    pub fn below(&self, caller: ServiceId) -> BTreeSet<ServiceId> {
        let (mut met, mut open) = (BTreeSet::from([caller]), vec![caller]);
        while let Some(next) = open.pop() {
            let callees = self.calls.get(&next).into_iter().flat_map(BTreeMap::keys);
            open.extend(callees.copied().filter(|callee| met.insert(*callee)));
        }
        met.remove(&caller);
        met
    }

    /// Rises with every change of the call graph.
    #[must_use]
    pub const fn calls_version(&self) -> u64 {
        self.calls_version
    }

    /// All known operations.
    pub fn operations(&self) -> impl Iterator<Item = OperationId> {
        self.passed.keys().copied()
    }

    /// The services on the path of `operation`.
    pub fn services(&self, operation: OperationId) -> impl Iterator<Item = ServiceId> {
        self.passed.get(&operation).into_iter().flat_map(BTreeMap::keys).copied()
    }

    /// When a request of `operation` last passed `service`; `None` if that is not on its path.
    #[must_use]
    pub fn seen(&self, operation: OperationId, service: ServiceId) -> Option<Nanos> {
        Some(self.passed.get(&operation)?.get(&service)?.seen)
    }

    /// The operations through `service`.
    pub fn through(&self, service: ServiceId) -> impl Iterator<Item = OperationId> {
        self.through.get(&service).into_iter().flatten().copied()
    }

    /// Rises with every change of a path.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// How many times something was not learnt because of the limits.
    #[must_use]
    pub const fn refused(&self) -> u64 {
        self.refused
    }

    /// Forgets what was not seen for [`PathLimits::age`] before `now`. O(all pairs): to be called about once a minute.
    pub fn forget(&mut self, now: Nanos) {
        let (age, through) = (self.limits.age, &mut self.through);
        let mut forgotten = false;
        let most = self.limits.requested;
        self.passed.retain(|operation, path| {
            path.retain(|service, step| {
                step.requested.retain(|_, seen| now.since(*seen).is_none_or(|unseen| unseen < age));
                step.much &= step.requested.len() >= most;
                let kept = now.since(step.seen).is_none_or(|unseen| unseen < age);
                if !kept && let Some(operations) = through.get_mut(service) {
                    operations.remove(operation);
                    forgotten = true;
                }
                kept
            });
            !path.is_empty()
        });
        self.through.retain(|_, operations| !operations.is_empty());
        let mut over = false;
        self.calls.retain(|_, callees| {
            callees.retain(|_, call| {
                let kept = now.since(call.seen).is_none_or(|unseen| unseen < age);
                over |= !kept;
                kept
            });
            !callees.is_empty()
        });
        let steps = self.passed.values().flat_map(BTreeMap::values).map(|step| 1 + step.requested.len()).sum::<usize>();
        self.pairs = steps + self.calls.values().map(BTreeMap::len).sum::<usize>();
        self.calls_version += u64::from(over);
        self.version += u64::from(forgotten);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PAY: OperationId = OperationId(1);
    const LIST: OperationId = OperationId(2);

    #[test]
    fn a_service_that_is_not_passed_any_more_falls_off_the_path() {
        let mut paths = Paths::new(PathLimits::default());
        paths.learn(PAY, ServiceId(1), Nanos(0));
        paths.learn(PAY, ServiceId(2), Nanos(0));
        paths.learn(LIST, ServiceId(2), Nanos(0));
        let version = paths.version();

        paths.learn(PAY, ServiceId(1), Nanos::from_secs(1_000));
        assert_eq!(paths.version(), version);
        paths.forget(Nanos::from_secs(1_800));

        assert_eq!(paths.services(PAY).collect::<Vec<_>>(), [ServiceId(1)]);
        assert_eq!(paths.seen(PAY, ServiceId(1)), Some(Nanos::from_secs(1_000)));
        assert_eq!(paths.seen(PAY, ServiceId(2)), None);
        assert_eq!(paths.operations().collect::<Vec<_>>(), [PAY]);
        assert_eq!(paths.through(ServiceId(2)).count(), 0);
        assert!(paths.version() > version);
    }

    #[test]
    fn indirect_callees_are_below_until_the_calls_are_forgotten() {
        let mut paths = Paths::new(PathLimits::default());
        let (frontend, payment, bank) = (ServiceId(1), ServiceId(2), ServiceId(3));
        for (caller, callee) in [(frontend, payment), (payment, bank), (bank, payment)] {
            paths.learn_call(caller, callee, Nanos(0));
        }

        assert_eq!(paths.below(frontend), BTreeSet::from([payment, bank]));
        assert_eq!((paths.below(payment), paths.below(bank)), (BTreeSet::from([bank]), BTreeSet::from([payment])));
        let version = paths.calls_version();

        paths.learn_call(frontend, payment, Nanos::from_secs(1_000));
        assert_eq!(paths.calls_version(), version, "nothing new");
        paths.forget(Nanos::from_secs(1_800));
        assert_eq!(paths.below(frontend), BTreeSet::from([payment]));
        assert!(paths.calls_version() > version);
    }

    #[test]
    fn calls_are_counted_by_pair() {
        let mut paths = Paths::new(PathLimits::default());
        let pair = (ServiceId(1), ServiceId(2));

        paths.count_calls(pair, CallCounts::one(Nanos(5), false), Nanos(0));
        paths.count_calls(pair, CallCounts::one(Nanos(7), true), Nanos(1));
        paths.learn_call(ServiceId(2), ServiceId(3), Nanos(1));

        let counted: Vec<_> = paths.counted_calls().collect();
        let both = CallCounts { calls: 2, failed: 1, took: Nanos(12) };
        assert_eq!(counted, [(pair.0, pair.1, both), (ServiceId(2), ServiceId(3), CallCounts::default())]);
    }

    #[test]
    fn what_a_service_is_asked_for_is_known_when_it_was_seen_often_and_forgotten_like_paths() {
        let limits = PathLimits { requested: 2, ..PathLimits::default() };
        let (mut paths, payment) = (Paths::new(limits), ServiceId(2));
        let [charge, history, refund] = [11, 12, 13].map(OperationId);
        let passed = |requested| PathStep { operation: PAY, service: payment, requested: Some(requested) };
        let known = |paths: &Paths| paths.requested(PAY, payment).map(Iterator::collect::<Vec<_>>);

        for moment in 1..=31 {
            paths.take(&passed(charge), Nanos::from_secs(moment));
            paths.take(&passed(charge), Nanos::from_secs(moment));
        }
        assert_eq!(known(&paths), None, "31 moments");
        assert_eq!(paths.seen_requested(PAY, payment).collect::<Vec<_>>(), [charge]);
        paths.take(&passed(history), Nanos::from_secs(32));
        assert_eq!(known(&paths), Some(vec![charge, history]));
        assert!(paths.requested(PAY, ServiceId(3)).is_none() && paths.requested(LIST, payment).is_none());

        paths.take(&passed(refund), Nanos::from_secs(33));
        assert_eq!(known(&paths), None, "it is asked for more than is learnt");
        paths.forget(Nanos::from_secs(1_831));
        assert_eq!(known(&paths), Some(vec![history]));
        paths.take(&PathStep { requested: None, ..passed(charge) }, Nanos::from_secs(2_000));
        paths.forget(Nanos::from_secs(1_832));
        assert_eq!(known(&paths), None, "passed without a requested operation");
    }

    #[test]
    fn calls_keep_to_the_limits() {
        let mut paths = Paths::new(PathLimits { operations: 2, services: 2, ..PathLimits::default() });
        for caller in 0..4 {
            (10..14).for_each(|callee| paths.learn_call(ServiceId(caller), ServiceId(callee), Nanos(0)));
        }

        let known = |caller| paths.below(ServiceId(caller)).len();
        assert_eq!((0..4).map(known).collect::<Vec<_>>(), [2, 2, 0, 0]);
        assert_eq!(paths.refused(), 2 + 2 + 4 + 4);
    }

    #[test]
    fn all_pairs_together_keep_to_their_limit_and_those_that_are_forgotten_make_room() {
        let limits = PathLimits { pairs: 5, ..PathLimits::default() };
        let mut paths = Paths::new(limits);
        for operation in 1..=3 {
            let requested = Some(OperationId(operation + 10));
            paths.take(&PathStep { operation: OperationId(operation), service: ServiceId(1), requested }, Nanos(0));
        }
        paths.learn_call(ServiceId(1), ServiceId(2), Nanos(0));

        assert_eq!((paths.pairs, paths.calls().count(), paths.operations().count()), (5, 0, 3));
        assert_eq!(paths.refused(), 2, "the third requested operation, and the call");
        paths.learn(OperationId(1), ServiceId(1), Nanos::from_secs(1_000));
        paths.forget(Nanos::from_secs(1_800));
        assert_eq!(paths.pairs, 1);
        paths.learn_call(ServiceId(1), ServiceId(2), Nanos::from_secs(1_800));
        assert_eq!(paths.calls().count(), 1);
    }

    proptest! {
        #[test]
        fn both_directions_agree_and_limits_hold(pairs in proptest::collection::vec((0..12_u32, 0..12_u32, 0..50_u64), 1..300)) {
            let mut paths = Paths::new(PathLimits { operations: 8, services: 6, requested: 3, age: Nanos(20), ..PathLimits::default() });
            for (operation, service, now) in pairs {
                paths.learn(OperationId(operation), ServiceId(service), Nanos(now));
                paths.forget(Nanos(now));
                for operation in paths.operations() {
                    prop_assert!(paths.services(operation).all(|service| paths.through(service).any(|o| o == operation)));
                    prop_assert!((1..=6).contains(&paths.services(operation).count()));
                }
                let there: usize = paths.operations().map(|operation| paths.services(operation).count()).sum();
                let back: usize = (0..12).map(|service| paths.through(ServiceId(service)).count()).sum();
                prop_assert_eq!(there, back);
                prop_assert!(paths.operations().count() <= 8);
            }
        }
    }
}
