//! Head and tables of the file.

use core::fmt::Write as _;

use wire::printable::markup;
use wire::proto::operators::{Incident, IncidentLog, IncidentService};
use wire::quantity::quantity;
use wire::time::UnixNanos;

use super::extent::duration;
use crate::{streams, words};

/// Metrics of one service that are shown.
const METRICS: usize = 5;

pub(super) fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share.clamp(0.0, 1.0))
}

/// What it is, and what is named first.
pub(super) fn head(incident: &Incident) -> String {
    let cause = markup(&incident.cause);
    let lead = if cause.is_empty() { String::new() } else { format!("<p class=\"cause\">{cause}</p>\n") };
    let digits = |digits: &&str| digits.bytes().all(|byte| byte.is_ascii_digit());
    let day = incident.id.get(..8).filter(digits);
    let day = day.map(|day| format!("{}-{}-{} ", &day[..4], &day[4..6], &day[6..])).unwrap_or_default();
    let facts = [
        ("When (UTC)", format!("{day}{}", duration(incident))),
        ("Services", (incident.services.len() + incident.further_services as usize).to_string()),
        ("Kept traces", incident.kept_traces.to_string()),
        ("Kept log records", incident.kept_logs.to_string()),
        ("Node", incident.node.clone()),
    ];
    let facts = facts.iter().fold(String::new(), |mut out, (name, value)| {
        // Writing into a string cannot fail.
        _ = write!(out, "<div><dt>{name}</dt><dd>{}</dd></div>", markup(value));
        out
    });
    format!("<h1>Incident {}</h1>\n{lead}<dl class=\"facts\">{facts}</dl>\n", markup(&incident.id))
}

/// A title of a metric, which may be broken where its parts end.
fn breakable(title: &str) -> String {
    let parts = title.split_inclusive(['.', '_', '/', '{', ',']);
    parts.map(markup).collect::<Vec<_>>().join("<wbr>")
}

/// A table: titles, then rows. A column whose title begins with a tilde is as narrow as its cells.
pub(super) fn table(titles: &[&str], rows: &[Vec<String>]) -> String {
    let class = |title: &str| if title.starts_with('~') { "narrow" } else { "text" };
    let head = titles.iter().fold(String::new(), |mut out, title| {
        let shown = title.trim_start_matches('~');
        // Writing into a string cannot fail.
        _ = write!(out, "<th scope=\"col\" class=\"{}\">{shown}</th>", class(title));
        out
    });
    let row = |cells: &Vec<String>| {
        let cells = cells.iter().zip(titles).map(|(cell, title)| format!("<td class=\"{}\">{cell}</td>", class(title)));
        format!("<tr>{}</tr>\n", cells.collect::<String>())
    };
    let rows: String = rows.iter().map(row).collect();
    format!("<div class=\"wide\"><table><thead><tr>{head}</tr></thead>\n<tbody>\n{rows}</tbody></table></div>\n")
}

/// What was changed, the number of its mark first.
pub(super) fn changes(incident: &Incident) -> String {
    if incident.changes.is_empty() {
        return "<p class=\"quiet\">No restart, other version, configuration or limit was seen from ten minutes before the first \
                alarm on.</p>\n"
            .to_owned();
    }
    let change = |(number, change): (usize, &wire::proto::operators::IncidentChange)| {
        let text = markup(&words::change(change, incident));
        let text = if change.precedes_alarm { format!("<b>{text}</b>") } else { text };
        vec![(number + 1).to_string(), words::clock(UnixNanos(change.at_unix_ns)), markup(&change.kind), text]
    };
    let rows: Vec<_> = incident.changes.iter().enumerate().map(change).collect();
    table(&["~Mark", "~When", "~Kind", "What"], &rows)
}

/// Services by suspicion.
pub(super) fn services(incident: &Incident) -> String {
    let service = |of: &IncidentService| {
        let place = if of.rank == 1 {
            "<span class=\"badge cause\">suspected cause</span>".to_owned()
        } else {
            format!("rank {}", of.rank)
        };
        let until = match of.ended_unix_ns {
            0 => "goes on".to_owned(),
            ended => words::length(ended.saturating_sub(of.began_unix_ns)),
        };
        let points =
            if of.points_at.is_empty() { String::new() } else { format!("points at {}", markup(&of.points_at)) };
        vec![
            format!("<b>{}</b>", markup(&of.service)),
            place,
            words::clock(UnixNanos(of.began_unix_ns)),
            until,
            format!("{:.1} γ", of.peak),
            points,
        ]
    };
    let rows: Vec<_> = incident.services.iter().map(service).collect();
    let more = match incident.further_services {
        0 => String::new(),
        more => format!("<p class=\"small quiet\">{more} further services are not kept.</p>\n"),
    };
    table(&["Service", "~Suspicion", "~Alarm from", "~For", "~Highest score", "Points at"], &rows) + &more
}

