//! Sticky decisions: what was decided about traces that are no longer buffered, so that late spans follow. Bounded: 8
//! bytes per decision, in two generations. The older generation is forgotten as a whole; `Decisions::since` says from
//! when on all decisions are remembered.

use std::collections::BTreeMap;
use std::sync::Arc;

use wire::time::Nanos;

use crate::tracing::order::Rank;
use crate::tracing::reason::Reason;
use crate::tracing::span::TraceId;

/// The decision about a trace on this node, which late spans follow.
#[derive(Clone, Debug, PartialEq)]
pub enum StickyDecision {
    /// The trace is kept. Late spans are exported at once.
    Kept {
        /// Why it is kept.
        reason: Arc<Reason>,
        /// Whether this node decided it; else a peer did.
        own: bool,
    },
    /// No policy wanted the trace. Late spans are dropped.
    Dropped {
        /// Number of dropped spans so far; saturates at 65,535.
        spans: u32,
    },
    /// The trace was evicted. Late spans are lost, so that no node has a part of it.
    Evicted {
        /// Number of lost spans so far; saturates at 65,535.
        spans: u32,
    },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Tag {
    Kept = 1,
    Dropped = 2,
    Evicted = 3,
}

// A slot: 46 bits of the rank, 2 bits of tag, 16 bits of count (for a kept trace, 1 if it is this node's own decision);
// 0 is empty. Two traces are confused once in 10^13
// lookups.
const COUNT_BITS: u32 = 16;
const MAX: u64 = (1 << COUNT_BITS) - 1;
const TAG_BITS: u32 = 2;
const PRINT: u64 = !((1 << (COUNT_BITS + TAG_BITS)) - 1);

#[derive(Debug)]
struct Generation {
    slots: Vec<u64>,
    used: usize,
    since: Nanos,
    kept: BTreeMap<TraceId, Arc<Reason>>,
}

impl Generation {
    fn new(slots: usize, since: Nanos) -> Self {
        Self { slots: vec![0; slots], used: 0, since, kept: BTreeMap::new() }
    }

    /// Index of the slot of `rank`, or of the one where it would be.
    fn place(&self, rank: Rank) -> usize {
        let mask = self.slots.len() - 1;
        let mut at = (rank.0 as usize) & mask;
        // A generation is three quarters full at most: there is an empty slot.
        while self.slots[at] != 0 && self.slots[at] & PRINT != rank.0 & PRINT {
            at = (at + 1) & mask;
        }
        at
    }

    fn slot(&mut self, rank: Rank) -> &mut u64 {
        let place = self.place(rank);
        &mut self.slots[place]
    }

    fn clear(&mut self, since: Nanos) {
        self.slots.fill(0);
        self.kept.clear();
        (self.used, self.since) = (0, since);
    }

    const fn half_full(&self) -> bool {
        self.used >= self.slots.len() / 2
    }

    const fn full(&self) -> bool {
        self.used >= self.slots.len() / 4 * 3
    }
}

/// All recent decisions.
#[derive(Debug)]
pub(super) struct Decisions {
    now: Generation,
    before: Generation,
    hold: Nanos,
    rushed: u64,
    forgot: bool,
}

impl Decisions {
    /// Bytes of a slot, in both generations. A kept trace takes about 48 more.
    pub(super) const SLOT_COST: usize = 16;

    /// Remembers decisions for `hold` at least, as long as no more than three quarters of `slots`, a power of two,
    /// arrive in that time.
    pub(super) fn new(slots: usize, hold: Nanos, now: Nanos) -> Self {
        Self { now: Generation::new(slots, now), before: Generation::new(slots, now), hold, rushed: 0, forgot: false }
    }

    /// From when on every decision is remembered; `None` if none was ever forgotten.
    pub(super) fn since(&self) -> Option<Nanos> {
        self.forgot.then_some(self.before.since)
    }

    /// How many times decisions were forgotten early, because there were too many.
    pub(super) const fn rushed(&self) -> u64 {
        self.rushed
    }

    /// Whether optional decisions may be recorded.
    pub(super) const fn has_spare_slots(&self) -> bool {
        !self.now.half_full()
    }

    /// The decision about `trace`.
    pub(super) fn get(&self, trace: TraceId, rank: Rank) -> Option<StickyDecision> {
        [&self.now, &self.before].into_iter().find_map(|generation| {
            let slot = generation.slots[generation.place(rank)];
            let spans = (slot & MAX) as u32;
            match (slot >> COUNT_BITS) & 3 {
                1 => {
                    let reason = generation.kept.get(&trace).cloned()?;
                    Some(StickyDecision::Kept { reason, own: spans != 0 })
                }
                2 => Some(StickyDecision::Dropped { spans }),
                3 => Some(StickyDecision::Evicted { spans }),
                _ => None,
            }
        })
    }

