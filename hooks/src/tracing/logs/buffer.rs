//! Waiting log records: their encoded bytes in blocks, an entry for each, lists by service and by trace. When memory is
//! short, the service with the most memory loses its oldest records, so that a flood of one costs the others nothing.

use std::collections::{BTreeMap, TryReserveError};

use wire::time::{Nanos, UnixNanos};

use crate::id::{OriginId, ServiceId};
use crate::tracing::account::Tally;
use crate::tracing::blocks::{BLOCK_COST, Blocks, Chain};
use crate::tracing::logs::record::LogRecord;
use crate::tracing::order::OrderKey;
use crate::tracing::span::TraceId;

const NONE: u32 = u32::MAX;
/// Blocks that a record counts for at least. So there are never more entries than a quarter of the blocks.
const LEAST: usize = 4;
/// Bytes of memory for each block: the block, and its part of entries and of the map from traces.
const UNIT_COST: usize = BLOCK_COST + (size_of::<Entry>() + size_of::<u32>()).div_ceil(LEAST);
/// Blocks below which there is no buffer.
const MIN_UNITS: usize = 1_024;

/// A waiting record. `older` and `newer` are of the same service, `before` and `after` of the same bucket.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Both halves of the trace's id; 0 without one.
    trace: [u64; 2],
    at: UnixNanos,
    arrived: Nanos,
    chain: Chain,
    service: ServiceId,
    origin: OriginId,
    older: u32,
    newer: u32,
    before: u32,
    after: u32,
}
const _: () = assert!(size_of::<Entry>() == 64, "as documented at LogBuffer");

impl Entry {
    fn units(&self) -> usize {
        units(self.chain.bytes())
    }
}

const fn units(bytes: usize) -> usize {
    let blocks = Chain::EMPTY.growth(bytes);
    if blocks < LEAST { LEAST } else { blocks }
}

/// Records of one service.
#[derive(Clone, Copy, Debug)]
struct ServiceList {
    oldest: u32,
    newest: u32,
    units: usize,
}

/// A record that waits, without its bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct WaitingLog {
    pub(super) trace: Option<TraceId>,
    pub(super) service: ServiceId,
    pub(super) origin: OriginId,
    pub(super) at: UnixNanos,
}

/// Why no buffer can be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogLimitsError {
    /// The memory budget is too small.
    #[error("{bytes} bytes are too few for waiting log records: at least {least} are needed")]
    TooSmall {
        /// Configured memory budget.
        bytes: usize,
        /// The least budget.
        least: usize,
    },
    /// More than the numbers of blocks can address.
    #[error("{bytes} bytes for waiting log records: at most 64 GiB are possible")]
    TooLarge {
        /// Configured memory budget.
        bytes: usize,
    },
    /// The address space is too small.
    #[error("the memory for waiting log records cannot be reserved")]
    Memory(#[from] TryReserveError),
}

/// Waiting log records of one tenant on one node.
///
/// Memory: the budget at most, committed by the system when it is first used. A record takes its bytes in blocks of 64
/// with 60 of payload, and 64 for its entry: 1.4 times its bytes and 81 at most, 324 at least.
#[derive(Debug)]
pub(super) struct LogBuffer {
    key: OrderKey,
    /// Blocks that there may be, and those that records count for.
    limit: usize,
    used: usize,
    blocks: Blocks,
    entries: Vec<Entry>,
    free: u32,
    /// By rank of the trace: 0 for an empty bucket, else the newest entry + 1.
    heads: Vec<u32>,
    services: BTreeMap<ServiceId, ServiceList>,
    scratch: Vec<u8>,
}

impl LogBuffer {
    /// An empty buffer for `bytes` of memory.
    pub(super) fn new(bytes: usize, key: OrderKey) -> Result<Self, LogLimitsError> {
        let limit = bytes / UNIT_COST;
        if limit < MIN_UNITS {
            return Err(LogLimitsError::TooSmall { bytes, least: MIN_UNITS * UNIT_COST });
        }
        if bytes > 64 << 30 {
            return Err(LogLimitsError::TooLarge { bytes });
        }
        let mut entries = Vec::new();
        entries.try_reserve_exact(limit / LEAST)?;
        let heads = vec![0; 1 << (limit / LEAST).ilog2()];
        let (blocks, services) = (Blocks::new(limit)?, BTreeMap::new());
        Ok(Self { key, limit, used: 0, blocks, entries, free: NONE, heads, services, scratch: Vec::new() })
    }

    /// Memory committed so far, in bytes. Never falls: memory is reused.
    pub(super) const fn memory(&self) -> usize {
        let (blocks, entries) = (self.blocks.allocated() * BLOCK_COST, self.entries.len() * size_of::<Entry>());
        blocks + entries + self.heads.len() * size_of::<u32>()
    }