/// Metrics that stood out, by service.
pub(super) fn metrics(incident: &Incident) -> String {
    incident.services.iter().map(metrics_of).collect()
}

/// A metric's title, what its value is about, and the replica that stands out.
fn column(reason: &wire::proto::operators::Reason) -> String {
    let about = if reason.about.is_empty() { String::new() } else { format!(": {}", markup(&reason.about)) };
    let replica = &reason.replica;
    let replica = if replica.is_empty() { String::new() } else { format!(", replica {}", markup(replica)) };
    format!("{}{about}{replica}", breakable(&reason.column))
}

fn metrics_of(of: &IncidentService) -> String {
    let silent: Vec<_> = of.silent_replicas.iter().map(|name| markup(name)).collect();
    let silent =
        if silent.is_empty() { String::new() } else { format!("<p>Silent replicas: {}</p>\n", silent.join(", ")) };
    let metric = |reason: &wire::proto::operators::Reason| {
        let since = if reason.since_us == 0 { String::new() } else { quantity(reason.since_us as f64, "us") };
        let width = 100.0 * reason.share.clamp(0.0, 1.0);
        let bar = format!(
            "<svg class=\"share\" viewBox=\"0 0 100 8\" preserveAspectRatio=\"none\"><rect class=\"track\" width=\"100\" height=\"8\" \
             rx=\"4\"/><rect class=\"part\" width=\"{width:.1}\" height=\"8\" rx=\"4\"/></svg>{}",
            percent(reason.share)
        );
        vec![
            bar,
            column(reason),
            markup(&quantity(reason.seen, &reason.unit)),
            markup(&quantity(reason.expected, &reason.unit)),
            since,
            markup(&reason.group),
        ]
    };
    let rows: Vec<_> = of.metrics.iter().take(METRICS).map(metric).collect();
    if rows.is_empty() && silent.is_empty() {
        return String::new();
    }
    let titles = ["~Share of the score", "Metric", "~Seen", "~Expected", "~For", "~Group"];
    let rows = if rows.is_empty() { String::new() } else { table(&titles, &rows) };
    format!("<h3>{}</h3>\n{silent}{rows}", markup(&of.service))
}

/// Delay and loss of streams of packets; nothing without any.
pub(super) fn streams(incident: &Incident) -> String {
    let rows = incident.streams.iter().flat_map(|stream| {
        stream.figures.iter().map(|figure| {
            let [largest, expected, last] = streams::values(figure).map(|value| markup(&value));
            let name = format!("<b>{}</b>", breakable(streams::name(stream)));
            vec![
                name,
                breakable(&figure.metric),
                largest,
                words::clock(UnixNanos(figure.largest_unix_ns)),
                expected,
                last,
            ]
        })
    });
    let rows: Vec<_> = rows.collect();
    if rows.is_empty() {
        return String::new();
    }
    table(&["Stream", "Metric", "~Largest", "~When", "~Expected", "~At last"], &rows)
}

/// The best log records, and how many more there are; nothing without any.
pub(super) fn logs(incident: &Incident) -> String {
    let log = |log: &IncidentLog| {
        let text = if log.text.is_empty() { "(no text)".to_owned() } else { markup(&log.text) };
        let trace = if log.trace.is_empty() { String::new() } else { format!(" Trace {}.", markup(&log.trace)) };
        vec![
            words::clock(UnixNanos(log.at_unix_ns)),
            markup(&log.level),
            format!("<b>{}</b>", markup(&log.service)),
            format!("{text}<br><span class=\"small quiet\">{}.{trace}</span>", markup(&log.reason)),
        ]
    };
    let rows: Vec<_> = incident.logs.iter().map(log).collect();
    if rows.is_empty() {
        return String::new();
    }
    let more = match incident.kept_logs.saturating_sub(incident.logs.len() as u64) {
        0 => String::new(),
        more => format!("<p class=\"quiet\">{more} further log records were kept.</p>\n"),
    };
    table(&["~When", "~Severity", "~Service", "What"], &rows) + &more
}

/// What was normal for each service.
pub(super) fn usual(incident: &Incident) -> String {
    let service = |of: &IncidentService| {
        let name = format!("<b>{}</b>", markup(&of.service));
        let scores = match of.usual_seconds {
            0 => "no score is known from before its alarm".to_owned(),
            seconds => {
                format!("median {:.2} γ, at most {:.2} γ, in {seconds} s before", of.usual, of.usual_maximum)
            }
        };
        let expected = of.metrics.iter().take(METRICS).map(|reason| {
            format!("{} {}", breakable(&reason.column), markup(&quantity(reason.expected, &reason.unit)))
        });
        vec![name, scores, expected.collect::<Vec<_>>().join("<br>")]
    };
    let rows: Vec<_> = incident.services.iter().map(service).collect();
    if rows.is_empty() {
        return String::new();
    }
    table(&["Service", "Scores", "Expected of what stood out"], &rows)
}
