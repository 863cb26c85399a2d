//! `uview incidents` and `uview incident`: what was in alarm together, what is suspected, and what was changed.

mod profiles;

use std::fmt::Write as _;
use std::path::PathBuf;

use ::incidents::{draw, streams, words};
use wire::date::Date;
use wire::proto::operators::{Incident, IncidentService, IncidentSummary, IncidentsReply};
use wire::time::UnixNanos;

use self::profiles::ProfileArgs;
use crate::agent::{self, AgentArgs, Connection};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output;

const WHAT: &str = "ask the host agent for incidents";
/// Metrics of one service that are printed.
const METRICS: usize = 3;
/// Characters of the longest cell of services.
const SERVICES: usize = 40;
/// What stands for a file in the place of its name: standard output.
const STDOUT: &str = "-";

/// The long help of `uview incident`.
pub const LONG_ABOUT: &str = "\
Print an incident: services, metrics, traces, what was changed; or write it as a page

Alarms within ten seconds are one incident. It is named by its begin in UTC, such as
20261127-064215-123; the beginning of that is enough if it is the only one that begins so, and
without a name the newest is printed. Spans that are kept for an alarm have the name in their
attribute uview.incident, webhooks in an annotation.

A restart, another version, another configuration or another limit less than a minute before an
alarm is named first.

With --html it becomes one file that needs no other file and no network, to be attached to a
post-mortem. It has names of services, operations and metrics, and no attributes of spans.

Where processor time, page faults or waiting led an alarm, the service was sampled for some
seconds: --flame-graph, --pprof and --folded write that.";

/// Arguments of `uview incidents`.
#[derive(Clone, Debug, clap::Args)]
pub struct IncidentsArgs {
    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    agent: AgentArgs,
}

/// Arguments of `uview incident`.
#[derive(Clone, Debug, clap::Args)]
pub struct IncidentArgs {
    /// The incident, or the beginning of its name [default: the newest]
    #[arg(value_name = "INCIDENT", default_value = "", hide_default_value = true)]
    id: String,
    /// Print JSON, for programs
    #[arg(long, conflicts_with = "html")]
    json: bool,
    /// Write a self-contained web page to this file; -: to standard output
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    profiles: ProfileArgs,
    #[command(flatten)]
    agent: AgentArgs,
}

/// Prints the list of incidents.
///
/// # Errors
///
/// [`Failure`] if the agent cannot be asked.
pub fn list(args: &IncidentsArgs, from_environment: Option<PathBuf>) -> Result<Exit, Failure> {
    let target = args.agent.clone().target(from_environment)?;
    let request = async { Connection::open(&target).await?.incidents().await };
    let reply = agent::runtime(WHAT)?.block_on(request).map_err(|error| error.into_failure(WHAT))?;
    let text = if args.json { page::documents::incidents(&reply) + "\n" } else { table(&reply) };
    output::print(&text)?;
    Ok(Exit::Fine)
}

/// Prints one incident, or writes it as a page.
///
/// # Errors
///
/// [`Failure`] if the agent cannot be asked or has no such incident, or the file cannot be written.
pub fn show(args: &IncidentArgs, from_environment: Option<PathBuf>) -> Result<Exit, Failure> {
    let target = args.agent.clone().target(from_environment)?;
    let request = async { Connection::open(&target).await?.incident(args.id.clone()).await };
    let reply = agent::runtime(WHAT)?.block_on(request).map_err(|error| error.into_failure(WHAT))?;
    let incident = reply.incident.unwrap_or_default();
    if args.profiles.write(&incident)? {
        return Ok(Exit::Fine);
    }
    match &args.html {
        Some(path) if path.as_os_str() == STDOUT => output::print(&draw::page(&incident))?,
        Some(path) => {
            let written = std::fs::write(path, draw::page(&incident));
            written.map_err(|error| Failure::to(format!("write {}", path.display())).caused_by(&error))?;
            output::print_stderr(&format!("the incident {} is in {}\n", incident.id, path.display()));
        }
        None if args.json => output::print(&(page::documents::incident(&incident, |_| None) + "\n"))?,
        None => output::print(&in_words(&incident))?,
    }
    Ok(Exit::Fine)
}

