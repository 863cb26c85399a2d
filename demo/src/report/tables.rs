//! Text and tables of the page.

use core::fmt::Write as _;

use wire::printable::markup;
use wire::quantity::quantity;

use crate::fault::Kind;
use crate::figures::{millis, percent, since_start};
use crate::judge::{EXPLAINED_IF, FaultFinding, Finding, Outcome};
use crate::record::Record;
use crate::table;

/// The ranking rule of [`hooks::suspects`] for the report.
const RANKED_BY: &str = "Flagged services are ranked by the rule of uview top and of hooks: silent ones first; those last for which a quarter or \
    more of the top metrics' shares is about calls to another flagged service; the others by their highest score over γ up to 2 s after the \
    first alarm.";

/// Title, parameters of the run, and which bars it met.
pub(super) fn summary(record: &Record, finding: &Finding) -> String {
    let outcome = if finding.none_missed() { "no bar was missed" } else { "a bar was missed" };
    let mut html = format!(
        "<h1>uview demo</h1>\n<p>Seed {}, a sample every {} ms, {:.0} s in all: {outcome}.</p>\n<ul class=\"bars\">\n",
        record.seed,
        record.interval.as_millis(),
        record.ended.as_secs_f64()
    );
    for bar in &finding.bars {
        let class = match bar.outcome {
            Outcome::Met => "met",
            Outcome::Missed => "missed",
            Outcome::TooShort => "open",
        };
        let (mark, short) = (bar.outcome.mark(), table::caveat(bar));
        let (name, reached, asked) = (markup(bar.name), markup(&bar.reached), markup(&bar.asked));
        let _ = writeln!(
            html,
            "<li class=\"{class}\"><span class=\"mark\">{mark}</span> <strong>{reached}</strong><br>{name}<br><small>asked: {asked}{short}</small></li>"
        );
    }
    html + "</ul>\n"
}

/// The table of faults.
pub(super) fn faults(finding: &Finding) -> String {
    let mut html = String::from(
        "<h2>Faults</h2>\n<div class=\"wide faults\"><table>\n<tr><th></th><th>fault</th><th>service</th><th>what happens</th><th>start</th>\
         <th>noticed</th><th>rank</th><th>explained</th><th>flagged: delay, highest score over γ</th></tr>\n",
    );
    for (number, found) in finding.faults.iter().enumerate() {
        let noticed = found.noticed.map_or_else(|| "never".to_owned(), millis);
        let cells = [
            (number + 1).to_string(),
            found.fault.kind.to_string(),
            found.fault.service.to_string(),
            found.fault.kind.story().to_owned(),
            since_start(found.fault.started),
            if found.in_time() { noticed } else { format!("{noticed} ✗") },
            found.rank.map_or_else(|| "–".to_owned(), |rank| rank.to_string()),
            if found.explained { "yes" } else { "no" }.to_owned(),
            found.flagged.iter().map(table::flagged).collect::<Vec<_>>().join(", "),
        ];
        html.push_str(&row(&cells));
    }
    html + "</table></div>\n"
}

/// The legend of the strips.
pub(super) fn legend() -> String {
    let entry = |class: &str, text: &str| format!("<span class=\"key {class}\"></span>{text} ");
    let entries = [
        entry("score", "score (log scale)"),
        entry("gamma", "γ"),
        entry("fault", "a fault in this service"),
        entry("elsewhere", "a fault elsewhere"),
        entry("alarm", "alarm"),
    ];
    format!("<p class=\"legend\">{}</p>\n", entries.concat())
}

/// The top metrics of each fault.
pub(super) fn metrics(finding: &Finding) -> String {
    let mut html = String::from(
        "<div class=\"wide\"><table>\n<tr><th>fault</th><th>metric</th><th>expected</th><th>seen</th><th>of the score</th>\
         <th>belongs to the fault</th></tr>\n",
    );
    for found in &finding.faults {
        html.push_str(&metrics_of(found));
    }
    html + "</table></div>\n"
}

fn metrics_of(found: &FaultFinding) -> String {
    let fault = format!("{} in {}", found.fault.kind, found.fault.service);
    let dash = "–".to_owned();
    let mut html = String::new();
    if found.by_silence {
        let what = "silent: the heartbeat stood still".to_owned();
        html.push_str(&row(&[fault.clone(), what, dash.clone(), dash.clone(), dash.clone(), "yes".to_owned()]));
    } else if found.top.is_empty() {
        html.push_str(&row(&[fault.clone(), dash.clone(), dash.clone(), dash.clone(), dash.clone(), dash]));
    }
    for metric in &found.top {
        let reason = &metric.reason;
        html.push_str(&row(&[
            fault.clone(),
            reason.column.clone(),
            quantity(reason.expected, &reason.unit),
            quantity(reason.seen, &reason.unit),
            percent(reason.share),
            if metric.belongs { "yes" } else { "no" }.to_owned(),
        ]));
    }
    html
}

/// The rules of the evaluation.
pub(super) fn rules() -> String {
    let belonging = Kind::ALL.map(|kind| format!("<dt>{kind}</dt><dd>{}</dd>\n", markup(kind.belonging())));
    format!(
        "<h2>Rules</h2>\n<p>{}</p>\n<p>Metrics of the faulty service that belong to each fault:</p>\n<dl>\n{}</dl>\n<p>{}</p>\n",
        markup(EXPLAINED_IF),
        belonging.concat(),
        markup(RANKED_BY)
    )
}

/// Who visits the frontend; empty where no packet was captured.
pub(super) fn talkers(record: &Record) -> String {
    let Some(talkers) = record.talkers.summary() else { return String::new() };
    let rows: String = talkers.rows().iter().map(|cells| row(cells)).collect();
    format!(
        "<h2>Who visits the frontend</h2>\n<p>As the NIC agent sees its packets ({}).</p>\n\
         <div class=\"wide\"><table>\n<tr><th></th><th>now</th><th>usually</th></tr>\n{rows}</table></div>\n",
        markup(table::WHEN)
    )
}

/// Counts, processor time and load.
pub(super) fn numbers(record: &Record, finding: &Finding) -> String {
    let mut lines = table::numbers(record, finding);
    if let Some(load) = &record.load {
        let (median, p99) = (quantity(load.median_us as f64, "us"), quantity(load.p99_us as f64, "us"));
        lines.push(format!(
            "load: {} requests, {} failed, median {median}, 99th percentile {p99}",
            load.sent, load.failed
        ));
    }
    let items = lines.iter().map(|line| format!("<li>{}</li>\n", markup(line.trim())));
    format!("<ul>\n{}</ul>\n", items.collect::<String>())
}

fn row(cells: &[String]) -> String {
    let cells = cells.iter().map(|cell| format!("<td>{}</td>", markup(cell)));
    format!("<tr>{}</tr>\n", cells.collect::<String>())
}
