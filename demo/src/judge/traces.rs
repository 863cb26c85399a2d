//! Says what became of the traces of each fault. Pure. The rules:
//!
//! 1. A fault **hit** a request if it was under way while the fault was, and failed or took longer than 99 of 100 healthy ones that wanted the
//!    same ([`HIT_IF`]); visitors say so, whatever was kept. About one in a hundred would have taken that long without any fault.
//! 2. A hit request's trace was **kept whole**, **in part**, or **missed**, and if missed then because no policy had wanted it when its time was
//!    over, because its time was not over when the run was, or because nobody was answered who could say which trace it is.
//! 3. What the budget had no room for is counted by the agent for the whole run, not by trace.
//! 4. Traces are kept **beyond** if the fault did not hit them, but lasted while they did.

use std::collections::BTreeMap;

use wire::time::Nanos;

use crate::graph::{Errand, Service, Watched};
use crate::record::{Injected, Record};
use crate::traces::{Trace, TraceId, Visit};

/// Which requests count as hit, for whoever reads the report.
pub const HIT_IF: &str = "A fault hit a request that was under way while the fault was, and that failed or took longer than 99 of 100 healthy requests \
    of its kind, as visitors saw it. About one in a hundred would have taken that long anyway. A trace is kept whole if nothing is missing that its \
    spans speak of.";

/// What a fault did to visitors, and what was kept of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FaultTraces {
    /// Requests under way during the fault.
    pub requests: usize,
    /// Of them, those that it hit.
    pub hit: usize,
    /// Of the hit ones, those that failed.
    pub failed: usize,
    /// Of the hit ones, kept whole.
    pub whole: usize,
    /// Of the hit ones, kept in part.
    pub part: usize,
    /// Of the hit ones, why those are missed that are.
    pub missed: Missed,
    /// Of those kept, whole or in part: by policy.
    pub by_policy: BTreeMap<String, usize>,
    /// Of those kept, whole or in part: those whose reason names the service that had the fault, or an operation of its.
    pub named: usize,
    /// Encoded bytes of those kept.
    pub kept_bytes: u64,
    /// Kept without having been hit.
    pub beyond: usize,
    /// The one to open first.
    pub shown: Option<Shown>,
}

/// Why traces are missed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Missed {
    /// No policy wanted them for as long as they waited.
    pub unwanted: usize,
    /// They still waited when the run was over: no policy had wanted them so far.
    pub undecided: usize,
    /// No answer said which trace they are.
    pub unanswered: usize,
}

impl Missed {
    /// All of them.
    #[must_use]
    pub const fn all(&self) -> usize {
        self.unwanted + self.undecided + self.unanswered
    }
}

/// The trace of a fault that shows it best: of a request that it hit, with a reason that names the service, whole, failed, the longest; what there is
/// of that, in this order.
#[derive(Clone, Debug, PartialEq)]
pub struct Shown {
    /// Which.
    pub trace: TraceId,
    /// Its request, as its visitor saw it.
    pub visit: Visit,
    /// Whether the fault hit it.
    pub hit: bool,
    /// Why it was kept, in words; empty if the root span did not come.
    pub reason: String,
}

/// What became of all traces.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TracesFinding {
    /// Fault by fault.
    pub faults: Vec<FaultTraces>,
    /// What 99 of 100 healthy requests of a kind are quicker than; in the order of [`Errand::ALL`].
    pub healthy_p99: [Option<Nanos>; 2],
    /// Requests of the whole run.
    pub requests: usize,
    /// Of them, kept whole or in part.
    pub kept: usize,
}

impl TracesFinding {
    /// Requests that faults hit, and those of them that were kept whole.
    #[must_use]
    pub fn hit_and_whole(&self) -> (usize, usize) {
        let sum = |of: fn(&FaultTraces) -> usize| self.faults.iter().map(of).sum();
        (sum(|fault| fault.hit), sum(|fault| fault.whole))
    }

    /// Kept though no fault hit them, of all requests, 0 to 1.
    #[must_use]
    pub fn beyond_share(&self) -> f64 {
        let hit: usize = self.faults.iter().map(|fault| fault.whole + fault.part).sum();
        share(self.kept.saturating_sub(hit) as u64, self.requests as u64)
    }
}

/// `part` of `all`, 0 to 1; 0 of nothing.
pub(crate) fn share(part: u64, all: u64) -> f64 {
    if all > 0 { part as f64 / all as f64 } else { 0.0 }
}

/// Judges the traces of one run.
#[must_use]
pub(super) fn judge(record: &Record) -> TracesFinding {
    let healthy_p99 = Errand::ALL.map(|errand| healthy_p99(record, errand));
    let visits = || record.visits.iter().filter(|visit| visit.started < record.ended);
    let hit = |visit: &Visit| {
        let usual = healthy_p99.get(visit.errand as usize).copied().flatten();
        visit.failed || usual.is_some_and(|usual| visit.took > usual)
    };
    let fault = |fault: &Injected| {
        let under_way = visits().filter(|visit| during(visit, fault));
        of_fault(record, fault, under_way, &hit)
    };
    TracesFinding {
        faults: record.faults.iter().map(fault).collect(),
        healthy_p99,
        requests: visits().count(),
        kept: visits().filter(|visit| trace_of(record, visit).is_some()).count(),
    }
}

/// What 99 of 100 requests that were answered before the first fault are quicker than.
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

fn during(visit: &Visit, fault: &Injected) -> bool {
    visit.started < fault.ended && visit.started.plus(visit.took) > fault.started
}

fn trace_of<'a>(record: &'a Record, visit: &Visit) -> Option<&'a Trace> {
    record.traces.get(&visit.trace?)
}

fn of_fault<'a>(
    record: &Record,
    fault: &Injected,
    under_way: impl Iterator<Item = &'a Visit>,
    hit: &dyn Fn(&Visit) -> bool,
) -> FaultTraces {
    let mut found = FaultTraces::default();
    let mut best = None;
    for visit in under_way {
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
            best = Some((place, Shown { trace: id, visit: *visit, hit, reason: reason.to_owned() }));
        }
    }
    found.shown = best.map(|(_, shown)| shown);
    found
}

/// Whether a reason speaks of `service`: it begins with its name, or its first part has one of its operations, as that of a caller has whose call
/// failed. What is named in metrics further on does not count. No span is of the way: whoever speaks of who waits there, or of what was asked
/// over it, speaks of it.
fn names(reason: &str, watched: Watched) -> bool {
    let first = reason.split(';').next().unwrap_or_default();
    let begins = |name: &str| first.strip_prefix(name).is_some_and(|rest| rest.starts_with(": "));
    let has_operation_of =
        |service: Service| Errand::ALL.iter().any(|errand| first.split(' ').any(|word| word == service.path(*errand)));
    match watched {
        Watched::Service(service) => begins(service.name()) || has_operation_of(service),
        Watched::Way => {
            begins(Watched::Way.name()) || begins(Watched::CALLER.name()) || has_operation_of(Watched::CALLED)
        }
    }
}

impl Missed {
    fn count(&mut self, record: &Record, visit: &Visit) {
        let over = visit.started.plus(visit.took).plus(record.books.wait);
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
