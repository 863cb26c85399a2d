//! Spans wait here until something wants their trace, or nothing did for long enough.

use std::sync::Arc;

use wire::time::Nanos;

use crate::tracing::account::{Account, Departed, Dropped, Gone, Loss, Tally};
use crate::tracing::blocks::{BLOCK_COST, Blocks, Chain, Reader};
use crate::tracing::decisions::{Decisions, Fate};
use crate::tracing::limits::{Limits, LimitsError};
use crate::tracing::order::{OrderKey, Rank};
use crate::tracing::outcome::{Kept, LookBack, Offered, Part, Waiting};
use crate::tracing::reason::Reason;
use crate::tracing::record::{self, Record};
use crate::tracing::span::{Span, SpanIndex, TraceId};
use crate::tracing::traces::{Flag, TRACE_COST, Trace, Traces};
use crate::tracing::watermark::Watermark;

/// The spans of one tenant that wait on one node.
///
/// Memory: [`Limits::bytes`] at the most, [`TailBuffer::memory`] at present. Per trace 80 bytes, per span its encoded bytes and an index of some
/// 30, less up to 58 of the encoded bytes that say what the index says (as encoders in the order of fields write them), in blocks of 64 with 60 of
/// use. That is at most 1.3 times the encoded bytes and 64, for a single span of 210 bytes and more, and for several of any usual length. Cost: O(1) for a span, but for the eviction of what gives way for it.
#[derive(Debug)]
pub struct TailBuffer {
    limits: Limits,
    key: OrderKey,
    began: Nanos,
    /// What blocks and traces may take together.
    room: usize,
    fixed: usize,
    blocks: Blocks,
    traces: Traces,
    decisions: Decisions,
    watermark: Watermark,
    /// Below which rank traces were refused without a record of it.
    unrecorded: Watermark,
    account: Account,
    departed: Departed,
    scratch: Vec<u8>,
}

impl TailBuffer {
    /// An empty buffer, at `now`. All nodes of a cluster have the same `key`. Memory is reserved, and taken when it is first used.
    ///
    /// # Errors
    ///
    /// [`LimitsError`], if the limits contradict each other or the address space is too small.
    pub fn new(limits: Limits, key: OrderKey, now: Nanos) -> Result<Self, LimitsError> {
        limits.check()?;
        let slots = limits.decisions.next_power_of_two().max(16);
        let most_traces = limits.bytes / (TRACE_COST + BLOCK_COST);
        let fixed = slots * Decisions::SLOT_COST + (size_of::<u32>() << Traces::bits(most_traces));
        let room = limits.bytes.saturating_sub(fixed);
        if room / 4 < limits.trace_bytes.max(BLOCK_COST) {
            let Limits { bytes, trace_bytes, .. } = limits;
            return Err(LimitsError::TooSmall { bytes, decisions: fixed, trace_bytes });
        }
        Ok(Self {
            limits,
            key,
            began: now,
            room,
            fixed,
            blocks: Blocks::new(room / BLOCK_COST)?,
            traces: Traces::new(key, most_traces)?,
            decisions: Decisions::new(slots, limits.hold, now),
            watermark: Watermark::new(limits.age, now),
            unrecorded: Watermark::new(limits.hold, now),
            account: Account::default(),
            departed: Departed::new(),
            scratch: Vec::new(),
        })
    }

    /// A span came at `now`.
    pub fn offer(&mut self, span: &Span<'_>, now: Nanos) -> Offered {
        self.account.seen += Tally::one(span.encoded.len());
        let rank = self.key.rank(span.trace);
        match self.traces.find(span.trace, rank) {
            Some(place) => self.extend(place, rank, span, now),
            None => match self.decisions.get(span.trace, rank) {
                Some(fate) => self.follow(fate, rank, span, now),
                None => self.begin(rank, span, now),
            },
        }
    }

    /// So many bytes came that are no span, or one without a trace.
    pub fn malformed(&mut self, bytes: usize) {
        self.account.seen += Tally::one(bytes);
        self.account.add_lost(Loss::Malformed, Tally::one(bytes));
    }

    /// A span of so many bytes came whose resource is new while there are too many of them.
    pub fn crowded(&mut self, bytes: usize) {
        self.account.seen += Tally::one(bytes);
        self.account.add_lost(Loss::Crowded, Tally::one(bytes));
    }

    /// What was dropped and lost of each service: all that is in the [`account`](Self::account), but for what never had a service here (malformed,
    /// crowded).
    pub const fn departed(&mut self) -> &mut Departed {
        &mut self.departed
    }

