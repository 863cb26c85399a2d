//! Which operations are out of the ordinary in which second: the OR over the LMAPs of the services on an operation's path, wherever they run;
//! services off the path never count (μView, Sec. 4.7.1).
//!
//! A verdict may say how far each operation of its service is out of the ordinary by itself; then it counts for those requests alone that ask the
//! service for one that is. So it does not count at all any more when only its smoothed score is still high.
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
use crate::tracing::parts::Parts;
use crate::tracing::policies::Known;
use crate::tracing::reason::Reason;

/// How many seconds back verdicts are remembered.
const SECONDS: u64 = u128::BITS as u64;
/// Among so many services in alarm the cause of a trace is looked for: with more of them nobody knows it.
const SUSPECTS: usize = 16;
/// A service that is called explains its caller's delay from this share of it on.
const EXPLAINS: f64 = 0.1;
/// A verdict from further ahead is from a clock that is wrong.
const AHEAD: Nanos = Nanos::from_secs(10);

/// That a service was out of the ordinary.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// Which one.
    pub service: ServiceId,
    /// When what it saw began. The same as [`at`](Self::at): only the second is known.
    pub from: UnixNanos,
    /// When.
    pub at: UnixNanos,
    /// What its row says by itself. `None`: nobody knows, and it is about every operation.
    pub parts: Option<Arc<Parts>>,
    /// How far, as score over γ: of several verdicts of one service in a second the one that goes furthest counts.
    pub weight: f64,
    /// In words.
    pub reason: Arc<Reason>,
}

/// How verdicts become seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TriggerRule {
    /// What was seen so long before a verdict's own time counts as well: an episode begins some rows after what it is about. 1 s by default.
    pub lead: Nanos,
    /// A verdict that knows when its row was is about at least so long before the row's end: with short rows a small fault takes many of them to show, and by then the first requests that it
    /// hit are gone. 3 s by default.
    pub window: Nanos,
    /// A row concerns operations whose columns by themselves score so much of γ. 0.75 by default.
    pub least: f64,
}

impl Default for TriggerRule {
    fn default() -> Self {
        Self { lead: Nanos::from_secs(1), window: Nanos::from_secs(3), least: 0.75 }
    }
}

/// What was said of one second: from and to some time, both included.
#[derive(Clone, Debug)]
struct Spell {
    from: UnixNanos,
    to: UnixNanos,
    parts: Option<Arc<Parts>>,
    weight: f64,
    reason: Arc<Reason>,
}

impl Spell {
    /// Puts together what was said of the same second: the reason of the verdict that goes furthest, and all that any of them is about.
    fn join(&mut self, other: Self) -> bool {
        let (from, to) = (self.from.min(other.from), self.to.max(other.to));
        let parts = match (&self.parts, &other.parts) {
            (Some(one), Some(two)) => {
                let mut parts = Parts::clone(one);
                parts.join(two);
                Some(Arc::new(parts))
            }
            _ => None,
        };
        let wider = (from, to) != (self.from, self.to) || parts != self.parts;
        if other.weight > self.weight {
            (self.weight, self.reason) = (other.weight, other.reason);
        }
        (self.from, self.to, self.parts) = (from, to, parts);
        wider
    }
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
    ///
    /// Returns whether it is about more than what was said before.
    fn note(&mut self, mut spell: Spell) -> bool {
        let second = spell.to.second();
        let before = self.spells.iter().rev().find(|before| before.to.second() + 1 == second);
        if let Some(before) = before.filter(|before| spell.weight < before.weight / 2.0) {
            spell.reason = Arc::clone(&before.reason);
        }
        if let Some(said) = self.spells.iter_mut().rev().find(|said| said.to.second() == second) {
            return said.join(spell);
        }
        self.spells.push_back(spell);
        true
    }
}

