//! What the spans of a trace tell of its path: services that were passed, and who called whom.
//!
//! A trace that is kept at once leaves before most of its spans arrive: a failed callee ends before its caller. Its
//! path is followed for [`REST`] after that, so that its calls are counted like those of traces that wait.
//!
//! *Memory*: [`FOLLOWED_BYTES`].

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use wire::time::Nanos;

use crate::id::{OperationId, ServiceId};
use crate::paths::CallCounts;
use crate::tracing::span::{SpanId, SpanIndex, SpanKind, TraceId};

/// Paths are learnt from traces of this age, and again when they leave. SDKs send a batch every five seconds, so most
/// traces are whole by then, and a node that has just started knows soon which operations a verdict concerns.
pub(super) const REST: Nanos = Nanos::from_secs(10);
/// Spans of all kept traces that are followed; with more, the oldest trace is counted early.
const MAX_SPANS: usize = 16_384;
/// Bytes of all kept traces that are followed: 200 for each span, in the map of callers and in the list of calls, with
/// its share of the trace's entry.
pub const FOLLOWED_BYTES: usize = MAX_SPANS * 200;
/// Spans of one followed trace.
const MAX_SPANS_OF_ONE: usize = 512;

/// A request passed a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PathStep {
    /// The operation that was requested where the trace entered.
    pub operation: OperationId,
    /// The service that was passed.
    pub service: ServiceId,
    /// The operation that was requested of this service, if a span names it.
    pub requested: Option<OperationId>,
}

/// Calls of which traces tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeenCalls {
    /// Calls by caller and callee of which spans of both arrived here.
    pub answered: BTreeMap<(ServiceId, ServiceId), CallCounts>,
    /// Services that answered calls, by the operation of the CLIENT span.
    pub targets: BTreeSet<(OperationId, ServiceId)>,
    /// Number of calls that failed and below which no span has arrived, by caller and operation of the CLIENT span.
    pub unanswered: BTreeMap<(ServiceId, OperationId), u64>,
}

impl SeenCalls {
    /// No calls were seen.
    #[must_use]
    pub const fn new() -> Self {
        Self { answered: BTreeMap::new(), targets: BTreeSet::new(), unanswered: BTreeMap::new() }
    }
}

/// What a span tells of a call that it may be.
#[derive(Clone, Copy, Debug)]
struct Caller {
    service: ServiceId,
    /// Operation of a CLIENT span, and whether it failed; `None` for others.
    call: Option<(OperationId, bool)>,
}

/// A span below another one: a call, if the other is of another service.
#[derive(Clone, Copy, Debug)]
struct ChildSpan {
    parent: SpanId,
    service: ServiceId,
    has_failed: bool,
    took: Nanos,
}

/// What the spans of a trace tell of its path.
#[derive(Debug, Default)]
pub(super) struct TracePath {
    spans: BTreeMap<SpanId, Caller>,
    /// Services that were passed, with the operations that were requested of them.
    pub(super) steps: BTreeSet<(ServiceId, Option<OperationId>)>,
    under: Vec<ChildSpan>,
}

impl TracePath {
    /// The path that these spans tell of.
    pub(super) fn of(spans: impl Iterator<Item = SpanIndex>) -> Self {
        let mut path = Self::default();
        spans.for_each(|span| path.saw(&span));
        path
    }

    /// Learns from one more span.
    pub(super) fn saw(&mut self, span: &SpanIndex) {
        let call = (span.kind == SpanKind::Client).then_some((span.operation, span.error));
        self.spans.insert(span.id, Caller { service: span.service, call });
        self.steps.insert((span.service, span.kind.enters().then_some(span.operation)));
        let (service, has_failed, took) = (span.service, span.error, span.duration());
        self.under.extend(span.parent.map(|parent| ChildSpan { parent, service, has_failed, took }));
    }

    /// Steps of a request for `operation`.
    pub(super) fn steps_of(&self, operation: Option<OperationId>) -> impl Iterator<Item = PathStep> {
        let of =
            |operation| self.steps.iter().map(move |&(service, requested)| PathStep { operation, service, requested });
        operation.into_iter().flat_map(of)
    }

