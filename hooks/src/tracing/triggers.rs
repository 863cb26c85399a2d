//! Which operations are anomalous in which second: the OR over the LMAPs of the services on an operation's path, on any
//! node. Services off the path never count (μView, Sec. 4.7.1).
//!
//! A verdict may name the score of each operation of its service. Then it counts only for requests that need one of the
//! anomalous operations, and no longer counts once only its smoothed score is high.
//!
//! A verdict sets one bit of its service, whatever number of operations pass through it. An operation's bits are
//! computed on request, and cached until a bit or a path changes.
//!
//! A trace through several services in alarm is kept because of one of them, by the rule of [`crate::suspects`]: one
//! that calls none of the others whose delay explains its own. A caller waits for its callee, so its own score says
//! nothing about the cause. A service whose alarm is that it has less to do than usual is not the cause either.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use wire::time::{Nanos, UnixNanos};

use crate::id::{OperationId, ServiceId};
use crate::paths::Paths;
use crate::suspects::{self, CallRelation, SUSPECTS};
use crate::tracing::breakdown::ScoreBreakdown;
use crate::tracing::peers::{Author, Peers};
use crate::tracing::policies::ServiceCatalog;
use crate::tracing::reason::Reason;

/// Seconds for which verdicts are remembered.
const SECONDS: u64 = u128::BITS as u64;
/// Peers whose verdicts of one second about one service are told apart: what one says widens nothing of what others do.
const APART: usize = 4;
/// A verdict from further in the future has a wrong clock.
const AHEAD: Nanos = Nanos::from_secs(10);

/// Where a verdict comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// An LMAP of this node.
    Here,
    /// These other nodes say so.
    Elsewhere(Peers),
}

impl Origin {
    /// Where either comes from: here, if one of them does.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Elsewhere(some), Self::Elsewhere(more)) => Self::Elsewhere(some | more),
            _ => Self::Here,
        }
    }

    const fn is_here(self) -> bool {
        matches!(self, Self::Here)
    }
}

/// An LMAP found its service anomalous.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// Id of the service.
    pub service: ServiceId,
    /// Where it comes from.
    pub origin: Origin,
    /// The other node whose LMAP it is, whoever relays it; `None` if it is of this node.
    pub author: Option<Author>,
    /// Start of the anomaly. Equal to [`at`](Self::at): only the second is known.
    pub from: UnixNanos,
    /// Time of the verdict: the end of its row.
    pub at: UnixNanos,
    /// The newest row's score by operation. `None`: unknown, and the verdict concerns every operation.
    pub breakdown: Option<Arc<ScoreBreakdown>>,
    /// The score divided by γ: of several verdicts of one service in a second the largest counts.
    pub weight: f64,
    /// The verdict in words.
    pub reason: Arc<Reason>,
}

/// How verdicts select seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TriggerRule {
    /// A verdict also covers so long before its anomaly: an episode begins some rows after its cause. 1 s by default.
    pub lead: Nanos,
    /// A verdict with a known row covers at least so long before the row's end: with short rows a small fault takes
    /// many of them to show, and by then the first affected requests have ended. 3 s by default.
    pub window: Nanos,
    /// A row concerns operations whose columns alone score at least this share of γ. 0.75 by default.
    pub least: f64,
}

impl Default for TriggerRule {
    fn default() -> Self {
        Self { lead: Nanos::from_secs(1), window: Nanos::from_secs(3), least: 0.75 }
    }
}

/// The verdicts of one second about a service, of this node or of another: from and to some time, both included. Those
/// of peers beyond the first [`APART`] are in one with the last of these.
#[derive(Clone, Debug)]
struct AlarmWindow {
    origin: Origin,
    /// The other node that says so; `None` for this node, and for several.
    author: Option<Author>,
    from: UnixNanos,
    to: UnixNanos,
    breakdown: Option<Arc<ScoreBreakdown>>,
    weight: f64,
    reason: Arc<Reason>,
}

