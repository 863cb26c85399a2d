//! What became of traces, for programs.

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
    /// Under way during the fault.
    requests: usize,
    /// Of them, hit by it: failed, or above the healthy 99th percentile.
    hit: usize,
    failed: usize,
    kept_whole: usize,
    kept_in_part: usize,
    missed: Missed,
    /// Kept ones.
    by_policy: BTreeMap<String, usize>,
    /// Kept ones whose reason names the faulty service or an operation of its.
    reason_names_service: usize,
    /// Kept without having been hit.
    beyond: usize,
    kept_bytes: u64,
    /// The one to open first: the worst one that the fault hit, if any is kept.
    shown: Option<Shown>,
}

#[derive(Clone, Debug, Serialize)]
struct Missed {
    wanted_by_no_policy: usize,
    not_yet_decided: usize,
    unanswered: usize,
}

#[derive(Clone, Debug, Serialize)]
struct Shown {
    trace: TraceId,
    operation: &'static str,
    took_ms: f64,
    failed: bool,
    hit: bool,
    reason: String,
}

/// All traces.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Traces {
    requests: usize,
    kept_requests: usize,
    hit: usize,
    hit_kept_whole: usize,
    /// Kept and not hit, of all requests.
    beyond_share: f64,
    seen_spans: u64,
    seen_bytes: u64,
    kept_spans: u64,
    kept_bytes: u64,
    kept_bytes_by_policy: BTreeMap<String, u64>,
    /// What head sampling keeps of everything with as many bytes.
    head_share: f64,
    /// Traces that a policy wanted and the budget had no room for.
    over_budget: u64,
    /// At the agent, and at the demo's receiver.
    lost_spans: u64,
    healthy_p99_ms: BTreeMap<&'static str, f64>,
}

pub(super) fn fault(found: &traces::FaultTraces) -> FaultTraces {
    let shown = found.shown.as_ref().map(|shown| Shown {
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
        missed: Missed {
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
    let books = &record.books;
    let (hit, hit_kept_whole) = found.hit_and_whole();
    let healthy = Errand::ALL.into_iter().zip(found.healthy_p99);
    let healthy = healthy.filter_map(|(errand, p99)| Some((Service::Frontend.path(errand), millis(p99?))));
    Traces {
        requests: found.requests,
        kept_requests: found.kept,
        hit,
        hit_kept_whole,
        beyond_share: found.beyond_share(),
        seen_spans: books.seen_spans,
        seen_bytes: books.seen_bytes,
        kept_spans: books.kept_spans,
        kept_bytes: books.kept_bytes,
        kept_bytes_by_policy: books.kept_bytes_by_policy.clone(),
        head_share: traces::share(books.kept_bytes, books.seen_bytes),
        over_budget: books.over_budget,
        lost_spans: books.lost_spans + books.no_room,
        healthy_p99_ms: healthy.collect(),
    }
}

fn millis(time: Nanos) -> f64 {
    time.as_secs_f64() * 1e3
}
