//! One tenant's traces on one node, from span to decision: the buffer, the triggers and the policies put together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use wire::time::Nanos;

use crate::id::{OperationId, ServiceId};
use crate::time::UnixNanos;
use crate::tracing::account::Departed;
use crate::tracing::buffer::{Indexes, TailBuffer};
use crate::tracing::decisions::Fate;
use crate::tracing::order::Rank;
use crate::tracing::outcome::{Kept, Offered, Part, Waiting};
use crate::tracing::policies::{Known, Policies};
use crate::tracing::reason::Reason;
use crate::tracing::span::{Span, SpanId, SpanIndex, TraceId};
use crate::tracing::triggers::{Triggers, Verdict};

/// Paths are learnt from one trace in so many, the same ones on every node, so that what nodes learn of one trace can be put together.
const PATHS_FROM: u64 = 16;
/// Paths are learnt from traces that came so long ago, and again when they leave: SDKs send a batch every five seconds, so most are whole by then, and a
/// node that has just begun knows whom a verdict concerns.
const REST: Nanos = Nanos::from_secs(10);
/// Waiting traces are looked through no more often: with rows of some milliseconds every verdict says a little more.
const LOOK_EVERY: Nanos = Nanos::from_millis(500);
/// Pieces of paths that wait to be told.
const MOST_PIECES: usize = 4_096;

/// A span that is to be sent on.
#[derive(Clone, Copy, Debug)]
pub struct Given<'a> {
    /// Its trace.
    pub trace: TraceId,
    /// What it says about itself.
    pub index: &'a SpanIndex,
    /// As it came.
    pub encoded: &'a [u8],
    /// Why. A root span carries it.
    pub reason: &'a Reason,
    /// How much of its trace this node has; a span that comes after the decision has [`Part::Whole`].
    pub part: Part,
}

/// A piece of a path: what one node saw of one of the traces from which paths are learnt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Of which trace; other nodes have other pieces of it.
    pub trace: TraceId,
    /// What was asked for, if the entry span came here.
    pub operation: Option<OperationId>,
    /// Whose spans came here, and what they were asked for.
    pub steps: BTreeSet<(ServiceId, Option<OperationId>)>,
}

/// A request passed a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Passed {
    /// What was asked for where it entered.
    pub operation: OperationId,
    /// The service.
    pub service: ServiceId,
    /// What the service was asked for, if a span says so.
    pub asked: Option<OperationId>,
}

/// How this node works with others; nothing of it holds for a node that is alone.
#[derive(Debug)]
struct Together {
    /// Traces that began earlier may have been here before this run.
    since: Option<UnixNanos>,
    /// Until when that is to be feared of a trace whose beginning nobody knows.
    feared_until: Nanos,
    /// Decided here, and not yet released: others are told first.
    pending: BTreeSet<TraceId>,
    pieces: Vec<Piece>,
}

/// What waits, what decides, and what was decided.
#[derive(Debug)]
pub struct Keeper {
    buffer: TailBuffer,
    triggers: Triggers,
    policies: Policies,
    /// A second is on that was not when waiting traces were last looked through.
    due: bool,
    /// When they were.
    looked: Option<Nanos>,
    decided: Vec<(TraceId, Arc<Reason>)>,
    passed: BTreeSet<Passed>,
    calls: BTreeSet<(ServiceId, ServiceId)>,
    together: Option<Together>,
}

/// What the spans of a trace tell of its path.
#[derive(Debug, Default)]
struct Passage {
    spans: BTreeMap<SpanId, ServiceId>,
    steps: BTreeSet<(ServiceId, Option<OperationId>)>,
    under: Vec<(SpanId, ServiceId)>,
}

impl Passage {
    fn saw(&mut self, span: &SpanIndex) {
        self.spans.insert(span.id, span.service);
        self.steps.insert((span.service, span.kind.enters().then_some(span.operation)));
        self.under.extend(span.parent.map(|parent| (parent, span.service)));
    }

    /// What is to be learnt from a request of `operation`.
    fn passed(&self, operation: Option<OperationId>) -> impl Iterator<Item = Passed> {
        let of = |operation| self.steps.iter().map(move |&(service, asked)| Passed { operation, service, asked });
        operation.into_iter().flat_map(of)
    }

