//! The tail buffer: spans are buffered until a policy selects their trace, or until it expires.

mod eviction;

use std::sync::Arc;

use wire::time::Nanos;

use crate::id::SenderId;
use crate::tracing::account::{Account, DiscardReason, DiscardedSpans, DropReason, LossReason, Tally};
use crate::tracing::blocks::{BLOCK_COST, Blocks, Chain, ReadAhead, Reader};
use crate::tracing::decisions::{Decisions, StickyDecision};
use crate::tracing::limits::{Limits, LimitsError};
use crate::tracing::order::{OrderKey, Rank};
use crate::tracing::outcome::{BufferedTrace, Completeness, KeepOutcome, LookBack, OfferOutcome};
use crate::tracing::reason::Reason;
use crate::tracing::record::{self, Record};
use crate::tracing::sender_shares::SenderShares;
use crate::tracing::sole_services::SoleServices;
use crate::tracing::span::{Span, SpanIndex, TraceId};
use crate::tracing::traces::{Flag, TRACE_COST, Trace, Traces};
use crate::tracing::watermark::Watermark;

/// Blocks of the trace that gives way next that are read with each span, while its own trace is looked for: that waits
/// for as many lines, of the bucket, the entry and the last block.
const AHEAD: usize = 3;

/// Buffered spans of one tenant on one node.
///
/// Memory: at most [`Limits::bytes`], at present [`TailBuffer::memory`]. A trace takes 80 bytes. A span takes its
/// encoded bytes and an index of about 30 bytes, less up to 58 encoded bytes that repeat the index (if the encoder
/// wrote fields in order), in blocks of 64 bytes with 60 of payload. That is at most 1.3 times the encoded bytes and
/// 64, for a single span of 210 bytes and more, and for several of any usual length; a shorter single span may take up
/// to 1.2 times that (the rows `hooks-memory-alone-*` of docs/figures.md). Cost: O(1) for a span, without the
/// eviction of other traces.
///
/// A sender that holds more than three quarters of what is buffered makes room itself, by its own lowest traces.
#[derive(Debug)]
pub struct TailBuffer {
    pub(super) limits: Limits,
    pub(super) key: OrderKey,
    began: Nanos,
    /// Memory budget of blocks and traces together.
    budget: usize,
    fixed: usize,
    blocks: Blocks,
    traces: Traces,
    decisions: Decisions,
    watermark: Watermark,
    senders: SenderShares,
    sole_services: SoleServices,
    /// The chain of the trace that gives way next.
    ahead: ReadAhead,
    /// The sender whose traces were evicted last since it had more than its share.
    greedy: Option<SenderId>,
    /// Traces up to this rank were refused without a record.
    unrecorded: Watermark,
    account: Account,
    discarded: DiscardedSpans,
    scratch: Vec<u8>,
}

impl TailBuffer {
    /// An empty buffer, at `now`. All nodes of a cluster share `key`. Memory is reserved, and committed by the system
    /// when it is first used.
    ///
    /// # Errors
    ///
    /// [`LimitsError`], if the limits contradict each other or the address space is too small.
    pub fn new(limits: Limits, key: OrderKey, now: Nanos) -> Result<Self, LimitsError> {
        limits.check()?;
        let slots = limits.decisions.next_power_of_two().max(16);
        let most_traces = limits.bytes / (TRACE_COST + BLOCK_COST);
        let fixed = slots * Decisions::SLOT_COST + (size_of::<u32>() << Traces::bits(most_traces));
        let budget = limits.bytes.saturating_sub(fixed);
        if budget / 4 < limits.trace_bytes.max(BLOCK_COST) {
            let Limits { bytes, trace_bytes, .. } = limits;
            return Err(LimitsError::TooSmall { bytes, decisions: fixed, trace_bytes });
        }
        Ok(Self {
            limits,
            key,
            began: now,
            budget,
            fixed,
            blocks: Blocks::new(budget / BLOCK_COST)?,
            traces: Traces::new(key, most_traces)?,
            decisions: Decisions::new(slots, limits.hold, now),
            watermark: Watermark::new(limits.age, now),
            senders: SenderShares::new(limits.age, now),
            sole_services: SoleServices::new(),
            ahead: ReadAhead::DONE,
            greedy: None,
            unrecorded: Watermark::new(limits.hold, now),
            account: Account::default(),
            discarded: DiscardedSpans::new(),
            scratch: Vec::new(),
        })
    }

