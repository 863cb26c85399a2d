//! Table of buffered traces: both the map from ids and the order of eviction. Its buckets are in the order of ranks,
//! and each is a chain in that order, so that the lowest rank is found without a second structure. A list through the
//! same entries is the order of arrival.

use wire::time::{Nanos, UnixNanos};

use crate::id::{OperationId, SenderId};
use crate::tracing::blocks::Chain;
use crate::tracing::order::{OrderKey, Rank};
use crate::tracing::record;
use crate::tracing::sole_services::SoleService;
use crate::tracing::span::TraceId;

const NONE: u32 = u32::MAX;

/// A buffered trace.
#[derive(Clone, Copy, Debug)]
#[repr(C, packed(4))]
pub(super) struct Trace {
    pub(super) id: TraceId,
    pub(super) start: UnixNanos,
    pub(super) end: UnixNanos,
    pub(super) arrived: Nanos,
    pub(super) chain: Chain,
    /// Encoded bytes of its spans, as received.
    pub(super) encoded: u32,
    /// Number of its spans that did not fit; 65,535 stands for any number above.
    lost: u16,
    /// Who sent its first span: it is of that share.
    pub(super) sender: SenderId,
    /// The service that all of its spans are of, if there is only one.
    pub(super) sole_service: SoleService,
    /// Number of buffered spans, and above them one bit for each [`Flag`].
    spans: u32,
    /// [`NONE`] while no entry span has arrived.
    operation: u32,
    below: u32,
    older: u32,
    newer: u32,
}

/// Bytes of an entry in the table.
pub(super) const TRACE_COST: usize = size_of::<Trace>();
const _: () = assert!(TRACE_COST == 76, "as documented at TailBuffer");

/// A property of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Flag {
    /// A span of it is in error.
    Error = 1 << 28,
    /// Its operation is that of a span without a parent, and is final.
    Rooted = 1 << 29,
    /// Its span without a parent is here, entry or not: nothing of it began earlier.
    Root = 1 << 30,
    /// The entry is free.
    Free = 1 << 31,
}

const SPANS: u32 = (1 << 28) - 1;
const _: () = assert!(record::LONGEST <= SPANS as usize, "of a trace's bytes each span takes more than one");

impl Trace {
    pub(super) fn operation(&self) -> Option<OperationId> {
        (self.operation != NONE).then_some(OperationId(self.operation))
    }

    pub(super) fn enter(&mut self, operation: OperationId, rooted: bool) {
        self.operation = operation.0;
        self.set(Flag::Rooted, rooted);
    }

    /// Number of buffered spans.
    pub(super) const fn spans(&self) -> u32 {
        self.spans & SPANS
    }

    /// Counts one more span of `encoded` bytes.
    pub(super) const fn count(&mut self, encoded: usize) {
        self.spans += 1;
        self.encoded += encoded as u32;
    }

    /// Number of its spans that did not fit.
    pub(super) fn lost(&self) -> u32 {
        self.lost.into()
    }

    /// Counts one more span that did not fit.
    pub(super) const fn lose(&mut self) {
        self.lost = self.lost.saturating_add(1);
    }

    pub(super) const fn is(&self, flag: Flag) -> bool {
        self.spans & flag as u32 != 0
    }

    /// Sets `flag` if `so`; a flag is never cleared.
    pub(super) const fn set(&mut self, flag: Flag, so: bool) {
        if so {
            self.spans |= flag as u32;
        }
    }
}

#[derive(Debug)]
pub(super) struct Traces {
    key: OrderKey,
    entries: Vec<Trace>,
    /// 0 for an empty bucket, else the index of the first entry + 1: zeroed memory that is never written costs nothing.
    heads: Vec<u32>,
    bits: u32,
    /// All buckets below are empty.
    lowest: usize,
    oldest: u32,
    newest: u32,
    /// The oldest trace that was not [passed over](Self::pass_over).
    unseen: u32,
    free: u32,
    count: usize,
}

impl Traces {
    /// Number of buckets for up to `limit` traces, as a power of two: one for one to two traces when full.
    pub(super) const fn bits(limit: usize) -> u32 {
        let limit = if limit < 2 { 2 } else { limit };
        limit.ilog2()
    }

    /// Reserves up to `limit` traces. The system commits memory when it is first written.
    pub(super) fn new(key: OrderKey, limit: usize) -> Result<Self, std::collections::TryReserveError> {
        let bits = Self::bits(limit);
        let mut entries = Vec::new();
        entries.try_reserve_exact(limit)?;
        let (oldest, newest, unseen, free) = (NONE, NONE, NONE, NONE);
        let heads = vec![0; 1 << bits];
        Ok(Self { key, entries, heads, bits, lowest: 1 << bits, oldest, newest, unseen, free, count: 0 })
    }

