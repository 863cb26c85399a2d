//! What the metrics of a file are: counter, gauge or level, and the group they belong to. From a second file, since a CSV of
//! values does not say.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use lmap::{Column, ColumnKind};
use thiserror::Error;

/// What is known about the metrics of a table, in its order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Columns {
    /// As the detector wants them.
    pub columns: Vec<Column>,
    /// Which of them are cumulative, ascending.
    pub counters: Vec<usize>,
    /// Names of the groups; a column's group is an index into this.
    pub groups: Vec<String>,
}

/// Why a file about columns cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ColumnsError {
    /// Not there, or no CSV.
    #[error("{} cannot be read", .path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        cause: csv::Error,
    },
    /// Another first line.
    #[error("the first line of {} is `{found}`, it has to be `metric,kind,group`", .path.display())]
    Header {
        /// Which file.
        path: PathBuf,
        /// What it is.
        found: String,
    },
    /// Not a kind.
    #[error("line {line} of {}: `{found}` is no kind: counter, gauge or level", .path.display())]
    Kind {
        /// Which file.
        path: PathBuf,
        /// Counted from 1, the header included.
        line: u64,
        /// What is there.
        found: String,
    },
    /// None of the metrics.
    #[error("none of the metrics that {} names is in the table", .path.display())]
    Strangers {
        /// Which file.
        path: PathBuf,
    },
}

impl Columns {
    /// Everything is a gauge of one group without a name. Training finds out which of them drift or grow. `fingerprint` is what a
    /// model knows a column by; who saves no model may give them all the same.
    #[must_use]
    pub fn gauges(metrics: &[String], fingerprint: fn(&str) -> u64) -> Self {
        let columns = metrics.iter().map(|name| Column::new(ColumnKind::Gauge, fingerprint(name))).collect();
        Self { columns, counters: Vec::new(), groups: vec![String::new()] }
    }

    /// Reads a file of lines `metric,kind,group`. A metric that it does not name is a gauge; a metric that the table does not
    /// have is left alone.
    ///
    /// # Errors
    ///
    /// [`ColumnsError`] with the line.
    pub fn open(path: &Path, metrics: &[String], fingerprint: fn(&str) -> u64) -> Result<Self, ColumnsError> {
        let broken = |cause: io::Error| ColumnsError::Read { path: path.to_owned(), cause: cause.into() };
        Self::read(File::open(path).map_err(broken)?, path, metrics, fingerprint)
    }

    /// Likewise, from text; errors call it `path`.
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