    /// Gives out the spans of `trace` to `sink`, in the order in which they came, and from now on those to come. The bytes of each are as
    /// they came.
    pub fn keep(
        &mut self,
        trace: TraceId,
        reason: &Arc<Reason>,
        now: Nanos,
        mut sink: impl FnMut(&SpanIndex, &[u8]),
    ) -> Kept {
        let rank = self.key.rank(trace);
        let Some(place) = self.traces.find(trace, rank) else {
            return self.keep_absent(trace, rank, reason, now);
        };
        let trace = self.traces.remove(place);
        let part = self.part_of(&trace, now);
        let mut reader = self.blocks.read(trace.chain);
        while let Some(stored) = record::next(&mut reader) {
            stored.restore(trace.id, &mut reader, &mut self.scratch);
            sink(&stored.index, &self.scratch);
        }
        self.blocks.release(trace.chain);
        self.decisions.put(trace.id, rank, &Fate::Kept(Arc::clone(reason)), now);
        let tally = Waiting::of(&trace, rank).tally();
        self.account.waiting -= tally;
        self.account.kept += tally;
        Kept::Released { tally, part }
    }

    /// How much of a waiting trace would be given out at `now`.
    #[must_use]
    pub fn part(&self, trace: TraceId, now: Nanos) -> Option<Part> {
        let place = self.traces.find(trace, self.key.rank(trace))?;
        Some(self.part_of(self.traces.get(place), now))
    }

    /// The place of `trace` in the order of eviction, the same on every node.
    #[must_use]
    pub const fn rank(&self, trace: TraceId) -> Rank {
        self.key.rank(trace)
    }

    /// Keeps the spans of `trace` from the first one on, unless something is known of it.
    pub fn pass(&mut self, trace: TraceId, reason: Reason, now: Nanos) {
        let rank = self.key.rank(trace);
        if self.traces.find(trace, rank).is_none() && self.decisions.get(trace, rank).is_none() {
            self.decisions.put(trace, rank, &Fate::Kept(Arc::new(reason)), now);
        }
    }

