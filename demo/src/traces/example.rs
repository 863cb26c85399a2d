//! Synthetic traces for tests.

use wire::time::Nanos;

use super::{KeptSpan, Side, SpanLedger, Trace, TraceId, Visit};
use crate::graph::{Errand, Service};
use crate::judge;
use crate::record::Record;

/// A span of 5 ms with status 200, `after` milliseconds after the trace's start.
pub(crate) fn span(id: u64, parent: u64, service: Service, side: Side, after: u64) -> KeptSpan {
    KeptSpan {
        id,
        parent: (parent > 0).then_some(parent),
        service,
        name: "GET /x".to_owned(),
        side,
        started: Nanos::from_millis(61_000 + after),
        took: Nanos::from_millis(5),
        status: Some(200),
        failed: false,
        policy: None,
        reason: None,
        incomplete: false,
        bytes: 100,
    }
}

/// The trace of a request through all services.
pub(crate) fn whole_trace() -> Trace {
    use Service::{Cart, Catalogue, Frontend, Payment, Store};
    let mut root = span(1, 0, Frontend, Side::Server, 0);
    root.took = Nanos::from_millis(120);
    root.policy = Some("lmap".to_owned());
    root.reason = Some("store: score 31.0, threshold 7.7; work.duration.p99 85 ms, expected 4 ms".to_owned());
    let spans = vec![
        root,
        span(2, 1, Frontend, Side::Client(Cart), 3),
        span(3, 2, Cart, Side::Server, 4),
        span(4, 1, Frontend, Side::Client(Catalogue), 5),
        span(5, 4, Catalogue, Side::Server, 6),
        span(6, 1, Frontend, Side::Client(Payment), 7),
        span(7, 6, Payment, Side::Server, 8),
        span(8, 7, Payment, Side::Client(Store), 9),
        span(9, 8, Store, Side::Server, 10),
    ];
    Trace { spans }
}

/// A request of 120 ms at 61 s, while the store of [`judge::example::run`] is slow.
pub(crate) fn visit(trace: u128) -> Visit {
    Visit {
        trace: Some(TraceId(trace)),
        errand: Errand::Buy,
        started: Nanos::from_secs(61),
        took: Nanos::from_millis(120),
        failed: false,
    }
}

/// A run with a hundred healthy requests of 10 ms, and four during its fault: slow and kept whole, slow and kept in
/// part, failed and missed, and as quick as ever, which was kept too.
pub(crate) fn run() -> Record {
    let mut record = judge::example::run();
    let healthy = |number: u64| Visit {
        started: Nanos::from_millis(30_000 + number),
        took: Nanos::from_millis(10),
        ..visit(1000 + u128::from(number))
    };
    record.visits = (0..100).map(healthy).collect();
    let failed = Visit { failed: true, took: Nanos::from_millis(1), ..visit(3) };
    let quick = Visit { took: Nanos::from_millis(10), ..visit(4) };
    record.visits.extend([visit(1), visit(2), failed, quick]);
    let mut part = whole_trace();
    part.spans.remove(0);
    let whole = whole_trace;
    record.traces = [(TraceId(1), whole()), (TraceId(2), part), (TraceId(4), whole())].into();
    record.ledger =
        SpanLedger { seen_bytes: 30_000, kept_bytes: 3_000, wait: Nanos::from_secs(30), ..SpanLedger::default() };
    record
}
