//! Kept traces of an incident: which belong to it, how many they are, and which five are the best.
//!
//! A trace belongs to an incident if its root says so (`uview.incident`), or if it passes a service of the incident
//! during it and is kept for a reason other than chance. The best go through the suspected cause, say that they belong
//! to the incident, failed, and took long, in this order.

use std::collections::BTreeSet;

use page::traces::{Outcome, Side, Span, Trace};
use wire::proto::operators::{IncidentSpan, IncidentTrace};
use wire::time::UnixNanos;

/// Traces that are kept with an incident.
pub const BEST: usize = 5;
/// Spans of each of them.
pub const MAX_SPANS: usize = 200;
/// Traces that are counted one by one; beyond it the number stands still.
pub const MAX_COUNTED: usize = 10_000;
/// The policy that keeps by chance.
const FLOOR: &str = "floor";

/// What a trace has to do with an incident.
#[derive(Clone, Copy, Debug)]
pub struct Scene<'a> {
    /// Address of the incident: node, slash, id.
    pub address: &'a str,
    /// Its services, the suspected cause first.
    pub services: &'a [&'a str],
    /// Its first moment and its last one, in nanoseconds since 1970.
    pub during: (UnixNanos, UnixNanos),
}

/// How good a trace is as evidence; larger is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct TraceWorth {
    passes_cause: bool,
    is_named: bool,
    failed: bool,
    took: u64,
}

/// Kept traces of one incident.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    counted: BTreeSet<u128>,
    best: Vec<(TraceWorth, u128, Trace)>,
}

impl Evidence {
    /// Looks at a kept trace. One that is known is looked at again: its spans may have come late. Returns whether
    /// something changed.
    pub fn look(&mut self, id: u128, trace: &Trace, scene: &Scene<'_>) -> bool {
        let Some(worth) = worth(trace, scene) else { return false };
        let is_new = self.counted.len() < MAX_COUNTED && self.counted.insert(id);
        if let Some(known) = self.best.iter().position(|(_, known, _)| *known == id) {
            if self.best[known].0 == worth && self.best[known].2.spans.len() == trace.spans.len() {
                return is_new;
            }
            self.best.remove(known);
        }
        let at = self.best.partition_point(|(better, _, _)| *better >= worth);
        if at >= BEST {
            return is_new;
        }
        self.best.insert(at, (worth, id, trace.clone()));
        self.best.truncate(BEST);
        true
    }

    /// Orders the best anew: others are suspected than when they were looked at.
    pub fn rank_again(&mut self, scene: &Scene<'_>) {
        for (known, _, trace) in &mut self.best {
            *known = worth(trace, scene).unwrap_or(*known);
        }
        self.best.sort_by_key(|(worth, _, _)| core::cmp::Reverse(*worth));
    }

    /// Traces of the incident, the best included.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counted.len() as u64
    }

    /// Whether `trace` is of the incident, as far as it is counted.
    #[must_use]
    pub fn has(&self, trace: u128) -> bool {
        self.counted.contains(&trace)
    }

    /// The best traces, as they are kept.
    #[must_use]
    pub fn best(&self) -> Vec<IncidentTrace> {
        self.best.iter().map(|(_, id, trace)| kept(*id, trace)).collect()
    }
}

/// How good `trace` is; `None` if it does not belong to the incident.
fn worth(trace: &Trace, scene: &Scene<'_>) -> Option<TraceWorth> {
    let reason = trace.kept();
    let passes = |service: &&str| trace.spans.iter().any(|span| *span.service == **service);
    let is_named = reason.is_some_and(|reason| *reason.incident == *scene.address);
    let (start, end) = trace.extent();
    let is_during = start <= scene.during.1 && scene.during.0 <= end;
    let is_chosen = reason.is_none_or(|reason| &*reason.policy != FLOOR);
    let passes_cause = scene.services.first().is_some_and(passes);
    if !(is_named || (is_during && is_chosen && scene.services.iter().any(passes))) {
        return None;
    }
    Some(TraceWorth { passes_cause, is_named, failed: trace.outcome() == Outcome::Failed, took: end.since(start).0 })
}

fn kept(id: u128, trace: &Trace) -> IncidentTrace {
    let (start, end) = trace.extent();
    let span = |span: &Span| IncidentSpan {
        id: span.id,
        parent: span.parent,
        service: span.service.to_string(),
        name: span.name.to_string(),
        side: match span.side {
            Side::Server => "server",
            Side::Client => "client",
            Side::Other => "",
        }
        .to_owned(),
        after_ns: span.start.since(start).0,
        took_ns: span.end.since(span.start).0,
        failed: span.outcome == Outcome::Failed,
    };
    let reason = trace.kept();
    let left_out = trace.spans.len().saturating_sub(MAX_SPANS) as u32;
    IncidentTrace {
        id: format!("{id:032x}"),
        began_unix_ns: start.0,
        took_ns: end.since(start).0,
        policy: reason.map(|reason| reason.policy.to_string()).unwrap_or_default(),
        reason: reason.map(|reason| reason.reason.to_string()).unwrap_or_default(),
        spans: trace.spans.iter().take(MAX_SPANS).map(span).collect(),
        further_spans: trace.cut.saturating_add(left_out),
    }
}

