//! A receipt as programs and people read it. Pure.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use wire::proto::operators::{ReceiptDay, ReceiptLine, ReceiptReply};
use wire::quantity::quantity;

use crate::figures::duration_ms;

/// Everything that an agent has booked.
#[derive(Clone, Debug, Serialize)]
pub(super) struct View {
    pub(super) node: String,
    /// Nothing of before is known.
    pub(super) since: String,
    pub(super) days: Vec<Day>,
}

/// One day, in UTC.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Day {
    pub(super) date: String,
    pub(super) services: Vec<Service>,
    /// All services together.
    pub(super) total: Service,
    /// What the whole agent counted: processor time, bytes sent, losses by reason.
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
    pub(super) requests: u64,
    pub(super) failed_requests: u64,
    pub(super) kept_requests: u64,
    pub(super) kept_failed_requests: u64,
    pub(super) alarms: u64,
    pub(super) alarm_ms: u64,
    /// What head sampling keeps of everything with as many bytes.
    pub(super) head_share: f64,
    /// Failed requests that it would have kept, to be expected.
    pub(super) head_failed_requests: f64,
}

impl View {
    pub(super) fn of(reply: &ReceiptReply) -> Self {
        let days = reply.days.iter().map(Day::of).collect();
        let since = reply.since_unix_ns / 1_000_000_000;
        let (hour, minute) = (since / 3_600 % 24, since / 60 % 60);
        Self { node: reply.node.clone(), since: format!("{} {hour:02}:{minute:02} UTC", date(since / 86_400)), days }
    }
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
        Self { date: date(day.day), services, total, node }
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
        for (policy, bytes) in &other.kept_bytes_by_policy {
            *self.kept_bytes_by_policy.entry(policy.clone()).or_default() += bytes;
        }
    }

    /// Head sampling keeps the same share of everything, whatever happened to it.
    fn compare(&mut self) {
        if self.seen_bytes > 0 {
            self.head_share = (self.kept_bytes as f64 / self.seen_bytes as f64).min(1.0);
        }
        self.head_failed_requests = self.head_share * self.failed_requests as f64;
    }

    /// The cells of its row, as [`COLUMNS`].
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

/// What the columns of a day's table say.
pub(super) const COLUMNS: [&str; 10] = [
    "service",
    "spans",
    "seen",
    "kept spans",
    "kept",
    "for",
    "requests kept",
    "failed kept",
    "by head sampling",
    "alarms",
];

/// What the table needs said.
pub(super) const EXPLAINED: &str = "A request is a span without a parent; it failed if that span is in error. \"By head sampling\" is what would be kept \
    of the failed ones, on average, if the same bytes were spent on a share of all traces picked at their beginning.";

fn bytes_of(bytes: u64) -> String {
    quantity(bytes as f64, "By")
}

impl Day {
    /// What the whole agent counted, a line each.
    pub(super) fn counts(&self) -> impl Iterator<Item = (String, String)> {
        self.node.iter().map(|(name, by)| {
            let value = match name.as_str() {
                "cpu_ms" => duration_ms(*by),
                name if name.starts_with("sent_bytes") => bytes_of(*by),
                _ => by.to_string(),
            };
            (name.replace(['_', '.'], " "), value)
        })
    }
}

impl fmt::Display for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}, booked since {}", self.node, self.since)?;
        for day in &self.days {
            writeln!(f, "\n{}", day.date)?;
            let rows: Vec<_> = core::iter::once(COLUMNS.map(str::to_owned))
                .chain(day.services.iter().chain([&day.total]).map(Service::cells))
                .collect();
            let widths: [usize; COLUMNS.len()] =
                core::array::from_fn(|i| rows.iter().map(|row| row[i].chars().count()).max().unwrap_or(0));
            for row in &rows {
                let cells = row.iter().zip(widths).enumerate();
                let cells = cells.map(|(i, (cell, width))| match i {
                    0 | 5 => format!("{cell:<width$}"),
                    _ => format!("{cell:>width$}"),
                });
                writeln!(f, "  {}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
            }
            let counts: Vec<_> = day.counts().map(|(name, value)| format!("{name} {value}")).collect();
            if !counts.is_empty() {
                writeln!(f, "  the agent: {}", counts.join(", "))?;
            }
        }
        if self.days.is_empty() { writeln!(f, "nothing is booked yet") } else { writeln!(f, "\n{EXPLAINED}") }
    }
}

/// A day as ISO 8601 has it.
fn date(days: u64) -> String {
    // Howard Hinnant's days to civil: years begin in March, eras of 400 years have 146,097 days.
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    format!("{:04}-{month:02}-{day:02}", era * 400 + year_of_era + u64::from(month <= 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_as_calendars_have_them() {
        assert_eq!([0, 11_016, 19_675, 47_541].map(date), ["1970-01-01", "2000-02-29", "2023-11-14", "2100-03-01"]);
    }

    #[test]
    fn head_sampling_is_held_against_what_was_kept_for_the_same_bytes() {
        let line = |service: &str, kept_bytes| ReceiptLine {
            service: service.to_owned(),
            seen_bytes: 1_000,
            kept_bytes,
            failed_requests: 40,
            kept_failed_requests: 38,
            ..ReceiptLine::default()
        };
        let day = Day::of(&ReceiptDay { services: vec![line("a", 50), line("b", 150)], ..ReceiptDay::default() });

        assert_eq!((day.services[0].head_share, day.services[0].head_failed_requests), (0.05, 2.0));
        assert_eq!((day.total.head_share, day.total.head_failed_requests), (0.1, 8.0));
        assert_eq!(day.total.cells()[7..9], ["76 of 80", "8.0 of 80"]);
    }
}
