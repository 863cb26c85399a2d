//! The tail buffer against a model that remembers everything: the account balances, bytes come back as received, no
//! incomplete trace is unmarked, and every node keeps the same traces.

use std::collections::BTreeMap;
use std::sync::Arc;

use hooks::id::{OperationId, OriginId, SenderId, ServiceId};
use hooks::tracing::{
    Completeness, DropReason, KeepOutcome, Limits, LimitsError, LossReason, OfferOutcome, OrderKey, Reason, Span,
    SpanId, SpanIndex, SpanKind, StickyDecision, TailBuffer, Tally, TraceId,
};
use proptest::prelude::*;
use wire::time::{Nanos, UnixNanos};

const KEY: OrderKey = OrderKey::new(0x0123_4567_89ab_cdef_0011_2233_4455_6677);

fn trace(number: u64) -> TraceId {
    TraceId::new(u128::from(number + 1).to_be_bytes()).expect("not zero")
}

fn index(number: u64) -> SpanIndex {
    SpanIndex {
        id: SpanId::new((number + 1).to_be_bytes()).expect("not zero"),
        parent: None,
        kind: SpanKind::Server,
        service: ServiceId(1),
        operation: OperationId(2),
        origin: OriginId(3),
        start: UnixNanos(number * 10),
        end: UnixNanos(number * 10 + 5),
        error: false,
    }
}

fn span(trace: TraceId, number: u64, encoded: &[u8]) -> Span<'_> {
    let (sender, trigger, randomness, threshold) = (SenderId::default(), None, None, None);
    Span { trace, index: index(number), sender, entry: true, trigger, randomness, threshold, encoded }
}

fn reason() -> Arc<Reason> {
    Arc::new(Reason::Trigger { text: "test".into() })
}

/// A memory budget of a few kilobytes.
fn tight() -> Limits {
    Limits {
        bytes: 12_000,
        age: Nanos::from_millis(1_000),
        trace_bytes: 2_000,
        decisions: 16,
        hold: Nanos::from_millis(2_000),
    }
}

/// Asserts that the account balances and agrees with the buffered traces.
fn assert_accounted(buffer: &TailBuffer, limits: Limits) {
    assert!(buffer.account().balances(), "{:?}", buffer.account());
    let waiting = buffer.traces().fold(Tally::default(), |sum, waiting| {
        sum.plus(Tally { spans: u64::from(waiting.spans), bytes: waiting.bytes })
    });
    assert_eq!(buffer.account().waiting, waiting);
    assert!(buffer.memory() <= limits.bytes, "{} of {}", buffer.memory(), limits.bytes);
    assert!(buffer.in_use() <= buffer.memory());
}

/// What the model remembers of a trace.
#[derive(Debug, Default)]
struct ModelTrace {
    /// Buffered spans, as received.
    waiting: Vec<(SpanIndex, Vec<u8>)>,
    /// Times at which a span of it was dropped or lost.
    gone: Vec<u64>,
}

#[derive(Clone, Debug)]
enum Step {
    Offer { trace: u64, bytes: usize },
    Keep(u64),
    Expire,
    Pass(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        10 => (0..30_u64, 0..900_usize).prop_map(|(trace, bytes)| Step::Offer { trace, bytes }),
        1 => (0..30_u64).prop_map(Step::Keep),
        1 => Just(Step::Expire),
        3 => (0..400_u64).prop_map(Step::Pass),
    ];
    proptest::collection::vec(step, 1..400)
}

/// The buffer and its model.
struct World {
    buffer: TailBuffer,
    model: BTreeMap<u64, ModelTrace>,
    now: u64,
    spans: u64,
}

impl World {
    fn now(&self) -> Nanos {
        Nanos::from_millis(self.now)
    }

    fn offer(&mut self, number: u64, bytes: usize) {
        self.spans += 1;
        let encoded: Vec<u8> = (0..bytes).map(|i| (i as u64 * 7 + self.spans) as u8).collect();
        let (before, now) = (self.waiting(), self.now());
        let offered = self.buffer.offer(&span(trace(number), self.spans, &encoded), now);
        match offered {
            OfferOutcome::Buffered(waiting) => {
                let entry = self.model.entry(number).or_default();
                entry.waiting.push((index(self.spans), encoded));
                assert_eq!(waiting.spans as usize, entry.waiting.len());
                assert_eq!(waiting.bytes as usize, entry.waiting.iter().map(|(_, bytes)| bytes.len()).sum::<usize>());
            }
            OfferOutcome::Follows(StickyDecision::Kept { .. }) => {}
            OfferOutcome::Follows(_) | OfferOutcome::Lost(_) => {
                self.model.entry(number).or_default().gone.push(self.now);
            }
        }
        self.gone_since(&before, Some(number));
    }

