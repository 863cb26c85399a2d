//! Memory of the tail buffer: who holds how much of it, and which traces make room.
//!
//! Traces are evicted by rank, the same ones on every node that is as short of memory. But where one sender holds more
//! than three quarters of what is buffered, only its own make room, by rank among them; and only its own traces of
//! lower rank are refused at once. What this node has evicted of any sender is in the level that it tells the others.

use wire::time::Nanos;

use super::TailBuffer;
use crate::id::{SenderId, ServiceId};
use crate::tracing::account::{DiscardReason, LossReason, Tally};
use crate::tracing::blocks::{BLOCK_COST, Chain, ReadAhead};
use crate::tracing::decisions::StickyDecision;
use crate::tracing::order::Rank;
use crate::tracing::outcome::BufferedTrace;
use crate::tracing::record;
use crate::tracing::sole_services::SoleService;
use crate::tracing::span::Span;
use crate::tracing::traces::{TRACE_COST, Trace};

/// Bytes of a trace without its spans: its entry, and its part of the table of buckets.
const ENTRY_COST: usize = TRACE_COST + size_of::<u32>();
/// Chains that are read side by side: as many lines as a core waits for at a time.
const SIDE_BY_SIDE: usize = 8;

impl TailBuffer {
    /// Bytes of memory that buffered spans take at present.
    #[must_use]
    pub const fn in_use(&self) -> usize {
        (self.blocks.allocated() - self.blocks.free()) * BLOCK_COST + self.traces.len() * ENTRY_COST
    }

    /// The rank up to which traces of any sender were evicted lately; `None` if none was. What this node asks others
    /// for has to be above it.
    #[must_use]
    pub fn level(&self, now: Nanos) -> Option<Rank> {
        self.watermark.level(now).max(self.senders.level(now))
    }

    /// The rank up to which traces of all senders were evicted lately; `None` if none was. A trace that is buffered has
    /// not lost spans for its rank alone if it is above it.
    #[must_use]
    pub fn common_level(&self, now: Nanos) -> Option<Rank> {
        self.watermark.level(now)
    }

    /// The sender whose traces were evicted since the last call for having more than three quarters of what is
    /// buffered; the last if there were several.
    pub const fn take_greedy(&mut self) -> Option<SenderId> {
        self.greedy.take()
    }

    pub(super) const fn committed(&self) -> usize {
        self.blocks.allocated() * BLOCK_COST + self.traces.allocated() * TRACE_COST
    }

    const fn fits(&self, new_trace: bool, blocks: usize) -> bool {
        let trace = if new_trace && !self.traces.has_free() { TRACE_COST } else { 0 };
        self.committed() + trace + blocks.saturating_sub(self.blocks.free()) * BLOCK_COST <= self.budget
    }

    /// Makes an empty trace of `span`.
    pub(super) fn put_in(&mut self, span: &Span<'_>, rank: Rank, now: Nanos) -> u32 {
        self.senders.add(span.sender, ENTRY_COST);
        self.senders.insert(span.sender, self.traces.bucket(rank));
        let place = self.traces.insert((span.trace, span.sender), rank, now);
        self.traces.get_mut(place).sole_service = self.sole_services.begin(span.index.service);
        place
    }

    /// Removes a trace. Also returns the service that all of its spans are of, if that is known. The caller releases
    /// its chain.
    pub(super) fn take_out(&mut self, place: u32) -> (Trace, Option<ServiceId>) {
        let trace = self.traces.remove(place);
        self.senders.release(trace.sender, ENTRY_COST + trace.chain.blocks() * BLOCK_COST);
        (trace, self.sole_services.end(trace.sole_service))
    }

    /// Evicts traces until there is memory for one of `sender` with this `rank`: of who has more than its share, else
    /// those that rank below. `false` if that is not enough.
    pub(super) fn make_space(
        &mut self,
        (rank, sender): (Rank, SenderId),
        new_trace: bool,
        blocks: usize,
        now: Nanos,
    ) -> bool {
        if self.fits(new_trace, blocks) {
            return true;
        }
        loop {
            let greedy = self.senders.over_share(self.in_use());
            let is_others = greedy.is_some_and(|greedy| greedy != sender);
            match self.lowest(greedy) {
                Some((place, lowest)) if is_others || lowest < rank => self.evict(place, lowest, now),
                _ => return false,
            }
            if self.fits(new_trace, blocks) {
                let next = self.lowest(greedy).map(|(place, _)| self.traces.get(place).chain);
                self.ahead = next.map_or(ReadAhead::DONE, ReadAhead::of);
                return true;
            }
        }
    }

    /// The trace that is evicted first, of the sender `greedy` if one has more than its share.
    fn lowest(&mut self, greedy: Option<SenderId>) -> Option<(u32, Rank)> {
        match greedy {
            Some(greedy) => self.lowest_of(greedy),
            None => self.traces.lowest(),
        }
    }

    /// The trace of `sender` that is evicted first.
    fn lowest_of(&mut self, sender: SenderId) -> Option<(u32, Rank)> {
        let lowest = self.traces.lowest_of(sender, self.senders.lowest(sender));
        let bucket = lowest.map_or(usize::MAX, |(_, rank)| self.traces.bucket(rank));
        self.senders.set_lowest(sender, bucket);
        lowest
    }

