//! What a tail buffer says of spans that are gone, service by service, against a model that remembers the service of
//! each span and walks over those of a trace that is gone.

use std::collections::BTreeMap;
use std::sync::Arc;

use hooks::id::{OperationId, OriginId, SenderId, ServiceId};
use hooks::tracing::{
    DiscardReason, DropReason, Limits, LossReason, OfferOutcome, OrderKey, Reason, Span, SpanId, SpanIndex, SpanKind,
    StickyDecision, TailBuffer, Tally, TraceId,
};
use proptest::prelude::*;
use wire::time::{Nanos, UnixNanos};

const KEY: OrderKey = OrderKey::new(0x0123_4567_89ab_cdef_0011_2233_4455_6677);
const EVICTED: DiscardReason = DiscardReason::Lost(LossReason::Evicted);
const AGED: DiscardReason = DiscardReason::Dropped(DropReason::Aged);

fn trace(number: u64) -> TraceId {
    TraceId::new(u128::from(number + 1).to_be_bytes()).expect("not zero")
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

/// A span that arrives.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    trace: u64,
    service: u32,
    sender: u8,
    /// Bytes of an attribute.
    attribute: u8,
    /// By its service's clock; spans come in another order than that.
    start: u64,
    is_root: bool,
    /// Its fields are in the order of their numbers: what repeats the index is cut out.
    is_ordered: bool,
}

impl Arrival {
    fn index(self, number: u64) -> SpanIndex {
        SpanIndex {
            id: SpanId::new((number + 1).to_be_bytes()).expect("not zero"),
            parent: if self.is_root { None } else { SpanId::new([9; 8]) },
            kind: SpanKind::Server,
            service: ServiceId(self.service),
            operation: OperationId(2),
            origin: OriginId(3),
            start: UnixNanos(self.start),
            end: UnixNanos(self.start + 700),
            error: false,
        }
    }

    fn encoded(self, index: &SpanIndex) -> Vec<u8> {
        let ids = [&[0x0a, 16][..], &trace(self.trace).bytes(), &[0x12, 8], &index.id.bytes()].concat();
        let parent = index.parent.map_or_else(Vec::new, |parent| [&[0x22, 8][..], &parent.bytes()].concat());
        let name = vec![0x2a, 3, b'p', b'a', b'y'];
        let (start, end) = (index.start.0.to_le_bytes(), index.end.0.to_le_bytes());
        let times = [&[0x30, 2, 0x39][..], &start, &[0x41], &end].concat();
        let length = self.attribute & 0x7f;
        let attribute = [vec![0x4a, length], vec![7; length.into()]].concat();
        if self.is_ordered {
            [ids, parent, name, times, attribute].concat()
        } else {
            [attribute, times, name, parent, ids].concat()
        }
    }
}

/// A span of `trace`.
fn arrival(trace: u64) -> Arrival {
    Arrival { trace, service: 0, sender: 0, attribute: 50, start: 0, is_root: false, is_ordered: true }
}

#[derive(Clone, Debug)]
enum Step {
    Offer(Arrival),
    Keep(u64),
    Expire,
    Pass(u64),
}

fn arrivals() -> impl Strategy<Value = Arrival> {
    let who = (0..30_u64, 0..8_u32, 0..3_u8);
    (who, any::<u8>(), 0..5_000_u64, any::<(bool, bool)>()).prop_map(
        |((trace, service, sender), attribute, start, (is_root, is_ordered))| {
            // Three of four spans are of their trace's own service: some traces have no others.
            let service = if service < 6 { 100 + (trace % 7) as u32 } else { service };
            Arrival { trace, service, sender, attribute, start, is_root, is_ordered }
        },
    )
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        12 => arrivals().prop_map(Step::Offer),
        1 => (0..30_u64).prop_map(Step::Keep),
        1 => Just(Step::Expire),
        2 => (0..400_u64).prop_map(Step::Pass),
    ];
    proptest::collection::vec(step, 1..400)
}

type Discards = BTreeMap<(ServiceId, DiscardReason), Tally>;

/// The buffer, and the spans that it has to have.
struct World {
    buffer: TailBuffer,
    waiting: BTreeMap<u64, Vec<(ServiceId, Tally)>>,
    /// All that was discarded.
    all: Discards,
    now: Nanos,
    spans: u64,
}

impl World {
    fn new() -> Self {
        let buffer = TailBuffer::new(tight(), KEY, Nanos::ZERO).expect("valid limits");
        Self { buffer, waiting: BTreeMap::new(), all: Discards::new(), now: Nanos::ZERO, spans: 0 }
    }

    /// Does `step`, and returns what the model says is discarded by it.
    fn does(&mut self, step: &Step) -> Discards {
        let mut gone = Discards::new();
        match step {
            Step::Pass(millis) => self.now = self.now.plus(Nanos::from_millis(*millis)),
            Step::Keep(number) => {
                let reason = Arc::new(Reason::Trigger { text: "test".into() });
                let _ = self.buffer.keep(trace(*number), &reason, self.now, |_, _| {});
                self.waiting.remove(number);
            }
            Step::Expire => {
                self.buffer.expire(self.now, |_, _, _| {});
                self.leave(AGED, &mut gone);
            }
            Step::Offer(arrival) => self.offer(*arrival, &mut gone),
        }
        gone
    }