    fn waiting(&self) -> Vec<u64> {
        self.model.iter().filter(|(_, entry)| !entry.waiting.is_empty()).map(|(number, _)| *number).collect()
    }

    /// Traces that were buffered `before` and are not any more were discarded: evicted in favour of higher ranks, if
    /// the span `offered` arrived.
    fn gone_since(&mut self, before: &[u64], offered: Option<u64>) {
        for number in before {
            if self.buffer.get(trace(*number)).is_some() {
                continue;
            }
            if let Some(offered) = offered {
                let (gone, came) = (self.buffer.rank(trace(*number)), self.buffer.rank(trace(offered)));
                assert!(gone <= came, "a trace was evicted in favour of one of lower rank");
                assert!(
                    self.buffer.traces().all(|other| self.buffer.rank(other.trace) > gone),
                    "a lower one is buffered"
                );
            }
            let entry = self.model.entry(*number).or_default();
            entry.waiting.clear();
            entry.gone.push(self.now);
        }
    }

    fn keep(&mut self, number: u64, limits: Limits) {
        let (mut given, now) = (Vec::new(), self.now());
        let arrived = self.buffer.get(trace(number)).map_or(now, |waiting| waiting.arrived);
        let kept = self.buffer.keep(trace(number), &reason(), now, |index, bytes| given.push((*index, bytes.to_vec())));
        let entry = self.model.entry(number).or_default();
        let spread = limits.hold.0 - limits.age.0;
        let gone_lately = entry.gone.iter().any(|at| Nanos::from_millis(*at).0 + spread >= arrived.0);
        match kept {
            KeepOutcome::Released { completeness, tally } => {
                assert_eq!(given, entry.waiting);
                assert_eq!(tally.spans as usize, given.len());
                assert!(completeness != Completeness::Complete || !gone_lately, "an unmarked half of a trace");
                entry.waiting.clear();
            }
            KeepOutcome::Unseen(completeness) => {
                assert!(given.is_empty() && entry.waiting.is_empty());
                assert!(completeness != Completeness::Complete || !gone_lately, "an unmarked missing trace");
            }
            KeepOutcome::Gone(completeness) => {
                assert_ne!(completeness, Completeness::Complete);
                assert!(given.is_empty() && !entry.gone.is_empty());
            }
            KeepOutcome::Already => assert!(given.is_empty()),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_account_balances_and_no_half_of_a_trace_is_unmarked(steps in steps()) {
        let limits = tight();
        let buffer = TailBuffer::new(limits, KEY, Nanos::ZERO).unwrap();
        let mut world = World { buffer, model: BTreeMap::new(), now: 0, spans: 0 };
        for step in steps {
            match step {
                Step::Offer { trace, bytes } => world.offer(trace, bytes),
                Step::Keep(trace) => world.keep(trace, limits),
                Step::Pass(millis) => world.now += millis,
                Step::Expire => {
                    let before = world.waiting();
                    let now = world.now();
                    world.buffer.expire(now, |waiting, _, spans| {
                        assert!(now.0 - waiting.arrived.0 >= limits.age.0);
                        assert_eq!(spans.count(), waiting.spans as usize);
                    });
                    prop_assert!(world.buffer.traces().all(|waiting| now.0 - waiting.arrived.0 < limits.age.0));
                    world.gone_since(&before, None);
                }
            }
            assert_accounted(&world.buffer, limits);
        }
    }
}

/// Three nodes, one with a tenth of the memory, 3,000 traces whose spans arrive mixed; then all traces are kept.
#[test]
fn a_trace_is_whole_on_every_node_or_marked_and_the_short_node_decides_by_rank() {
    let limits = |bytes| Limits { bytes, trace_bytes: 20_000, decisions: 1 << 13, ..Limits::default() };
    let (large, small) = (limits(4_000_000), limits(400_000));
    let mut nodes = [large, large, small].map(|limits| TailBuffer::new(limits, KEY, Nanos::ZERO).unwrap());
    let (mut state, mut truth, mut arrivals) = (9_u64, BTreeMap::new(), Vec::new());
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for number in 0..3_000_u64 {
        for _ in 0..=random(6) {
            arrivals.push((number + random(300), number, random(3) as usize));
            *truth.entry(number).or_insert(0_u64) += 1;
        }
    }
    arrivals.sort_unstable();
    for (now, number, node) in arrivals {
        let _ = nodes[node].offer(&span(trace(number), now, &[1; 300]), Nanos::from_millis(now));
    }

    let (mut whole, mut lowest_released, mut highest_gone) = (0, u64::MAX, 0);
    for (&number, &spans) in &truth {
        let (mut given, mut marked) = (0, false);
        for (place, node) in nodes.iter_mut().enumerate() {
            let kept = node.keep(trace(number), &reason(), Nanos::from_secs(4), |_, _| given += 1);
            marked |= !matches!(
                kept,
                KeepOutcome::Released { completeness: Completeness::Complete, .. }
                    | KeepOutcome::Unseen(Completeness::Complete)
            );
            let rank = node.rank(trace(number));
            match kept {
                KeepOutcome::Released { .. } if place == 2 => lowest_released = lowest_released.min(rank.position()),
                KeepOutcome::Gone(_) if place == 2 => highest_gone = highest_gone.max(rank.position()),
                _ => {}
            }
        }
        assert!(given == spans || marked, "trace {number}: {given} of {spans} and no mark");
        whole += u64::from(given == spans && !marked);
    }

    assert!(lowest_released > highest_gone, "the short node did not evict by rank");
    assert!(
        nodes[2].account().lost(LossReason::Evicted).spans > 0
            && nodes[2].account().lost(LossReason::Refused).spans > 0
    );
    assert!(nodes[..2].iter().all(|node| node.account().lost(LossReason::Evicted).spans == 0));
    let share = nodes[2].look_back(Nanos::from_secs(4)).share;
    assert!(whole as f64 / 3_000.0 >= share, "{whole} whole, although {share} of the ranks fit everywhere");
    assert!(nodes.iter().all(|node| node.account().balances()));
}

#[test]
fn a_late_span_follows_what_was_decided() {
    let limits = tight();
    let mut buffer = TailBuffer::new(limits, KEY, Nanos::ZERO).unwrap();
    let _ = buffer.offer(&span(trace(1), 1, b"one"), Nanos::ZERO);
    let _ = buffer.offer(&span(trace(2), 2, b"two"), Nanos::ZERO);

    let kept = buffer.keep(trace(1), &reason(), Nanos(1), |_, _| {});
    buffer.expire(limits.age, |_, _, _| {});

    assert_eq!(
        kept,
        KeepOutcome::Released { tally: Tally { spans: 1, bytes: 3 }, completeness: Completeness::Complete }
    );
    let late = |buffer: &mut TailBuffer, number| buffer.offer(&span(trace(number), 9, b"late"), limits.age);
    let own = StickyDecision::Kept { reason: reason(), own: true };
    assert_eq!(late(&mut buffer, 1), OfferOutcome::Follows(own));
    assert_eq!(late(&mut buffer, 2), OfferOutcome::Follows(StickyDecision::Dropped { spans: 1 }));
    assert_eq!(
        buffer.keep(trace(2), &reason(), limits.age, |_, _| {}),
        KeepOutcome::Gone(Completeness::Missing { spans: 2 })
    );
    let account = buffer.account();
    assert_eq!((account.seen, account.kept), (Tally { spans: 4, bytes: 14 }, Tally { spans: 2, bytes: 7 }));
    assert_eq!(account.dropped(DropReason::Aged).plus(account.dropped(DropReason::Late)), Tally { spans: 2, bytes: 7 });
}

#[test]
fn windows_ask_when_something_happened_and_not_when_it_came() {
    let mut buffer = TailBuffer::new(tight(), KEY, Nanos::ZERO).unwrap();
    let _ = buffer.offer(&span(trace(1), 100, b"late news"), Nanos::from_millis(900));
    let _ = buffer.offer(&span(trace(1), 300, b"its end"), Nanos::from_millis(950));

    let waiting = buffer.get(trace(1)).unwrap();

    // From 1,000 to 3,005.
    assert!(waiting.overlaps(UnixNanos(0), UnixNanos(1_000)));
    assert!(waiting.overlaps(UnixNanos(2_000), UnixNanos(2_001)));
    assert!(waiting.overlaps(UnixNanos(3_005), UnixNanos(9_000)));
    assert!(!waiting.overlaps(UnixNanos(0), UnixNanos(999)));
    assert!(!waiting.overlaps(UnixNanos(3_006), UnixNanos(9_000)));
}

#[test]
fn of_several_entries_the_outermost_names_the_operation() {
    let mut buffer = TailBuffer::new(tight(), KEY, Nanos::ZERO).unwrap();
    let entry = |start: u64, operation: u32, root: bool| {
        let parent = (!root).then(|| SpanId::new([9; 8]).unwrap());
        let index = SpanIndex { start: UnixNanos(start), operation: OperationId(operation), parent, ..index(start) };
        Span { index, ..span(trace(1), start, b"entry") }
    };
    let mut after = |span: Span<'_>| match buffer.offer(&span, Nanos::ZERO) {
        OfferOutcome::Buffered(waiting) => waiting.operation,
        other => panic!("{other:?}"),
    };

    assert_eq!(after(Span { entry: false, ..entry(40, 1, true) }), None);
    assert_eq!(after(entry(50, 2, false)), Some(OperationId(2)));
    assert_eq!(after(entry(60, 3, false)), Some(OperationId(2)));
    assert_eq!(after(entry(30, 4, false)), Some(OperationId(4)));
    assert_eq!(after(entry(70, 5, true)), Some(OperationId(5)));
    assert_eq!(after(entry(10, 6, false)), Some(OperationId(5)));
}

#[test]
fn one_huge_trace_is_cut_and_marked_and_takes_nothing_from_others() {
    let mut buffer = TailBuffer::new(tight(), KEY, Nanos::ZERO).unwrap();
    let _ = buffer.offer(&span(trace(1), 1, &[1; 100]), Nanos::ZERO);
    for number in 0..100 {
        let _ = buffer.offer(&span(trace(2), number, &[2; 300]), Nanos::ZERO);
    }
    assert_eq!(buffer.offer(&span(trace(3), 1, &[3; 5_000]), Nanos::ZERO), OfferOutcome::Lost(LossReason::TraceFull));

    assert_eq!(buffer.completeness(trace(1), Nanos(1)), Some(Completeness::Complete));
    assert_eq!(buffer.completeness(trace(2), Nanos(1)), Some(Completeness::Missing { spans: 94 }));
    assert_eq!(
        buffer.keep(trace(3), &reason(), Nanos(1), |_, _| {}),
        KeepOutcome::Gone(Completeness::Missing { spans: 1 })
    );
    assert_eq!(buffer.account().lost(LossReason::TraceFull).spans, 95);
    buffer.malformed(17);
    assert_eq!(buffer.account().lost(LossReason::Malformed), Tally { spans: 1, bytes: 17 });
    assert_accounted(&buffer, tight());
}

/// A flood of traces that are refused leaves decisions about others as they are.
#[test]
fn a_flood_has_no_decision_forgotten() {
    let limits = Limits { bytes: 600_000, trace_bytes: 10_000, decisions: 1 << 14, ..Limits::default() };
    let mut buffer = TailBuffer::new(limits, KEY, Nanos::ZERO).unwrap();
    let _ = buffer.offer(&span(trace(0), 0, &[1; 300]), Nanos::ZERO);
    let _ = buffer.keep(trace(0), &reason(), Nanos::ZERO, |_, _| {});

    for number in 1..200_000 {
        let _ = buffer.offer(&span(trace(number), number, &[1; 300]), Nanos::from_micros(number));
    }

    let now = Nanos::from_secs(1);
    assert_eq!(buffer.rushed(), 0);
    let own = StickyDecision::Kept { reason: reason(), own: true };
    assert_eq!(buffer.offer(&span(trace(0), 1, b"late"), now), OfferOutcome::Follows(own));
    // A trace that was refused without a record is of unknown completeness.
    let refused =
        (1..200_000).map(trace).find(|id| buffer.get(*id).is_none() && buffer.decision(*id).is_none()).unwrap();
    assert_eq!(buffer.keep(refused, &reason(), now, |_, _| {}), KeepOutcome::Unseen(Completeness::Unknown));
    assert_accounted(&buffer, limits);
}

/// Limits for some 4,000 traces of [`of`].
fn roomy() -> Limits {
    Limits { bytes: 2 << 20, trace_bytes: 10_000, decisions: 1 << 14, ..Limits::default() }
}

/// A trace of one span, from `sender`.
fn of(sender: u8, number: u64) -> Span<'static> {
    Span { sender: SenderId(sender), ..span(trace(number), number, &[1; 300]) }
}

