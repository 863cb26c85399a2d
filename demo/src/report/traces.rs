//! The page's part on traces: what was kept of each fault, compared with head sampling, and a waterfall of one trace
//! for each fault.

use core::fmt::Write as _;

use wire::printable::markup;
use wire::quantity::quantity;

use super::waterfall;
use crate::anchor::anchor;
use crate::figures::percent;
use crate::judge::traces::{HIT_IF, share};
use crate::judge::{FaultFinding, Finding};
use crate::record::Record;
use crate::table::traces::{cells, sentences, visited, why};

/// The section on traces.
pub(super) fn section(record: &Record, finding: &Finding) -> String {
    let (words, rows) = (compared(record, finding), rows(finding));
    let drawn: String =
        finding.faults.iter().enumerate().map(|(at, found)| drawn(record, finding, found, at)).collect();
    // The bars show the first line already.
    let lines = sentences(record, &finding.traces);
    let lines = lines.iter().skip(1).map(|line| format!("<li>{}</li>\n", markup(line))).collect::<Vec<_>>().concat();
    format!(
        "<h2>Traces of each fault</h2>\n{words}<div class=\"wide faults\"><table>\n<tr><th></th><th>fault</th><th>service</th><th>requests</th><th>hit</th>\
         <th>kept whole</th><th>in part</th><th>missed</th><th>reason names it</th><th>beyond</th><th>kept</th><th></th></tr>\n{rows}</table></div>\n\
         <p><small>{}</small></p>\n<ul>\n{lines}</ul>\n{drawn}",
        markup(HIT_IF)
    )
}

/// Two bars: the share of hit requests that was kept, and the share that head sampling keeps in as many bytes.
fn compared(record: &Record, finding: &Finding) -> String {
    let (hit, whole) = finding.traces.hit_and_whole();
    let head = share(record.ledger.kept_bytes, record.ledger.seen_bytes);
    let bar = |class: &str, share: f64, what: &str| {
        let (width, shown) = (share.clamp(0.0, 1.0) * 100.0, percent(share));
        format!(
            "<div class=\"bar {class}\"><span class=\"of\"><span style=\"width:{width:.2}%\"></span></span><strong>{shown}</strong> {what}</div>\n"
        )
    };
    let bytes = quantity(record.ledger.kept_bytes as f64, "By");
    let ours = bar(
        "ours",
        share(whole as u64, hit as u64),
        &format!("of the {hit} requests that faults hit are kept whole, in {bytes}"),
    );
    format!(
        "<div class=\"compared\">\n{ours}{}</div>\n",
        bar("head", head, "of them head sampling would keep in as many bytes")
    )
}

fn rows(finding: &Finding) -> String {
    let mut html = String::new();
    for (at, (found, traces)) in finding.faults.iter().zip(&finding.traces.faults).enumerate() {
        let fault = [(at + 1).to_string(), found.fault.kind.to_string(), found.fault.service.to_string()];
        let row: Vec<_> = fault.into_iter().chain(cells(traces)).collect();
        let cells = row.iter().map(|cell| format!("<td>{}</td>", markup(cell))).collect::<Vec<_>>().concat();
        let open =
            traces.example.as_ref().map(|_| format!("<a href=\"#{}\">open one</a>", anchor(at))).unwrap_or_default();
        let _ = writeln!(html, "<tr>{cells}<td>{open}</td></tr>");
    }
    html
}

/// The waterfall of the trace that shows a fault best.
fn drawn(record: &Record, finding: &Finding, found: &FaultFinding, at: usize) -> String {
    let shown = finding.traces.faults.get(at).and_then(|traces| traces.example.as_ref());
    let Some((shown, trace)) = shown.and_then(|shown| Some((shown, record.traces.get(&shown.trace)?))) else {
        return String::new();
    };
    let fault = format!("{} in {}", found.fault.kind, found.fault.service);
    format!(
        "<article class=\"trace\" id=\"{}\">\n<h3>{}. {}: {}</h3>\n<p class=\"why\">kept, since {}</p>\n{}<p><small>trace {}, {}, {} spans{}</small></p>\n</article>\n",
        anchor(at),
        at + 1,
        markup(&fault),
        markup(&visited(shown)),
        markup(why(shown)),
        waterfall::draw(trace, found.fault.service),
        shown.trace,
        quantity(trace.bytes() as f64, "By"),
        trace.spans.len(),
        if trace.is_whole() { "" } else { ", not whole" }
    )
}