    /// Takes a span that arrived at `now`.
    pub fn offer(&mut self, span: &Span<'_>, now: Nanos) -> OfferOutcome {
        self.offer_if(span, now, |_, _| true)
    }

    /// Like [`offer`](Self::offer). A span that follows a kept trace is kept if `pays` says so of its reason, and of
    /// whether it is this node's own decision. Otherwise it is lost, and so are all later ones: the trace ends here.
    pub(super) fn offer_if(
        &mut self,
        span: &Span<'_>,
        now: Nanos,
        pays: impl FnOnce(&Arc<Reason>, bool) -> bool,
    ) -> OfferOutcome {
        self.blocks.read_ahead(&mut self.ahead, AHEAD);
        let rank = self.key.rank(span.trace);
        let place = self.traces.find(span.trace, rank);
        let decision = if place.is_none() { self.decisions.get(span.trace, rank) } else { None };
        if let Some(StickyDecision::Kept { reason, own }) = &decision
            && !pays(reason, *own)
        {
            return self.cut(span, now);
        }
        self.account.seen += Tally::one(span.encoded.len());
        match place {
            Some(place) => self.extend(place, rank, span, now),
            None => match decision {
                Some(decision) => self.follow(decision, rank, span, now),
                None => self.begin(rank, span, now),
            },
        }
    }

    /// Counts `bytes` that are no valid span, or a span without a trace id.
    pub fn malformed(&mut self, bytes: usize) {
        self.account.seen += Tally::one(bytes);
        self.account.add_lost(LossReason::Malformed, Tally::one(bytes));
    }

    /// Counts a span of `bytes` that has a new resource while there are too many resources.
    pub fn over_limit(&mut self, bytes: usize) {
        self.account.seen += Tally::one(bytes);
        self.account.add_lost(LossReason::OverLimit, Tally::one(bytes));
    }

    /// Spans that were dropped and lost, by service: all that are in the [`account`](Self::account), without spans that
    /// never had a service here (malformed, over the limit of resources).
    pub const fn discarded(&mut self) -> &mut DiscardedSpans {
        &mut self.discarded
    }

    /// Passes the buffered spans of `trace` to `sink`, in order of arrival, with their bytes as received; later spans
    /// follow this node's own decision.
    pub fn keep(
        &mut self,
        trace: TraceId,
        reason: &Arc<Reason>,
        now: Nanos,
        sink: impl FnMut(&SpanIndex, &[u8]),
    ) -> KeepOutcome {
        self.keep_for((trace, true), reason, now, sink)
    }

    /// Like [`keep`](Self::keep), because a peer decided it unless it is this node's `own` decision.
    pub(super) fn keep_for(
        &mut self,
        (trace, own): (TraceId, bool),
        reason: &Arc<Reason>,
        now: Nanos,
        mut sink: impl FnMut(&SpanIndex, &[u8]),
    ) -> KeepOutcome {
        let rank = self.key.rank(trace);
        let decision = StickyDecision::Kept { reason: Arc::clone(reason), own };
        let Some(place) = self.traces.find(trace, rank) else {
            return self.keep_absent(trace, rank, &decision, now);
        };
        let (trace, _) = self.take_out(place);
        let completeness = self.completeness_of(&trace, now);
        let mut reader = self.blocks.read(trace.chain);
        while let Some(stored) = record::next(&mut reader) {
            stored.restore(trace.id, &mut reader, &mut self.scratch);
            sink(&stored.index, &self.scratch);
        }
        self.blocks.release(trace.chain);
        self.decisions.put(trace.id, rank, &decision, now);
        let tally = BufferedTrace::of(&trace, rank).tally();
        self.account.waiting -= tally;
        self.account.kept += tally;
        KeepOutcome::Released { tally, completeness }
    }

    /// How complete the buffered `trace` would be if it were kept at `now`.
    #[must_use]
    pub fn completeness(&self, trace: TraceId, now: Nanos) -> Option<Completeness> {
        let place = self.traces.find(trace, self.key.rank(trace))?;
        Some(self.completeness_of(self.traces.get(place), now))
    }