/// The first and the last nanosecond of a second.
const fn whole(second: u64) -> (UnixNanos, UnixNanos) {
    (UnixNanos::from_secs(second), UnixNanos(UnixNanos::from_secs(second + 1).0 - 1))
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

    /// Takes a verdict at `now`. Returns whether it is about more than was said before: waiting traces are to be looked through again. A verdict more
    /// than 10 s ahead or two minutes behind is counted and not taken. O(1), but for the first one of a second: O(services).
    pub fn take(&mut self, verdict: &Verdict, now: UnixNanos) -> bool {
        let second = verdict.at.second();
        if verdict.at > now.plus(AHEAD) || second + SECONDS <= self.newest.max(now.second()) {
            self.implausible += 1;
            return false;
        }
        self.advance(second);
        let Verdict { parts, weight, reason, .. } = verdict.clone();
        // Where nothing better is known it is about all of its second.
        let TriggerRule { lead, window, .. } = self.rule;
        let (from, to) = if verdict.from < verdict.at {
            (verdict.from.minus(lead).min(verdict.at.minus(window)), verdict.at)
        } else {
            let (from, to) = whole(second);
            (from.minus(lead), to)
        };
        let bits = self.between(from.second(), second);
        let service = self.services.entry(verdict.service).or_default();
        self.version += u64::from(service.bits & bits != bits);
        service.bits |= bits;
        service.note(Spell { from, to, parts, weight, reason })
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
        let mut spells: Vec<_> = self.about(known, operation, (start, end)).collect();
        spells.sort_by(|(_, a), (_, b)| b.weight.total_cmp(&a.weight));
        spells.truncate(SUSPECTS);
        let is_below = |one: ServiceId, caller| self.below.get(&caller).is_some_and(|below| below.contains(&one));
        let called = |one: ServiceId, caller| is_below(one, caller) && !is_below(caller, one);
        let suspects = || spells.iter().filter(|(_, spell)| !spell.reason.says_less());
        // It waits for one that it calls, or is one of whom somebody above waits for more than that.
        let beside = |service: ServiceId, own: &Spell| {
            suspects().any(|(other, spell)| {
                let (waits, is_small) = (called(*other, service), called(service, *other));
                waits && explains(&spell.reason, &own.reason) || is_small && !explains(&own.reason, &spell.reason)
            })
        };
        // The first of the least: the heaviest where nothing else tells them apart.
        let cause = spells.iter().min_by_key(|(service, spell)| (beside(*service, spell), spell.reason.says_less()));
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
        self.concerned(known, operation, whole(at.second()))
    }

    /// Whether something was said of the time between `from` and `to` that concerns `operation`.
    #[must_use]
    pub fn concerned(&mut self, known: &Known<'_>, operation: OperationId, (from, to): (UnixNanos, UnixNanos)) -> bool {
        self.bits(known.paths, operation) & self.between(from.second(), to.second()) != 0
            && self.about(known, operation, (from, to)).next().is_some()
    }

    /// What was said of the time between `from` and `to` of services on the path of `operation`, but for what is only about what it does not ask them
    /// for; of each service the heaviest.
    fn about<'a>(
        &'a self,
        known: &'a Known<'_>,
        operation: OperationId,
        (from, to): (UnixNanos, UnixNanos),
    ) -> impl Iterator<Item = (ServiceId, &'a Spell)> {
        known.paths.services(operation).filter_map(move |id| {
            let spells = self.services.get(&id)?.spells.iter().filter(|spell| spell.from <= to && from <= spell.to);
            let spells = spells.filter(|spell| self.concerns(spell, known, operation, id));
            Some((id, spells.max_by(|a, b| a.weight.total_cmp(&b.weight))?))
        })
    }

    /// Whether what was said of `service` is about something that requests of `operation` ask it for.
    fn concerns(&self, spell: &Spell, known: &Known<'_>, operation: OperationId, service: ServiceId) -> bool {
        let Some(parts) = &spell.parts else { return true };
        let Some(asked) = known.paths.asked(operation, service) else { return true };
        parts.about(asked.map(|asked| known.names.operation_name(asked))) >= self.rule.least
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
            while service.spells.front().is_some_and(|spell| spell.to.second() + SECONDS <= second) {
                service.spells.pop_front();
            }
            service.bits != 0
        });
        self.below.retain(|service, _| self.services.contains_key(service));
    }
}

/// Whether what became slow in a service that is called can be why its caller did: by a tenth of the time at least. A service that took two milliseconds
/// instead of none is not why another took 180. Where the metrics say nothing of time, it can.
fn explains(called: &Reason, caller: &Reason) -> bool {
    match (called.slower(), caller.slower()) {
        (Some(called), Some(caller)) => called >= EXPLAINS * caller,
        _ => true,
    }
}

#[cfg(test)]
mod tests;