    /// Takes a record that arrived at `now`. Those that make room are passed to `lost` with their service. `false` if
    /// it takes more than half of the memory.
    pub(super) fn offer(&mut self, record: &LogRecord<'_>, now: Nanos, lost: impl FnMut(ServiceId, Tally)) -> bool {
        let needed = units(record.encoded.len());
        if needed > self.limit / 2 {
            return false;
        }
        self.make_room(needed, lost);
        let mut chain = Chain::EMPTY;
        self.blocks.append(&mut chain, record.encoded);
        let older = self.services.get(&record.service).map_or(NONE, |list| list.newest);
        let (upper, lower) = record.trace.map_or((0, 0), TraceId::halves);
        let entry = Entry {
            trace: [upper, lower],
            at: record.at,
            arrived: now,
            chain,
            service: record.service,
            origin: record.origin,
            older,
            newer: NONE,
            before: NONE,
            after: NONE,
        };
        let place = self.place(entry);
        self.link(place, record.trace);
        self.used += needed;
        if older != NONE {
            self.entries[older as usize].newer = place;
        }
        let list = self.services.entry(record.service);
        let list = list.or_insert(ServiceList { oldest: place, newest: place, units: 0 });
        (list.newest, list.units) = (place, list.units + needed);
        true
    }

    /// Whether a record of `trace` waits.
    pub(super) fn has(&self, trace: TraceId) -> bool {
        self.of_trace(trace).next().is_some()
    }

    /// Removes the records of `trace`, in order of arrival. Each is passed to `sink` with its bytes.
    pub(super) fn take_trace(&mut self, trace: TraceId, mut sink: impl FnMut(&WaitingLog, &[u8])) {
        let places: Vec<u32> = self.of_trace(trace).collect();
        places.into_iter().rev().for_each(|place| self.take(place, &mut sink));
    }

    /// Removes the records of `service` for which `wanted` gives something. Each is passed to `sink` with that, and
    /// with its bytes.
    pub(super) fn take_if<T>(
        &mut self,
        service: ServiceId,
        mut wanted: impl FnMut(&WaitingLog, usize) -> Option<T>,
        mut sink: impl FnMut(&WaitingLog, T, &[u8]),
    ) {
        let mut place = self.services.get(&service).map_or(NONE, |list| list.oldest);
        while place != NONE {
            let (entry, this) = (self.entries[place as usize], place);
            place = entry.newer;
            if let Some(found) = wanted(&waiting(&entry), entry.chain.bytes()) {
                let mut found = Some(found);
                self.take(this, &mut |log: &WaitingLog, bytes: &[u8]| {
                    if let Some(found) = found.take() {
                        sink(log, found, bytes);
                    }
                });
            }
        }
    }

    /// Removes what has waited for `age` at `now`.
    pub(super) fn expire(&mut self, age: Nanos, now: Nanos, mut gone: impl FnMut(ServiceId, Tally)) {
        let services: Vec<ServiceId> = self.services.keys().copied().collect();
        for service in services {
            while let Some(list) = self.services.get(&service) {
                let entry = self.entries[list.oldest as usize];
                if now.since(entry.arrived).is_none_or(|waited| waited < age) {
                    break;
                }
                gone(service, Tally::one(entry.chain.bytes()));
                self.remove(list.oldest);
            }
        }
    }

    /// Removes the oldest records of whoever has most until `needed` blocks are free.
    fn make_room(&mut self, needed: usize, mut lost: impl FnMut(ServiceId, Tally)) {
        while self.used + needed > self.limit {
            let most = self.services.iter().max_by_key(|(_, list)| list.units);
            let Some((service, oldest)) = most.map(|(service, list)| (*service, list.oldest)) else { return };
            lost(service, Tally::one(self.entries[oldest as usize].chain.bytes()));
            self.remove(oldest);
        }
    }

    fn bucket(&self, trace: TraceId) -> usize {
        (self.key.rank(trace).position() >> (u64::BITS - self.heads.len().ilog2())) as usize
    }

    /// Places of the records of `trace`, the newest first.
    fn of_trace(&self, trace: TraceId) -> impl Iterator<Item = u32> {
        let (upper, lower) = trace.halves();
        let first = self.heads[self.bucket(trace)].wrapping_sub(1);
        let next = |place: &u32| Some(self.entries[*place as usize].after).filter(|next| *next != NONE);
        let bucket = core::iter::successors(Some(first).filter(|first| *first != NONE), next);
        bucket.filter(move |place| self.entries[*place as usize].trace == [upper, lower])
    }