impl AlarmWindow {
    /// Merges verdicts of the same second: the reason of the heaviest, and everything that any of them concerns.
    /// Returns whether it concerns more than before, or is of more than one node now.
    fn join(&mut self, other: Self) -> bool {
        let (from, to) = (self.from.min(other.from), self.to.max(other.to));
        self.origin = self.origin.or(other.origin);
        let breakdown = match (&self.breakdown, &other.breakdown) {
            (Some(one), Some(two)) => {
                let mut breakdown = ScoreBreakdown::clone(one);
                breakdown.join(two);
                Some(Arc::new(breakdown))
            }
            _ => None,
        };
        // What one node lacks does not hold for what another one says.
        let author = self.author.filter(|author| other.author == Some(*author));
        let wider = (from, to) != (self.from, self.to) || breakdown != self.breakdown || author != self.author;
        if other.weight > self.weight {
            (self.weight, self.reason) = (other.weight, other.reason);
        }
        (self.author, self.from, self.to, self.breakdown) = (author, from, to, breakdown);
        wider
    }
}

/// The heaviest one of this node, or else of others, and where all of them come from.
fn heaviest<'a>(windows: impl Iterator<Item = &'a AlarmWindow>) -> Option<(&'a AlarmWindow, Origin)> {
    let key = |window: &AlarmWindow| (window.origin.is_here(), window.weight);
    let is_heavier =
        |(here, weight): (bool, f64), than: (bool, f64)| here.cmp(&than.0).then(weight.total_cmp(&than.1)).is_ge();
    windows.map(|window| (window, window.origin)).reduce(|(most, all), (window, origin)| {
        (if is_heavier(key(window), key(most)) { window } else { most }, all.or(origin))
    })
}

/// Bit i is second `newest` − i.
#[derive(Clone, Debug, Default)]
struct Service {
    bits: u128,
    windows: VecDeque<AlarmWindow>,
}

impl Service {
    /// Records a verdict. A score falls slowly after its cause: one that has fallen to less than half within the same
    /// alarm keeps the earlier reason, since its own row shows nothing any more.
    ///
    /// Returns whether it concerns more than earlier verdicts.
    fn note(&mut self, mut window: AlarmWindow) -> bool {
        let second = window.to.second();
        let origin = window.origin;
        let mut alike = self.windows.iter().rev().filter(|before| before.origin == origin);
        let before = alike.find(|before| before.to.second() + 1 == second);
        if let Some(before) = before.filter(|before| window.weight < before.weight / 2.0) {
            window.reason = Arc::clone(&before.reason);
        }
        let mut of_second = self.windows.iter_mut().filter(|merged| merged.to.second() == second);
        let (mut last, mut others) = (None, 0);
        for merged in of_second.by_ref().filter(|merged| merged.origin.is_here() == origin.is_here()) {
            if merged.origin.or(origin) == merged.origin {
                return merged.join(window);
            }
            (last, others) = (Some(merged), others + 1);
        }
        if let Some(last) = last.filter(|_| others >= APART) {
            return last.join(window);
        }
        self.windows.push_back(window);
        true
    }
}

/// The first and the last nanosecond of a second.
const fn whole_second(second: u64) -> (UnixNanos, UnixNanos) {
    (UnixNanos::from_secs(second), UnixNanos(UnixNanos::from_secs(second + 1).0 - 1))
}

#[derive(Clone, Copy, Debug)]
struct CachedBits {
    versions: (u64, u64),
    bits: u128,
}

/// Verdicts of the last two minutes, and what they mean for operations. Memory: at most 640 reasons per service with
/// verdicts, 40 bytes per operation that was looked up.
#[derive(Debug)]
pub struct Triggers {
    rule: TriggerRule,
    newest: u64,
    services: BTreeMap<ServiceId, Service>,
    version: u64,
    cached: BTreeMap<OperationId, CachedBits>,
    /// All direct and indirect callees of services in alarm, as of `calls_version`.
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

