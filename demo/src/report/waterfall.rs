//! The waterfall of one trace: its spans as bars over time, each below its caller.

use core::fmt::Write as _;

use wire::printable::markup;
use wire::quantity::quantity;
use wire::time::Nanos;

use crate::graph::Target;
use crate::traces::{KeptSpan, Side, Trace};

/// Maximal number of spans; a trace of the shop has ten.
const MAX: usize = 200;
/// Maximal indentation, in levels of callers.
const DEEPEST: usize = 12;
/// Intervals of the axis.
const PARTS: u32 = 4;

/// Draws the trace with the rows of `marked` highlighted: the spans of a service, or the calls over the link.
pub(super) fn draw(trace: &Trace, marked: Target) -> String {
    let began = trace.spans.iter().map(|span| span.started).min().unwrap_or_default();
    let ended = trace.spans.iter().map(|span| span.started.plus(span.took)).max().unwrap_or_default();
    let whole = ended.since(began).unwrap_or_default().max(Nanos(1));
    let mut html = String::from(
        "<div class=\"waterfall\">\n<div class=\"row axis\"><span class=\"who\"></span><span class=\"track\">",
    );
    for part in 0..=PARTS {
        let (left, at) = (100 * part / PARTS, whole.as_secs_f64() * f64::from(part) / f64::from(PARTS));
        let at = if part == 0 { "0".to_owned() } else { duration(at) };
        let _ = write!(html, "<span class=\"tick\" style=\"left:{left}%\">{at}</span>");
    }
    html.push_str("</span></div>\n");
    for (span, depth) in in_order(trace).into_iter().take(MAX) {
        let after = span.started.since(began).unwrap_or_default();
        html.push_str(&row(span, depth, after, whole, mark(span, marked)));
    }
    html + "</div>\n"
}

/// The CSS class of a highlighted row; empty for others.
fn mark(span: &KeptSpan, target: Target) -> &'static str {
    match target {
        Target::Service(service) if span.service == service => " marked",
        Target::Link if span.service == Target::CALLER && span.side == Side::Client(Target::CALLED) => " marked link",
        _ => "",
    }
}

fn row(span: &KeptSpan, depth: usize, after: Nanos, whole: Nanos, marked: &str) -> String {
    let percent = |time: Nanos| time.0 as f64 / whole.0 as f64 * 100.0;
    let (left, width) = (percent(after), percent(span.took));
    let side = if span.side == Side::Server { "server" } else { "client" };
    let failed = if span.failed { " failed" } else { "" };
    let what = match span.side {
        Side::Server => markup(&span.name),
        Side::Client(peer) => format!("→ {peer} {}", markup(&span.name)),
    };
    let status = match (span.status, span.side) {
        (Some(499), _) => " · client closed".to_owned(),
        (Some(status), _) if status >= 400 => format!(" · {status}"),
        (None, Side::Client(_)) => " · no response".to_owned(),
        _ => String::new(),
    };
    let took = duration(span.took.as_secs_f64());
    // The duration is to the right of the bar, or to the left where there is no space.
    let place = if left + width > 78.0 && left > 22.0 {
        format!("class=\"took before\" style=\"right:{:.2}%\"", 100.0 - left)
    } else if left + width > 78.0 {
        format!("class=\"took inside\" style=\"right:{:.2}%\"", (100.0 - left - width).max(0.0))
    } else {
        format!("class=\"took\" style=\"left:{:.2}%\"", left + width)
    };
    format!(
        "<div class=\"row {side}{marked}{failed}\"><span class=\"who\" style=\"padding-left:{}px\"><b>{}</b> {what}</span><span class=\"track\">\
         <span class=\"span\" style=\"left:{left:.2}%;width:{width:.2}%\"></span><span {place}>{took}{status}</span></span></div>\n",
        depth.min(DEEPEST) * 14,
        span.service,
    )
}

/// A duration with three digits.
fn duration(seconds: f64) -> String {
    let digits = if seconds > 0.0 { 2 - seconds.log10().floor() as i32 } else { 0 };
    let scale = 10f64.powi(digits);
    quantity((seconds * scale).round() / scale, "s")
}