    fn place(&mut self, entry: Entry) -> u32 {
        if self.free == NONE {
            self.entries.push(entry);
            return (self.entries.len() - 1) as u32;
        }
        let place = self.free;
        self.free = self.entries[place as usize].newer;
        self.entries[place as usize] = entry;
        place
    }

    /// Puts the entry at `place` first into the bucket of its trace.
    fn link(&mut self, place: u32, trace: Option<TraceId>) {
        let Some(bucket) = trace.map(|trace| self.bucket(trace)) else { return };
        let after = self.heads[bucket].wrapping_sub(1);
        self.heads[bucket] = place + 1;
        self.entries[place as usize].after = after;
        if after != NONE {
            self.entries[after as usize].before = place;
        }
    }

    fn take(&mut self, place: u32, sink: &mut impl FnMut(&WaitingLog, &[u8])) {
        let entry = self.entries[place as usize];
        self.scratch.clear();
        self.blocks.read(entry.chain).copy(entry.chain.bytes(), &mut self.scratch);
        sink(&waiting(&entry), &self.scratch);
        self.remove(place);
        // One long record must not hold its bytes for ever.
        self.scratch.shrink_to(64 << 10);
    }

    fn remove(&mut self, place: u32) {
        let entry = self.entries[place as usize];
        self.blocks.release(entry.chain);
        self.used -= entry.units();
        match (entry.before, trace_of(&entry)) {
            (NONE, Some(trace)) => {
                let bucket = self.bucket(trace);
                self.heads[bucket] = entry.after.wrapping_add(1);
            }
            (NONE, None) => {}
            (before, _) => self.entries[before as usize].after = entry.after,
        }
        for (neighbour, is_newer) in [(entry.older, false), (entry.newer, true)] {
            if neighbour != NONE {
                let neighbour = &mut self.entries[neighbour as usize];
                if is_newer { neighbour.older = entry.older } else { neighbour.newer = entry.newer }
            }
        }
        if entry.after != NONE {
            self.entries[entry.after as usize].before = entry.before;
        }
        if let Some(list) = self.services.get_mut(&entry.service) {
            list.units -= entry.units();
            list.oldest = if list.oldest == place { entry.newer } else { list.oldest };
            list.newest = if list.newest == place { entry.older } else { list.newest };
            if list.oldest == NONE {
                self.services.remove(&entry.service);
            }
        }
        self.entries[place as usize].newer = self.free;
        self.free = place;
    }
}

fn trace_of(entry: &Entry) -> Option<TraceId> {
    let [upper, lower] = entry.trace;
    TraceId::new((u128::from(upper) << 64 | u128::from(lower)).to_be_bytes())
}