    /// Callers with their callees, where spans of both came here.
    fn calls(&self) -> impl Iterator<Item = (ServiceId, ServiceId)> {
        let calls = self.under.iter().filter_map(|(parent, callee)| Some((*self.spans.get(parent)?, *callee)));
        calls.filter(|(caller, callee)| caller != callee)
    }
}

impl Keeper {
    /// Puts them together.
    #[must_use]
    pub const fn new(buffer: TailBuffer, triggers: Triggers, policies: Policies) -> Self {
        Self {
            buffer,
            triggers,
            policies,
            due: false,
            looked: None,
            decided: Vec::new(),
            passed: BTreeSet::new(),
            calls: BTreeSet::new(),
            together: None,
        }
    }

    /// From now on this node decides together with others: what it decides is held back until [`release`](Self::release), so that no trace is kept of
    /// which nobody else knows. `since` is when this run began, if one was here before: traces that are older may have lost spans with it, and
    /// those whose beginning is not known are feared to, until `feared_until`.
    pub fn join(&mut self, since: Option<UnixNanos>, feared_until: Nanos) {
        self.together = Some(Together { since, feared_until, pending: BTreeSet::new(), pieces: Vec::new() });
    }

    /// A span came at `now`. What is to be sent on goes to `sink`: the whole trace, if it is wanted now.
    pub fn span(&mut self, span: &Span<'_>, known: &Known<'_>, now: Nanos, mut sink: impl FnMut(Given<'_>)) {
        // Decided from its id alone, it need not wait, and cannot be lost for want of memory.
        if let Some(reason) = self.policies.floor(span) {
            self.buffer.pass(span.trace, reason, now);
        }
        match self.buffer.offer(span, now) {
            Offered::Waits(_) if self.is_pending(span.trace) => {}
            Offered::Waits(waiting) => {
                if let Some(reason) = self.policies.judge(span, &waiting, &mut self.triggers, known, now) {
                    self.decide(span.trace, reason, now, sink);
                }
            }
            Offered::Follows(Fate::Kept(reason)) => {
                self.policies.follow(reason.policy(), span.encoded.len(), now);
                let (trace, index, encoded) = (span.trace, &span.index, span.encoded);
                sink(Given { trace, index, encoded, reason: &reason, part: Part::Whole });
            }
            Offered::Follows(Fate::Dropped { .. } | Fate::Evicted { .. }) | Offered::Lost(_) => {}
        }
    }

    /// An LMAP found its service out of the ordinary; `now` is the time of day. Waiting traces are looked through at a
    /// [`tick`](Self::tick) within half a second.
    pub fn verdict(&mut self, verdict: &Verdict, now: UnixNanos) {
        self.due |= self.triggers.take(verdict, now);
    }

    /// A service asks for `trace` by its id, and says why: what waits of it is kept, and what comes. `false` if it is decided already, or there is no
    /// budget; a trace that the floor keeps needs no second reason.
    pub fn ask(&mut self, trace: TraceId, why: &str, now: Nanos, sink: impl FnMut(Given<'_>)) -> bool {
        if self.is_pending(trace) || self.buffer.fate(trace).is_some() {
            return false;
        }
        let waiting = self.buffer.get(trace).map(|waiting| waiting.tally()).unwrap_or_default();
        let Some(reason) = self.policies.asked(trace, waiting, why, now) else { return false };
        self.decide(trace, reason, now, sink);
        true
    }

    /// Ten times a second or so: keeps what waits and is wanted by now, then drops what waited long enough.
    pub fn tick(&mut self, known: &Known<'_>, now: Nanos, mut sink: impl FnMut(Given<'_>)) {
        let rested = self.looked.is_none_or(|looked| now.since(looked).is_some_and(|rest| rest >= LOOK_EVERY));
        if self.due && rested {
            (self.due, self.looked) = (false, Some(now));
            let (policies, triggers) = (&mut self.policies, &mut self.triggers);
            let pending = self.together.as_ref().map(|together| &together.pending);
            let waiting = self.buffer.waiting().filter(|waiting| !pending.is_some_and(|p| p.contains(&waiting.trace)));
            let wanted =
                waiting.filter_map(|waiting| Some((waiting.trace, policies.lmap(&waiting, triggers, known, now)?)));
            let wanted: Vec<_> = wanted.collect();
            for (trace, reason) in wanted {
                self.decide(trace, reason, now, &mut sink);
            }
        }
        let Self { passed, calls, together, buffer, .. } = self;
        let mut learn = |waiting: &Waiting, spans: Indexes<'_>| {
            let mut passage = Passage::default();
            spans.for_each(|span| passage.saw(&span));
            calls.extend(passage.calls());
            passed.extend(passage.passed(waiting.operation));
            if let Some(together) = together {
                let (trace, operation) = (waiting.trace, waiting.operation);
                together.saw(Piece { trace, operation, steps: passage.steps });
            }
        };
        buffer.look(now, REST, |waiting, rank, spans| {
            // Where the first span is to come yet, what was asked for may turn out to be something else.
            if rank.teaches() && (waiting.rooted || waiting.operation.is_none()) {
                learn(waiting, spans);
            }
        });
        buffer.expire(now, |waiting, rank, spans| {
            if rank.teaches() {
                learn(waiting, spans);
            }
        });
    }

