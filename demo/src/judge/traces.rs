//! Evaluates the traces of each fault. Pure. The rules:
//!
//! 1. A fault **hit** a request that was in flight during the fault, and that failed or took longer than the 99th
//!    percentile of healthy requests of its kind ([`HIT_IF`]). The load's log decides this, independently of kept
//!    traces. About one in a hundred requests would have taken that long without any fault.
//! 2. The trace of a hit request was **kept whole**, **kept in part**, or **missed**. It was missed because no policy
//!    selected it before it expired, because the run ended before it expired, or because no response named its trace.
//! 3. Traces over the byte budget are counted by the agent for the whole run, not by trace.
//! 4. A trace is kept **beyond** if it was in flight during the fault but not hit by it.

use std::collections::BTreeMap;

use wire::time::Nanos;

use crate::graph::{Errand, Service, Target};
use crate::record::{InjectedFault, Record};
use crate::traces::{Trace, TraceId, Visit};

/// The rule by which a request counts as hit, for the report.
pub const HIT_IF: &str = "A fault hit a request that was under way while the fault was, and that failed or took longer than 99 of 100 healthy requests \
    of its kind, as visitors saw it. About one in a hundred would have taken that long anyway. A trace is kept whole if nothing is missing that its \
    spans speak of.";

/// The requests of one fault, and which of their traces were kept.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FaultTraces {
    /// Requests in flight during the fault.
    pub requests: usize,
    /// Of them, those that the fault hit.
    pub hit: usize,
    /// Of the hit ones, those that failed.
    pub failed: usize,
    /// Of the hit ones, kept whole.
    pub whole: usize,
    /// Of the hit ones, kept in part.
    pub part: usize,
    /// Of the hit ones, those that are missed, by cause.
    pub missed: MissedTraces,
    /// Hit and kept, whole or in part, by policy.
    pub by_policy: BTreeMap<String, usize>,
    /// Hit and kept, whole or in part: those whose reason names the faulty service or one of its operations.
    pub named: usize,
    /// Encoded bytes of those hit and kept.
    pub kept_bytes: u64,
    /// Kept but not hit.
    pub beyond: usize,
    /// The trace to open first.
    pub example: Option<ExampleTrace>,
}

/// Missed traces by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MissedTraces {
    /// Expired before any policy selected them.
    pub unwanted: usize,
    /// Still buffered at the end of the run; no policy had selected them so far.
    pub undecided: usize,
    /// No response named their trace.
    pub unanswered: usize,
}

impl MissedTraces {
    /// The sum over all causes.
    #[must_use]
    pub const fn all(&self) -> usize {
        self.unwanted + self.undecided + self.unanswered
    }
}

/// The trace that shows a fault best. Preferred, in this order: hit by the fault, with a reason that names the service,
/// whole, failed, long.
#[derive(Clone, Debug, PartialEq)]
pub struct ExampleTrace {
    /// Id of the trace.
    pub trace: TraceId,
    /// Its request, from the load's log.
    pub visit: Visit,
    /// Whether the fault hit it.
    pub hit: bool,
    /// The agent's reason for keeping it; empty if the root span is missing.
    pub reason: String,
}

/// Evaluation of all traces of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TracesFinding {
    /// The traces of each fault, in the order of the faults.
    pub faults: Vec<FaultTraces>,
    /// 99th percentile of the durations of healthy requests, in the order of [`Errand::ALL`].
    pub healthy_p99: [Option<Nanos>; 2],
    /// Requests of the whole run.
    pub requests: usize,
    /// Of them, kept whole or in part.
    pub kept: usize,
}

impl TracesFinding {
    /// Requests that faults hit, and how many of them were kept whole.
    #[must_use]
    pub fn hit_and_whole(&self) -> (usize, usize) {
        let sum = |of: fn(&FaultTraces) -> usize| self.faults.iter().map(of).sum();
        (sum(|fault| fault.hit), sum(|fault| fault.whole))
    }

    /// Share of all requests, 0 to 1, that were kept though no fault hit them.
    #[must_use]
    pub fn beyond_share(&self) -> f64 {
        let hit: usize = self.faults.iter().map(|fault| fault.whole + fault.part).sum();
        share(self.kept.saturating_sub(hit) as u64, self.requests as u64)
    }
}

/// `part` / `all`, 0 to 1; 0 if `all` is 0.
pub(crate) fn share(part: u64, all: u64) -> f64 {
    if all > 0 { part as f64 / all as f64 } else { 0.0 }
}

