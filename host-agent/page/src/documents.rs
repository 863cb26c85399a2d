//! JSON of one service, of traces, of incidents, of the receipt and of the node.

mod incidents;
mod node;
mod sources;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use wire::proto::operators::{Label, Reason, ReceiptDay, ReceiptLine, ReceiptLogs, ReceiptReply};
use wire::quantity::quantity;
use wire::time::UnixNanos;

pub use self::incidents::{incident, incidents};
pub use self::node::{BudgetRow, Contact, NodeBudget, OtherNode, Unit, Use, node};
pub use self::sources::sources;
use crate::feed::Feed;
use crate::history::{Alarm, Bucket, Episode, HeatCell, HeatRow};
use crate::older::{PastAlarm, PastScores, Reach};
use crate::shown;
use crate::traces::{Outcome, Side, Span, Trace, Traces};
use crate::viewed::Availability;

/// Traces in the list: the newest.
const LISTED: usize = 500;
/// Services of a trace that are named in the list.
const NAMED: usize = 16;

/// Whether scores older than the history can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OlderScores {
    /// A Prometheus has them (`page.prometheus`).
    Prometheus,
    /// Nobody has them.
    Nowhere,
}

/// History and episodes of an LMAP, dated by the agent's wall clock as it is now; `None` if there is no such one.
/// Buckets are arrays: first second, seconds, largest score, γ or null, 1 in an alarm. So are rows of the heat map:
/// title of the column, and its cells, each a second and the part of the squared score in units of γ².
#[must_use]
pub fn service(feed: &Feed, lmap: u32, older: OlderScores) -> Option<String> {
    let name = feed.service(lmap)?;
    let bucket = |(step, Bucket { second, highest, gamma, alarm }): (u32, Bucket)| {
        json!([feed.dates.of(second), step, highest, gamma.is_finite().then_some(gamma), u8::from(alarm == Alarm::On)])
    };
    let buckets: Vec<_> = feed.history.buckets(name).into_iter().map(bucket).collect();
    let episode = |episode: &Episode| {
        let Episode { from, to, peak, rank, points_at, .. } = episode;
        let (from, to, metrics) = (feed.dates.of(*from), to.map(|to| feed.dates.of(to)), episode.metrics());
        json!({ "from": from, "to": to, "peak": peak, "rank": rank, "points_at": points_at, "metrics": metrics })
    };
    let episodes: Vec<_> = feed.history.episodes(name).map(episode).collect();
    let cell = |of: &HeatCell| json!([feed.dates.of(of.second), (f64::from(of.part) * 100.0).round() / 100.0]);
    let row = |HeatRow { title, cells }: &HeatRow| json!([title, cells.iter().map(cell).collect::<Vec<_>>()]);
    let heat: Vec<_> = feed.history.heat(name).map(row).collect();
    let older = older == OlderScores::Prometheus;
    Some(shown::json(json!({
        "service": name, "buckets": buckets, "episodes": episodes, "heat": heat, "older": older,
    })))
}

/// What a Prometheus has, in steps of `reach`, or why there is nothing. A score is an array: its first second, and the
/// multiple of γ. So is an alarm: its first second, the first one after it, and its largest score or null.
#[must_use]
pub fn older(found: Result<&PastScores, &str>, reach: Reach) -> String {
    let past = found.ok();
    let scores: Vec<_> = past.iter().flat_map(|past| &past.scores).map(|of| json!([of.second, of.ratio])).collect();
    let alarm = |PastAlarm { from, to, peak }: &PastAlarm| json!([from, to, peak]);
    let alarms: Vec<_> = past.iter().flat_map(|past| &past.alarms).map(alarm).collect();
    shown::json(json!({ "step": reach.step(), "scores": scores, "alarms": alarms, "error": found.err() }))
}

/// Each metric of an LMAP, as of its newest summary at `at`, in the order of its columns. Shares are of the squared
/// score of the last row, whose score is `ratio` times γ; `None`: no row is judged. A metric that is not judged has
/// nothing expected. Values are there as numbers for charts, and as texts with their units; what they are about is
/// empty for most. The title is to be shown; scripts look metrics up by name, statistic and labels.
#[must_use]
pub fn metrics(at: UnixNanos, ratio: Option<f64>, each: &[Reason], availability: Availability) -> String {
    let metric = |reason: &Reason| {
        let number = |value: f64| value.is_finite().then_some(value);
        let text = |value: f64| number(value).map(|value| quantity(value, &reason.unit));
        json!({
            "title": reason.column, "metric": reason.metric, "statistic": reason.statistic, "labels": labels(reason),
            "group": reason.group, "unit": reason.unit, "share": number(reason.share), "about": reason.about,
            "seen": text(reason.seen), "expected": text(reason.expected), "values": [number(reason.seen), number(reason.expected)],
        })
    };
    let each: Vec<_> = each.iter().map(metric).collect();
    let at = at.0 / 1_000_000;
    shown::json(json!({ "at": at, "ratio": ratio, "full": availability == Availability::Full, "metrics": each }))
}

/// The labels of a metric as pairs: names of fields are this crate's own, and keys of labels are not.
fn labels(reason: &Reason) -> Vec<(&str, &str)> {
    reason.labels.iter().map(|Label { key, value }| (key.as_str(), value.as_str())).collect()
}

