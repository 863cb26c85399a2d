//! The report's part on traces.

use std::collections::BTreeMap;

use serde::Serialize;
use wire::time::Nanos;

use crate::graph::{Errand, Service};
use crate::judge::traces::{self, TracesFinding};
use crate::record::Record;
use crate::traces::TraceId;

/// The traces of one fault.
#[derive(Clone, Debug, Serialize)]
pub(super) struct FaultTraces {
    /// Requests in flight during the fault.
    requests: usize,
    /// Of them, those hit by it: failed, or above the healthy 99th percentile.
    hit: usize,
    failed: usize,
    kept_whole: usize,
    kept_in_part: usize,
    missed: MissedTraces,
    /// Kept traces by the policy that selected them.
    by_policy: BTreeMap<String, usize>,
    /// Kept traces whose reason names the faulty service or one of its operations.
    reason_names_service: usize,
    /// Kept traces of requests that the fault did not hit.
    beyond: usize,
    kept_bytes: u64,
    /// The trace to open first: the worst one that the fault hit, if any was kept.
    shown: Option<ExampleTrace>,
}

#[derive(Clone, Debug, Serialize)]
struct MissedTraces {
    wanted_by_no_policy: usize,
    not_yet_decided: usize,
    unanswered: usize,
}

#[derive(Clone, Debug, Serialize)]
struct ExampleTrace {
    trace: TraceId,
    operation: &'static str,
    took_ms: f64,
    failed: bool,
    hit: bool,
    reason: String,
}

/// The traces of the whole run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Traces {
    requests: usize,
    kept_requests: usize,
    hit: usize,
    hit_kept_whole: usize,
    /// Share of all requests that were kept but not hit.
    beyond_share: f64,
    seen_spans: u64,
    seen_bytes: u64,
    kept_spans: u64,
    kept_bytes: u64,
    kept_bytes_by_policy: BTreeMap<String, u64>,
    /// Share of all traces that head sampling keeps in as many bytes.
    head_share: f64,
    /// Traces that a policy selected but the byte budget excluded.
    over_budget: u64,
    /// Lost at the agent or at the demo's receiver.
    lost_spans: u64,
    healthy_p99_ms: BTreeMap<&'static str, f64>,
}

pub(super) fn fault(found: &traces::FaultTraces) -> FaultTraces {
    let shown = found.example.as_ref().map(|shown| ExampleTrace {
        trace: shown.trace,
        operation: Service::Frontend.path(shown.visit.errand),
        took_ms: millis(shown.visit.took),
        failed: shown.visit.failed,
        hit: shown.hit,
        reason: shown.reason.clone(),
    });
    FaultTraces {
        requests: found.requests,
        hit: found.hit,
        failed: found.failed,
        kept_whole: found.whole,
        kept_in_part: found.part,
        missed: MissedTraces {
            wanted_by_no_policy: found.missed.unwanted,
            not_yet_decided: found.missed.undecided,
            unanswered: found.missed.unanswered,
        },
        by_policy: found.by_policy.clone(),
        reason_names_service: found.named,
        beyond: found.beyond,
        kept_bytes: found.kept_bytes,
        shown,
    }
}

pub(super) fn all(record: &Record, found: &TracesFinding) -> Traces {
    let ledger = &record.ledger;
    let (hit, hit_kept_whole) = found.hit_and_whole();
    let healthy = Errand::ALL.into_iter().zip(found.healthy_p99);
    let healthy = healthy.filter_map(|(errand, p99)| Some((Service::Frontend.path(errand), millis(p99?))));
    Traces {
        requests: found.requests,
        kept_requests: found.kept,
        hit,
        hit_kept_whole,
        beyond_share: found.beyond_share(),
        seen_spans: ledger.seen_spans,
        seen_bytes: ledger.seen_bytes,
        kept_spans: ledger.kept_spans,
        kept_bytes: ledger.kept_bytes,
        kept_bytes_by_policy: ledger.kept_bytes_by_policy.clone(),
        head_share: traces::share(ledger.kept_bytes, ledger.seen_bytes),
        over_budget: ledger.over_budget,
        lost_spans: ledger.lost_spans + ledger.rejected_spans,
        healthy_p99_ms: healthy.collect(),
    }
}

fn millis(time: Nanos) -> f64 {
    time.as_secs_f64() * 1e3
}
