//! Kept traces, each as the live page draws it: spans as bars over time, each below its caller.

use core::fmt::Write as _;
use std::collections::{BTreeMap, BTreeSet};

use wire::printable::markup;
use wire::proto::operators::{Incident, IncidentSpan, IncidentTrace};
use wire::quantity::quantity;
use wire::time::UnixNanos;

use crate::words;

/// Colours of services.
const COLOURS: usize = 8;
/// Levels of callers that are indented.
const DEEPEST: usize = 12;

/// The best traces, and how many more there are.
pub(super) fn draw(incident: &Incident) -> String {
    let shown = incident.traces.len() as u64;
    let more = incident.kept_traces.saturating_sub(shown);
    let text = match (shown, more) {
        (0, 0) => "No kept trace belongs to this incident.".to_owned(),
        (_, 0) => String::new(),
        (_, 1) => "1 further trace was kept.".to_owned(),
        (_, more) => format!("{more} further traces were kept."),
    };
    let text = if text.is_empty() { text } else { format!("<p class=\"quiet\">{text}</p>\n") };
    incident.traces.iter().map(trace).collect::<String>() + &text
}

fn trace(of: &IncidentTrace) -> String {
    let root = of.spans.iter().find(|span| span.parent.is_none()).or_else(|| of.spans.first());
    let name = root.map(|root| format!("{} {}", root.service, root.name)).unwrap_or_default();
    let mut services: Vec<&str> = Vec::new();
    for span in &of.spans {
        if !services.contains(&span.service.as_str()) {
            services.push(&span.service);
        }
    }
    let rows: String = in_order(&of.spans).into_iter().map(|(span, depth)| row(of, span, depth, &services)).collect();
    let more = match of.further_spans {
        0 => String::new(),
        more => format!("; {more} further spans are not kept"),
    };
    format!(
        "<h3>{}</h3>\n<p class=\"small quiet\">{}, {} spans, at {}. Kept by {}: {}</p>\n\
         <ol class=\"waterfall\">\n{rows}</ol>\n<p class=\"small quiet\">Trace {}{more}</p>\n",
        markup(&name),
        took(of.took_ns),
        of.spans.len(),
        words::clock(UnixNanos(of.began_unix_ns)),
        markup(&of.policy),
        markup(&of.reason),
        markup(&of.id),
    )
}

/// A duration with three digits.
fn took(nanos: u64) -> String {
    let seconds = nanos as f64 / 1e9;
    let scale = if seconds > 0.0 { 10f64.powi(2 - seconds.log10().floor() as i32) } else { 1.0 };
    quantity((seconds * scale).round() / scale, "s")
}

fn row(of: &IncidentTrace, span: &IncidentSpan, depth: usize, services: &[&str]) -> String {
    let whole = of.took_ns.max(1) as f64;
    let left = (100.0 * span.after_ns as f64 / whole).clamp(0.0, 100.0);
    let width = (100.0 * span.took_ns as f64 / whole).clamp(0.3, 100.0);
    let colour = services.iter().position(|service| *service == span.service).unwrap_or_default() % COLOURS;
    let side = match span.side.as_str() {
        "server" => " server",
        "client" => " client",
        _ => "",
    };
    let (y, height) = if side == " client" { (5, 6) } else { (2, 12) };
    let failed = if span.failed { " failed" } else { "" };
    let mut lines = String::new();
    for at in [0, 25, 50, 75, 100] {
        // Writing into a string cannot fail.
        _ = write!(lines, "<line class=\"at\" x1=\"{at}%\" x2=\"{at}%\" y1=\"-5\" y2=\"21\"/>");
    }
    format!(
        "<li class=\"span{side}{failed}\"><span class=\"who\"><span class=\"depth\" style=\"width:{}px\"></span><b>{}</b> {}</span>\
         <svg aria-hidden=\"true\">{lines}<rect class=\"s{colour}\" x=\"{left:.2}%\" width=\"{width:.2}%\" y=\"{y}\" \
         height=\"{height}\" rx=\"2\"/></svg><span class=\"took\">{}</span></li>\n",
        depth.min(DEEPEST) * 12,
        markup(&span.service),
        markup(&span.name),
        took(span.took_ns),
    )
}

/// Each span below its caller, with the number of callers above it. Spans whose caller is missing, or that call each
/// other in a circle, are at level 0.
fn in_order(spans: &[IncidentSpan]) -> Vec<(&IncidentSpan, usize)> {
    let known: BTreeSet<u64> = spans.iter().map(|span| span.id).collect();
    let mut below: BTreeMap<u64, Vec<&IncidentSpan>> = BTreeMap::new();
    let mut sorted: Vec<&IncidentSpan> = spans.iter().collect();
    sorted.sort_by_key(|span| (span.after_ns, span.id));
    let mut roots = Vec::new();
    for span in &sorted {
        match span.parent.filter(|parent| known.contains(parent) && *parent != span.id) {
            Some(parent) => below.entry(parent).or_default().push(span),
            None => roots.push((*span, 0)),
        }
    }
    let (mut ordered, mut seen) = (Vec::new(), BTreeSet::new());
    roots.reverse();
    // Not by recursion: a trace may be deep.
    while let Some((span, depth)) = roots.pop() {
        if !seen.insert(span.id) {
            continue;
        }
        ordered.push((span, depth));
        let called = below.get(&span.id).into_iter().flatten().rev();
        roots.extend(called.map(|span| (*span, depth + 1)));
    }
    let lost = sorted.into_iter().filter(|span| seen.insert(span.id));
    ordered.extend(lost.map(|span| (span, 0)));
    ordered
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(id: u64, parent: Option<u64>, after_ns: u64) -> IncidentSpan {
        IncidentSpan { id, parent, after_ns, took_ns: 10, ..IncidentSpan::default() }
    }

    #[test]
    fn spans_stand_below_their_callers_and_circles_do_no_harm() {
        let spans = [
            span(4, Some(2), 30),
            span(1, None, 0),
            span(3, Some(1), 20),
            span(2, Some(1), 10),
            span(5, Some(99), 5),
            span(6, Some(7), 40),
            span(7, Some(6), 41),
            span(8, Some(8), 50),
        ];

        let order: Vec<_> = in_order(&spans).iter().map(|(span, depth)| (span.id, *depth)).collect();

        assert_eq!(order, [(1, 0), (2, 1), (4, 2), (3, 1), (5, 0), (8, 0), (6, 0), (7, 0)]);
    }

    #[test]
    fn bars_lie_where_their_spans_were() {
        let of = IncidentTrace { took_ns: 1_000, ..IncidentTrace::default() };
        let bar = row(&of, &IncidentSpan { failed: true, side: "client".to_owned(), ..span(1, None, 250) }, 99, &[""]);

        assert!(bar.contains("class=\"span client failed\"") && bar.contains("x=\"25.00%\" width=\"1.00%\""), "{bar}");
        assert!(bar.contains("width:144px"), "{bar}");
    }

    #[test]
    fn how_many_more_there_are_is_said() {
        let with = |shown, kept_traces| {
            draw(&Incident { traces: vec![IncidentTrace::default(); shown], kept_traces, ..Incident::default() })
        };

        assert!(with(0, 0).contains("No kept trace") && with(1, 2).contains("1 further trace was"));
        assert!(with(2, 30).contains("28 further traces") && !with(2, 2).contains("further traces"));
    }
}
