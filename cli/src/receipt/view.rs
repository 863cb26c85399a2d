//! A receipt as JSON and as text. Pure.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use wire::date::Date;
use wire::proto::operators::{ReceiptDay, ReceiptLine, ReceiptReply, ReceiptRun};
use wire::quantity::quantity;
use wire::time::UnixNanos;

use super::logs::{self, Logs};
use crate::figures::duration_ms;

/// The receipt of an agent, as JSON.
#[derive(Clone, Debug, Serialize)]
pub(super) struct View {
    pub(super) node: String,
    /// The beginning of the records.
    pub(super) since: String,
    /// Whether the records are lost when the agent ends.
    pub(super) in_memory: bool,
    /// Runs of the agent, the oldest first, the current one last.
    pub(super) runs: Vec<Run>,
    /// Buffered spans without a decision, by service.
    pub(super) waiting_spans: BTreeMap<String, u64>,
    /// Buffered log records without a decision, by service.
    pub(super) waiting_logs: BTreeMap<String, u64>,
    pub(super) days: Vec<Day>,
}

/// One run of the agent.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Run {
    pub(super) began: String,
    /// The last write of the ledger; what a killed run did after it is not recorded. `None` if nothing was written.
    pub(super) written: Option<String>,
    pub(super) ended_in_order: bool,
}

/// One day, in UTC.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Day {
    pub(super) date: String,
    pub(super) services: Vec<Service>,
    /// The sum of all services.
    pub(super) total: Service,
    /// Log records by service, and the sum of all services last; empty where they pass through.
    pub(super) logs: Vec<Logs>,
    /// Counts of the whole agent: CPU time, bytes sent, losses by reason.
    pub(super) node: BTreeMap<String, u64>,
}

/// One service on one day.
#[derive(Clone, Debug, Default, Serialize)]
#[expect(clippy::struct_field_names, reason = "names of the JSON, as other commands have them")]
pub(super) struct Service {
    pub(super) service: String,
    pub(super) seen_spans: u64,
    pub(super) seen_bytes: u64,
    pub(super) kept_spans: u64,
    pub(super) kept_bytes: u64,
    pub(super) kept_bytes_by_policy: BTreeMap<String, u64>,
    /// Dropped spans by reason.
    pub(super) dropped_spans: BTreeMap<String, u64>,
    pub(super) lost_spans: BTreeMap<String, u64>,
    pub(super) requests: u64,
    pub(super) failed_requests: u64,
    pub(super) kept_requests: u64,
    pub(super) kept_failed_requests: u64,
    pub(super) alarms: u64,
    pub(super) alarm_ms: u64,
    /// The share of all traces that head sampling would keep at the same number of bytes.
    pub(super) head_share: f64,
    /// The expected number of failed requests that head sampling would keep.
    pub(super) head_failed_requests: f64,
}

impl View {
    pub(super) fn of(reply: &ReceiptReply) -> Self {
        let days = reply.days.iter().map(Day::of).collect();
        Self {
            node: reply.node.clone(),
            since: minute(UnixNanos(reply.since_unix_ns)),
            in_memory: reply.in_memory,
            runs: reply.runs.iter().map(Run::of).collect(),
            waiting_spans: reply.waiting_spans.iter().map(|(name, spans)| (name.clone(), *spans)).collect(),
            waiting_logs: reply.waiting_logs.iter().map(|(name, logs)| (name.clone(), *logs)).collect(),
            days,
        }
    }

    /// Notes on restarts and buffered spans, one line of text each.
    pub(super) fn history(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.in_memory {
            notes.push(
                "in memory only; set receipt.dir in the host agent's configuration to keep it across restarts"
                    .to_owned(),
            );
        }
        for pair in self.runs.windows(2) {
            let [before, after] = pair else { continue };
            let written = before.written.as_deref().unwrap_or(&before.began);
            notes.push(if before.ended_in_order {
                format!("restarted at {}; the previous run ended normally at {written}", after.began)
            } else {
                let (began, lost) = (&after.began, "spans buffered then are recorded as lost (killed)");
                format!(
                    "restarted at {began}; the previous run was killed: nothing is recorded after {written}, {lost}"
                )
            });
        }
        for (waiting, what) in [(&self.waiting_spans, "spans"), (&self.waiting_logs, "log records")] {
            let waiting: u64 = waiting.values().sum();
            if waiting > 0 {
                notes.push(format!("{waiting} {what} are buffered without a decision"));
            }
        }
        notes
    }
}

impl Run {
    fn of(run: &ReceiptRun) -> Self {
        Self {
            began: second(UnixNanos(run.began_unix_ns)),
            written: (run.written_unix_ns > 0).then(|| second(UnixNanos(run.written_unix_ns))),
            ended_in_order: run.ended_in_order,
        }
    }
}

