//! JSON of incidents: the list, and one of them.

use serde_json::{Value, json};
use wire::proto::operators::{
    Incident, IncidentChange, IncidentFigure, IncidentLog, IncidentProfile, IncidentService, IncidentSpan,
    IncidentStream, IncidentSummary, IncidentTrace, IncidentsReply, Reason,
};
use wire::quantity::quantity;

use super::labels;
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
            "services": of.services, "traces": of.kept_traces, "logs": of.kept_logs,
        })
    };
    let incidents: Vec<_> = reply.incidents.iter().map(incident).collect();
    shown::json(json!({ "node": reply.node, "incidents": incidents, "in_memory": reply.in_memory }))
}

/// One incident. Scores are multiples of γ, null where there is none. `link` gives the address of a trace at a tracing
/// backend, if there is any.
#[must_use]
pub fn incident(of: &Incident, link: impl Fn(u128) -> Option<String>) -> String {
    shown::json(json!({
        "id": of.id, "node": of.node, "began": moment(of.began_unix_ns), "ended": moment(of.ended_unix_ns),
        "cause": of.cause, "cut_short": of.cut_short, "further_services": of.further_services,
        "kept_traces": of.kept_traces, "kept_logs": of.kept_logs,
        "logs": of.logs.iter().map(log).collect::<Vec<_>>(),
        "services": of.services.iter().map(service).collect::<Vec<_>>(),
        "changes": of.changes.iter().map(change).collect::<Vec<_>>(),
        "traces": of.traces.iter().map(|of| trace(of, &link)).collect::<Vec<_>>(),
        "profiles": of.profiles.iter().map(profile).collect::<Vec<_>>(),
        "streams": of.streams.iter().map(stream).collect::<Vec<_>>(),
    }))
}

fn service(of: &IncidentService) -> Value {
    let metric = |of: &Reason| {
        let since = if of.since_us == 0 { String::new() } else { quantity(of.since_us as f64, "us") };
        json!({
            "title": of.column, "metric": of.metric, "statistic": of.statistic, "labels": labels(of),
            "group": of.group, "seen": quantity(of.seen, &of.unit), "expected": quantity(of.expected, &of.unit),
            "share": of.share, "since": since, "about": of.about, "replica": of.replica,
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

/// Stacks are arrays of indices of names, the process first, with how often each was seen.
fn profile(of: &IncidentProfile) -> Value {
    let stacks: Vec<_> = of.stacks.iter().map(|stack| json!([stack.frames, stack.samples])).collect();
    json!({
        "service": of.service, "event": of.event, "at": of.began_unix_ns / MS, "frequency": of.frequency_hz,
        "samples": of.samples, "lost": of.lost, "left_out": of.left_out, "further_threads": of.further_threads,
        "problem": of.problem, "names": of.names, "stacks": stacks,
    })
}

fn stream(of: &IncidentStream) -> Value {
    let figure = |of: &IncidentFigure| {
        json!({
            "metric": of.metric, "at": of.largest_unix_ns / MS, "largest": quantity(of.largest, &of.unit),
            "expected": of.expected.is_finite().then(|| quantity(of.expected, &of.unit)),
            "last": quantity(of.last, &of.unit),
        })
    };
    json!({ "service": of.service, "figures": of.figures.iter().map(figure).collect::<Vec<_>>() })
}

fn log(of: &IncidentLog) -> Value {
    json!({
        "at": of.at_unix_ns / MS, "severity": of.severity, "level": of.level, "service": of.service, "text": of.text,
        "trace": of.trace, "policy": of.policy, "reason": of.reason,
    })
}

fn trace(of: &IncidentTrace, link: impl Fn(u128) -> Option<String>) -> Value {
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
        "link": u128::from_str_radix(&of.id, 16).ok().and_then(link),
    })
}

#[cfg(test)]
mod tests {
    use wire::proto::operators::Label;

    use super::*;

    const HOSTILE: &str = "<img src=x onerror=alert(1)>\u{202e}\n\"'`";

    #[test]
    fn whatever_services_say_a_document_is_one_printable_line() {
        let name = || HOSTILE.to_owned();
        let labels = vec![Label { key: name(), value: name() }];
        let [column, metric, statistic, unit, group, about] = [(); 6].map(|()| name());
        let reason = Reason { column, metric, statistic, labels, unit, group, about, ..Reason::default() };
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
        let log = IncidentLog {
            level: name(),
            service: name(),
            text: name(),
            trace: name(),
            policy: name(),
            reason: name(),
            ..IncidentLog::default()
        };
        let change = IncidentChange { service: name(), kind: name(), text: name(), ..IncidentChange::default() };
        let whole = Incident {
            id: name(),
            node: name(),
            cause: name(),
            services: vec![service],
            changes: vec![change],
            traces: vec![trace],
            logs: vec![log],
            ..Incident::default()
        };
        let summary =
            IncidentSummary { id: name(), cause: name(), services: vec![name()], ..IncidentSummary::default() };

        let reply = IncidentsReply { node: name(), incidents: vec![summary], in_memory: true };
        for text in [incident(&whole, |_| None), incidents(&reply)] {
            assert!(text.chars().all(wire::printable::is_printable), "{text}");
            let parsed: Value = serde_json::from_str(&text).unwrap();
            assert!(parsed["node"].as_str().unwrap().ends_with("\\u{202e}\\u{a}\"'`"));
        }
        let parsed: Value = serde_json::from_str(&incident(&whole, |_| None)).unwrap();
        assert_eq!(parsed["services"][0]["ratios"], json!([null, 0.25, null]));
        assert!(parsed["services"][0]["metrics"][0]["labels"][0][0].as_str().unwrap().contains("<img"));
        assert!(parsed["services"][0]["metrics"][0]["about"].as_str().unwrap().contains("<img"), "whom it is about");
        assert_eq!(
            (&parsed["ended"], &parsed["traces"][0]["spans"][0]["id"]),
            (&Value::Null, &json!("ffffffffffffffff"))
        );
    }

    #[test]
    fn a_trace_leads_to_the_backend_by_its_id_and_one_without_an_id_leads_nowhere() {
        let trace = |id: &str| IncidentTrace { id: id.to_owned(), ..IncidentTrace::default() };
        let whole = Incident { traces: vec![trace(&format!("{:032x}", 0xabc)), trace("x")], ..Incident::default() };
        let link = |id: u128| Some(format!("https://tracing.example/{id:x}"));

        let parsed: Value = serde_json::from_str(&incident(&whole, link)).unwrap();

        let links = (&parsed["traces"][0]["link"], &parsed["traces"][1]["link"]);
        assert_eq!(links, (&json!("https://tracing.example/abc"), &Value::Null));
    }
}