/// Day and time in UTC: `2026-11-27 06:42:15`.
fn since(began: UnixNanos) -> String {
    format!("{} {}", Date::of(began), words::clock(began))
}

/// How long it was from `began` to `ended`, which is 1970 as long as it goes on.
fn lasted(began: UnixNanos, ended: UnixNanos) -> String {
    if ended == UnixNanos::default() { "goes on".to_owned() } else { words::length(ended.since(began).0) }
}

/// The list as a table.
fn table(reply: &IncidentsReply) -> String {
    let memory = if reply.in_memory { ", in memory only (incidents.dir keeps them)" } else { "" };
    if reply.incidents.is_empty() {
        return format!("{}: no incident is kept{memory}\n", reply.node);
    }
    let services = |of: &IncidentSummary| {
        let all = of.services.join(", ");
        match all.char_indices().nth(SERVICES) {
            Some((end, _)) => format!("{}…", &all[..end]),
            None => all,
        }
    };
    let mut rows = vec![["INCIDENT", "SINCE (UTC)", "FOR", "TRACES", "SERVICES", "SUSPECTED CAUSE"].map(str::to_owned)];
    rows.extend(reply.incidents.iter().map(|of| {
        [
            of.id.clone(),
            since(UnixNanos(of.began_unix_ns)),
            lasted(UnixNanos(of.began_unix_ns), UnixNanos(of.ended_unix_ns)),
            of.kept_traces.to_string(),
            services(of),
            of.cause.clone(),
        ]
    }));
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths: Vec<usize> = (0..5).map(width).collect();
    let mut text = format!("{}: {} incidents{memory}\n\n", reply.node, reply.incidents.len());
    for row in &rows {
        for (cell, width) in row.iter().zip(&widths) {
            // Writing into a string cannot fail.
            _ = write!(text, "{cell:width$}  ");
        }
        _ = writeln!(text, "{}", row[5]);
    }
    text
}

/// One incident in words.
fn in_words(of: &Incident) -> String {
    let cut = if of.cut_short { ", cut short by the end of the agent" } else { "" };
    let mut text = format!(
        "incident {} of {}\nsince {} UTC, {}{cut}\n",
        of.id,
        of.node,
        since(UnixNanos(of.began_unix_ns)),
        lasted(UnixNanos(of.began_unix_ns), UnixNanos(of.ended_unix_ns))
    );
    if !of.cause.is_empty() {
        _ = writeln!(text, "\n{}", of.cause);
    }
    time_line(&mut text, of);
    text += "\nServices, the suspected cause first\n";
    of.services.iter().for_each(|service| service_in_words(&mut text, service));
    if of.further_services > 0 {
        _ = writeln!(text, "  {} further services are not kept", of.further_services);
    }
    profiles::in_words(&mut text, of);
    streams_in_words(&mut text, of);
    traces(&mut text, of);
    logs(&mut text, of);
    usual(&mut text, of);
    text
}

/// What happened when: changes, begins and ends of alarms.
fn time_line(text: &mut String, of: &Incident) {
    let mut moments: Vec<(u64, String)> =
        of.changes.iter().map(|change| (change.at_unix_ns, words::change(change, of))).collect();
    for service in &of.services {
        moments.push((service.began_unix_ns, format!("{} in alarm", service.service)));
        if service.ended_unix_ns != 0 {
            moments.push((service.ended_unix_ns, format!("{} quiet", service.service)));
        }
    }
    moments.sort();
    *text += "\nTime line (UTC)\n";
    for (at, what) in moments {
        _ = writeln!(text, "  {}  {what}", words::clock(UnixNanos(at)));
    }
}

fn service_in_words(text: &mut String, of: &IncidentService) {
    let points = if of.points_at.is_empty() { String::new() } else { format!(", points at {}", of.points_at) };
    let alarms = if of.alarms > 1 { format!(", {} alarms", of.alarms) } else { String::new() };
    let length = lasted(UnixNanos(of.began_unix_ns), UnixNanos(of.ended_unix_ns));
    _ = writeln!(text, "  {}  {}: up to {:.1} γ, {length}{alarms}{points}", of.rank, of.service, of.peak);
    for replica in &of.silent_replicas {
        _ = writeln!(text, "       {replica} is silent");
    }
    for metric in of.metrics.iter().take(METRICS) {
        _ = writeln!(text, "       {} ({:.0} %)", words::metric(metric), 100.0 * metric.share);
    }
}

