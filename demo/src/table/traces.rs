//! The report on traces at the terminal; the web page uses parts of it.

use core::fmt::Write as _;

use wire::quantity::quantity;

use super::write_table;
use crate::anchor::anchor;
use crate::figures::percent;
use crate::judge::Finding;
use crate::judge::traces::{ExampleTrace, FaultTraces, MissedTraces, TracesFinding, share};
use crate::record::Record;

const HEADINGS: [&str; 11] =
    ["", "fault", "service", "requests", "hit", "kept whole", "in part", "missed", "reason names it", "beyond", "kept"];

/// A table of the faults, the trace of each to open first, and a comparison with head sampling. `page` is the URL of
/// the web page, if there is one.
pub(super) fn write(text: &mut String, record: &Record, finding: &Finding, page: Option<&str>) {
    text.push_str("\nTraces of each fault (hit: failed, or slower than 99 of 100 healthy requests of their kind)\n");
    let rows = finding.faults.iter().zip(&finding.traces.faults).enumerate().map(|(at, (found, traces))| {
        let [kind, service] = [found.fault.kind.to_string(), found.fault.service.to_string()];
        let [requests, hit, whole, part, missed, named, beyond, kept] = cells(traces);
        [(at + 1).to_string(), kind, service, requests, hit, whole, part, missed, named, beyond, kept]
    });
    write_table(text, HEADINGS, &rows.collect::<Vec<_>>());
    text.push_str("\nA trace of each fault\n");
    for (at, traces) in finding.traces.faults.iter().enumerate() {
        let Some(shown) = &traces.example else {
            let _ = writeln!(text, "{:<3}none was kept", at + 1);
            continue;
        };
        let _ = writeln!(text, "{:<3}{}; {}", at + 1, visited(shown), why(shown));
        if let Some(page) = page {
            let _ = writeln!(text, "   {page}#{}", anchor(at));
        }
    }
    text.push('\n');
    for line in sentences(record, &finding.traces) {
        text.push_str(&line);
        text.push('\n');
    }
}

/// The cells of a fault's row: requests, hit, whole, part, missed by cause, named, beyond, bytes.
pub(crate) fn cells(traces: &FaultTraces) -> [String; 8] {
    [
        traces.requests.to_string(),
        if traces.failed > 0 { format!("{} ({} failed)", traces.hit, traces.failed) } else { traces.hit.to_string() },
        traces.whole.to_string(),
        traces.part.to_string(),
        missed(&traces.missed),
        format!("{} of {}", traces.named, traces.whole + traces.part),
        traces.beyond.to_string(),
        quantity(traces.kept_bytes as f64, "By"),
    ]
}

/// The number of missed traces by cause.
fn missed(missed: &MissedTraces) -> String {
    let reasons = [
        (missed.unwanted, "selected by no policy"),
        (missed.undecided, "not yet decided"),
        (missed.unanswered, "without a response"),
    ];
    let causes: Vec<_> =
        reasons.iter().filter(|(count, _)| *count > 0).map(|(count, why)| format!("{count} {why}")).collect();
    if causes.is_empty() { "0".to_owned() } else { causes.join(", ") }
}

/// A request from the load's log: `/checkout took 187 ms, failed`.
pub(crate) fn visited(shown: &ExampleTrace) -> String {
    let visit = &shown.visit;
    let path = crate::graph::Service::Frontend.path(visit.errand);
    let beside = match (visit.failed, shown.hit) {
        (true, _) => ", failed",
        (false, true) => "",
        (false, false) => ", as long as healthy ones",
    };
    format!("{path} took {}{beside}", quantity(visit.took.as_secs_f64(), "s"))
}

/// The reason for keeping it.
pub(crate) fn why(shown: &ExampleTrace) -> &str {
    if shown.reason.is_empty() { "its root span is missing" } else { &shown.reason }
}

/// Lines on all traffic, compared with head sampling in as many bytes.
pub(crate) fn sentences(record: &Record, traces: &TracesFinding) -> Vec<String> {
    let ledger = &record.ledger;
    let (hit, whole) = traces.hit_and_whole();
    let head = share(ledger.kept_bytes, ledger.seen_bytes);
    let mut lines = vec![
        format!(
            "traces: of {hit} requests that faults hit {whole} were kept whole ({}); head sampling with as many bytes keeps {} of any, {:.0} of these",
            percent(share(whole as u64, hit as u64)),
            percent(head),
            head * hit as f64
        ),
        format!(
            "kept of all {} requests: {} ({}), {} of {} of spans; hit by no fault: {} of all requests",
            traces.requests,
            traces.kept,
            percent(share(traces.kept as u64, traces.requests as u64)),
            quantity(ledger.kept_bytes as f64, "By"),
            quantity(ledger.seen_bytes as f64, "By"),
            percent(traces.beyond_share())
        ),
    ];
    let by_policy = ledger.kept_bytes_by_policy.iter().filter(|(_, bytes)| **bytes > 0);
    let by_policy: Vec<_> =
        by_policy.map(|(policy, bytes)| format!("{policy} {}", quantity(*bytes as f64, "By"))).collect();
    lines.push(format!(
        "kept bytes by policy: {}; traces over the budget: {}; spans lost: {}",
        if by_policy.is_empty() { "none".to_owned() } else { by_policy.join(", ") },
        ledger.over_budget,
        ledger.lost_spans + ledger.rejected_spans
    ));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::judge;
    use crate::traces::example;

    #[test]
    fn a_fault_has_its_row_its_reason_and_a_link() {
        let record = example::run();
        let finding = judge(&record);
        let mut text = String::new();

        write(&mut text, &record, &finding, Some("file:///tmp/index.html"));

        let row = "1  latency  store    4         3 (1 failed)  1           1        1 selected by no policy  1 of 2           1       ";
        assert!(text.contains(row), "{text}");
        let why =
            "1  /checkout took 120 ms; store: score 31.0, threshold 7.7; work.duration.p99 85 ms, expected 4 ms\n";
        assert!(text.contains(why), "{text}");
        assert!(text.contains("   file:///tmp/index.html#trace-of-fault-1\n"), "{text}");
        assert!(text.contains("of 3 requests that faults hit 1 were kept whole (33.3 %)"), "{text}");
        assert!(text.contains("head sampling with as many bytes keeps 10.0 % of any, 0 of these"), "{text}");
    }

    #[test]
    fn without_a_page_there_is_no_link_and_without_a_trace_none_is_shown() {
        let mut record = example::run();
        let mut text = String::new();
        write(&mut text, &record, &judge(&record), None);
        assert!(text.contains("store: score 31.0") && !text.contains("#trace"), "{text}");
        record.traces.clear();
        let finding = judge(&record);
        let mut text = String::new();

        write(&mut text, &record, &finding, None);

        assert!(text.contains("1  none was kept\n") && !text.contains("file:"), "{text}");
    }
}