/// The newest kept traces, at most 500, each with up to 16 of its services, and with the incident that it is about.
#[must_use]
pub fn traces(traces: &Traces, keeping: Keeping) -> String {
    let trace = |(id, trace): (u128, &Trace)| {
        let (start, end) = trace.extent();
        let (root, kept) = (trace.root(), trace.kept());
        json!({
            "id": format!("{id:032x}"),
            "start": start.millis(),
            "took": end.since(start).0,
            "service": root.map(|root| &*root.service),
            "name": root.map(|root| &*root.name),
            "spans": trace.spans.len(),
            "failed": trace.outcome() == Outcome::Failed,
            "policy": kept.map(|kept| &*kept.policy),
            "reason": kept.map(|kept| &*kept.reason),
            "services": services(trace),
            "incident": kept.map(|kept| &*kept.incident),
        })
    };
    let listed: Vec<_> = traces.newest().take(LISTED).map(trace).collect();
    shown::json(json!({ "traces": listed, "taken": traces.taken(), "keeping": keeping == Keeping::Tail }))
}

/// Names of services with spans in `trace`, the first by name.
fn services(trace: &Trace) -> Vec<&str> {
    let services: BTreeSet<&str> = trace.spans.iter().map(|span| &*span.service).collect();
    services.into_iter().take(NAMED).collect()
}

/// Whether the agent chooses traces, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeping {
    /// It keeps those that matter (`otlp.traces.keep: tail`).
    Tail,
    /// It chooses none, or there is no OTLP endpoint.
    Nothing,
}

/// Spans of a trace, and the `link` to it at a tracing backend; `None` if it is not there (any more). Times are
/// nanoseconds since its start.
#[must_use]
pub fn trace(traces: &Traces, id: u128, link: Option<&str>) -> Option<String> {
    let trace = traces.get(id)?;
    let (start, end) = trace.extent();
    let side = |side| match side {
        Side::Server => "server",
        Side::Client => "client",
        Side::Other => "",
    };
    // Ids as text: a number of JavaScript has 53 bits.
    let span = |span: &Span| {
        json!({
            "id": format!("{:016x}", span.id),
            "parent": span.parent.map(|parent| format!("{parent:016x}")),
            "service": span.service,
            "name": span.name,
            "side": side(span.side),
            "start": span.start.since(start).0,
            "took": span.end.since(span.start).0,
            "failed": span.outcome == Outcome::Failed,
        })
    };
    let spans: Vec<_> = trace.spans.iter().map(span).collect();
    let kept = trace.kept();
    Some(shown::json(json!({
        "id": format!("{id:032x}"), "start": start.millis(), "took": end.since(start).0, "cut": trace.cut, "spans": spans,
        "policy": kept.map(|kept| &*kept.policy), "reason": kept.map(|kept| &*kept.reason), "link": link,
    })))
}

/// The receipt: spans that were seen, kept, dropped and lost, by day and service, and counts of the whole agent by day,
/// such as "`cpu_ms`". `resident`: bytes of the agent that are in memory now; `None` if that is not known.
#[must_use]
pub fn receipt(reply: &ReceiptReply, resident: Option<u64>) -> String {
    let counts = |of: &BTreeMap<String, u64>| of.iter().map(|(name, count)| json!([name, count])).collect::<Vec<_>>();
    let sorted = |of: &std::collections::HashMap<String, u64>| {
        counts(&of.iter().map(|(name, count)| (name.clone(), *count)).collect())
    };
    let logs = |of: &ReceiptLogs| {
        json!({
            "seen": of.seen, "seen_bytes": of.seen_bytes, "kept": of.kept, "kept_bytes": of.kept_bytes,
            "by_policy": sorted(&of.kept_bytes_by_policy), "dropped": sorted(&of.dropped), "lost": sorted(&of.lost),
        })
    };
    let line = |of: &ReceiptLine| {
        json!({
            "service": of.service, "seen_spans": of.seen_spans, "seen_bytes": of.seen_bytes,
            "kept_spans": of.kept_spans, "kept_bytes": of.kept_bytes, "requests": of.requests,
            "failed": of.failed_requests, "kept_requests": of.kept_requests, "kept_failed": of.kept_failed_requests,
            "alarms": of.alarms, "alarm_ms": of.alarm_ms, "by_policy": sorted(&of.kept_bytes_by_policy),
            "dropped": sorted(&of.dropped_spans), "lost": sorted(&of.lost_spans), "logs": of.logs.as_ref().map(logs),
        })
    };
    let day = |of: &ReceiptDay| -> Value {
        let services: Vec<_> = of.services.iter().map(line).collect();
        json!({ "day": of.day, "services": services, "node": sorted(&of.grown) })
    };
    let waiting: u64 = reply.waiting_spans.values().sum();
    let waiting_logs: u64 = reply.waiting_logs.values().sum();
    shown::json(json!({
        "node": reply.node, "since": reply.since_unix_ns / 1_000_000, "in_memory": reply.in_memory, "waiting": waiting,
        "waiting_logs": waiting_logs, "resident": resident,
        "days": reply.days.iter().map(day).collect::<Vec<_>>(),
    }))
}

#[cfg(test)]
mod tests;
