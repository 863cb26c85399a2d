//! One tenant's tail sampler on one node, from span to decision: buffer, triggers and policies together.

mod operator_search;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use wire::time::{Nanos, UnixNanos};

use crate::id::{OperationId, SenderId, ServiceId};
use crate::paths::CALLS_FROM;
use crate::tracing::account::DiscardedSpans;
use crate::tracing::budget::Payer;
use crate::tracing::buffer::TailBuffer;
use crate::tracing::cluster::{Cluster, TraceStart};
use crate::tracing::decisions::StickyDecision;
use crate::tracing::logs::LogKeeper;
use crate::tracing::order::Rank;
use crate::tracing::outcome::{BufferedTrace, Completeness, KeepOutcome, OfferOutcome};
use crate::tracing::peers::{PeerLevels, Peers};
use crate::tracing::policies::{Policies, Selection, ServiceCatalog};
use crate::tracing::reason::Reason;
use crate::tracing::service_policies::ServicePolicies;
use crate::tracing::span::{Span, SpanIndex, TraceId};
use crate::tracing::trace_path::{FollowedPaths, PathStep, REST, SeenCalls, TracePath};
use crate::tracing::triggers::{Origin, Triggers, Verdict};

/// Paths are learnt from one trace in so many, the same ones on every node, so that what nodes learn of one trace can
/// be joined.
const PATHS_FROM: u64 = CALLS_FROM;
/// Shortest interval between searches of the buffer: with rows of some milliseconds every verdict adds a little.
const LOOK_EVERY: Nanos = Nanos::from_millis(500);

/// A span to export.
#[derive(Clone, Copy, Debug)]
pub struct KeptSpan<'a> {
    /// Id of its trace.
    pub trace: TraceId,
    /// Its decoded fields.
    pub index: &'a SpanIndex,
    /// The encoded span, as received.
    pub encoded: &'a [u8],
    /// Why its trace is kept; exported with a root span.
    pub reason: &'a Reason,
    /// How much of its trace this node has. A span that arrives after the decision has [`Completeness::Complete`].
    pub completeness: Completeness,
}

/// A piece of a path: what this node saw of one of the traces from which paths are learnt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The trace; other nodes have other pieces of it.
    pub trace: TraceId,
    /// The operation that was requested where the trace entered, if the entry span arrived here.
    pub operation: Option<OperationId>,
    /// Services of the spans that arrived here, and the operations that were requested of them.
    pub steps: BTreeSet<(ServiceId, Option<OperationId>)>,
}

/// Buffered traces, the policies that select them, and decisions to announce.
#[derive(Debug)]
pub struct Keeper {
    pub(super) buffer: TailBuffer,
    pub(super) triggers: Triggers,
    pub(super) policies: Policies,
    /// `None`: it takes no log records.
    pub(super) logs: Option<LogKeeper>,
    /// There were verdicts since the last search of the buffer.
    due: bool,
    /// Time of the last search of the buffer.
    looked: Option<Nanos>,
    /// Where to go on in the buffer with the search for what operators ask for; `None`: nowhere.
    operator_search: Option<usize>,
    decided: Vec<(TraceId, Arc<Reason>)>,
    path_steps: BTreeSet<PathStep>,
    calls: SeenCalls,
    /// Kept traces of which spans still come.
    followed: FollowedPaths,
    cluster: Option<Cluster>,
    /// Exported traces of which a late span was refused, with why they were kept: they have to be marked.
    cut: Vec<(TraceId, Arc<Reason>)>,
}

impl Keeper {
    /// A tail sampler of these parts.
    #[must_use]
    pub const fn new(buffer: TailBuffer, triggers: Triggers, policies: Policies) -> Self {
        Self {
            buffer,
            triggers,
            policies,
            logs: None,
            due: false,
            looked: None,
            operator_search: None,
            decided: Vec::new(),
            path_steps: BTreeSet::new(),
            calls: SeenCalls::new(),
            followed: FollowedPaths::new(),
            cluster: None,
            cut: Vec::new(),
        }
    }