    /// Takes a verdict at `now`. Returns whether it concerns more than earlier ones: then search the buffered traces
    /// again. A verdict more than 10 s ahead or two minutes behind is counted and ignored. O(1); O(services) for the
    /// first one of a second.
    pub fn take(&mut self, verdict: &Verdict, now: UnixNanos) -> bool {
        let second = verdict.at.second();
        if verdict.at > now.plus(AHEAD) || second + SECONDS <= self.newest.max(now.second()) {
            self.implausible += 1;
            return false;
        }
        self.advance(second);
        let Verdict { origin, author, breakdown, weight, reason, .. } = verdict.clone();
        // Without a start it is about all of its second.
        let TriggerRule { lead, window, .. } = self.rule;
        let (from, to) = if verdict.from < verdict.at {
            (verdict.from.minus(lead).min(verdict.at.minus(window)), verdict.at)
        } else {
            let (from, to) = whole_second(second);
            (from.minus(lead), to)
        };
        let bits = self.between(from.second(), second);
        let service = self.services.entry(verdict.service).or_default();
        self.version += u64::from(service.bits & bits != bits);
        service.bits |= bits;
        service.note(AlarmWindow { origin, author, from, to, breakdown, weight, reason })
    }

    /// The reason for keeping a request of `operation` that lasted from `start` to `end`: of the verdicts about
    /// services on its path in this time, the one about the suspected cause, among the 16 heaviest. And where they come
    /// from: here, if one of them is of this node. O(services on the path).
    ///
    /// Verdicts of a node that `lacks` spans of the request, by its own word, do not count: it asks for what it has.
    /// Those of this node and of other nodes do, whatever that one lacks.
    #[must_use]
    pub fn wanted(
        &mut self,
        catalog: &ServiceCatalog<'_>,
        operation: OperationId,
        (start, end): (UnixNanos, UnixNanos),
        lacks: impl FnMut(Author) -> bool,
    ) -> Option<(Arc<Reason>, Origin)> {
        let (from, to) = (start.second(), end.second());
        if self.bits(catalog.paths, operation) & self.between(from, to) == 0 {
            return None;
        }
        self.follow_calls(catalog.paths, operation);
        let mut windows: Vec<_> = self.about(catalog, operation, (start, end), lacks).collect();
        let origin = windows.iter().map(|(.., origin)| *origin).reduce(Origin::or)?;
        windows.sort_by(|(_, a, _), (_, b, _)| b.weight.total_cmp(&a.weight));
        windows.truncate(SUSPECTS);
        let is_below = |one: ServiceId, caller| self.below.get(&caller).is_some_and(|below| below.contains(&one));
        let suspects = || windows.iter().filter(|(_, window, _)| !window.reason.says_less());
        // It waits for a callee, or is a callee whose delay is too small for what some caller waits.
        let is_victim = |service: ServiceId, own: &AlarmWindow| {
            suspects().any(|(other, window, _)| {
                let relation = CallRelation::of(is_below(*other, service), is_below(service, *other));
                suspects::is_victim(relation, own.reason.slower(), window.reason.slower())
            })
        };
        // Ties: the heaviest.
        let cause =
            windows.iter().min_by_key(|(service, window, _)| (is_victim(*service, window), window.reason.says_less()));
        cause.map(|(_, window, _)| (Arc::clone(&window.reason), origin))
    }

    /// Finds the callees of services in alarm on the path of `operation`, once for each state of the call graph.
    fn follow_calls(&mut self, paths: &Paths, operation: OperationId) {
        if self.calls_version != paths.calls_version() {
            self.below.clear();
            self.calls_version = paths.calls_version();
        }
        for service in paths.services(operation).filter(|service| self.services.contains_key(service)) {
            self.below.entry(service).or_insert_with(|| paths.below(service));
        }
    }