    /// Another node decided to keep `trace`. Its bytes are charged to the tenant, and never refused: a trace is kept everywhere or nowhere.
    pub fn keep(&mut self, trace: TraceId, reason: &Arc<Reason>, now: Nanos, sink: impl FnMut(Given<'_>)) -> Kept {
        self.keep_from(trace, reason, None, now, sink)
    }

    /// Like [`keep`](Self::keep), for a trace that began at `began` by all that its decider knows, or was dealt with by this node's predecessor.
    /// Without either, spans of it may have been lost with the predecessor, and the trace is marked.
    pub fn keep_from(
        &mut self,
        trace: TraceId,
        reason: &Arc<Reason>,
        began: Option<Began>,
        now: Nanos,
        sink: impl FnMut(Given<'_>),
    ) -> Kept {
        let paid = self.together.as_mut().is_some_and(|together| together.pending.remove(&trace));
        let kept = self.give(trace, reason, began, now, sink);
        if let Kept::Released { tally, .. } = kept
            && !paid
        {
            self.policies.charge(tally.bytes, now);
        }
        kept
    }

    /// Gives out a trace that this node decided to keep, now that others know of it. It may be gone: then it is to be marked.
    pub fn release(&mut self, trace: TraceId, reason: &Arc<Reason>, now: Nanos, sink: impl FnMut(Given<'_>)) -> Kept {
        if let Some(together) = &mut self.together {
            together.pending.remove(&trace);
        }
        self.give(trace, reason, None, now, sink)
    }

    /// Takes what this node decided to keep since the last call, to be announced to the others: at every [`tick`](Self::tick). Not the floor's
    /// traces, which every node finds by itself.
    pub fn decided(&mut self) -> Vec<(TraceId, Arc<Reason>)> {
        core::mem::take(&mut self.decided)
    }

    /// When `trace`, which waits, began, if its first span is here.
    #[must_use]
    pub fn began(&self, trace: TraceId) -> Option<UnixNanos> {
        self.buffer.get(trace).filter(|waiting| waiting.rooted).map(|waiting| waiting.start)
    }

    /// Takes which services were passed by which operations, as seen since the last call in a sixteenth of the traces.
    pub fn passed(&mut self) -> BTreeSet<Passed> {
        core::mem::take(&mut self.passed)
    }

    /// Takes who called whom, in the same traces: caller and callee.
    pub fn calls(&mut self) -> BTreeSet<(ServiceId, ServiceId)> {
        core::mem::take(&mut self.calls)
    }

    /// Takes the pieces of paths that were seen since the last call, to be put together with those of other nodes. 4,096 are kept at the most.
    pub fn pieces(&mut self) -> Vec<Piece> {
        self.together.as_mut().map(|together| core::mem::take(&mut together.pieces)).unwrap_or_default()
    }

    /// Other nodes gave up traces up to this rank; `None` if none did.
    pub fn others_yield_below(&mut self, level: Option<Rank>, now: Nanos) {
        self.policies.yield_below(level.max(self.buffer.level(now)));
    }

    /// Takes over the books of a predecessor that was killed.
    pub fn resume(&mut self, predecessor: crate::tracing::Account) {
        self.buffer.resume(predecessor);
    }

    /// What waits, and the books.
    #[must_use]
    pub const fn buffer(&self) -> &TailBuffer {
        &self.buffer
    }

    /// What was kept by whom.
    #[must_use]
    pub const fn policies(&self) -> &Policies {
        &self.policies
    }

    /// So many bytes came that are no span, or one without a trace.
    pub fn malformed(&mut self, bytes: usize) {
        self.buffer.malformed(bytes);
    }

    /// A span of so many bytes came whose resource is new while there are too many of them.
    pub fn crowded(&mut self, bytes: usize) {
        self.buffer.crowded(bytes);
    }

    /// What was dropped and lost of each service.
    pub const fn departed(&mut self) -> &mut Departed {
        self.buffer.departed()
    }

    /// Drops what is kept of `operation`, whose name was forgotten.
    pub fn forget(&mut self, operation: OperationId) {
        self.triggers.forget(operation);
    }

    /// Whether an operation is out of the ordinary in the second of `at`.
    #[must_use]
    pub fn is_on(&mut self, known: &Known<'_>, operation: OperationId, at: UnixNanos) -> bool {
        self.triggers.on(known, operation, at)
    }

    /// Whether an LMAP found something out of the ordinary that concerns requests of an operation made between `from` and `to`. Never, where LMAPs keep no
    /// traces.
    #[must_use]
    pub fn in_alarm(&mut self, known: &Known<'_>, operation: OperationId, between: (UnixNanos, UnixNanos)) -> bool {
        self.policies.listens() && self.triggers.concerned(known, operation, between)
    }

    fn is_pending(&self, trace: TraceId) -> bool {
        self.together.as_ref().is_some_and(|together| together.pending.contains(&trace))
    }

    fn decide(&mut self, trace: TraceId, reason: Arc<Reason>, now: Nanos, sink: impl FnMut(Given<'_>)) {
        match &mut self.together {
            Some(together) => _ = together.pending.insert(trace),
            // Judged and granted a moment ago: it waits.
            None => _ = self.give(trace, &reason, None, now, sink),
        }
        self.decided.push((trace, reason));
    }

    fn give(
        &mut self,
        trace: TraceId,
        reason: &Arc<Reason>,
        began: Option<Began>,
        now: Nanos,
        mut sink: impl FnMut(Given<'_>),
    ) -> Kept {
        let waiting = self.buffer.get(trace);
        let doubted = self.together.as_ref().is_some_and(|together| {
            let here = waiting.filter(|waiting| waiting.rooted).map(|waiting| Began::At(waiting.start));
            together.doubts(began.or(here), now)
        });
        let part = self.buffer.part(trace, now).unwrap_or(Part::Whole).or_unknown(doubted);
        let operation = waiting.and_then(|waiting| waiting.operation);
        let teaches = self.buffer.rank(trace).teaches();
        let mut passage = Passage::default();
        let kept = self.buffer.keep(trace, reason, now, |index, encoded| {
            if teaches {
                passage.saw(index);
            }
            sink(Given { trace, index, encoded, reason, part });
        });
        self.calls.extend(passage.calls());
        self.passed.extend(passage.passed(operation));
        if let Some(together) = self.together.as_mut().filter(|_| !passage.steps.is_empty()) {
            together.saw(Piece { trace, operation, steps: passage.steps });
        }
        match kept {
            Kept::Released { tally, .. } => Kept::Released { tally, part },
            Kept::Unseen(part) => Kept::Unseen(part.or_unknown(doubted)),
            Kept::Already | Kept::Gone(_) => kept,
        }
    }
}

/// What is known of a trace's beginning by whoever decided to keep it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Began {
    /// Then, by the clock of whoever recorded its first span.
    At(UnixNanos),
    /// It does not matter: this node's predecessor gave out what it had of it.
    Before,
}

/// Clocks of nodes differ by less.
const SPREAD: Nanos = Nanos::from_secs(1);

impl Together {
    /// Whether spans of a trace that began then may have been lost with this node's predecessor.
    fn doubts(&self, began: Option<Began>, now: Nanos) -> bool {
        let Some(since) = self.since else { return false };
        match began {
            Some(Began::Before) => false,
            Some(Began::At(began)) => began < since.plus(SPREAD),
            None => now < self.feared_until,
        }
    }

    fn saw(&mut self, piece: Piece) {
        if self.pieces.len() < MOST_PIECES {
            self.pieces.push(piece);
        }
    }
}

impl Part {
    /// What remains of it where spans may be missing besides.
    const fn or_unknown(self, doubted: bool) -> Self {
        match self {
            Self::Whole if doubted => Self::Unknown,
            part => part,
        }
    }
}

impl Rank {
    /// Whether paths are learnt from a trace of this rank.
    const fn teaches(self) -> bool {
        self.0.is_multiple_of(PATHS_FROM)
    }
}