    pub(super) fn evict(&mut self, place: u32, rank: Rank, now: Nanos) {
        self.raise(self.traces.get(place).sender, rank, now);
        let (trace, sole_service) = self.take_out(place);
        let tally = BufferedTrace::of(&trace, rank).tally();
        self.discard((trace.chain, tally), sole_service, DiscardReason::Lost(LossReason::Evicted));
        self.account.waiting -= tally;
        self.account.add_lost(LossReason::Evicted, tally);
        let decision = StickyDecision::Evicted { spans: trace.spans().saturating_add(trace.lost()) };
        self.decisions.put(trace.id, rank, &decision, now);
    }

    /// A trace of `sender` with this rank is evicted or refused: others of that rank, too, or only the sender's if it
    /// has more than its share.
    pub(super) fn raise(&mut self, sender: SenderId, rank: Rank, now: Nanos) {
        let in_use = self.in_use();
        if self.senders.over_share(in_use) == Some(sender) {
            self.senders.raise(sender, rank, now);
            // Alone, it takes nothing of anybody.
            self.greedy = if self.senders.held(sender) < in_use { Some(sender) } else { self.greedy };
        } else {
            self.watermark.raise(rank, now);
        }
    }

    /// Counts the spans in `chain`, `tally` in all, by service as discarded for the reason `why`, and frees it. O(1) if
    /// all of them are of `sole_service`; else they are read.
    pub(super) fn discard(
        &mut self,
        (chain, tally): (Chain, Tally),
        sole_service: Option<ServiceId>,
        why: DiscardReason,
    ) {
        if let Some(service) = sole_service {
            self.discarded.add(service, why, tally);
        } else {
            let mut reader = self.blocks.read(chain);
            while let Some(stored) = record::next(&mut reader) {
                reader.skip(stored.length);
                self.discarded.add(stored.index.service, why, Tally::one(stored.encoded()));
            }
        }
        self.blocks.release(chain);
    }

    /// Whether `trace` has been buffered for the full age at `now`.
    pub(super) fn is_due(&self, trace: &Trace, now: Nanos) -> bool {
        now.since(trace.arrived).is_some_and(|age| age >= self.limits.age)
    }

    /// Reads the chains of the oldest traces that are due at `now`, where spans have to be read to be counted. Returns
    /// how many traces it looked at; at least 1, of which the caller knows.
    pub(super) fn read_oldest(&self, now: Nanos) -> usize {
        let due = self.traces.by_age().take_while(|trace| self.is_due(trace, now));
        let (mut chains, mut traces) = ([ReadAhead::DONE; SIDE_BY_SIDE], 0);
        for (ahead, trace) in chains.iter_mut().zip(due) {
            if trace.sole_service == SoleService::NONE {
                *ahead = ReadAhead::of(trace.chain);
            }
            traces += 1;
        }
        self.blocks.read_side_by_side(&mut chains);
        traces.max(1)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use wire::time::UnixNanos;

    use super::*;
    use crate::id::{OperationId, OriginId};
    use crate::tracing::limits::Limits;
    use crate::tracing::order::OrderKey;
    use crate::tracing::reason::Reason;
    use crate::tracing::span::{SpanId, SpanIndex, SpanKind, TraceId};

    fn span(trace: TraceId, (sender, service): (u8, u32), encoded: &[u8]) -> Span<'_> {
        let index = SpanIndex {
            id: SpanId::new([1; 8]).unwrap(),
            parent: None,
            kind: SpanKind::Server,
            service: ServiceId(service),
            operation: OperationId(2),
            origin: OriginId(3),
            start: UnixNanos(5),
            end: UnixNanos(9),
            error: false,
        };
        let (sender, trigger, randomness, threshold) = (SenderId(sender), None, None, None);
        Span { trace, index, sender, entry: true, trigger, randomness, threshold, encoded }
    }

    proptest! {
        /// Whatever comes and goes, senders together hold what is in use, the lowest of each is found, and a service
        /// has its number for as many traces as have that.
        #[test]
        fn senders_together_hold_what_is_in_use(
            steps in prop::collection::vec((0..3_u8, 0..40_u64, 0..900_usize, 0..12_u8), 1..400),
        ) {
            let limits =
                Limits { bytes: 24_000, age: Nanos(200), trace_bytes: 2_000, decisions: 16, hold: Nanos(400) };
            let mut buffer = TailBuffer::new(limits, OrderKey::new(3), Nanos(0)).unwrap();
            let reason = Arc::new(Reason::Trigger { text: "test".into() });
            for (now, (sender, number, length, act)) in (0..).map(Nanos).zip(steps) {
                let trace = TraceId::new(u128::from(number + 1).to_be_bytes()).unwrap();
                match act {
                    0 => _ = buffer.keep(trace, &reason, now, |_, _| {}),
                    1 => buffer.expire(now, |_, _, _| {}),
                    _ => _ = buffer.offer(&span(trace, (sender, u32::from(act / 6)), &vec![7; length]), now),
                }
                let held: usize = (0..=u8::MAX).map(|sender| buffer.senders.held(SenderId(sender))).sum();
                prop_assert_eq!(held, buffer.in_use());
                let numbered = buffer.traces.iter().filter(|trace| trace.sole_service != SoleService::NONE).count();
                prop_assert_eq!(buffer.sole_services.traces(), numbered);
                for sender in (0..3).map(SenderId) {
                    let found = buffer.lowest_of(sender).map(|(_, rank)| rank);
                    let expected = buffer.traces.iter().filter(|trace| trace.sender == sender);
                    let expected = expected.map(|trace| buffer.key.rank(trace.id)).min();
                    prop_assert_eq!(found, expected);
                }
            }
        }
    }
}