#[cfg(test)]
mod tests {
    use page::traces::KeepReason;

    use super::*;

    const SCENE: Scene<'static> = Scene {
        address: "node-3/20261127-064215-123",
        services: &["store", "payment"],
        during: (UnixNanos(1_000), UnixNanos(2_000)),
    };

    fn trace(services: &[&str], took: u64, policy: &str, incident: &str) -> Trace {
        let span = |(id, service): (usize, &&str)| Span {
            id: id as u64,
            parent: None,
            service: (*service).into(),
            name: "GET /".into(),
            side: Side::Server,
            start: UnixNanos(1_500),
            end: UnixNanos(1_500 + took),
            outcome: Outcome::Fine,
            kept: (id == 0).then(|| KeepReason {
                policy: policy.into(),
                reason: "why".into(),
                incident: incident.into(),
            }),
        };
        Trace { spans: services.iter().enumerate().map(span).collect(), cut: 0 }
    }

    #[test]
    fn a_trace_belongs_to_an_incident_by_its_root_or_by_time_and_service() {
        let mut evidence = Evidence::default();
        let elsewhere = Scene { during: (UnixNanos(9_000), UnixNanos(9_001)), ..SCENE };
        let mut is_taken = |trace: &Trace, scene| evidence.look(trace.spans.len() as u128 + 7, trace, scene);

        assert!(is_taken(&trace(&["cart"], 10, "lmap", SCENE.address), &elsewhere));
        assert!(is_taken(&trace(&["cart", "payment"], 10, "error", ""), &SCENE));
        for (services, policy, scene) in [
            (&["cart", "a", "b"][..], "error", &SCENE),
            (&["payment", "a", "b"][..], "floor", &SCENE),
            (&["payment", "a", "b"][..], "error", &elsewhere),
        ] {
            assert!(!is_taken(&trace(services, 10, policy, "other/20261127-064215-123"), scene), "{services:?}");
        }
        assert_eq!(evidence.count(), 2);
    }

    #[test]
    fn the_five_best_are_kept_and_all_are_counted() {
        let mut evidence = Evidence::default();
        for id in 0..20 {
            evidence.look(id, &trace(&["payment"], 100 + id as u64, "lmap", ""), &SCENE);
        }
        let mut failed = trace(&["payment"], 1, "error", "");
        failed.spans[0].outcome = Outcome::Failed;
        evidence.look(100, &failed, &SCENE);
        evidence.look(101, &trace(&["cart", "store"], 1, "lmap", ""), &SCENE);
        evidence.look(102, &trace(&["payment"], 2, "lmap", SCENE.address), &SCENE);

        let order: Vec<_> = evidence.best().iter().map(|trace| trace.id.trim_start_matches('0').to_owned()).collect();
        assert_eq!(order, ["65", "66", "64", "13", "12"], "cause, named, failed, then the longest");
        assert_eq!(evidence.count(), 23);
    }

    #[test]
    fn when_another_service_is_suspected_the_best_are_ordered_anew() {
        let mut evidence = Evidence::default();
        evidence.look(1, &trace(&["store"], 10, "lmap", ""), &SCENE);
        evidence.look(2, &trace(&["payment"], 10, "lmap", ""), &SCENE);
        let first = |evidence: &Evidence| evidence.best()[0].spans[0].service.clone();
        assert_eq!(first(&evidence), "store");

        evidence.rank_again(&Scene { services: &["payment", "store"], ..SCENE });

        assert_eq!(first(&evidence), "payment");
    }

    #[test]
    fn spans_that_come_late_replace_the_trace_as_it_was() {
        let mut evidence = Evidence::default();
        assert!(evidence.look(7, &trace(&["payment"], 10, "lmap", ""), &SCENE));
        assert!(!evidence.look(7, &trace(&["payment"], 10, "lmap", ""), &SCENE));
        assert!(evidence.look(7, &trace(&["payment", "store"], 10, "lmap", ""), &SCENE));

        let best = evidence.best();
        assert_eq!((best.len(), best[0].spans.len(), evidence.count()), (1, 2, 1));
    }

    #[test]
    fn a_long_trace_is_cut_and_says_so() {
        let mut evidence = Evidence::default();
        let names: Vec<&str> = (0..300).map(|_| "store").collect();
        evidence.look(7, &Trace { cut: 9, ..trace(&names, 10, "lmap", "") }, &SCENE);

        let best = &evidence.best()[0];
        assert_eq!((best.spans.len(), best.further_spans, best.policy.as_str()), (MAX_SPANS, 109, "lmap"));
    }
}