    /// Who says that `operation` is anomalous in the second of `at`: this node, if any of its LMAPs does; else others.
    /// `None`: nobody.
    #[must_use]
    pub fn alarm_origin(
        &mut self,
        catalog: &ServiceCatalog<'_>,
        operation: OperationId,
        at: UnixNanos,
    ) -> Option<Origin> {
        let (from, to) = whole_second(at.second());
        if self.bits(catalog.paths, operation) & self.between(from.second(), to.second()) == 0 {
            return None;
        }
        self.about(catalog, operation, (from, to), |_| false).map(|(.., origin)| origin).reduce(Origin::or)
    }

    /// Whether `operation` is anomalous in the second of `at`.
    #[must_use]
    pub fn is_on(&mut self, catalog: &ServiceCatalog<'_>, operation: OperationId, at: UnixNanos) -> bool {
        self.concerned(catalog, operation, whole_second(at.second()))
    }

    /// Whether a verdict about the time between `from` and `to` concerns `operation`.
    #[must_use]
    pub fn concerned(
        &mut self,
        catalog: &ServiceCatalog<'_>,
        operation: OperationId,
        (from, to): (UnixNanos, UnixNanos),
    ) -> bool {
        self.bits(catalog.paths, operation) & self.between(from.second(), to.second()) != 0
            && self.about(catalog, operation, (from, to), |_| false).next().is_some()
    }

    /// Verdicts about services on the path of `operation` between `from` and `to`, without those about operations that
    /// it does not request, and without those of nodes that `lacks` names; of each service the heaviest of this node,
    /// or else of others, and where all of them come from: what others say about a service here changes nothing.
    fn about<'a>(
        &'a self,
        catalog: &'a ServiceCatalog<'_>,
        operation: OperationId,
        (from, to): (UnixNanos, UnixNanos),
        mut lacks: impl FnMut(Author) -> bool,
    ) -> impl Iterator<Item = (ServiceId, &'a AlarmWindow, Origin)> {
        catalog.paths.services(operation).filter_map(move |id| {
            let windows =
                self.services.get(&id)?.windows.iter().filter(|window| window.from <= to && from <= window.to);
            let windows = windows.filter(|window| self.concerns(window, catalog, operation, id));
            let windows = windows.filter(|window| !window.author.is_some_and(&mut lacks));
            let (window, origin) = heaviest(windows)?;
            Some((id, window, origin))
        })
    }

    /// Whether a verdict about `service` concerns something that requests of `operation` need.
    fn concerns(
        &self,
        window: &AlarmWindow,
        catalog: &ServiceCatalog<'_>,
        operation: OperationId,
        service: ServiceId,
    ) -> bool {
        let Some(breakdown) = &window.breakdown else { return true };
        let Some(requested) = catalog.paths.requested(operation, service) else { return true };
        breakdown.about(requested.map(|requested| catalog.names.operation_name(requested))) >= self.rule.least
    }

    /// Of the verdicts about `service` at the moment `at`, the heaviest of this node, or else of others: its reason,
    /// and where it comes from. O(verdicts of two minutes).
    #[must_use]
    pub fn alarm_of(&self, service: ServiceId, at: UnixNanos) -> Option<(Arc<Reason>, Origin)> {
        let service = self.services.get(&service)?;
        if service.bits & self.between(at.second(), at.second()) == 0 {
            return None;
        }
        let (found, origin) = heaviest(service.windows.iter().filter(|window| window.from <= at && at <= window.to))?;
        Some((Arc::clone(&found.reason), origin))
    }

    /// Verdicts that were ignored because of their time.
    #[must_use]
    pub const fn implausible(&self) -> u64 {
        self.implausible
    }

    /// Drops the state of `operation`, whose name was forgotten.
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
        self.cached.insert(operation, CachedBits { versions, bits });
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
            while service.windows.front().is_some_and(|window| window.to.second() + SECONDS <= second) {
                service.windows.pop_front();
            }
            service.bits != 0
        });
        self.below.retain(|service, _| self.services.contains_key(service));
    }
}

#[cfg(test)]
mod tests;