/// Each span below its caller, spans of one caller by start, with the number of callers above it. Spans with a missing
/// caller are at level 0; spans in a cycle are not shown.
fn in_order(trace: &Trace) -> Vec<(&KeptSpan, usize)> {
    let known = |id: u64| trace.spans.iter().any(|span| span.id == id);
    let mut waiting: Vec<_> =
        trace.spans.iter().filter(|span| span.parent.is_none_or(|parent| !known(parent))).collect();
    waiting.sort_by_key(|span| (span.started, span.id));
    let mut waiting: Vec<_> = waiting.into_iter().rev().map(|span| (span, 0)).collect();
    let mut ordered = Vec::new();
    while let Some((span, depth)) = waiting.pop() {
        ordered.push((span, depth));
        let mut below: Vec<_> = trace.spans.iter().filter(|called| called.parent == Some(span.id)).collect();
        below.sort_by_key(|span| (span.started, span.id));
        waiting.extend(below.into_iter().rev().map(|called| (called, depth + 1)));
    }
    ordered
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Service;
    use crate::traces::example;

    #[test]
    fn spans_stand_below_their_callers_in_the_order_in_which_they_began() {
        let mut trace = example::whole_trace();
        trace.spans.reverse();

        let order: Vec<_> = in_order(&trace).iter().map(|(span, depth)| (span.service.name(), *depth)).collect();

        let payment = [("frontend", 1), ("payment", 2), ("payment", 3), ("store", 4)];
        let expected = [("frontend", 0), ("frontend", 1), ("cart", 2), ("frontend", 1), ("catalogue", 2)];
        assert_eq!(order, [&expected[..], &payment].concat());
    }

    #[test]
    fn spans_that_call_each_other_and_those_of_unknown_callers_do_no_harm() {
        let mut trace = example::whole_trace();
        trace.spans[1].parent = Some(trace.spans[1].id);
        trace.spans[2].parent = Some(4711);

        let order = in_order(&trace);

        assert!(
            order.len() < trace.spans.len()
                && order.iter().any(|(span, depth)| span.parent == Some(4711) && *depth == 0)
        );
    }

    #[test]
    fn bars_lie_where_their_spans_were_and_errors_show() {
        let mut trace = example::whole_trace();
        let store = trace.spans.iter_mut().find(|span| span.service == Service::Store).unwrap();
        (store.failed, store.status) = (true, Some(500));
        let (started, took) = (store.started, store.took);
        let root = trace.root().unwrap();
        let left = (started.0 - root.started.0) as f64 / root.took.0 as f64 * 100.0;
        let width = took.0 as f64 / root.took.0 as f64 * 100.0;

        let html = draw(&trace, Service::Store.into());

        assert!(html.contains("<div class=\"row server marked failed\">"), "{html}");
        assert!(html.contains(&format!("left:{left:.2}%;width:{width:.2}%")), "{html}");
        assert!(html.contains(" · 500</span>"), "{html}");
        assert_eq!(html.matches("class=\"row ").count(), 1 + trace.spans.len());
    }

    #[test]
    fn what_spans_name_is_text() {
        let mut trace = example::whole_trace();
        trace.spans[0].name = "<b>".to_owned();

        assert!(draw(&trace, Service::Cart.into()).contains("&lt;b&gt;"));
    }

    #[test]
    fn durations_have_three_digits() {
        assert_eq!(duration(0.123_456), "123 ms");
        assert_eq!(duration(1.004_9), "1 s");
        assert_eq!(duration(0.001_234_5), "1.23 ms");
    }

    #[test]
    fn of_the_link_the_calls_over_it_stand_out() {
        let html = draw(&example::whole_trace(), Target::Link);

        assert_eq!(html.matches(" marked link").count(), 1);
        let row = html.lines().find(|line| line.contains(" marked")).unwrap();
        assert!(row.contains("<b>payment</b> → store"), "{row}");
    }
}
