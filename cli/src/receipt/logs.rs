//! Log records of a receipt: what became of them, in bytes beside what would be sent on if all were kept. Pure.

use std::collections::BTreeMap;

use serde::Serialize;
use wire::proto::operators::{ReceiptLine, ReceiptLogs};

use super::view::{bytes_of, reasons};

/// Log records of one service on one day.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Logs {
    pub(super) service: String,
    pub(super) seen: u64,
    /// What would be sent on if all were kept.
    pub(super) seen_bytes: u64,
    pub(super) kept: u64,
    pub(super) kept_bytes: u64,
    pub(super) kept_bytes_by_policy: BTreeMap<String, u64>,
    pub(super) dropped: BTreeMap<String, u64>,
    pub(super) lost: BTreeMap<String, u64>,
}

/// Column titles of the table of log records.
pub(super) const COLUMNS: [&str; 8] =
    ["service", "log records", "keep all", "kept records", "kept", "kept by policy", "dropped records", "lost records"];

/// Columns with words: those to the left are numbers.
pub(super) const WORDS: [usize; 4] = [0, 5, 6, 7];

impl Logs {
    /// The log records of a line; `None` where they pass through.
    pub(super) fn of(line: &ReceiptLine) -> Option<Self> {
        let ReceiptLogs { seen, seen_bytes, kept, kept_bytes, kept_bytes_by_policy, dropped, lost } =
            line.logs.clone()?;
        Some(Self {
            service: line.service.clone(),
            seen,
            seen_bytes,
            kept,
            kept_bytes,
            kept_bytes_by_policy: kept_bytes_by_policy.into_iter().collect(),
            dropped: dropped.into_iter().collect(),
            lost: lost.into_iter().collect(),
        })
    }

    /// The services of a day, most bytes first, and their sum; nothing where log records pass through.
    pub(super) fn day(lines: &[ReceiptLine]) -> Vec<Self> {
        let mut all: Vec<_> = lines.iter().filter_map(Self::of).collect();
        if all.is_empty() {
            return all;
        }
        all.sort_by(|a, b| (b.seen_bytes, &a.service).cmp(&(a.seen_bytes, &b.service)));
        let mut total = Self { service: "all".to_owned(), ..Self::default() };
        for service in &all {
            total.add(service);
        }
        all.push(total);
        all
    }

    fn add(&mut self, other: &Self) {
        self.seen += other.seen;
        self.seen_bytes += other.seen_bytes;
        self.kept += other.kept;
        self.kept_bytes += other.kept_bytes;
        for (mine, theirs) in [
            (&mut self.kept_bytes_by_policy, &other.kept_bytes_by_policy),
            (&mut self.dropped, &other.dropped),
            (&mut self.lost, &other.lost),
        ] {
            for (name, more) in theirs {
                *mine.entry(name.clone()).or_default() += more;
            }
        }
    }

    /// The cells of its row, in the order of [`COLUMNS`].
    pub(super) fn cells(&self) -> [String; COLUMNS.len()] {
        let share = if self.seen_bytes == 0 { 0.0 } else { self.kept_bytes as f64 / self.seen_bytes as f64 };
        let policies = self.kept_bytes_by_policy.iter().map(|(name, bytes)| format!("{name} {}", bytes_of(*bytes)));
        [
            self.service.clone(),
            self.seen.to_string(),
            bytes_of(self.seen_bytes),
            self.kept.to_string(),
            format!("{} ({:.1} %)", bytes_of(self.kept_bytes), 100.0 * share),
            policies.collect::<Vec<_>>().join(", "),
            reasons(&self.dropped),
            reasons(&self.lost),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_bytes_stand_beside_those_of_all() {
        let line = |service: &str, seen_bytes, kept_bytes| ReceiptLine {
            service: service.to_owned(),
            logs: Some(ReceiptLogs {
                seen: 10,
                seen_bytes,
                kept: 1,
                kept_bytes,
                kept_bytes_by_policy: [("trace".to_owned(), kept_bytes)].into(),
                dropped: [("aged".to_owned(), 8)].into(),
                lost: [("evicted".to_owned(), 1)].into(),
            }),
            ..ReceiptLine::default()
        };
        let lines = [line("cart", 1_000, 50), line("payment", 3_000, 150), ReceiptLine::default()];

        let rows: Vec<_> = Logs::day(&lines).iter().map(Logs::cells).collect();

        assert_eq!(rows[0], ["payment", "10", "3 kB", "1", "150 B (5.0 %)", "trace 150 B", "8", "evicted 1"]);
        assert_eq!(rows[2], ["all", "20", "4 kB", "2", "200 B (5.0 %)", "trace 200 B", "16", "evicted 2"]);
        assert!(Logs::day(&lines[2..]).is_empty());
    }
}