    /// Adds callers with their callees to `all`, where spans of both arrived here. Calls are counted the first time
    /// that the trace is looked at, `age` after it began to arrive: at [`REST`], or when it leaves before. A call
    /// failed if the callee says so, or the caller, who may not have waited for the end.
    pub(super) fn add_calls(&self, age: Option<Nanos>, all: &mut SeenCalls) {
        let is_first = age.is_none_or(|age| age < REST);
        for ChildSpan { parent, service: callee, has_failed, took } in &self.under {
            if let Some(caller) = self.spans.get(parent).filter(|caller| caller.service != *callee) {
                let known = all.answered.entry((caller.service, *callee)).or_default();
                let has_failed = *has_failed || caller.call.is_some_and(|(_, has_failed)| has_failed);
                known.add(if is_first { CallCounts::one(*took, has_failed) } else { CallCounts::default() });
                all.targets.extend(caller.call.map(|(operation, _)| (operation, *callee)));
            }
        }
    }

    /// Adds calls that failed and below which there is no span: to be called once, when the trace has rested for
    /// [`REST`]. Before, the callee's span may be on its way.
    pub(super) fn add_unanswered(&self, all: &mut SeenCalls) {
        let above: BTreeSet<SpanId> = self.under.iter().map(|child| child.parent).collect();
        for (_, Caller { service, call }) in self.spans.iter().filter(|(id, _)| !above.contains(*id)) {
            if let Some((operation, true)) = call {
                *all.unanswered.entry((*service, *operation)).or_default() += 1;
            }
        }
    }
}

/// Paths of traces that were kept a short time ago.
#[derive(Debug, Default)]
pub(super) struct FollowedPaths {
    paths: BTreeMap<TraceId, TracePath>,
    /// Since when each is followed, the oldest first.
    since: VecDeque<(Nanos, TraceId)>,
    spans: usize,
}

impl FollowedPaths {
    /// None was seen yet.
    pub(super) const fn new() -> Self {
        Self { paths: BTreeMap::new(), since: VecDeque::new(), spans: 0 }
    }

    /// Follows `trace`, which is kept at `now` and has told of `path` so far. Those that have to make room are counted
    /// in `all`.
    pub(super) fn follow(&mut self, trace: TraceId, path: TracePath, now: Nanos, all: &mut SeenCalls) {
        if path.under.len().max(path.spans.len()) > MAX_SPANS_OF_ONE {
            return path.add_calls(None, all);
        }
        let known = self.paths.entry(trace).or_insert_with(|| {
            self.since.push_back((now, trace));
            TracePath::default()
        });
        let before = known.spans.len();
        known.spans.extend(path.spans);
        known.under.extend(path.under);
        self.spans += known.spans.len() - before;
        while self.spans > MAX_SPANS {
            self.take_oldest().iter().for_each(|path| path.add_calls(None, all));
        }
    }

    /// A span of the kept `trace` arrived at `now`.
    pub(super) fn saw(&mut self, trace: TraceId, span: &SpanIndex, now: Nanos, all: &mut SeenCalls) {
        let known = self.paths.get(&trace);
        // A span that comes twice is one call.
        if known.is_none_or(|path| path.spans.len() < MAX_SPANS_OF_ONE && !path.spans.contains_key(&span.id)) {
            self.follow(trace, TracePath::of([*span].into_iter()), now, all);
        }
    }

    /// Counts calls of traces that have been followed for [`REST`] at `now` in `all`.
    pub(super) fn settle(&mut self, now: Nanos, all: &mut SeenCalls) {
        while let Some((since, _)) = self.since.front()
            && now.since(*since).is_some_and(|length| length >= REST)
        {
            if let Some(path) = self.take_oldest() {
                path.add_calls(None, all);
                path.add_unanswered(all);
            }
        }
    }

    /// Ends to follow the trace that has been followed for longest.
    fn take_oldest(&mut self) -> Option<TracePath> {
        let Some((_, trace)) = self.since.pop_front() else {
            self.spans = 0;
            return None;
        };
        let path = self.paths.remove(&trace)?;
        self.spans -= path.spans.len();
        Some(path)
    }
}

#[cfg(test)]
mod tests {
    use wire::time::UnixNanos;

    use super::*;
    use crate::id::OriginId;

    const SHOP: ServiceId = ServiceId(1);
    const BANK: ServiceId = ServiceId(2);

    fn trace(number: u64) -> TraceId {
        TraceId::new(u128::from(number + 1).to_be_bytes()).unwrap()
    }

    fn span(id: u64, parent: Option<u64>, service: ServiceId) -> SpanIndex {
        let id_of = |id: u64| SpanId::new(id.to_be_bytes()).unwrap();
        SpanIndex {
            id: id_of(id),
            parent: parent.map(id_of),
            service,
            operation: OperationId(1),
            origin: OriginId(0),
            kind: SpanKind::Server,
            error: false,
            start: UnixNanos(0),
            end: UnixNanos(1_000),
        }
    }