fn traces(text: &mut String, of: &Incident) {
    let all = of.kept_traces;
    let more = if all > of.traces.len() as u64 { format!(" of {all}") } else { String::new() };
    _ = match of.traces.len() {
        0 => writeln!(text, "\nNo kept trace belongs to it"),
        shown => writeln!(text, "\nKept traces: the {shown} best{more}"),
    };
    for trace in &of.traces {
        let root = trace.spans.iter().find(|span| span.parent.is_none()).or_else(|| trace.spans.first());
        let name = root.map(|root| format!("{} {}", root.service, root.name)).unwrap_or_default();
        let failed = if trace.spans.iter().any(|span| span.failed) { ", failed" } else { "" };
        let (clock, took) = (words::clock(UnixNanos(trace.began_unix_ns)), words::length(trace.took_ns));
        _ = writeln!(text, "  {clock}  {}  {name}, {took}{failed}", trace.id);
        _ = writeln!(text, "            {}", trace.reason);
    }
}

fn streams_in_words(text: &mut String, of: &Incident) {
    if !of.streams.is_empty() {
        *text += "\nStreams of packets: the largest delays and losses\n";
    }
    for stream in &of.streams {
        for figure in &stream.figures {
            let [largest, expected, last] = streams::values(figure);
            let (name, metric, at) =
                (streams::name(stream), &figure.metric, words::clock(UnixNanos(figure.largest_unix_ns)));
            _ = writeln!(text, "  {at}  {name}: {metric} {largest}, expected {expected}; at last {last}");
        }
    }
}

fn logs(text: &mut String, of: &Incident) {
    if of.logs.is_empty() {
        return;
    }
    let all = of.kept_logs;
    let more = if all > of.logs.len() as u64 { format!(" of {all}") } else { String::new() };
    _ = writeln!(text, "\nKept log records: the {} best{more}", of.logs.len());
    for log in &of.logs {
        let said = if log.text.is_empty() { "(no text)" } else { &log.text };
        _ = writeln!(text, "  {}  {} {}: {said}", words::clock(UnixNanos(log.at_unix_ns)), log.level, log.service);
        _ = writeln!(text, "            {}", log.reason);
    }
}

fn usual(text: &mut String, of: &Incident) {
    *text += "\nWhat was normal before\n";
    for service in &of.services {
        _ = match service.usual_seconds {
            0 => writeln!(text, "  {}: no score is known from before its alarm", service.service),
            seconds => writeln!(
                text,
                "  {}: scores of {:.2} γ, at most {:.2} γ, in {seconds} s",
                service.service, service.usual, service.usual_maximum
            ),
        };
    }
}

#[cfg(test)]
mod tests {
    use wire::proto::operators::{
        IncidentChange, IncidentFigure, IncidentLog, IncidentSpan, IncidentStream, IncidentTrace, Reason,
    };

    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const BEGAN: u64 = 1_795_761_735 * SECOND;

    fn stream() -> IncidentStream {
        let figure = IncidentFigure {
            metric: "network.delay.p50".to_owned(),
            unit: "s".to_owned(),
            largest: 0.044,
            largest_unix_ns: BEGAN + 3 * SECOND,
            expected: 0.004,
            last: 0.005,
        };
        IncidentStream {
            service: "network.payment-store".to_owned(),
            figures: vec![figure],
            ..IncidentStream::default()
        }
    }

