//! The service graph, learnt from traces as they leave the tail buffer: services on the path of an operation, and who
//! calls whom. Paths include services on other nodes; calls are those of which this node saw both spans.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use wire::time::Nanos;

use super::targets::Targets;
use crate::id::{OperationId, ServiceId};
use crate::tracing::{PathStep, SeenCalls};

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
    /// Pairs of operation and service, operations that are requested of them, pairs of caller and callee, and
    /// operations of callers: about 100 bytes each. 262,144 by default.
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
    /// Number of further calls, which failed and which nobody answered.
    pub unanswered: u64,
}

/// Calls are counted of one trace in so many, by the hash of its id.
pub const CALLS_FROM: u64 = 16;

impl CallCounts {
    /// A call that took `took`, and may have `failed`.
    #[must_use]
    pub const fn one(took: Nanos, failed: bool) -> Self {
        Self { calls: 1, failed: failed as u64, took, unanswered: 0 }
    }

    /// Counts `other`, too.
    pub fn add(&mut self, other: Self) {
        self.calls = self.calls.saturating_add(other.calls);
        self.failed = self.failed.saturating_add(other.failed);
        self.took = self.took.plus(other.took);
        self.unanswered = self.unanswered.saturating_add(other.unanswered);
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
    targets: Targets,
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
            targets: Targets::new(),
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

    /// Learns what traces tell of calls, at `now`. Those that nobody answered are of the pair whose callee answers the
    /// others of their operation; where several do, or none has, they are not counted.
    pub fn take_calls(&mut self, seen: SeenCalls, now: Nanos) {
        for (pair, counts) in seen.answered {
            self.count_calls(pair, counts, now);
        }
        for (operation, callee) in seen.targets {
            let is_known = self.targets.knows(operation);
            if !is_known && self.pairs >= self.limits.pairs {
                self.refused += 1;
                continue;
            }
            self.pairs += usize::from(!is_known);
            self.targets.learn(operation, callee, now);
        }
        for ((caller, operation), unanswered) in seen.unanswered {
            if let Some(callee) = self.targets.of(operation, now) {
                self.count_calls((caller, callee), CallCounts { unanswered, ..CallCounts::default() }, now);
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
        self.targets.forget(age, now);
        let steps = self.passed.values().flat_map(BTreeMap::values).map(|step| 1 + step.requested.len()).sum::<usize>();
        self.pairs = steps + self.calls.values().map(BTreeMap::len).sum::<usize>() + self.targets.len();
        self.calls_version += u64::from(over);
        self.version += u64::from(forgotten);
    }
}

#[cfg(test)]
mod tests;