#[test]
fn a_sender_that_floods_makes_room_itself_and_traces_of_others_stay() {
    let mut buffer = TailBuffer::new(roomy(), KEY, Nanos::ZERO).unwrap();
    let mut others = Vec::new();
    for number in 1..100_000 {
        let now = Nanos::from_micros(number);
        let _ = buffer.offer(&of(7, number), now);
        // From a time on at which the flood alone has filled all memory.
        if number > 20_000 && number.is_multiple_of(200) {
            let own = 1_000_000 + number;
            assert!(matches!(buffer.offer(&of(8, own), now), OfferOutcome::Buffered(_)), "{number}");
            others.push(trace(own));
        }
    }

    let now = Nanos::from_secs(1);
    assert_eq!(others.len(), 399);
    assert!(others.iter().all(|trace| buffer.get(*trace).is_some()), "none was evicted");
    assert_eq!(buffer.take_greedy(), Some(SenderId(7)));
    assert_eq!(buffer.take_greedy(), None);
    let level = buffer.level(now).expect("other nodes are told");
    assert_eq!(buffer.common_level(now), None, "no trace of others is too low");
    let lower = |trace: &&TraceId| buffer.rank(**trace) <= level;
    assert!(others.iter().filter(lower).count() > 200, "most of them rank below what the flood has lost");
    let mut of_flood = buffer.traces().filter(|waiting| !others.contains(&waiting.trace));
    assert!(of_flood.all(|waiting| waiting.rank > level), "its own go by rank");
    assert_accounted(&buffer, roomy());
}

