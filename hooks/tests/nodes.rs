//! Three nodes in virtual time, one of them short of memory: spans of 5 ms to 45 s that arrive late and in any order,
//! roots last, decisions that reach the other nodes after a while. Every kept trace is whole, or marked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hooks::id::{OperationId, OriginId, SenderId, ServiceId};
use hooks::paths::{Latencies, LatencyRule, NameLimits, Names, PathLimits, Paths};
use hooks::tracing::{
    Budget, BudgetRule, Completeness, KeepOutcome, Keeper, KeptSpan, Limits, LossReason, OrderKey, Origin, Policies,
    Reason, ServiceCatalog, Span, SpanId, SpanIndex, SpanKind, Switches, TailBuffer, Threshold, TraceId, TriggerRule,
    Triggers, Verdict,
};
use wire::time::{Nanos, UnixNanos};

const NODES: usize = 3;
const TRACES: u64 = 6_000;
const FRONTEND: ServiceId = ServiceId(1);
const PAYMENT: ServiceId = ServiceId(2);
const PAY: OperationId = OperationId(3);
const LIST: OperationId = OperationId(4);
const NOON: u64 = 1_700_000_000;

struct Random(u64);

impl Random {
    fn below(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

/// What happens at a node. Times are milliseconds since noon.
enum Event {
    Span { trace: TraceId, index: SpanIndex, entry: bool },
    Announced { trace: TraceId, reason: Arc<Reason> },
}

struct World {
    keepers: Vec<Keeper>,
    /// By time and number, so that nothing is lost where times are equal.
    events: BTreeMap<(u64, u64), (usize, Event)>,
    number: u64,
    given: BTreeMap<TraceId, u64>,
    marked: BTreeSet<TraceId>,
    announced: u64,
    names: Names,
    paths: Paths,
    latencies: Latencies,
}

fn keeper(bytes: usize) -> Keeper {
    let limits = Limits { bytes, trace_bytes: 100_000, decisions: 1 << 14, ..Limits::default() };
    let buffer = TailBuffer::new(limits, OrderKey::new(77), Nanos::ZERO).expect("valid limits");
    let budget = BudgetRule { bytes_per_s: 1 << 30, ..BudgetRule::default() };
    let floor = Threshold::keeping(0.02).expect("a share");
    let switches = Switches { floor: Some(floor), ..Switches::default() };
    let policies = Policies::new(switches, Budget::new(budget, Nanos::ZERO).expect("a valid rule"));
    Keeper::new(buffer, Triggers::new(TriggerRule::default()), policies)
}

impl World {
    fn new() -> Self {
        let mut paths = Paths::new(PathLimits::default());
        for (operation, service) in [(PAY, FRONTEND), (PAY, PAYMENT), (LIST, FRONTEND)] {
            paths.learn(operation, service, Nanos::ZERO);
        }
        Self {
            keepers: [16 << 20, 16 << 20, 900_000].map(keeper).into(),
            events: BTreeMap::new(),
            number: 0,
            given: BTreeMap::new(),
            marked: BTreeSet::new(),
            announced: 0,
            names: Names::new(NameLimits::default()),
            paths,
            latencies: Latencies::new(LatencyRule::default()),
        }
    }

    fn at(&mut self, millis: u64, node: usize, event: Event) {
        self.number += 1;
        self.events.insert((millis, self.number), (node, event));
    }

    /// A trace of up to eight spans anywhere, its root on the frontend's node. Returns how many spans it has.
    fn trace(&mut self, number: u64, random: &mut Random) -> (TraceId, u64) {
        let id = u128::from(random.below(u64::from(u32::MAX))) << 90 | u128::from(random.below(1 << 30)) << 26;
        let trace = TraceId::new((id | u128::from(number + 1)).to_be_bytes()).expect("not zero");
        let start = random.below(100_000);
        let length = if random.below(20) == 0 { 5_000 + random.below(40_000) } else { 5 + random.below(500) };
        let children = random.below(8);
        for child in 0..=children {
            let root = child == children;
            let begin = if root { start } else { start + random.below(length) };
            let end = if root { start + length } else { begin + random.below(start + length - begin) };
            let service = if root { FRONTEND } else { PAYMENT };
            let index = SpanIndex {
                id: SpanId::new((child + 1).to_be_bytes()).expect("not zero"),
                parent: if root { None } else { SpanId::new((children + 1).to_be_bytes()) },
                kind: SpanKind::Server,
                service,
                operation: if number.is_multiple_of(2) { PAY } else { LIST },
                origin: OriginId(0),
                start: UnixNanos::from_secs(NOON).plus(Nanos::from_millis(begin)),
                end: UnixNanos::from_secs(NOON).plus(Nanos::from_millis(end)),
                error: random.below(200) == 0,
            };
            let node = if root { 0 } else { random.below(NODES as u64) as usize };
            self.at(end + random.below(5_000), node, Event::Span { trace, index, entry: root });
        }
        (trace, children + 1)
    }

    fn note(given: &mut BTreeMap<TraceId, u64>, marked: &mut BTreeSet<TraceId>, span: &KeptSpan<'_>) {
        *given.entry(span.trace).or_insert(0) += 1;
        if span.completeness != Completeness::Complete {
            marked.insert(span.trace);
        }
    }

    fn play(&mut self, node: usize, millis: u64, event: Event) {
        let now = Nanos::from_millis(millis);
        let catalog = ServiceCatalog { names: &self.names, paths: &self.paths, latencies: &self.latencies };
        let (given, marked) = (&mut self.given, &mut self.marked);
        let keeper = &mut self.keepers[node];
        match event {
            Event::Span { trace, index, entry } => {
                let (trigger, randomness, threshold, encoded) = (None, None, None, &[0; 250][..]);
                let sender = SenderId::default();
                let span = Span { trace, index, sender, entry, trigger, randomness, threshold, encoded };
                keeper.span(&span, &catalog, now, |span| Self::note(given, marked, &span));
            }
            Event::Announced { trace, reason } => {
                let kept = keeper.keep(trace, &reason, now, |span| Self::note(given, marked, &span));
                if matches!(kept, KeepOutcome::Gone(_) | KeepOutcome::Unseen(Completeness::Unknown)) {
                    marked.insert(trace);
                }
            }
        }
    }

    /// Ten times a second: buffered traces are searched, and decisions are announced to the other nodes, which takes up
    /// to half a second.
    fn tick(&mut self, millis: u64, random: &mut Random) {
        let now = Nanos::from_millis(millis);
        for node in 0..NODES {
            let catalog = ServiceCatalog { names: &self.names, paths: &self.paths, latencies: &self.latencies };
            let (given, marked) = (&mut self.given, &mut self.marked);
            self.keepers[node].tick(&catalog, now, |span| Self::note(given, marked, &span));
            for (trace, reason) in self.keepers[node].decided() {
                self.announced += 1;
                for other in (0..NODES).filter(|other| *other != node) {
                    let reason = Arc::clone(&reason);
                    self.at(millis + 1 + random.below(500), other, Event::Announced { trace, reason });
                }
            }
            assert!(self.keepers[node].buffer().account().balances());
        }
    }

    fn verdict(&mut self, second: u64) {
        let reason = Reason::Lmap {
            service: "payment".into(),
            score: 9.0,
            gamma: 3.0,
            metrics: Box::default(),
            incident: "".into(),
        };
        let at = UnixNanos::from_secs(NOON + second);
        let verdict = Verdict {
            service: PAYMENT,
            origin: Origin::Here,
            author: None,
            from: at,
            at,
            breakdown: None,
            weight: 3.0,
            reason: Arc::new(reason),
        };
        for keeper in &mut self.keepers {
            keeper.verdict(&verdict, at);
        }
    }

    fn run(&mut self, random: &mut Random) {
        for millis in 0..220_000 {
            while let Some(entry) = self.events.first_entry().filter(|entry| entry.key().0 <= millis) {
                let (node, event) = entry.remove();
                self.play(node, millis, event);
            }
            if (40_000..50_000).contains(&millis) && millis % 1_000 == 500 {
                self.verdict(millis / 1_000);
            }
            if millis.is_multiple_of(100) {
                self.tick(millis, random);
            }
        }
    }
}

#[test]
fn what_is_kept_is_whole_everywhere_or_marked() {
    for seed in 1..=3 {
        let (mut world, mut random) = (World::new(), Random(seed));
        let truth: BTreeMap<_, _> = (0..TRACES).map(|number| world.trace(number, &mut random)).collect();

        world.run(&mut random);

        assert!(world.events.is_empty());
        let whole = |trace: &TraceId| world.given[trace] == truth[trace];
        let unmarked = world.given.keys().filter(|trace| !whole(trace) && !world.marked.contains(trace)).count();
        assert_eq!(unmarked, 0, "seed {seed}: kept in part without a mark");
        let complete = world.given.keys().filter(|trace| whole(trace)).count();
        let (kept, short) = (world.given.len(), world.keepers[2].buffer().account());
        // The floor's 2 %, those with an error among 4.5 spans, and those that paid within eleven of a hundred seconds.
        assert!((500..2_000).contains(&kept), "seed {seed}: {kept} of {TRACES} kept");
        assert!(short.lost(LossReason::Evicted).spans > 500, "seed {seed}: the short node is not short");
        assert!(complete * 2 > kept, "seed {seed}: {complete} of {kept} whole");
        assert!(world.announced > 300, "seed {seed}: {} announced", world.announced);
    }
}