fn minute(at: UnixNanos) -> String {
    let seconds = at.second();
    format!("{} {:02}:{:02} UTC", Date::of(at), seconds / 3_600 % 24, seconds / 60 % 60)
}

fn second(at: UnixNanos) -> String {
    let seconds = at.second();
    let (hour, minute, second) = (seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{} {hour:02}:{minute:02}:{second:02} UTC", Date::of(at))
}

impl Day {
    fn of(day: &ReceiptDay) -> Self {
        let mut services: Vec<_> = day.services.iter().map(Service::of).collect();
        services.sort_by(|a, b| (b.seen_bytes, &a.service).cmp(&(a.seen_bytes, &b.service)));
        let mut total = Service { service: "all".to_owned(), ..Service::default() };
        for service in &services {
            total.add(service);
        }
        total.compare();
        let node = day.grown.iter().map(|(name, by)| (name.clone(), *by)).collect();
        Self { date: Date::after(day.day).to_string(), services, total, logs: Logs::day(&day.services), node }
    }
}

impl Service {
    fn of(line: &ReceiptLine) -> Self {
        let mut service = Self {
            service: line.service.clone(),
            seen_spans: line.seen_spans,
            seen_bytes: line.seen_bytes,
            kept_spans: line.kept_spans,
            kept_bytes: line.kept_bytes,
            kept_bytes_by_policy: line
                .kept_bytes_by_policy
                .iter()
                .map(|(name, bytes)| (name.clone(), *bytes))
                .collect(),
            dropped_spans: line.dropped_spans.iter().map(|(why, spans)| (why.clone(), *spans)).collect(),
            lost_spans: line.lost_spans.iter().map(|(why, spans)| (why.clone(), *spans)).collect(),
            requests: line.requests,
            failed_requests: line.failed_requests,
            kept_requests: line.kept_requests,
            kept_failed_requests: line.kept_failed_requests,
            alarms: line.alarms,
            alarm_ms: line.alarm_ms,
            ..Self::default()
        };
        service.compare();
        service
    }

    fn add(&mut self, other: &Self) {
        self.seen_spans += other.seen_spans;
        self.seen_bytes += other.seen_bytes;
        self.kept_spans += other.kept_spans;
        self.kept_bytes += other.kept_bytes;
        self.requests += other.requests;
        self.failed_requests += other.failed_requests;
        self.kept_requests += other.kept_requests;
        self.kept_failed_requests += other.kept_failed_requests;
        self.alarms += other.alarms;
        self.alarm_ms += other.alarm_ms;
        for (mine, theirs) in [
            (&mut self.kept_bytes_by_policy, &other.kept_bytes_by_policy),
            (&mut self.dropped_spans, &other.dropped_spans),
            (&mut self.lost_spans, &other.lost_spans),
        ] {
            for (name, more) in theirs {
                *mine.entry(name.clone()).or_default() += more;
            }
        }
    }

    /// Computes what head sampling would keep: the same share of all traces, failed or not.
    fn compare(&mut self) {
        if self.seen_bytes > 0 {
            self.head_share = (self.kept_bytes as f64 / self.seen_bytes as f64).min(1.0);
        }
        self.head_failed_requests = self.head_share * self.failed_requests as f64;
    }

    /// The cells of its row, in the order of [`COLUMNS`].
    pub(super) fn cells(&self) -> [String; COLUMNS.len()] {
        let percent = |share: f64| format!("{:.1} %", share * 100.0);
        let policies = self.kept_bytes_by_policy.iter().map(|(name, bytes)| format!("{name} {}", bytes_of(*bytes)));
        let failed = if self.failed_requests == 0 {
            ["–".to_owned(), "–".to_owned()]
        } else {
            let of = self.failed_requests;
            [format!("{} of {of}", self.kept_failed_requests), format!("{:.1} of {of}", self.head_failed_requests)]
        };
        let [failed, head] = failed;
        [
            self.service.clone(),
            self.seen_spans.to_string(),
            bytes_of(self.seen_bytes),
            self.kept_spans.to_string(),
            format!("{} ({})", bytes_of(self.kept_bytes), percent(self.head_share)),
            policies.collect::<Vec<_>>().join(", "),
            reasons(&self.dropped_spans),
            reasons(&self.lost_spans),
            format!("{} of {}", self.kept_requests, self.requests),
            failed,
            head,
            if self.alarms == 0 {
                "–".to_owned()
            } else {
                format!("{}, {}", self.alarms, duration_ms(self.alarm_ms))
            },
        ]
    }
}

/// Column titles of a day's table.
pub(super) const COLUMNS: [&str; 12] = [
    "service",
    "spans",
    "seen",
    "kept spans",
    "kept",
    "kept by policy",
    "dropped spans",
    "lost spans",
    "requests kept",
    "failed kept",
    "head sampling",
    "alarms",
];

/// The legend of the table.
pub(super) const EXPLAINED: &str = "A request is a span without a parent; it failed if that span has status error. \"Head sampling\" is the expected number \
    of failed requests that head sampling would keep at the same number of bytes. Dropped: no policy selected the span in time. \
    Lost: evicted over a limit, or malformed. A span, or a log record, counts as kept, dropped or lost on the day of the decision.";

/// The sum, and the count of each reason unless the only reason is `aged`.
pub(super) fn reasons(spans: &BTreeMap<String, u64>) -> String {
    let all: u64 = spans.values().sum();
    let each: Vec<_> = spans.iter().map(|(why, spans)| format!("{why} {spans}")).collect();
    match &*each {
        [] => "–".to_owned(),
        [_] if spans.contains_key("aged") => all.to_string(),
        [one] => one.clone(),
        _ => format!("{all}: {}", each.join(", ")),
    }
}

pub(super) fn bytes_of(bytes: u64) -> String {
    quantity(bytes as f64, "By")
}

impl Day {
    /// Counts of the whole agent as names and values.
    pub(super) fn counts(&self) -> impl Iterator<Item = (String, String)> {
        self.node.iter().map(|(name, by)| {
            let value = match name.as_str() {
                name if name.ends_with("_ms") => duration_ms(*by),
                name if name.starts_with("sent_bytes") => bytes_of(*by),
                _ => by.to_string(),
            };
            (name.replace(['_', '.'], " "), value)
        })
    }
}

impl fmt::Display for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}, recorded since {}", self.node, self.since)?;
        for note in self.history() {
            writeln!(f, "  {note}")?;
        }
        for day in &self.days {
            writeln!(f, "\n{}", day.date)?;
            let rows = core::iter::once(COLUMNS.map(str::to_owned));
            table(f, &rows.chain(day.services.iter().chain([&day.total]).map(Service::cells)).collect::<Vec<_>>())?;
            if !day.logs.is_empty() {
                writeln!(f)?;
                let rows = core::iter::once(logs::COLUMNS.map(str::to_owned));
                table(f, &rows.chain(day.logs.iter().map(Logs::cells)).collect::<Vec<_>>())?;
            }
            let counts: Vec<_> = day.counts().map(|(name, value)| format!("{name} {value}")).collect();
            if !counts.is_empty() {
                writeln!(f, "  the agent: {}", counts.join(", "))?;
            }
        }
        if self.days.is_empty() { writeln!(f, "nothing is recorded yet") } else { writeln!(f, "\n{EXPLAINED}") }
    }
}