    /// Drops what has waited for as long as traces wait at `now`. Each trace is shown to `leaving` with its rank and the indexes of its spans,
    /// so that paths can be learnt from it.
    pub fn expire(&mut self, now: Nanos, mut leaving: impl FnMut(&Waiting, Rank, Indexes<'_>)) {
        while let Some(place) = self.traces.oldest() {
            let arrived = self.traces.get(place).arrived;
            if now.since(arrived).is_none_or(|age| age < self.limits.age) {
                return;
            }
            let trace = self.traces.remove(place);
            let rank = self.key.rank(trace.id);
            let waiting = Waiting::of(&trace, rank);
            leaving(&waiting, rank, Indexes(self.blocks.read(trace.chain)));
            self.depart(trace.chain, Gone::Dropped(Dropped::Aged));
            self.account.waiting -= waiting.tally();
            self.account.add_dropped(Dropped::Aged, waiting.tally());
            let fate = Fate::Dropped { spans: trace.spans().saturating_add(trace.lost) };
            self.decisions.put(trace.id, rank, &fate, now);
        }
    }

    /// Shows each trace once that waits for `rest` or longer: all of it may have come by then, and it may wait on. Of traces that leave earlier nothing is
    /// shown. Cost: that of reading the spans' indexes, where `seen` does.
    pub fn look(&mut self, now: Nanos, rest: Nanos, mut seen: impl FnMut(&Waiting, Rank, Indexes<'_>)) {
        while let Some(place) = self.traces.unseen() {
            let trace = self.traces.get(place);
            if now.since(trace.arrived).is_none_or(|age| age < rest) {
                return;
            }
            let rank = self.key.rank(trace.id);
            seen(&Waiting::of(trace, rank), rank, Indexes(self.blocks.read(trace.chain)));
            self.traces.pass_over();
        }
    }

    /// All that waits, in no order. One pass costs a few nanoseconds per trace: once per second for all triggers together.
    pub fn waiting(&self) -> impl Iterator<Item = Waiting> {
        self.traces.iter().map(|trace| Waiting::of(trace, self.key.rank(trace.id)))
    }

    /// How many traces wait.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.traces.len()
    }

    /// Whether nothing waits.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What is known of `trace` if it waits.
    #[must_use]
    pub fn get(&self, trace: TraceId) -> Option<Waiting> {
        let rank = self.key.rank(trace);
        self.traces.find(trace, rank).map(|place| Waiting::of(self.traces.get(place), rank))
    }

    /// What was decided about `trace`, as far as it is remembered.
    #[must_use]
    pub fn fate(&self, trace: TraceId) -> Option<Fate> {
        self.decisions.get(trace, self.key.rank(trace))
    }

    /// The books.
    #[must_use]
    pub const fn account(&self) -> &Account {
        &self.account
    }

    /// Bytes of memory taken so far, at most [`Limits::bytes`]. Never falls: what was used once is used again. Not in it: one trace's bytes
    /// while it is given out, and the reasons of kept traces.
    #[must_use]
    pub const fn memory(&self) -> usize {
        self.fixed + self.committed()
    }

    /// Bytes of memory that waiting spans take at present.
    #[must_use]
    pub const fn in_use(&self) -> usize {
        (self.blocks.made() - self.blocks.free()) * BLOCK_COST + self.traces.len() * (TRACE_COST + size_of::<u32>())
    }

    /// How many times decisions were forgotten before their time.
    #[must_use]
    pub const fn rushed(&self) -> u64 {
        self.decisions.rushed()
    }

    /// Takes over the books of a predecessor that was killed: what waited in it is lost.
    pub fn resume(&mut self, predecessor: Account) {
        debug_assert_eq!(self.account, Account::default(), "books are taken over before the first span");
        self.account = predecessor.after_kill();
    }

    /// Up to which rank traces gave way lately; `None` if none did.
    #[must_use]
    pub fn level(&self, now: Nanos) -> Option<Rank> {
        self.watermark.level(now)
    }

    /// How far a trigger at `now` reaches back.
    #[must_use]
    pub fn look_back(&self, now: Nanos) -> LookBack {
        let since_began = now.since(self.began).unwrap_or_default();
        LookBack { reach: since_began.min(self.limits.age), share: self.watermark.share(now) }
    }

    fn part_of(&self, trace: &Trace, now: Nanos) -> Part {
        match trace.lost {
            0 if self.remembers_before(trace.arrived) && !self.unrecorded.covers(self.key.rank(trace.id), now) => {
                Part::Whole
            }
            0 => Part::Unknown,
            spans => Part::Lacks { spans },
        }
    }

    /// Whether nothing of a trace that came at `arrived` can have been decided before and forgotten since.
    fn remembers_before(&self, arrived: Nanos) -> bool {
        let spread = Nanos(self.limits.hold.0 - self.limits.age.0);
        let Some(since) = self.decisions.since() else { return true };
        arrived.since(since).is_some_and(|known| known > spread)
    }

    const fn committed(&self) -> usize {
        self.blocks.made() * BLOCK_COST + self.traces.made() * TRACE_COST
    }

    const fn fits(&self, new_trace: bool, blocks: usize) -> bool {
        let trace = if new_trace && !self.traces.has_free() { TRACE_COST } else { 0 };
        self.committed() + trace + blocks.saturating_sub(self.blocks.free()) * BLOCK_COST <= self.room
    }

    /// Evicts what ranks below `rank` until there is room. `false` if that is not enough.
    fn make_room(&mut self, rank: Rank, new_trace: bool, blocks: usize, now: Nanos) -> bool {
        while !self.fits(new_trace, blocks) {
            match self.traces.lowest() {
                Some((place, lowest)) if lowest < rank => self.evict(place, lowest, now),
                _ => return false,
            }
        }
        true
    }

    fn evict(&mut self, place: u32, rank: Rank, now: Nanos) {
        let trace = self.traces.remove(place);
        let tally = Waiting::of(&trace, rank).tally();
        self.depart(trace.chain, Gone::Lost(Loss::Evicted));
        self.account.waiting -= tally;
        self.account.add_lost(Loss::Evicted, tally);
        self.watermark.raise(rank, now);
        let fate = Fate::Evicted { spans: trace.spans().saturating_add(trace.lost) };
        self.decisions.put(trace.id, rank, &fate, now);
    }

    /// The spans in `chain` go for this reason.
    fn depart(&mut self, chain: Chain, why: Gone) {
        let mut reader = self.blocks.read(chain);
        while let Some(stored) = record::next(&mut reader) {
            reader.skip(stored.length);
            self.departed.add(stored.index.service, why, Tally::one(stored.encoded()));
        }
        self.blocks.release(chain);
    }

    /// `span` is lost when it comes.
    fn lose(&mut self, span: &Span<'_>, why: Loss) {
        let tally = Tally::one(span.encoded.len());
        self.account.add_lost(why, tally);
        self.departed.add(span.index.service, Gone::Lost(why), tally);
    }

    fn begin(&mut self, rank: Rank, span: &Span<'_>, now: Nanos) -> Offered {
        let record = Record::of(span);
        let size = record.size();
        if size > self.limits.trace_bytes {
            return self.refuse(rank, span, Loss::TraceFull, now);
        }
        if self.watermark.covers(rank, now) {
            return self.refuse(rank, span, Loss::Refused, now);
        }
        if !self.make_room(rank, true, Chain::EMPTY.growth(size), now) {
            self.watermark.raise(rank, now);
            return self.refuse(rank, span, Loss::Refused, now);
        }
        let place = self.traces.insert(span.trace, rank, now);
        self.add(place, rank, span, &record)
    }

    /// Nothing of its trace is taken: not this span, and none to come.
    fn refuse(&mut self, rank: Rank, span: &Span<'_>, loss: Loss, now: Nanos) -> Offered {
        self.lose(span, loss);
        // What ranks too low stays refused without a record. A flood must not make room for itself by having decisions forgotten.
        if loss == Loss::Refused && !self.decisions.roomy() {
            self.unrecorded.raise(rank, now);
        } else {
            self.decisions.put(span.trace, rank, &Fate::Evicted { spans: 1 }, now);
        }
        Offered::Lost(loss)
    }

    fn extend(&mut self, place: u32, rank: Rank, span: &Span<'_>, now: Nanos) -> Offered {
        let record = Record::of(span);
        let size = record.size();
        let chain = self.traces.get(place).chain;
        if chain.bytes() + size > self.limits.trace_bytes {
            self.traces.get_mut(place).lost += 1;
            self.lose(span, Loss::TraceFull);
            return Offered::Lost(Loss::TraceFull);
        }
        if !self.make_room(rank, false, chain.growth(size), now) {
            // It ranks lowest itself: it goes as a whole.
            self.traces.get_mut(place).lost += 1;
            self.evict(place, rank, now);
            self.lose(span, Loss::Evicted);
            return Offered::Lost(Loss::Evicted);
        }
        self.add(place, rank, span, &record)
    }

    fn add(&mut self, place: u32, rank: Rank, span: &Span<'_>, record: &Record<'_>) -> Offered {
        let index = &span.index;
        let trace = self.traces.get_mut(place);
        for piece in record.pieces() {
            self.blocks.append(&mut trace.chain, piece);
        }
        let start = trace.start;
        let first = index.start < start;
        trace.start = start.min(index.start);
        trace.end = trace.end.max(index.end).max(index.start);
        trace.count(span.encoded.len());
        trace.set(Flag::Error, index.error);
        let rooted = index.parent.is_none();
        trace.set(Flag::Root, rooted);
        // Of several entry spans the one without a parent counts, else the one that began before all others.
        if span.entry && (trace.operation().is_none() || rooted || (first && !trace.is(Flag::Rooted))) {
            trace.enter(index.operation, rooted);
        }
        self.account.waiting += Tally::one(span.encoded.len());
        Offered::Waits(Waiting::of(trace, rank))
    }

    fn follow(&mut self, fate: Fate, rank: Rank, span: &Span<'_>, now: Nanos) -> Offered {
        let tally = Tally::one(span.encoded.len());
        match fate {
            Fate::Kept(_) => self.account.kept += tally,
            Fate::Dropped { .. } => {
                self.account.add_dropped(Dropped::Late, tally);
                self.departed.add(span.index.service, Gone::Dropped(Dropped::Late), tally);
            }
            Fate::Evicted { .. } => self.lose(span, Loss::Late),
        }
        self.decisions.follow(span.trace, rank, &fate, now);
        Offered::Follows(fate)
    }

    fn keep_absent(&mut self, trace: TraceId, rank: Rank, reason: &Arc<Reason>, now: Nanos) -> Kept {
        match self.decisions.get(trace, rank) {
            Some(Fate::Kept(_)) => Kept::Already,
            Some(Fate::Dropped { spans } | Fate::Evicted { spans }) => Kept::Gone(Part::Lacks { spans }),
            None => {
                let sure = self.remembers_before(now) && !self.unrecorded.covers(rank, now);
                let part = if sure { Part::Whole } else { Part::Unknown };
                self.decisions.put(trace, rank, &Fate::Kept(Arc::clone(reason)), now);
                Kept::Unseen(part)
            }
        }
    }
}

/// The indexes of a trace's spans, in the order in which they came.
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