    /// From now on this node decides together with others: its decisions are held back until
    /// [`release`](Self::release), so that no trace is kept of which no other node knows. `since` is the start of this
    /// run if it has a predecessor: older traces may have lost spans with that, and so may traces of unknown beginning,
    /// until `feared_until`.
    pub fn join(&mut self, since: Option<UnixNanos>, feared_until: Nanos) {
        self.cluster = Some(Cluster { since, feared_until, pending: BTreeMap::new(), pieces: Vec::new() });
    }

    /// Takes a span that arrived at `now`. `sink` takes spans to export: the whole trace, if it is selected now.
    pub fn span(
        &mut self,
        span: &Span<'_>,
        catalog: &ServiceCatalog<'_>,
        now: Nanos,
        mut sink: impl FnMut(KeptSpan<'_>),
    ) {
        // Decided from its id alone: it is not buffered, and cannot be lost for lack of memory.
        if let Some(reason) = self.policies.floor(span) {
            self.buffer.pass(span.trace, reason, now);
        }
        let pending = self.pending(span.trace);
        // Paid for when it was selected, but for this span.
        if let Some(payer) = pending
            && !self.policies.late(payer, span.encoded.len(), now)
        {
            let _lost = self.buffer.cut(span, now);
            return;
        }
        let (policies, cut) = (&mut self.policies, &mut self.cut);
        let offered = self.buffer.offer_if(span, now, |reason, own| {
            let is_paid = policies.follow(reason.policy(), own, span.encoded.len(), now);
            if !is_paid {
                cut.push((span.trace, Arc::clone(reason)));
            }
            is_paid
        });
        match offered {
            OfferOutcome::Buffered(waiting) if pending.is_none() => {
                if let Some(selection) = self.policies.judge(span, &waiting, &mut self.triggers, catalog, now) {
                    self.decide(span.trace, selection, now, sink);
                }
            }
            OfferOutcome::Follows(StickyDecision::Kept { reason, .. }) => {
                let (trace, index, encoded) = (span.trace, &span.index, span.encoded);
                if self.buffer.rank(trace).teaches() {
                    self.followed.saw(trace, index, now, &mut self.calls);
                }
                sink(KeptSpan { trace, index, encoded, reason: &reason, completeness: Completeness::Complete });
            }
            OfferOutcome::Buffered(_)
            | OfferOutcome::Follows(StickyDecision::Dropped { .. } | StickyDecision::Evicted { .. })
            | OfferOutcome::Lost(_) => {}
        }
    }

    /// Takes a verdict; `now` is wall-clock time. Buffered traces are searched at a [`tick`](Self::tick) within half a
    /// second.
    pub fn verdict(&mut self, verdict: &Verdict, now: UnixNanos) {
        let concerns_more = self.triggers.take(verdict, now);
        self.due |= concerns_more;
        if let Some(logs) = self.logs.as_mut().filter(|_| concerns_more) {
            logs.verdict(verdict.service);
        }
    }

    /// A service requests `trace` by its id, with a reason: buffered and later spans are kept. `false` if the trace is
    /// decided already, or there is no budget; a trace that the floor keeps needs no second reason.
    pub fn request(&mut self, trace: TraceId, why: &str, now: Nanos, sink: impl FnMut(KeptSpan<'_>)) -> bool {
        if self.pending(trace).is_some() || self.buffer.decision(trace).is_some() {
            return false;
        }
        let waiting = self.buffer.get(trace).map(|waiting| waiting.tally()).unwrap_or_default();
        let Some(selection) = self.policies.requested(trace, waiting, why, now) else { return false };
        self.decide(trace, selection, now, sink);
        true
    }

    /// To be called about ten times a second: selects buffered traces, then drops those that have expired.
    pub fn tick(&mut self, catalog: &ServiceCatalog<'_>, now: Nanos, mut sink: impl FnMut(KeptSpan<'_>)) {
        let rested = self.looked.is_none_or(|looked| now.since(looked).is_some_and(|rest| rest >= LOOK_EVERY));
        if self.due && rested {
            (self.due, self.looked) = (false, Some(now));
            let (policies, triggers) = (&mut self.policies, &mut self.triggers);
            let pending = self.cluster.as_ref().map(|cluster| &cluster.pending);
            let waiting =
                self.buffer.traces().filter(|waiting| !pending.is_some_and(|p| p.contains_key(&waiting.trace)));
            let wanted =
                waiting.filter_map(|waiting| Some((waiting.trace, policies.lmap(&waiting, triggers, catalog, now)?)));
            let wanted: Vec<_> = wanted.collect();
            for (trace, selection) in wanted {
                self.decide(trace, selection, now, &mut sink);
            }
        }
        self.search_for_operators(catalog, now, &mut sink);
        let Self { path_steps, calls, followed, cluster, buffer, .. } = self;
        followed.settle(now, calls);
        let mut learn = |waiting: &BufferedTrace, path: TracePath| {
            path_steps.extend(path.steps_of(waiting.operation));
            if let Some(cluster) = cluster {
                let (trace, operation) = (waiting.trace, waiting.operation);
                cluster.saw(Piece { trace, operation, steps: path.steps });
            }
        };
        buffer.look(now, REST, |waiting, rank, spans| {
            if rank.teaches() {
                let path = TracePath::of(spans);
                path.add_calls(None, calls);
                path.add_unanswered(calls);
                // While the first span is missing, the requested operation may still change.
                if waiting.rooted || waiting.operation.is_none() {
                    learn(waiting, path);
                }
            }
        });
        buffer.expire(now, |waiting, rank, spans| {
            if rank.teaches() {
                let path = TracePath::of(spans);
                path.add_calls(now.since(waiting.arrived), calls);
                learn(waiting, path);
            }
        });
    }

    /// Another node decided to keep `trace`. Its bytes are charged to the tenant, and never refused: a trace is kept
    /// everywhere or nowhere.
    pub fn keep(
        &mut self,
        trace: TraceId,
        reason: &Arc<Reason>,
        now: Nanos,
        sink: impl FnMut(KeptSpan<'_>),
    ) -> KeepOutcome {
        self.keep_from(trace, reason, None, now, sink)
    }

    /// Like [`keep`](Self::keep), for a trace with a known start, or one that this node's predecessor has carried out.
    /// Without either, spans of it may have been lost with the predecessor, and the trace is marked.
    pub fn keep_from(
        &mut self,
        trace: TraceId,
        reason: &Arc<Reason>,
        began: Option<TraceStart>,
        now: Nanos,
        sink: impl FnMut(KeptSpan<'_>),
    ) -> KeepOutcome {
        let payer = self.cluster.as_mut().and_then(|cluster| cluster.pending.remove(&trace));
        let kept = self.give((trace, payer.unwrap_or(Payer::Others(Peers::UNKNOWN))), reason, began, now, sink);
        if let KeepOutcome::Released { tally, .. } = kept
            && payer.is_none()
        {
            self.policies.charge(tally.bytes, now);
        }
        kept
    }

    /// Exports a trace that this node decided to keep, now that another node has the decision. If the trace is gone,
    /// mark it.
    pub fn release(
        &mut self,
        trace: TraceId,
        reason: &Arc<Reason>,
        now: Nanos,
        sink: impl FnMut(KeptSpan<'_>),
    ) -> KeepOutcome {
        let payer = self.cluster.as_mut().and_then(|cluster| cluster.pending.remove(&trace));
        self.give((trace, payer.unwrap_or(Payer::Own(reason.policy()))), reason, None, now, sink)
    }

    /// Takes the decisions of this node since the last call, to be announced to the others: at every
    /// [`tick`](Self::tick). Without the floor's traces, which every node finds by itself.
    pub fn decided(&mut self) -> Vec<(TraceId, Arc<Reason>)> {
        core::mem::take(&mut self.decided)
    }

    /// Takes the traces since the last call that were exported and end before they are whole, because there was no
    /// budget for what followed. Mark them.
    pub fn cut(&mut self) -> Vec<(TraceId, Arc<Reason>)> {
        core::mem::take(&mut self.cut)
    }

    /// Start of the buffered `trace`, if its first span is here.
    #[must_use]
    pub fn began(&self, trace: TraceId) -> Option<UnixNanos> {
        self.buffer.get(trace).filter(|waiting| waiting.rooted).map(|waiting| waiting.start)
    }

    /// Takes the services that requests passed since the last call, seen in a sixteenth of the traces.
    pub fn path_steps(&mut self) -> BTreeSet<PathStep> {
        core::mem::take(&mut self.path_steps)
    }

    /// Takes calls, counted in the same traces: of a trace that was kept, ten seconds later.
    pub fn calls(&mut self) -> SeenCalls {
        core::mem::take(&mut self.calls)
    }

    /// Takes the pieces of paths since the last call, to be joined with those of other nodes. At most 4,096 are stored.
    pub fn pieces(&mut self) -> Vec<Piece> {
        self.cluster.as_mut().map(|cluster| core::mem::take(&mut cluster.pieces)).unwrap_or_default()
    }

    /// Other nodes have evicted traces up to these ranks: it holds for what they ask for themselves. What this node has
    /// evicted of a sender with more than its share keeps no trace of others from being selected.
    pub fn set_peer_eviction_levels(&mut self, levels: PeerLevels, now: Nanos) {
        self.policies.set_eviction_levels(self.buffer.common_level(now), levels);
    }

    /// Continues the account of a predecessor that was killed.
    pub fn resume(&mut self, predecessor: crate::tracing::Account) {
        self.buffer.resume(predecessor);
    }

    /// The tail buffer, with its accounting.
    #[must_use]
    pub const fn buffer(&self) -> &TailBuffer {
        &self.buffer
    }

    /// The policies, with what each has kept.
    #[must_use]
    pub const fn policies(&self) -> &Policies {
        &self.policies
    }

    /// From now on these hold for single services. Traces that are decided stay decided.
    pub fn set_service_policies(&mut self, services: Arc<ServicePolicies>) {
        self.policies.set_services(services);
    }

    /// Counts `bytes` that are no valid span, or a span without a trace id.
    pub fn malformed(&mut self, bytes: usize) {
        self.buffer.malformed(bytes);
    }

    /// Counts a span of `bytes` that has a new resource while there are too many resources.
    pub fn over_limit(&mut self, bytes: usize) {
        self.buffer.over_limit(bytes);
    }

    /// The sender whose traces made room since the last call, if one has more than its share of the buffer.
    pub const fn take_greedy(&mut self) -> Option<SenderId> {
        self.buffer.take_greedy()
    }

    /// Spans that were dropped and lost, by service.
    pub const fn discarded(&mut self) -> &mut DiscardedSpans {
        self.buffer.discarded()
    }

    /// Drops the state of `operation`, whose name was forgotten.
    pub fn forget(&mut self, operation: OperationId) {
        self.triggers.forget(operation);
    }

    /// Whether an operation is anomalous in the second of `at`.
    #[must_use]
    pub fn is_on(&mut self, catalog: &ServiceCatalog<'_>, operation: OperationId, at: UnixNanos) -> bool {
        self.triggers.is_on(catalog, operation, at)
    }

    /// Who says that `operation` is anomalous in the second of `at`; see [`Triggers::alarm_origin`].
    #[must_use]
    pub fn alarm_origin(
        &mut self,
        catalog: &ServiceCatalog<'_>,
        operation: OperationId,
        at: UnixNanos,
    ) -> Option<Origin> {
        self.triggers.alarm_origin(catalog, operation, at)
    }

    /// Whether a verdict concerns requests of an operation between `from` and `to`. Always false if LMAPs select no
    /// traces.
    #[must_use]
    pub fn in_alarm(
        &mut self,
        catalog: &ServiceCatalog<'_>,
        operation: OperationId,
        between: (UnixNanos, UnixNanos),
    ) -> bool {
        self.policies.uses_lmaps() && self.triggers.concerned(catalog, operation, between)
    }

    /// Who pays for a trace that was selected here and is not released yet.
    fn pending(&self, trace: TraceId) -> Option<Payer> {
        self.cluster.as_ref()?.pending.get(&trace).copied()
    }

    fn decide(&mut self, trace: TraceId, selection: Selection, now: Nanos, sink: impl FnMut(KeptSpan<'_>)) {
        let Selection { reason, payer } = selection;
        match &mut self.cluster {
            Some(cluster) => _ = cluster.pending.insert(trace, payer),
            // Just selected: it is buffered.
            None => _ = self.give((trace, payer), &reason, None, now, sink),
        }
        self.decided.push((trace, reason));
    }

    /// Exports `trace`, for which `payer` has paid, and pays when more of it arrives.
    fn give(
        &mut self,
        (trace, payer): (TraceId, Payer),
        reason: &Arc<Reason>,
        began: Option<TraceStart>,
        now: Nanos,
        mut sink: impl FnMut(KeptSpan<'_>),
    ) -> KeepOutcome {
        let waiting = self.buffer.get(trace);
        let doubted = self.cluster.as_ref().is_some_and(|cluster| {
            let here = waiting.filter(|waiting| waiting.rooted).map(|waiting| TraceStart::At(waiting.start));
            cluster.doubts(began.or(here), now)
        });
        let completeness = self.buffer.completeness(trace, now).unwrap_or(Completeness::Complete).or_unknown(doubted);
        let operation = waiting.and_then(|waiting| waiting.operation);
        let age = waiting.and_then(|waiting| now.since(waiting.arrived));
        let teaches = self.buffer.rank(trace).teaches();
        let mut path = TracePath::default();
        let own = matches!(payer, Payer::Own(_));
        let kept = self.buffer.keep_for((trace, own), reason, now, |index, encoded| {
            if teaches {
                path.saw(index);
            }
            sink(KeptSpan { trace, index, encoded, reason, completeness });
        });
        self.path_steps.extend(path.steps_of(operation));
        if let Some(cluster) = self.cluster.as_mut().filter(|_| !path.steps.is_empty()) {
            cluster.saw(Piece { trace, operation, steps: path.steps.clone() });
        }
        if age.is_some_and(|age| age < REST) && teaches {
            self.followed.follow(trace, path, now, &mut self.calls);
        } else {
            path.add_calls(age, &mut self.calls);
        }
        if let Some(logs) = self.logs.as_mut().filter(|_| kept != KeepOutcome::Already) {
            logs.follow(trace, reason, payer);
        }
        match kept {
            KeepOutcome::Released { tally, .. } => KeepOutcome::Released { tally, completeness },
            KeepOutcome::Unseen(completeness) => KeepOutcome::Unseen(completeness.or_unknown(doubted)),
            KeepOutcome::Already | KeepOutcome::Gone(_) => kept,
        }
    }
}

impl Completeness {
    /// `self`, or unknown if spans may be missing.
    const fn or_unknown(self, doubted: bool) -> Self {
        match self {
            Self::Complete if doubted => Self::Unknown,
            completeness => completeness,
        }
    }
}

impl Rank {
    /// Whether paths are learnt from a trace of this rank.
    const fn teaches(self) -> bool {
        self.0.is_multiple_of(PATHS_FROM)
    }
}