/// Columns with words, which begin at the left; both tables have them at the same places.
const WORDS: [usize; 4] = logs::WORDS;

/// A table with aligned columns, its titles first.
fn table<const N: usize>(f: &mut fmt::Formatter<'_>, rows: &[[String; N]]) -> fmt::Result {
    let widths: [usize; N] = core::array::from_fn(|i| rows.iter().map(|row| row[i].chars().count()).max().unwrap_or(0));
    rows.iter().try_for_each(|row| {
        let cells = row.iter().zip(widths).enumerate();
        let cells = cells.map(
            |(i, (cell, width))| {
                if WORDS.contains(&i) { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
            },
        );
        writeln!(f, "  {}", cells.collect::<Vec<_>>().join("  ").trim_end())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_sampling_is_compared_at_the_same_number_of_bytes() {
        let line = |service: &str, kept_bytes| ReceiptLine {
            service: service.to_owned(),
            seen_bytes: 1_000,
            kept_bytes,
            failed_requests: 40,
            kept_failed_requests: 38,
            dropped_spans: [("aged".to_owned(), 7)].into(),
            lost_spans: [("evicted".to_owned(), 2), ("killed".to_owned(), 1)].into(),
            ..ReceiptLine::default()
        };
        let day = Day::of(&ReceiptDay { services: vec![line("a", 50), line("b", 150)], ..ReceiptDay::default() });

        assert_eq!((day.services[0].head_share, day.services[0].head_failed_requests), (0.05, 2.0));
        assert_eq!((day.total.head_share, day.total.head_failed_requests), (0.1, 8.0));
        assert_eq!(day.total.cells()[9..11], ["76 of 80", "8.0 of 80"]);
        assert_eq!(day.total.cells()[6..8], ["14", "6: evicted 4, killed 2"]);
    }
}