fn waiting(entry: &Entry) -> WaitingLog {
    WaitingLog { trace: trace_of(entry), service: entry.service, origin: entry.origin, at: entry.at }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;
    use crate::tracing::logs::record::Severity;

    const BYTES: usize = MIN_UNITS * UNIT_COST;

    fn record(trace: u128, service: u32, encoded: &[u8]) -> LogRecord<'_> {
        LogRecord {
            trace: TraceId::new(trace.to_be_bytes()),
            service: ServiceId(service),
            origin: OriginId(3),
            severity: Severity::default(),
            at: UnixNanos(9),
            encoded,
        }
    }

    fn buffer() -> LogBuffer {
        LogBuffer::new(BYTES, OrderKey::new(7)).unwrap()
    }

    #[test]
    fn a_trace_leaves_in_order_of_arrival_and_byte_for_byte() {
        let mut buffer = buffer();
        let long: Vec<u8> = (0..1_000).map(|n| n as u8).collect();
        for (trace, bytes) in [(1, &b"a"[..]), (2, b"b"), (1, &long), (0, b"d"), (1, b"")] {
            assert!(buffer.offer(&record(trace, 1, bytes), Nanos(0), |_, _| panic!("there is room")));
        }

        let mut taken = Vec::new();
        let trace = TraceId::new(1_u128.to_be_bytes()).unwrap();
        assert!(buffer.has(trace));
        buffer.take_trace(trace, |log, bytes| taken.push((log.trace, bytes.to_vec())));

        assert_eq!(taken, [b"a".to_vec(), long, Vec::new()].map(|bytes| (Some(trace), bytes)));
        assert!(!buffer.has(trace));
        let mut left = Vec::new();
        buffer.take_if(ServiceId(1), |_, bytes| Some(bytes), |log, _, bytes| left.push((log.trace, bytes.to_vec())));
        let other = TraceId::new(2_u128.to_be_bytes());
        assert_eq!(left, [(other, b"b".to_vec()), (None, b"d".to_vec())]);
        assert_eq!((buffer.used, buffer.services.len()), (0, 0));
    }

    #[test]
    fn a_flood_of_one_service_costs_the_others_nothing() {
        let mut buffer = buffer();
        for _ in 0..20 {
            assert!(buffer.offer(&record(0, 1, &[1; 200]), Nanos(0), |_, _| panic!("there is room")));
        }
        let mut lost = 0;
        for _ in 0..5_000 {
            let evicted = |service, tally: Tally| {
                assert_eq!(service, ServiceId(2));
                lost += tally.spans;
            };
            assert!(buffer.offer(&record(5, 2, &[2; 200]), Nanos(1), evicted));
        }

        assert!(lost > 4_000, "{lost}");
        let mut kept = 0;
        buffer.take_if(ServiceId(1), |_, _| Some(()), |_, (), _| kept += 1);
        assert_eq!(kept, 20);
        assert!(buffer.memory() <= BYTES, "{}", buffer.memory());
    }

    #[test]
    fn a_record_of_more_than_half_the_memory_is_refused() {
        let mut buffer = buffer();
        let huge = vec![0; MIN_UNITS / 2 * 60 + 1];

        assert!(!buffer.offer(&record(1, 1, &huge), Nanos(0), |_, _| panic!("nothing makes room for it")));
        assert!(buffer.offer(&record(1, 1, &huge[1..]), Nanos(0), |_, _| panic!("there is room")));
        assert!(LogBuffer::new(BYTES - 1, OrderKey::new(7)).is_err());
    }

    #[test]
    fn what_has_waited_long_enough_leaves_and_nothing_else() {
        let mut buffer = buffer();
        for at in 0..10 {
            assert!(buffer.offer(&record(at.into(), at as u32 % 3, b"x"), Nanos(at), |_, _| panic!("there is room")));
        }

        let mut gone = 0;
        buffer.expire(Nanos(5), Nanos(9), |_, tally| gone += tally.spans);

        assert_eq!(gone, 5);
        let mut left = 0;
        for service in 0..3 {
            buffer.take_if(ServiceId(service), |_, _| Some(()), |_, (), _| left += 1);
        }
        assert_eq!(left, 5);
    }

    proptest! {
        /// Whatever comes and goes, each record is in one place, memory stays within the budget, and bytes come back.
        #[test]
        fn nothing_is_lost_or_given_twice(
            steps in prop::collection::vec((0_u128..6, 0_u32..4, 0_usize..6_000, 0_u8..4), 1..300),
        ) {
            let mut buffer = buffer();
            let mut model: VecDeque<(u128, u32, Vec<u8>)> = VecDeque::new();
            for (number, (trace, service, length, act)) in steps.into_iter().enumerate() {
                match act {
                    0 => {
                        let mut taken = Vec::new();
                        if let Some(id) = TraceId::new(trace.to_be_bytes()) {
                            buffer.take_trace(id, |_, bytes| taken.push(bytes.to_vec()));
                            let expected: Vec<_> =
                                model.iter().filter(|(of, ..)| *of == trace).map(|(.., bytes)| bytes.clone()).collect();
                            model.retain(|(of, ..)| *of != trace);
                            prop_assert_eq!(taken, expected);
                        }
                    }
                    1 => {
                        let mut taken = Vec::new();
                        let wanted = |_: &WaitingLog, bytes: usize| bytes.is_multiple_of(2).then_some(());
                        buffer.take_if(ServiceId(service), wanted, |_, (), bytes| taken.push(bytes.to_vec()));
                        let is_taken =
                            |(_, of, bytes): &(u128, u32, Vec<u8>)| *of == service && bytes.len() % 2 == 0;
                        let expected: Vec<_> =
                            model.iter().filter(|log| is_taken(log)).map(|(.., bytes)| bytes.clone()).collect();
                        model.retain(|log| !is_taken(log));
                        prop_assert_eq!(taken, expected);
                    }
                    _ => {
                        let bytes: Vec<u8> = (0..length).map(|n| (n * 7 + number) as u8).collect();
                        let mut lost = Vec::new();
                        let taken =
                            buffer.offer(&record(trace, service, &bytes), Nanos(number as u64), |of, _| lost.push(of));
                        for of in lost {
                            let oldest = model.iter().position(|(_, service, _)| *service == of.0).unwrap();
                            model.remove(oldest);
                        }
                        if taken {
                            model.push_back((trace, service, bytes));
                        }
                    }
                }
                prop_assert!(buffer.memory() <= BYTES);
                let used: usize = model.iter().map(|(.., bytes)| units(bytes.len())).sum();
                prop_assert_eq!(buffer.used, used);
            }
        }
    }
}
