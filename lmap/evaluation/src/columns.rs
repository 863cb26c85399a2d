//! Kinds (counter, gauge, level) and groups of the metrics of a file, from a second CSV file.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use lmap::{Column, ColumnKind};
use thiserror::Error;

/// Kinds and groups of the metrics of a table, in its order.
#[derive(Clone, Debug, PartialEq)]
pub struct Columns {
    /// The columns for a detector.
    pub columns: Vec<Column>,
    /// Indexes of cumulative columns, ascending.
    pub counters: Vec<usize>,
    /// Names of the groups; a column's group is an index into this.
    pub groups: Vec<String>,
}

/// Why a file of columns cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ColumnsError {
    /// The file is missing, or not CSV.
    #[error("{} cannot be read", .path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// The error of the CSV reader.
        #[source]
        cause: csv::Error,
    },
    /// The first line is wrong.
    #[error("the first line of {} is `{found}`, it has to be `metric,kind,group`", .path.display())]
    Header {
        /// Path of the file.
        path: PathBuf,
        /// The first line, shortened.
        found: String,
    },
    /// An unknown kind.
    #[error("line {line} of {}: `{found}` is not a kind (counter, gauge, level)", .path.display())]
    Kind {
        /// Path of the file.
        path: PathBuf,
        /// Counted from 1, the header included.
        line: u64,
        /// The text found, shortened.
        found: String,
    },
    /// The file names no metric of the table.
    #[error("none of the metrics that {} names is in the table", .path.display())]
    Strangers {
        /// Path of the file.
        path: PathBuf,
    },
}

impl Columns {
    /// All columns are gauges, in one group without a name. Training detects which of them drift or grow. `fingerprint`
    /// identifies a column in a model; if no model is saved, it may return the same for all.
    #[must_use]
    pub fn gauges(metrics: &[String], fingerprint: fn(&str) -> u64) -> Self {
        let columns = metrics.iter().map(|name| Column::new(ColumnKind::Gauge, fingerprint(name))).collect();
        Self { columns, counters: Vec::new(), groups: vec![String::new()] }
    }

    /// Reads a file of lines `metric,kind,group`. Metrics that it does not name are gauges; metrics that are not in the
    /// table are ignored.
    ///
    /// # Errors
    ///
    /// [`ColumnsError`] with the line.
    pub fn open(path: &Path, metrics: &[String], fingerprint: fn(&str) -> u64) -> Result<Self, ColumnsError> {
        let broken = |cause: io::Error| ColumnsError::Read { path: path.to_owned(), cause: cause.into() };
        Self::read(File::open(path).map_err(broken)?, path, metrics, fingerprint)
    }

    /// Like [`open`](Self::open), from text; errors name `path`.
    ///
    /// # Errors
    ///
    /// [`ColumnsError`] with the line.
    pub fn read(
        text: impl Read,
        path: &Path,
        metrics: &[String],
        fingerprint: fn(&str) -> u64,
    ) -> Result<Self, ColumnsError> {
        let broken = |cause| ColumnsError::Read { path: path.to_owned(), cause };
        let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(text);
        let header = reader.headers().map_err(broken)?;
        if header.iter().collect::<Vec<_>>() != ["metric", "kind", "group"] {
            let found =
                header.iter().collect::<Vec<_>>().join(",").chars().take(60).flat_map(char::escape_debug).collect();
            return Err(ColumnsError::Header { path: path.to_owned(), found });
        }
        let mut all = Self::gauges(metrics, fingerprint);
        let places: HashMap<&str, usize> = metrics.iter().enumerate().map(|(i, name)| (name.as_str(), i)).collect();
        let mut found = false;
        for record in reader.records() {
            let record = record.map_err(broken)?;
            let (metric, kind, group) = (&record[0], &record[1], &record[2]);
            let Some(&place) = places.get(metric) else { continue };
            found = true;
            let column = &mut all.columns[place];
            match kind {
                "counter" => column.kind = ColumnKind::Increment,
                "gauge" => {}
                "level" => column.level = Some(true),
                other => {
                    let found = other.chars().take(40).flat_map(char::escape_debug).collect();
                    let line = record.position().map_or(0, csv::Position::line);
                    return Err(ColumnsError::Kind { path: path.to_owned(), line, found });
                }
            }
            column.group = all.groups.iter().position(|known| known == group).unwrap_or_else(|| {
                all.groups.push(group.to_owned());
                all.groups.len() - 1
            }) as u16;
        }
        if !found {
            return Err(ColumnsError::Strangers { path: path.to_owned() });
        }
        let counters = all.columns.iter().enumerate().filter(|(_, column)| column.kind == ColumnKind::Increment);
        all.counters = counters.map(|(place, _)| place).collect();
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(text: &str) -> Result<Columns, ColumnsError> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("columns.csv");
        std::fs::write(&path, text).unwrap();
        let metrics = ["cpu", "requests", "rss", "other"].map(str::to_owned);
        Columns::open(&path, &metrics, |_| 0)
    }

    #[test]
    fn kinds_and_groups_are_taken_by_name() {
        let text = "metric,kind,group\nrequests,counter,service\nrss,level,memory\nnobody,counter,x\ncpu,gauge,cpu\n";

        let columns = open(text).unwrap();

        assert_eq!(columns.counters, [1]);
        assert_eq!(columns.columns[2].level, Some(true));
        let group = |place: usize| columns.groups[usize::from(columns.columns[place].group)].as_str();
        assert_eq!([group(0), group(1), group(2), group(3)], ["cpu", "service", "memory", ""]);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let kind = open("metric,kind,group\ncpu,gauge,\nrss,histogram,\n").unwrap_err().to_string();
        assert!(kind.contains("line 3") && kind.contains("`histogram`"), "{kind}");
        assert!(matches!(open("name,type\n"), Err(ColumnsError::Header { .. })));
        assert!(matches!(open("metric,kind,group\nx,gauge,\n"), Err(ColumnsError::Strangers { .. })));
        assert!(matches!(open("metric,kind,group\ncpu,gauge\n"), Err(ColumnsError::Read { .. })));
    }
}