    /// The position of `trace` in the order of eviction, the same on every node.
    #[must_use]
    pub const fn rank(&self, trace: TraceId) -> Rank {
        self.key.rank(trace)
    }

    /// Decides to keep `trace` before its first span, unless it is buffered or decided.
    pub fn pass(&mut self, trace: TraceId, reason: Reason, now: Nanos) {
        let rank = self.key.rank(trace);
        if self.traces.find(trace, rank).is_none() && self.decisions.get(trace, rank).is_none() {
            self.decisions.put(trace, rank, &StickyDecision::Kept { reason: Arc::new(reason), own: true }, now);
        }
    }

    /// Drops traces that have been buffered for the full age at `now`. Each is passed to `leaving` with its rank and
    /// the indexes of its spans, so that paths can be learnt from it.
    pub fn expire(&mut self, now: Nanos, mut leaving: impl FnMut(&BufferedTrace, Rank, Indexes<'_>)) {
        let mut read = 0;
        while let Some(place) = self.traces.oldest() {
            if !self.is_due(self.traces.get(place), now) {
                return;
            }
            if read == 0 {
                read = self.read_oldest(now);
            }
            read -= 1;
            let (trace, sole_service) = self.take_out(place);
            let rank = self.key.rank(trace.id);
            let waiting = BufferedTrace::of(&trace, rank);
            leaving(&waiting, rank, Indexes(self.blocks.read(trace.chain)));
            self.discard((trace.chain, waiting.tally()), sole_service, DiscardReason::Dropped(DropReason::Aged));
            self.account.waiting -= waiting.tally();
            self.account.add_dropped(DropReason::Aged, waiting.tally());
            let decision = StickyDecision::Dropped { spans: trace.spans().saturating_add(trace.lost()) };
            self.decisions.put(trace.id, rank, &decision, now);
        }
    }

    /// Passes each trace once to `seen` after it has been buffered for `rest`: most of its spans have arrived by then,
    /// and it stays buffered. Traces that leave earlier are not passed. Cost: that of reading the spans' indexes, where
    /// `seen` does.
    pub fn look(&mut self, now: Nanos, rest: Nanos, mut seen: impl FnMut(&BufferedTrace, Rank, Indexes<'_>)) {
        while let Some(place) = self.traces.unseen() {
            let trace = self.traces.get(place);
            if now.since(trace.arrived).is_none_or(|age| age < rest) {
                return;
            }
            let rank = self.key.rank(trace.id);
            seen(&BufferedTrace::of(trace, rank), rank, Indexes(self.blocks.read(trace.chain)));
            self.traces.pass_over();
        }
    }

    /// Passes buffered traces to `seen` with the indexes of their spans, in no order, from `place` on (first 0), until
    /// some `steps` places and spans were passed. Returns where to go on; `None`: these were the last ones. What
    /// arrives between two calls may be passed or not. Cost: that of reading the spans' indexes, where `seen` does.
    pub(super) fn look_from(
        &self,
        place: usize,
        steps: usize,
        mut seen: impl FnMut(&BufferedTrace, Indexes<'_>),
    ) -> Option<usize> {
        let mut left = steps;
        for place in place..self.traces.allocated() {
            if left == 0 {
                return Some(place);
            }
            left -= 1;
            if let Some(trace) = self.traces.at(place) {
                left = left.saturating_sub(trace.spans() as usize);
                let waiting = BufferedTrace::of(trace, self.key.rank(trace.id));
                seen(&waiting, Indexes(self.blocks.read(trace.chain)));
            }
        }
        None
    }

    /// All buffered traces, in no order. One pass costs a few nanoseconds per trace: once per second for all triggers
    /// together.
    pub fn traces(&self) -> impl Iterator<Item = BufferedTrace> {
        self.traces.iter().map(|trace| BufferedTrace::of(trace, self.key.rank(trace.id)))
    }

    /// Number of buffered traces.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.traces.len()
    }

    /// Whether no trace is buffered.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// `trace`, if it is buffered.
    #[must_use]
    pub fn get(&self, trace: TraceId) -> Option<BufferedTrace> {
        let rank = self.key.rank(trace);
        self.traces.find(trace, rank).map(|place| BufferedTrace::of(self.traces.get(place), rank))
    }

    /// The decision about `trace`, if it is remembered.
    #[must_use]
    pub fn decision(&self, trace: TraceId) -> Option<StickyDecision> {
        self.decisions.get(trace, self.key.rank(trace))
    }

    /// Accounting of all spans.
    #[must_use]
    pub const fn account(&self) -> &Account {
        &self.account
    }

    /// Bytes of memory committed so far, at most [`Limits::bytes`]. Never falls: memory is reused. Not included: the
    /// bytes of one trace while it is exported, the reasons of kept traces, and 18 KiB for what senders hold and for
    /// services of traces.
    #[must_use]
    pub const fn memory(&self) -> usize {
        self.fixed + self.committed()
    }

    /// How many times decisions were forgotten early.
    #[must_use]
    pub const fn rushed(&self) -> u64 {
        self.decisions.rushed()
    }

    /// Continues the account of a predecessor that was killed: its buffered spans are lost.
    pub fn resume(&mut self, predecessor: Account) {
        debug_assert_eq!(self.account, Account::default(), "an account is continued before the first span");
        self.account = predecessor.after_kill();
    }

    /// How far back a trigger at `now` reaches.
    #[must_use]
    pub fn look_back(&self, now: Nanos) -> LookBack {
        let since_began = now.since(self.began).unwrap_or_default();
        let share = self.level(now).map_or(1.0, Rank::share_above);
        LookBack { reach: since_began.min(self.limits.age), share }
    }

    fn completeness_of(&self, trace: &Trace, now: Nanos) -> Completeness {
        match trace.lost() {
            0 if self.remembers_before(trace.arrived) && !self.unrecorded.covers(self.key.rank(trace.id), now) => {
                Completeness::Complete
            }
            0 => Completeness::Unknown,
            spans => Completeness::Missing { spans },
        }
    }

    /// Whether every decision about a trace that arrived at `arrived` is still remembered.
    fn remembers_before(&self, arrived: Nanos) -> bool {
        let spread = Nanos(self.limits.hold.0 - self.limits.age.0);
        let Some(since) = self.decisions.since() else { return true };
        arrived.since(since).is_some_and(|known| known > spread)
    }

    /// Counts `span`, which has just arrived, as lost.
    fn lose(&mut self, span: &Span<'_>, why: LossReason) {
        let tally = Tally::one(span.encoded.len());
        self.account.add_lost(why, tally);
        self.discarded.add(span.index.service, DiscardReason::Lost(why), tally);
    }

    /// Loses `span` of a trace that is kept, because there is no budget for what follows it. Of a trace that was
    /// exported, all later spans are lost, too; one that is buffered is marked when it leaves.
    pub(super) fn cut(&mut self, span: &Span<'_>, now: Nanos) -> OfferOutcome {
        self.account.seen += Tally::one(span.encoded.len());
        let rank = self.key.rank(span.trace);
        match self.traces.find(span.trace, rank) {
            Some(place) => self.traces.get_mut(place).lose(),
            None => self.decisions.put(span.trace, rank, &StickyDecision::Evicted { spans: 1 }, now),
        }
        self.lose(span, LossReason::OverBudget);
        OfferOutcome::Lost(LossReason::OverBudget)
    }

    fn begin(&mut self, rank: Rank, span: &Span<'_>, now: Nanos) -> OfferOutcome {
        let record = Record::of(span);
        let size = record.size();
        if size > self.limits.trace_bytes {
            return self.refuse(rank, span, LossReason::TraceFull, now);
        }
        if self.watermark.covers(rank, now) || self.senders.covers(span.sender, rank, now) {
            return self.refuse(rank, span, LossReason::Refused, now);
        }
        if !self.make_space((rank, span.sender), true, Chain::EMPTY.growth(size), now) {
            self.raise(span.sender, rank, now);
            return self.refuse(rank, span, LossReason::Refused, now);
        }
        let place = self.put_in(span, rank, now);
        self.add(place, rank, span, &record)
    }

    /// Refuses the trace of `span`: this span, and all later ones.
    fn refuse(&mut self, rank: Rank, span: &Span<'_>, loss: LossReason, now: Nanos) -> OfferOutcome {
        self.lose(span, loss);
        // A refusal by rank needs no record, since the rank stays too low. A flood must not push other decisions out.
        if loss == LossReason::Refused && !self.decisions.has_spare_slots() {
            self.unrecorded.raise(rank, now);
        } else {
            self.decisions.put(span.trace, rank, &StickyDecision::Evicted { spans: 1 }, now);
        }
        OfferOutcome::Lost(loss)
    }

    fn extend(&mut self, place: u32, rank: Rank, span: &Span<'_>, now: Nanos) -> OfferOutcome {
        let record = Record::of(span);
        let size = record.size();
        let Trace { chain, sender, .. } = *self.traces.get(place);
        if chain.bytes() + size > self.limits.trace_bytes {
            self.traces.get_mut(place).lose();
            self.lose(span, LossReason::TraceFull);
            return OfferOutcome::Lost(LossReason::TraceFull);
        }
        if !self.make_space((rank, sender), false, chain.growth(size), now) {
            // This trace ranks lowest: evict it as a whole.
            self.traces.get_mut(place).lose();
            self.evict(place, rank, now);
            self.lose(span, LossReason::Evicted);
            return OfferOutcome::Lost(LossReason::Evicted);
        }
        self.add(place, rank, span, &record)
    }

    fn add(&mut self, place: u32, rank: Rank, span: &Span<'_>, record: &Record<'_>) -> OfferOutcome {
        let index = &span.index;
        let trace = self.traces.get_mut(place);
        self.senders.add(trace.sender, trace.chain.growth(record.size()) * BLOCK_COST);
        for piece in record.pieces() {
            self.blocks.append(&mut trace.chain, piece);
        }
        let start = trace.start;
        let first = index.start < start;
        trace.start = start.min(index.start);
        trace.end = trace.end.max(index.end).max(index.start);
        trace.count(span.encoded.len());
        if !self.sole_services.is(trace.sole_service, index.service) {
            self.sole_services.end(core::mem::take(&mut trace.sole_service));
        }
        trace.set(Flag::Error, index.error);
        let rooted = index.parent.is_none();
        trace.set(Flag::Root, rooted);
        // Of several entry spans the one without a parent counts, else the earliest.
        if span.entry && (trace.operation().is_none() || rooted || (first && !trace.is(Flag::Rooted))) {
            trace.enter(index.operation, rooted);
        }
        self.account.waiting += Tally::one(span.encoded.len());
        OfferOutcome::Buffered(BufferedTrace::of(trace, rank))
    }

    fn follow(&mut self, decision: StickyDecision, rank: Rank, span: &Span<'_>, now: Nanos) -> OfferOutcome {
        let tally = Tally::one(span.encoded.len());
        match decision {
            StickyDecision::Kept { .. } => self.account.kept += tally,
            StickyDecision::Dropped { .. } => {
                self.account.add_dropped(DropReason::Late, tally);
                self.discarded.add(span.index.service, DiscardReason::Dropped(DropReason::Late), tally);
            }
            StickyDecision::Evicted { .. } => self.lose(span, LossReason::Late),
        }
        self.decisions.follow(span.trace, rank, &decision, now);
        OfferOutcome::Follows(decision)
    }

    fn keep_absent(&mut self, trace: TraceId, rank: Rank, decision: &StickyDecision, now: Nanos) -> KeepOutcome {
        match self.decisions.get(trace, rank) {
            Some(StickyDecision::Kept { .. }) => KeepOutcome::Already,
            Some(StickyDecision::Dropped { spans } | StickyDecision::Evicted { spans }) => {
                KeepOutcome::Gone(Completeness::Missing { spans })
            }
            None => {
                let sure = self.remembers_before(now) && !self.unrecorded.covers(rank, now);
                let completeness = if sure { Completeness::Complete } else { Completeness::Unknown };
                self.decisions.put(trace, rank, decision, now);
                KeepOutcome::Unseen(completeness)
            }
        }
    }
}

/// Indexes of a trace's spans, in order of arrival.
#[derive(Debug)]
pub struct Indexes<'a>(Reader<'a>);

impl Iterator for Indexes<'_> {
    type Item = SpanIndex;

    fn next(&mut self) -> Option<SpanIndex> {
        let stored = record::next(&mut self.0)?;
        self.0.skip(stored.length);
        Some(stored.index)
    }
}
