//! What a span costs after framing: looked up, judged, written, evicted or exported. `cargo bench -p hooks`.

use std::sync::Arc;

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use hooks::id::{OperationId, OriginId, SenderId, ServiceId};
use hooks::paths::{Latencies, LatencyRule, NameLimits, Names, PathLimits, Paths};
use hooks::tracing::{
    Budget, BudgetRule, Keeper, Limits, OrderKey, Origin, Policies, Reason, ServiceCatalog, Span, SpanId, SpanIndex,
    SpanKind, Switches, TailBuffer, TraceId, TriggerRule, Triggers, Verdict,
};
use wire::time::{Nanos, UnixNanos};

const PER_TRACE: u64 = 8;
/// Traces whose spans come in turn: far more than a cache holds.
const UNDER_WAY: u64 = 10_000;
const SPANS: u64 = 2 * UNDER_WAY * PER_TRACE;
const ENCODED: [u8; 300] = [7; 300];

fn main() {
    divan::main();
}

/// Span `number` of a stream of traces of eight spans, the entry span last.
fn span(number: u64) -> Span<'static> {
    let (round, place) = (number / (UNDER_WAY * PER_TRACE), number % UNDER_WAY);
    let trace = u128::from(round * UNDER_WAY + place + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835) | 1;
    let root = number / UNDER_WAY % PER_TRACE == PER_TRACE - 1;
    let index = SpanIndex {
        id: SpanId::new((number + 1).to_be_bytes()).expect("not zero"),
        parent: if root { None } else { SpanId::new([1; 8]) },
        kind: SpanKind::Server,
        service: ServiceId((number / UNDER_WAY % PER_TRACE) as u32 + 1),
        operation: OperationId((place % 50) as u32 + 1),
        origin: OriginId(1),
        start: UnixNanos::from_secs(1_700_000_000).plus(Nanos::from_micros(number)),
        end: UnixNanos::from_secs(1_700_000_000).plus(Nanos::from_micros(number + 900)),
        error: false,
    };
    let trace = TraceId::new(trace.to_be_bytes()).expect("odd");
    let (sender, trigger, randomness, threshold) = (SenderId::default(), None, None, None);
    Span { trace, index, sender, entry: root, trigger, randomness, threshold, encoded: &ENCODED }
}

fn buffer(mebibytes: usize) -> TailBuffer {
    let limits = Limits { bytes: mebibytes << 20, trace_bytes: 1 << 20, ..Limits::default() };
    TailBuffer::new(limits, OrderKey::new(7), Nanos::ZERO).expect("valid limits")
}

/// Spans into a buffer with enough memory, and into one with a fifth of it.
#[divan::bench(args = [256, 20], sample_count = 20, sample_size = 1)]
fn offer(bencher: Bencher<'_, '_>, mebibytes: usize) {
    let spans: Vec<_> = (0..SPANS).map(span).collect();
    let bencher = bencher.counter(ItemsCount::new(SPANS)).with_inputs(|| buffer(mebibytes));

    bencher.bench_local_refs(|buffer| {
        for (number, span) in (0_u64..).zip(&spans) {
            let _ = black_box(buffer.offer(black_box(span), Nanos::from_micros(number)));
        }
    });
}

/// The same with all policies, and one operation in fifty anomalous: 2 % of the traces are exported.
#[divan::bench(sample_count = 20, sample_size = 1)]
fn keep(bencher: Bencher<'_, '_>) {
    let spans: Vec<_> = (0..SPANS).map(span).collect();
    let mut paths = Paths::new(PathLimits::default());
    paths.learn(OperationId(1), ServiceId(99), Nanos::ZERO);
    (1..51).for_each(|operation| paths.learn(OperationId(operation), ServiceId(1), Nanos::ZERO));
    let names = Names::new(NameLimits::default());
    let latencies = Latencies::new(LatencyRule::default());
    let catalog = ServiceCatalog { names: &names, paths: &paths, latencies: &latencies };
    let keeper = || {
        let budget = Budget::new(BudgetRule { bytes_per_s: 1 << 30, ..BudgetRule::default() }, Nanos::ZERO);
        let policies = Policies::new(Switches::default(), budget.expect("a valid rule"));
        let mut keeper = Keeper::new(buffer(256), Triggers::new(TriggerRule::default()), policies);
        keeper.verdict(&verdict(1_700_000_000), UnixNanos::from_secs(1_700_000_000));
        keeper
    };

    bencher.counter(ItemsCount::new(SPANS)).with_inputs(keeper).bench_local_refs(|keeper| {
        let mut bytes = 0;
        for (number, span) in (0_u64..).zip(&spans) {
            let now = Nanos::from_micros(number);
            keeper.span(black_box(span), &catalog, now, |given| bytes += given.encoded.len());
        }
        bytes
    });
}

fn verdict(second: u64) -> Verdict {
    let reason = Arc::new(Reason::Trigger { text: "benchmark".into() });
    let at = UnixNanos::from_secs(second);
    let (service, origin, author) = (ServiceId(99), Origin::Here, None);
    Verdict { service, origin, author, from: at, at, breakdown: None, weight: 2.0, reason }
}

/// 10,000 buffered traces of eight spans are kept at once.
#[divan::bench(sample_count = 20, sample_size = 1)]
fn release_10_000_traces(bencher: Bencher<'_, '_>) {
    let spans: Vec<_> = (0..UNDER_WAY * PER_TRACE).map(span).collect();
    let reason = Arc::new(Reason::Trigger { text: "benchmark".into() });
    let full = || {
        let mut buffer = buffer(256);
        for span in &spans {
            let _ = buffer.offer(span, Nanos::ZERO);
        }
        let traces: Vec<_> = buffer.traces().map(|waiting| waiting.trace).collect();
        (buffer, traces)
    };

    bencher.with_inputs(full).bench_local_refs(|(buffer, traces)| {
        let mut bytes = 0;
        for trace in traces {
            let _ = buffer.keep(*trace, &reason, Nanos::ZERO, |_, encoded| bytes += encoded.len());
        }
        bytes
    });
}

/// One verdict, with 1,000 operations that all pass through 100 services.
#[divan::bench]
fn take_a_verdict(bencher: Bencher<'_, '_>) {
    let mut triggers = Triggers::new(TriggerRule::default());
    let mut second = 1_700_000_000;

    bencher.bench_local(|| {
        second += 1;
        let verdicts = (0..100).map(|service| Verdict { service: ServiceId(service), ..verdict(second) });
        verdicts.filter(|verdict| triggers.take(verdict, UnixNanos::from_secs(second))).count()
    });
}

/// All 1,000 operations are looked up after a verdict: 100 services on each path.
#[divan::bench]
fn ask_all_operations(bencher: Bencher<'_, '_>) {
    let mut paths = Paths::new(PathLimits::default());
    for operation in 0..1_000 {
        (0..100).for_each(|service| paths.learn(OperationId(operation), ServiceId(service), Nanos::ZERO));
    }
    let (names, latencies) = (Names::new(NameLimits::default()), Latencies::new(LatencyRule::default()));
    let catalog = ServiceCatalog { names: &names, paths: &paths, latencies: &latencies };
    let mut triggers = Triggers::new(TriggerRule::default());
    let mut second = 1_700_000_000;

    bencher.bench_local(|| {
        second += 1;
        let now = UnixNanos::from_secs(second);
        let _ = triggers.take(&Verdict { service: ServiceId(5), ..verdict(second) }, now);
        (0..1_000).filter(|operation| triggers.is_on(&catalog, OperationId(*operation), now)).count()
    });
}
