//! JSON of incidents: the list, and one of them.

use serde_json::{Value, json};
use wire::proto::operators::{
    Incident, IncidentChange, IncidentService, IncidentSpan, IncidentSummary, IncidentTrace, IncidentsReply, Reason,
};
use wire::quantity::quantity;

use crate::shown;

const MS: u64 = 1_000_000;

/// A moment in milliseconds since 1970; null if there is none.
fn moment(unix_ns: u64) -> Value {
    if unix_ns == 0 { Value::Null } else { json!(unix_ns / MS) }
}

/// The incidents that are kept, the newest first.
#[must_use]
pub fn incidents(reply: &IncidentsReply) -> String {
    let incident = |of: &IncidentSummary| {
        json!({
            "id": of.id, "began": moment(of.began_unix_ns), "ended": moment(of.ended_unix_ns), "cause": of.cause,
            "services": of.services, "traces": of.kept_traces,
        })
    };
    let incidents: Vec<_> = reply.incidents.iter().map(incident).collect();
    shown::json(json!({ "node": reply.node, "incidents": incidents, "in_memory": reply.in_memory }))
}

/// One incident. Scores are multiples of γ, null where there is none.
#[must_use]
pub fn incident(of: &Incident) -> String {
    shown::json(json!({
        "id": of.id, "node": of.node, "began": moment(of.began_unix_ns), "ended": moment(of.ended_unix_ns),
        "cause": of.cause, "cut_short": of.cut_short, "further_services": of.further_services,
        "kept_traces": of.kept_traces,
        "services": of.services.iter().map(service).collect::<Vec<_>>(),
        "changes": of.changes.iter().map(change).collect::<Vec<_>>(),
        "traces": of.traces.iter().map(trace).collect::<Vec<_>>(),
    }))
}

fn service(of: &IncidentService) -> Value {
    let metric = |of: &Reason| {
        let since = if of.since_us == 0 { String::new() } else { quantity(of.since_us as f64, "us") };
        json!({
            "title": of.column, "group": of.group, "seen": quantity(of.seen, &of.unit),
            "expected": quantity(of.expected, &of.unit), "share": of.share, "since": since,
        })
    };
    let rounded = |ratio: &f32| (f64::from(*ratio) * 1_000.0).round() / 1_000.0;
    json!({
        "service": of.service, "rank": of.rank, "points_at": of.points_at, "began": moment(of.began_unix_ns),
        "ended": moment(of.ended_unix_ns), "peak": of.peak, "alarms": of.alarms, "silent": of.silent_replicas,
        "metrics": of.metrics.iter().map(metric).collect::<Vec<_>>(),
        "usual": of.usual, "usual_maximum": of.usual_maximum, "usual_seconds": of.usual_seconds,
        "from": of.ratios_from_s, "step": of.ratio_step_s.max(1),
        "ratios": of.ratios.iter().map(rounded).collect::<Vec<_>>(),
    })
}

fn change(of: &IncidentChange) -> Value {
    json!({
        "at": of.at_unix_ns / MS, "service": of.service, "kind": of.kind, "text": of.text, "first": of.precedes_alarm,
    })
}

fn trace(of: &IncidentTrace) -> Value {
    // Ids as text: a number of JavaScript has 53 bits.
    let span = |of: &IncidentSpan| {
        json!({
            "id": format!("{:016x}", of.id), "parent": of.parent.map(|parent| format!("{parent:016x}")),
            "service": of.service, "name": of.name, "side": of.side, "start": of.after_ns, "took": of.took_ns,
            "failed": of.failed,
        })
    };
    json!({
        "id": of.id, "start": of.began_unix_ns / MS, "took": of.took_ns, "policy": of.policy, "reason": of.reason,
        "cut": of.further_spans, "spans": of.spans.iter().map(span).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &str = "<img src=x onerror=alert(1)>\u{202e}\n\"'`";

    #[test]
    fn whatever_services_say_a_document_is_one_printable_line() {
        let name = || HOSTILE.to_owned();
        let reason = Reason { column: name(), unit: name(), group: name(), ..Reason::default() };
        let service = IncidentService {
            service: name(),
            points_at: name(),
            metrics: vec![reason],
            silent_replicas: vec![name()],
            ratios: vec![f32::NAN, 0.25, f32::INFINITY],
            ..IncidentService::default()
        };
        let span =
            IncidentSpan { id: u64::MAX, service: name(), name: name(), side: name(), ..IncidentSpan::default() };
        let trace =
            IncidentTrace { id: name(), policy: name(), reason: name(), spans: vec![span], ..IncidentTrace::default() };
        let change = IncidentChange { service: name(), kind: name(), text: name(), ..IncidentChange::default() };
        let whole = Incident {
            id: name(),
            node: name(),
            cause: name(),
            services: vec![service],
            changes: vec![change],
            traces: vec![trace],
            ..Incident::default()
        };
        let summary =
            IncidentSummary { id: name(), cause: name(), services: vec![name()], ..IncidentSummary::default() };

        let reply = IncidentsReply { node: name(), incidents: vec![summary], in_memory: true };
        for text in [incident(&whole), incidents(&reply)] {
            assert!(text.chars().all(wire::printable::is_printable), "{text}");
            let parsed: Value = serde_json::from_str(&text).unwrap();
            assert!(parsed["node"].as_str().unwrap().ends_with("\\u{202e}\\u{a}\"'`"));
        }
        let parsed: Value = serde_json::from_str(&incident(&whole)).unwrap();
        assert_eq!(parsed["services"][0]["ratios"], json!([null, 0.25, null]));
        assert_eq!(
            (&parsed["ended"], &parsed["traces"][0]["spans"][0]["id"]),
            (&Value::Null, &json!("ffffffffffffffff"))
        );
    }
}