    /// Records `decision` about `trace`, and replaces an earlier one.
    pub(super) fn put(&mut self, trace: TraceId, rank: Rank, decision: &StickyDecision, now: Nanos) {
        self.turn(now);
        let (tag, spans) = match decision {
            StickyDecision::Kept { reason, own } => {
                self.now.kept.insert(trace, Arc::clone(reason));
                (Tag::Kept, u32::from(*own))
            }
            StickyDecision::Dropped { spans } => (Tag::Dropped, *spans),
            StickyDecision::Evicted { spans } => (Tag::Evicted, *spans),
        };
        let slot = self.now.slot(rank);
        let new = *slot == 0;
        *slot = (rank.0 & PRINT) | ((tag as u64) << COUNT_BITS) | u64::from(spans).min(MAX);
        self.now.used += usize::from(new);
    }

    /// Counts one more late span that follows `decision`, and records the decision anew: it must not be forgotten
    /// before the span is.
    pub(super) fn follow(&mut self, trace: TraceId, rank: Rank, decision: &StickyDecision, now: Nanos) {
        let decision = match decision {
            StickyDecision::Kept { .. } => decision.clone(),
            StickyDecision::Dropped { spans } => StickyDecision::Dropped { spans: spans.saturating_add(1) },
            StickyDecision::Evicted { spans } => StickyDecision::Evicted { spans: spans.saturating_add(1) },
        };
        self.put(trace, rank, &decision, now);
    }

    /// Forgets the older generation when the newer one is full, or has taken decisions for the whole hold.
    fn turn(&mut self, now: Nanos) {
        let due = now.since(self.now.since).is_some_and(|age| age >= self.hold);
        if !(due || self.now.full()) {
            return;
        }
        self.rushed += u64::from(!due);
        self.forgot |= self.before.used > 0;
        core::mem::swap(&mut self.now, &mut self.before);
        self.now.clear(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tracing::order::OrderKey;

    fn trace(number: u32) -> (TraceId, Rank) {
        let id = TraceId::new(u128::from(number + 1).to_be_bytes()).unwrap();
        (id, OrderKey::new(5).rank(id))
    }

    #[test]
    fn a_decision_is_remembered_for_its_hold_and_forgotten_after_twice_that() {
        let mut decisions = Decisions::new(64, Nanos(100), Nanos(0));
        let (id, rank) = trace(1);
        decisions.put(id, rank, &StickyDecision::Dropped { spans: 3 }, Nanos(50));
        decisions.follow(id, rank, &StickyDecision::Dropped { spans: 3 }, Nanos(60));

        let (other, other_rank) = trace(2);
        decisions.put(other, other_rank, &StickyDecision::Evicted { spans: 1 }, Nanos(150));
        assert_eq!(decisions.get(id, rank), Some(StickyDecision::Dropped { spans: 4 }));
        assert_eq!(decisions.since(), None);

        let (third, third_rank) = trace(3);
        decisions.put(third, third_rank, &StickyDecision::Evicted { spans: 1 }, Nanos(250));
        assert_eq!(decisions.get(id, rank), None);
        assert_eq!(decisions.get(other, other_rank), Some(StickyDecision::Evicted { spans: 1 }));
        assert_eq!((decisions.since(), decisions.rushed()), (Some(Nanos(150)), 0));
    }

    #[test]
    fn too_many_decisions_shorten_what_is_remembered_and_it_says_so() {
        let mut decisions = Decisions::new(64, Nanos(1_000), Nanos(0));

        for number in 0..200 {
            let (id, rank) = trace(number);
            decisions.put(id, rank, &StickyDecision::Dropped { spans: 1 }, Nanos(u64::from(number)));
        }

        assert!(decisions.rushed() >= 3);
        let since = decisions.since().unwrap().0 as u32;
        for number in since..200 {
            let (id, rank) = trace(number);
            assert!(decisions.get(id, rank).is_some(), "{number} of {since}..");
        }
    }

    #[test]
    fn a_decision_that_late_spans_follow_stays() {
        let mut decisions = Decisions::new(64, Nanos(100), Nanos(0));
        let (id, rank) = trace(1);
        decisions.put(id, rank, &StickyDecision::Dropped { spans: 1 }, Nanos(0));

        for now in (50..1_000).step_by(50) {
            let decision = decisions.get(id, rank).unwrap();
            decisions.follow(id, rank, &decision, Nanos(now));
        }

        assert_eq!(decisions.get(id, rank), Some(StickyDecision::Dropped { spans: 20 }));
    }

    #[test]
    fn a_count_saturates() {
        let mut decisions = Decisions::new(64, Nanos(1_000), Nanos(0));
        let (id, rank) = trace(1);
        decisions.put(id, rank, &StickyDecision::Evicted { spans: 1_000_000 }, Nanos(0));

        decisions.follow(id, rank, &StickyDecision::Evicted { spans: 65_535 }, Nanos(0));

        assert_eq!(decisions.get(id, rank), Some(StickyDecision::Evicted { spans: 65_535 }));
    }
}