    fn calls(followed: &mut FollowedPaths, seconds: u64) -> SeenCalls {
        let mut all = SeenCalls::new();
        followed.settle(Nanos::from_secs(seconds), &mut all);
        all
    }

    #[test]
    fn a_caller_whose_span_comes_after_its_trace_was_kept_is_known_when_calls_are_counted() {
        let (mut followed, mut all) = (FollowedPaths::default(), SeenCalls::new());
        let failed = SpanIndex { error: true, ..span(2, Some(1), BANK) };
        followed.follow(trace(1), TracePath::of([failed].into_iter()), Nanos(0), &mut all);
        followed.saw(trace(1), &span(1, None, SHOP), Nanos::from_secs(4), &mut all);
        followed.saw(trace(1), &span(1, None, SHOP), Nanos::from_secs(5), &mut all);

        assert_eq!((calls(&mut followed, 9), &all), (SeenCalls::new(), &SeenCalls::new()));
        let counted = calls(&mut followed, 10);

        let answered = BTreeMap::from([((SHOP, BANK), CallCounts::one(Nanos(1_000), true))]);
        assert_eq!(counted, SeenCalls { answered, ..SeenCalls::new() });
        assert_eq!((followed.spans, followed.since.len()), (0, 0));
        assert_eq!(calls(&mut followed, 20), SeenCalls::new(), "once");
    }

    #[test]
    fn a_call_for_whose_end_the_caller_did_not_wait_has_failed() {
        let waits = SpanIndex { kind: SpanKind::Client, error: true, ..span(1, None, SHOP) };
        let handler = SpanIndex { error: true, ..span(3, None, SHOP) };
        let path = TracePath::of([waits, span(2, Some(1), BANK), handler, span(4, Some(3), BANK)].into_iter());
        let mut all = SeenCalls::new();

        path.add_calls(None, &mut all);
        path.add_unanswered(&mut all);

        // The second one is a handler that failed for reasons of its own.
        let counted = all.answered[&(SHOP, BANK)];
        assert_eq!((counted.calls, counted.failed), (2, 1));
        assert_eq!(all.targets, BTreeSet::from([(OperationId(1), BANK)]), "a handler's name says nothing of callees");
        assert!(all.unanswered.is_empty());
    }

    #[test]
    fn a_call_that_failed_and_below_which_nothing_came_is_unanswered_once_its_trace_has_rested() {
        let call = |id, error| SpanIndex {
            kind: SpanKind::Client,
            operation: OperationId(7),
            error,
            ..span(id, Some(1), SHOP)
        };
        let (mut followed, mut all) = (FollowedPaths::default(), SeenCalls::new());
        // One that went well, one in which another call of the same service failed, and that one.
        let attempt = SpanIndex { parent: Some(call(3, true).id), ..call(4, true) };
        let spans = [span(1, None, SHOP), call(2, false), call(3, true), attempt];
        followed.follow(trace(1), TracePath::of(spans.into_iter()), Nanos(0), &mut all);
        // The callee's span comes late.
        followed.saw(trace(2), &call(2, true), Nanos(0), &mut all);
        followed.saw(trace(2), &span(3, Some(2), BANK), Nanos::from_secs(9), &mut all);

        assert_eq!(calls(&mut followed, 9), SeenCalls::new());
        let counted = calls(&mut followed, 10);

        assert_eq!(counted.unanswered, BTreeMap::from([((SHOP, OperationId(7)), 1)]));
        assert_eq!(counted.answered[&(SHOP, BANK)].failed, 1);
    }

    #[test]
    fn what_is_followed_is_bounded_and_the_oldest_is_counted_early() {
        let (mut followed, mut all) = (FollowedPaths::default(), SeenCalls::new());
        for number in 0..MAX_SPANS as u64 {
            followed.saw(trace(number), &span(1, None, SHOP), Nanos(0), &mut all);
            followed.saw(trace(number), &span(2, Some(1), BANK), Nanos(0), &mut all);
            assert!(followed.spans <= MAX_SPANS);
        }
        assert_eq!(all.answered[&(SHOP, BANK)].calls, MAX_SPANS as u64 / 2);

        for id in 1..2 * MAX_SPANS_OF_ONE as u64 {
            followed.saw(trace(1), &span(id, None, SHOP), Nanos(1), &mut all);
        }
        assert_eq!(followed.paths[&trace(1)].spans.len(), MAX_SPANS_OF_ONE);
    }
}