#[test]
fn where_no_sender_has_three_quarters_the_rank_decides_whose_traces_stay() {
    let mut buffer = TailBuffer::new(roomy(), KEY, Nanos::ZERO).unwrap();
    for number in 1..50_000 {
        let _ = buffer.offer(&of(7 + number as u8 % 2, number), Nanos::from_micros(number));
    }

    let now = Nanos::from_secs(1);
    let level = buffer.common_level(now).expect("all are evicted alike");
    assert_eq!((buffer.level(now), buffer.take_greedy()), (Some(level), None));
    assert!(buffer.traces().all(|waiting| waiting.rank > level));
    assert_accounted(&buffer, roomy());
}

/// Spans that are written as no encoder does, of which no field can be cut out. A single one in its trace takes more
/// than 1.3 times and 64.
#[test]
fn memory_is_the_bytes_and_little_more_however_spans_are_written() {
    for (per_trace, bytes, factor) in
        [(8, 300, 1.1), (3, 250, 1.2), (20, 500, 1.1), (2, 300, 1.2), (1, 300, 1.35), (8, 63, 1.0)]
    {
        let mut buffer = TailBuffer::new(Limits::default(), KEY, Nanos::ZERO).unwrap();
        for number in 0..20_000_u64 {
            let _ = buffer.offer(&span(trace(number / per_trace), number, &vec![1; bytes]), Nanos::ZERO);
        }

        let per_span = buffer.in_use() as f64 / 20_000.0;

        let target = factor * bytes as f64 + 64.0;
        assert!(per_span <= target, "{per_trace} spans of {bytes} bytes: {per_span:.0} each, {target:.0} were allowed");
    }
}

#[test]
fn limits_that_contradict_each_other_are_refused() {
    let new = |limits| TailBuffer::new(limits, KEY, Nanos::ZERO).map(|_| ());
    let limits = tight();

    assert!(matches!(new(Limits { hold: Nanos(1), ..limits }), Err(LimitsError::HoldTooShort { .. })));
    assert!(matches!(new(Limits { bytes: 3_000, ..limits }), Err(LimitsError::TooSmall { .. })));
    assert!(matches!(new(Limits { trace_bytes: 1 << 30, ..limits }), Err(LimitsError::TraceTooLong(_))));
    assert!(matches!(new(Limits { bytes: usize::MAX, ..limits }), Err(LimitsError::TooLarge { .. })));
}