    pub(super) const fn len(&self) -> usize {
        self.count
    }

    /// Entries that were ever used; they are never given back.
    pub(super) const fn allocated(&self) -> usize {
        self.entries.len()
    }

    pub(super) const fn has_free(&self) -> bool {
        self.free != NONE
    }

    pub(super) fn get(&self, place: u32) -> &Trace {
        &self.entries[place as usize]
    }

    pub(super) fn get_mut(&mut self, place: u32) -> &mut Trace {
        &mut self.entries[place as usize]
    }

    /// The trace at `place`, below [`allocated`](Self::allocated); `None` if the entry is free.
    pub(super) fn at(&self, place: usize) -> Option<&Trace> {
        self.entries.get(place).filter(|trace| !trace.is(Flag::Free))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Trace> {
        self.entries.iter().filter(|trace| !trace.is(Flag::Free))
    }

    pub(super) const fn bucket(&self, rank: Rank) -> usize {
        (rank.0 >> (u64::BITS - self.bits)) as usize
    }

    fn head(&self, bucket: usize) -> u32 {
        self.heads[bucket].wrapping_sub(1)
    }

    pub(super) fn find(&self, id: TraceId, rank: Rank) -> Option<u32> {
        let mut place = self.head(self.bucket(rank));
        while place != NONE {
            let trace = self.get(place);
            if trace.id == id {
                return Some(place);
            }
            place = trace.below;
        }
        None
    }

    /// The entries before and after `rank` in its bucket.
    fn neighbours(&self, bucket: usize, rank: Rank) -> (u32, u32) {
        let (mut before, mut after) = (NONE, self.head(bucket));
        while after != NONE && self.key.rank(self.get(after).id) < rank {
            (before, after) = (after, self.get(after).below);
        }
        (before, after)
    }

    /// Inserts a trace of `sender` that is not there. The caller has made sure that an entry is free or can be
    /// allocated.
    pub(super) fn insert(&mut self, (id, sender): (TraceId, SenderId), rank: Rank, arrived: Nanos) -> u32 {
        let bucket = self.bucket(rank);
        let (before, after) = self.neighbours(bucket, rank);
        let trace = Trace {
            id,
            start: UnixNanos(u64::MAX),
            end: UnixNanos(0),
            arrived,
            chain: Chain::EMPTY,
            encoded: 0,
            lost: 0,
            sender,
            sole_service: SoleService::NONE,
            spans: 0,
            operation: NONE,
            below: after,
            older: self.newest,
            newer: NONE,
        };
        let place = self.place(trace);
        match before {
            NONE => self.heads[bucket] = place + 1,
            before => self.get_mut(before).below = place,
        }
        match self.newest {
            NONE => self.oldest = place,
            newest => self.get_mut(newest).newer = place,
        }
        self.newest = place;
        if self.unseen == NONE {
            self.unseen = place;
        }
        self.lowest = self.lowest.min(bucket);
        self.count += 1;
        place
    }

    fn place(&mut self, trace: Trace) -> u32 {
        if self.free == NONE {
            debug_assert!(self.entries.len() < self.entries.capacity(), "the caller keeps to the limit");
            self.entries.push(trace);
            return (self.entries.len() - 1) as u32;
        }
        let place = self.free;
        self.free = self.get(place).below;
        *self.get_mut(place) = trace;
        place
    }

    /// Removes a trace. The caller releases its chain.
    pub(super) fn remove(&mut self, place: u32) -> Trace {
        let trace = *self.get(place);
        if self.unseen == place {
            self.unseen = trace.newer;
        }
        let rank = self.key.rank(trace.id);
        let bucket = self.bucket(rank);
        let (mut before, mut at) = (NONE, self.head(bucket));
        while at != place && at != NONE {
            (before, at) = (at, self.get(at).below);
        }
        match before {
            NONE => self.heads[bucket] = trace.below.wrapping_add(1),
            before => self.get_mut(before).below = trace.below,
        }
        match trace.older {
            NONE => self.oldest = trace.newer,
            older => self.get_mut(older).newer = trace.newer,
        }
        match trace.newer {
            NONE => self.newest = trace.older,
            newer => self.get_mut(newer).older = trace.older,
        }
        let free = self.free;
        let entry = self.get_mut(place);
        entry.set(Flag::Free, true);
        entry.below = free;
        self.free = place;
        self.count -= 1;
        trace
    }

    /// All traces, the oldest first.
    pub(super) fn by_age(&self) -> impl Iterator<Item = &Trace> {
        let at = move |place: u32| (place != NONE).then(|| self.get(place));
        core::iter::successors(at(self.oldest), move |trace| at(trace.newer))
    }

    pub(super) fn oldest(&self) -> Option<u32> {
        (self.oldest != NONE).then_some(self.oldest)
    }

    /// The oldest trace that was not passed over.
    pub(super) fn unseen(&self) -> Option<u32> {
        (self.unseen != NONE).then_some(self.unseen)
    }

    /// Passes over [`unseen`](Self::unseen): the next is the one that arrived after it.
    pub(super) fn pass_over(&mut self) {
        if let Some(place) = self.unseen() {
            self.unseen = self.get(place).newer;
        }
    }

    /// The trace that is evicted first.
    pub(super) fn lowest(&mut self) -> Option<(u32, Rank)> {
        while self.lowest < self.heads.len() {
            let place = self.head(self.lowest);
            if place != NONE {
                return Some((place, self.key.rank(self.get(place).id)));
            }
            self.lowest += 1;
        }
        None
    }

    /// The trace of `sender` that is evicted first, where none of them is in a bucket below `from`.
    pub(super) fn lowest_of(&self, sender: SenderId, from: usize) -> Option<(u32, Rank)> {
        for bucket in from.max(self.lowest)..self.heads.len() {
            let mut place = self.head(bucket);
            while place != NONE {
                let trace = self.get(place);
                if trace.sender == sender {
                    return Some((place, self.key.rank(trace.id)));
                }
                place = trace.below;
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    fn trace(number: u64) -> TraceId {
        TraceId::new(u128::from(number + 1).to_be_bytes()).unwrap()
    }

    proptest! {
        /// Against a map by id, a map by rank and a list.
        #[test]
        fn the_table_is_a_map_an_order_and_a_queue(steps in proptest::collection::vec((0..60_u64, 0..5_u8), 1..400)) {
            let key = OrderKey::new(3);
            let mut traces = Traces::new(key, 16).unwrap();
            let (mut by_rank, mut queue, mut seen) = (BTreeMap::new(), Vec::new(), BTreeSet::new());
            for (number, action) in steps {
                let id = trace(number);
                let rank = key.rank(id);
                let found = traces.find(id, rank);
                prop_assert_eq!(found.is_some(), by_rank.contains_key(&rank));
                match (found, action) {
                    (Some(place), 0 | 1) => {
                        prop_assert_eq!(traces.remove(place).id, id);
                        by_rank.remove(&rank);
                        queue.retain(|waiting| *waiting != id);
                        seen.remove(&id);
                    }
                    (_, 4) => {
                        seen.extend(traces.unseen().map(|place| traces.get(place).id));
                        traces.pass_over();
                    }
                    (None, 0..=2) if by_rank.len() < 16 => {
                        traces.insert((id, SenderId(number as u8 % 3)), rank, Nanos(number));
                        by_rank.insert(rank, id);
                        queue.push(id);
                    }
                    _ => {}
                }
                let lowest = traces.lowest().map(|(place, rank)| (rank, traces.get(place).id));
                prop_assert_eq!(lowest, by_rank.first_key_value().map(|(rank, id)| (*rank, *id)));
                for sender in [0, 1, 2] {
                    let found = traces.lowest_of(SenderId(sender), 0).map(|(place, _)| traces.get(place).id);
                    let of = |id: &TraceId| (0..60).find(|number| trace(*number) == *id).map(|number| number as u8 % 3);
                    let expected = by_rank.values().find(|id| of(id) == Some(sender)).copied();
                    prop_assert_eq!(found, expected);
                }
                let oldest = traces.oldest().map(|place| traces.get(place).id);
                prop_assert_eq!(oldest, queue.first().copied());
                prop_assert!(traces.by_age().map(|trace| trace.id).eq(queue.iter().copied()));
                let unseen = traces.unseen().map(|place| traces.get(place).id);
                prop_assert_eq!(unseen, queue.iter().find(|waiting| !seen.contains(*waiting)).copied());
                prop_assert_eq!(traces.len(), queue.len());
                prop_assert_eq!(traces.iter().count(), queue.len());
                prop_assert!(traces.allocated() <= 16);
            }
        }
    }
}