/// Evaluates the traces of one run.
#[must_use]
pub(super) fn judge(record: &Record) -> TracesFinding {
    let healthy_p99 = Errand::ALL.map(|errand| healthy_p99(record, errand));
    let visits = || record.visits.iter().filter(|visit| visit.started < record.ended);
    let hit = |visit: &Visit| {
        let usual = healthy_p99.get(visit.errand as usize).copied().flatten();
        visit.failed || usual.is_some_and(|usual| visit.took > usual)
    };
    let fault = |fault: &InjectedFault| {
        let in_flight = visits().filter(|visit| during(visit, fault));
        of_fault(record, fault, in_flight, &hit)
    };
    TracesFinding {
        faults: record.faults.iter().map(fault).collect(),
        healthy_p99,
        requests: visits().count(),
        kept: visits().filter(|visit| trace_of(record, visit).is_some()).count(),
    }
}

/// 99th percentile of the durations of requests that ended before the first fault.
fn healthy_p99(record: &Record, errand: Errand) -> Option<Nanos> {
    let first = record.faults.iter().map(|fault| fault.started).min().unwrap_or(record.ended);
    let healthy = record
        .visits
        .iter()
        .filter(|visit| visit.errand == errand && !visit.failed && visit.started.plus(visit.took) < first);
    let mut took: Vec<_> = healthy.map(|visit| visit.took).collect();
    took.sort_unstable();
    took.get(took.len() * 99 / 100).copied()
}

fn during(visit: &Visit, fault: &InjectedFault) -> bool {
    visit.started < fault.ended && visit.started.plus(visit.took) > fault.started
}

fn trace_of<'a>(record: &'a Record, visit: &Visit) -> Option<&'a Trace> {
    record.traces.get(&visit.trace?)
}

fn of_fault<'a>(
    record: &Record,
    fault: &InjectedFault,
    in_flight: impl Iterator<Item = &'a Visit>,
    hit: &dyn Fn(&Visit) -> bool,
) -> FaultTraces {
    let mut found = FaultTraces::default();
    let mut best = None;
    for visit in in_flight {
        let (trace, hit) = (trace_of(record, visit), hit(visit));
        found.requests += 1;
        found.hit += usize::from(hit);
        found.failed += usize::from(hit && visit.failed);
        let (Some(trace), Some(id)) = (trace, visit.trace) else {
            if hit {
                found.missed.count(record, visit);
            }
            continue;
        };
        let root = trace.root();
        let reason = root.and_then(|root| root.reason.as_deref()).unwrap_or_default();
        let (named, whole) = (names(reason, fault.service), trace.is_whole());
        if hit {
            found.whole += usize::from(whole);
            found.part += usize::from(!whole);
            found.kept_bytes += trace.bytes();
            found.named += usize::from(named);
            let policy = root.and_then(|root| root.policy.clone()).unwrap_or_else(|| "unknown".to_owned());
            *found.by_policy.entry(policy).or_default() += 1;
        } else {
            found.beyond += 1;
        }
        let place = (hit, named, whole, visit.failed, visit.took);
        if best.as_ref().is_none_or(|(best, _)| place > *best) {
            best = Some((place, ExampleTrace { trace: id, visit: *visit, hit, reason: reason.to_owned() }));
        }
    }
    found.example = best.map(|(_, shown)| shown);
    found
}

/// Whether a reason names `target`. It does if it begins with the service's name, or if its first part contains one of
/// the service's operations, as for a caller whose call failed. Later parts, which name metrics, do not count. The link
/// has no spans: its caller and the operations called over it count instead.
fn names(reason: &str, target: Target) -> bool {
    let first = reason.split(';').next().unwrap_or_default();
    let begins = |name: &str| first.strip_prefix(name).is_some_and(|rest| rest.starts_with(": "));
    let has_operation_of =
        |service: Service| Errand::ALL.iter().any(|errand| first.split(' ').any(|word| word == service.path(*errand)));
    match target {
        Target::Service(service) => begins(service.name()) || has_operation_of(service),
        Target::Link => {
            begins(Target::Link.name()) || begins(Target::CALLER.name()) || has_operation_of(Target::CALLED)
        }
    }
}

impl MissedTraces {
    fn count(&mut self, record: &Record, visit: &Visit) {
        let over = visit.started.plus(visit.took).plus(record.ledger.wait);
        let why = match visit.trace {
            None => &mut self.unanswered,
            Some(_) if over > record.ended => &mut self.undecided,
            Some(_) => &mut self.unwanted,
        };
        *why += 1;
    }
}

#[cfg(test)]
mod tests;