    fn incident() -> Incident {
        let metric = Reason {
            column: "queue.depth".to_owned(),
            share: 0.82,
            seen: 50_000.0,
            expected: 50.0,
            ..Reason::default()
        };
        let service = IncidentService {
            service: "payment".to_owned(),
            rank: 1,
            began_unix_ns: BEGAN,
            ended_unix_ns: BEGAN + 107 * SECOND,
            alarms: 2,
            peak: 12.34,
            metrics: vec![metric],
            usual: 0.31,
            usual_maximum: 0.72,
            usual_seconds: 118,
            ..IncidentService::default()
        };
        let change = IncidentChange {
            at_unix_ns: BEGAN - 12 * SECOND,
            service: "payment".to_owned(),
            kind: "version".to_owned(),
            text: "version 1.3 after 1.2".to_owned(),
            precedes_alarm: true,
        };
        let span = IncidentSpan {
            service: "frontend".to_owned(),
            name: "GET /pay".to_owned(),
            failed: true,
            ..IncidentSpan::default()
        };
        let trace = IncidentTrace {
            id: "ab".repeat(16),
            began_unix_ns: BEGAN + SECOND,
            took_ns: 2 * SECOND,
            reason: "payment: score 12".to_owned(),
            spans: vec![span],
            ..IncidentTrace::default()
        };
        let log = IncidentLog {
            at_unix_ns: BEGAN + 2 * SECOND,
            severity: 17,
            level: "ERROR".to_owned(),
            service: "payment".to_owned(),
            text: "card refused".to_owned(),
            reason: "severity ERROR".to_owned(),
            ..IncidentLog::default()
        };
        let mut incident = Incident {
            id: "20261127-064215-123".to_owned(),
            node: "node-3".to_owned(),
            began_unix_ns: BEGAN,
            ended_unix_ns: BEGAN + 107 * SECOND,
            services: vec![service],
            changes: vec![change],
            traces: vec![trace],
            kept_traces: 12,
            logs: vec![log],
            kept_logs: 31,
            streams: vec![stream()],
            ..Incident::default()
        };
        incident.cause = words::cause(&incident);
        incident
    }

    #[test]
    fn an_incident_is_told_in_words_with_the_change_first() {
        let expected = "\
incident 20261127-064215-123 of node-3
since 2026-11-27 06:42:15 UTC, 1 min 47 s

payment: version 1.3 after 1.2, 12 s before an alarm; then payment: queue.depth 50 k, expected 50

Time line (UTC)
  06:42:03  payment: version 1.3 after 1.2, 12 s before an alarm
  06:42:15  payment in alarm
  06:44:02  payment quiet

Services, the suspected cause first
  1  payment: up to 12.3 γ, 1 min 47 s, 2 alarms
       queue.depth 50 k, expected 50 (82 %)

Streams of packets: the largest delays and losses
  06:42:18  payment-store: network.delay.p50 44 ms, expected 4 ms; at last 5 ms

Kept traces: the 1 best of 12
  06:42:16  abababababababababababababababab  frontend GET /pay, 2 s, failed
            payment: score 12

Kept log records: the 1 best of 31
  06:42:17  ERROR payment: card refused
            severity ERROR

What was normal before
  payment: scores of 0.31 γ, at most 0.72 γ, in 118 s
";
        assert_eq!(in_words(&incident()), expected);
    }

    #[test]
    fn the_list_is_a_table_whose_last_column_is_the_cause() {
        let of = incident();
        let summary = |id: &str, services: &[&str], ended_unix_ns| IncidentSummary {
            id: id.to_owned(),
            began_unix_ns: BEGAN,
            ended_unix_ns,
            cause: "payment: queue.depth 50 k, expected 50".to_owned(),
            services: services.iter().map(|name| (*name).to_owned()).collect(),
            kept_traces: 7,
            kept_logs: 0,
        };
        let long = ["a-service-with-a-long-name", "and-another-one", "cart"];
        let incidents = vec![summary(&of.id, &["payment"], 0), summary(&of.id, &long, BEGAN + 5 * SECOND)];

        let shown = table(&IncidentsReply { node: "node-3".to_owned(), incidents, in_memory: true });

        let lines: Vec<_> = shown.lines().collect();
        assert_eq!(lines[0], "node-3: 2 incidents, in memory only (incidents.dir keeps them)");
        assert!(lines[2].starts_with("INCIDENT             SINCE (UTC)          FOR      TRACES  SERVICES"), "{shown}");
        assert!(lines[3].starts_with("20261127-064215-123  2026-11-27 06:42:15  goes on  7       payment"), "{shown}");
        assert!(lines[4].contains("and-another-…"), "{shown}");
        assert!(lines[3].ends_with("  payment: queue.depth 50 k, expected 50"), "{shown}");
        assert_eq!(table(&IncidentsReply::default()), ": no incident is kept\n");
    }
}