    fn offer(&mut self, arrival: Arrival, gone: &mut Discards) {
        self.spans += 1;
        let index = arrival.index(self.spans);
        let encoded = arrival.encoded(&index);
        let (sender, trigger, randomness, threshold) = (SenderId(arrival.sender), None, None, None);
        let (trace, entry) = (trace(arrival.trace), true);
        let span = Span { trace, index, sender, entry, trigger, randomness, threshold, encoded: &encoded };
        let offered = self.buffer.offer(&span, self.now);
        self.leave(EVICTED, gone);
        let one = (index.service, Tally::one(encoded.len()));
        let why = match offered {
            OfferOutcome::Buffered(_) => return self.waiting.entry(arrival.trace).or_default().push(one),
            OfferOutcome::Follows(StickyDecision::Kept { .. }) => return,
            OfferOutcome::Follows(StickyDecision::Dropped { .. }) => DiscardReason::Dropped(DropReason::Late),
            OfferOutcome::Follows(StickyDecision::Evicted { .. }) => DiscardReason::Lost(LossReason::Late),
            OfferOutcome::Lost(why) => DiscardReason::Lost(why),
        };
        *gone.entry((one.0, why)).or_default() += one.1;
    }

    /// Traces that are not buffered any more are gone for the reason `why`.
    fn leave(&mut self, why: DiscardReason, gone: &mut Discards) {
        let buffer = &self.buffer;
        let left = self.waiting.extract_if(.., |number, _| buffer.get(trace(*number)).is_none());
        for (service, tally) in left.flat_map(|(_, spans)| spans) {
            *gone.entry((service, why)).or_default() += tally;
        }
    }

    /// What the buffer says was discarded since the last call.
    fn said(&mut self) -> Discards {
        let said: Discards =
            self.buffer.discarded().take().map(|(service, why, tally)| ((service, why), tally)).collect();
        for (of, tally) in &said {
            *self.all.entry(*of).or_default() += *tally;
        }
        said
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever is of which service, in whatever order it comes, whoever sends it, and whatever is kept meanwhile.
    #[test]
    fn spans_that_are_gone_are_counted_by_service_as_by_walking_over_them(steps in steps()) {
        let mut world = World::new();
        for step in steps {
            let expected = world.does(&step);
            prop_assert_eq!(world.said(), expected, "{:?}", step);
        }
        let account = *world.buffer.account();
        for why in DiscardReason::all() {
            let of_all = world.all.iter().filter(|((_, of), _)| *of == why).map(|(_, tally)| *tally);
            let sum = of_all.fold(Tally::default(), Tally::plus);
            let counted = match why {
                DiscardReason::Dropped(why) => account.dropped(why),
                DiscardReason::Lost(why) => account.lost(why),
            };
            prop_assert_eq!(sum, counted, "{:?}", why);
        }
        prop_assert!(account.balances());
    }
}

/// More services than a byte tells apart, each with a trace of its own and one that it shares.
#[test]
fn spans_of_many_services_are_counted_by_service_whether_they_share_their_traces_or_not() {
    let limits = Limits { bytes: 4 << 20, trace_bytes: 10_000, decisions: 1 << 12, ..Limits::default() };
    let mut buffer = TailBuffer::new(limits, KEY, Nanos::ZERO).unwrap();
    let mut spans = 0;
    for service in 0..600_u32 {
        // Own traces by twos, then one for each pair of neighbours.
        let own = u64::from(service);
        for number in [own, own, 1_000 + own / 2] {
            let arrival = Arrival { service, ..arrival(number) };
            let (index, trace) = (arrival.index(spans), trace(number));
            let encoded = arrival.encoded(&index);
            let (sender, trigger, randomness, threshold) = (SenderId(0), None, None, None);
            let span = Span { trace, index, sender, entry: false, trigger, randomness, threshold, encoded: &encoded };
            assert!(matches!(buffer.offer(&span, Nanos::ZERO), OfferOutcome::Buffered(_)));
            spans += 1;
        }
    }

    buffer.expire(limits.age, |_, _, _| {});

    let each = arrival(0).encoded(&arrival(0).index(0)).len() as u64;
    let expected = (0..600).map(|service| (ServiceId(service), AGED, Tally { spans: 3, bytes: 3 * each }));
    assert!(buffer.discarded().take().eq(expected));
    assert_eq!((buffer.len(), buffer.account().waiting), (0, Tally::default()));
}

/// Memory that is full, and traces of eight spans, of one service and of five, which give way all the time.
#[test]
fn a_trace_that_gives_way_allocates_nothing() {
    let age = Nanos::from_secs(5);
    let limits = Limits { bytes: 1 << 20, age, trace_bytes: 10_000, decisions: 1 << 10, ..Limits::default() };
    let mut buffer = TailBuffer::new(limits, KEY, Nanos::ZERO).unwrap();
    let encoded = [7; 280];
    let mut offer = |number: u64| {
        let (own, place) = (number / 512 * 64 + number % 64, number / 64 % 8);
        let service = if own.is_multiple_of(2) { 1 } else { (place % 5) as u32 + 1 };
        let index = Arrival { service, ..arrival(own) }.index(place);
        let (sender, trigger, randomness, threshold) = (SenderId(0), None, None, None);
        let (trace, entry) = (trace(own), false);
        let span = Span { trace, index, sender, entry, trigger, randomness, threshold, encoded: &encoded };
        let _ = buffer.offer(&span, Nanos::from_millis(number));
        buffer.discarded().take().filter(|(_, why, _)| *why == EVICTED).map(|(.., tally)| tally.spans).sum::<u64>()
    };
    assert!((0..20_000).map(&mut offer).sum::<u64>() > 1_000, "the memory is full");

    let mut evicted = 0;
    let calls = allocations::during(|| evicted = (20_000..60_000).map(&mut offer).sum::<u64>());

    assert!(evicted > 1_000, "{evicted}");
    assert_eq!(calls, allocations::Calls::default());
}
