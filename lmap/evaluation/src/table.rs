//! Reads a file of metrics, one row per sample: CSV, gzip'd or not, or Parquet. Errors name line and column.

#[cfg(feature = "parquet")]
mod parquet;

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

#[cfg(feature = "parquet")]
use ::parquet::errors::ParquetError;
use csv::StringRecord;
use flate2::bufread::MultiGzDecoder;
use thiserror::Error;

/// The column with times, in seconds. Not a metric.
pub const TIME: &str = "time";
/// The column with labels: 0 normal, 1 anomalous, 2 does not count.
pub const LABEL: &str = "label";
/// The column with kinds of fault.
pub const FAULT: &str = "fault";

/// A step in time longer than this many intervals is a gap.
const GAP_INTERVALS: f64 = 1.5;

/// Maximum size of a file after decompression, in bytes. It has at most half as many cells.
const MAX_BYTES: u64 = 1 << 30;

/// The label of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Label {
    /// Nothing is known to be wrong.
    Normal,
    /// A fault is known.
    Anomalous,
    /// The row does not count, for instance just after a fault.
    Ignored,
}

/// The rows of a file, with as many values as there are metrics each.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// The metrics' names, in the order of the file; never empty, no name twice.
    pub metrics: Vec<String>,
    /// Seconds, one per row, if the file has them.
    pub times: Option<Vec<f64>>,
    /// One per row, if the file has them.
    pub labels: Option<Vec<Label>>,
    /// One per row, if the file has them; often empty texts.
    pub faults: Option<Vec<String>>,
    /// Number of empty cells.
    pub missing: usize,
    /// Number of cells with NaN or an infinity, which count as missing.
    pub not_finite: usize,
    values: Vec<f64>,
}

impl Table {
    /// The rows in order; NaN is a missing value.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &[f64]> {
        self.values.chunks_exact(self.metrics.len())
    }

    /// A table of `values`, row by row, as a file would have given it: what is not finite counts as missing. `None`
    /// unless there is a metric, and whole rows with a time each.
    #[must_use]
    pub fn of_values(metrics: Vec<String>, times: Vec<f64>, mut values: Vec<f64>) -> Option<Self> {
        if metrics.is_empty() || times.is_empty() || values.len() != metrics.len() * times.len() {
            return None;
        }
        let missing = values.iter().filter(|value| value.is_nan()).count();
        let not_finite = values.iter().filter(|value| value.is_infinite()).count();
        values.iter_mut().filter(|value| value.is_infinite()).for_each(|value| *value = f64::NAN);
        Some(Self { metrics, times: Some(times), labels: None, faults: None, missing, not_finite, values })
    }

    /// The rows of all `tables`, one table after the other in the order of their first times, with the metrics of all.
    /// `None` if there is no table, or one without times, so that their order is unknown.
    #[must_use]
    pub fn join(mut tables: Vec<Self>) -> Option<Self> {
        if tables.len() == 1 {
            return tables.pop();
        }
        let first = |table: &Self| table.times.as_deref().and_then(|times| times.first().copied());
        if tables.iter().any(|table| first(table).is_none()) {
            return None;
        }
        tables.sort_by(|a, b| first(a).unwrap_or_default().total_cmp(&first(b).unwrap_or_default()));
        let mut metrics: Vec<String> = Vec::new();
        let mut places: HashMap<String, usize> = HashMap::new();
        for name in tables.iter().flat_map(|table| &table.metrics) {
            places.entry(name.clone()).or_insert_with(|| {
                metrics.push(name.clone());
                metrics.len() - 1
            });
        }
        let (labelled, named) =
            (tables.iter().any(|table| table.labels.is_some()), tables.iter().any(|table| table.faults.is_some()));
        let mut out = Self {
            times: Some(Vec::new()),
            labels: labelled.then(Vec::new),
            faults: named.then(Vec::new),
            missing: 0,
            not_finite: 0,
            values: Vec::new(),
            metrics,
        };
        for table in &tables {
            out.append(table, &places);
        }
        Some(out)
    }

    fn append(&mut self, table: &Self, places: &HashMap<String, usize>) {
        let rows = table.rows().len();
        for row in table.rows() {
            let start = self.values.len();
            self.values.resize(start + self.metrics.len(), f64::NAN);
            for (name, value) in table.metrics.iter().zip(row) {
                self.values[start + places[name]] = *value;
            }
        }
        self.times.get_or_insert_default().extend(table.times.iter().flatten());
        if let Some(labels) = &mut self.labels {
            let own = table.labels.clone().unwrap_or_else(|| vec![Label::Normal; rows]);
            labels.extend(own);
        }
        if let Some(faults) = &mut self.faults {
            faults.extend(table.faults.clone().unwrap_or_else(|| vec![String::new(); rows]));
        }
        self.missing += table.missing;
        self.not_finite += table.not_finite;
    }

    /// The median step of time that goes forward, in seconds; `None` without times, or if none does.
    #[must_use]
    pub fn interval(&self) -> Option<f64> {
        let steps = self.times.as_deref()?.windows(2).map(|pair| pair[1] - pair[0]);
        let mut steps: Vec<f64> = steps.filter(|step| *step > 0.0).collect();
        steps.sort_by(f64::total_cmp);
        steps.get(steps.len() / 2).copied()
    }
}

/// Whether a row follows another that is `step` seconds older, where rows come every `interval` seconds; else there is
/// a gap between them.
#[must_use]
pub fn follows(step: f64, interval: f64) -> bool {
    step > 0.0 && step <= GAP_INTERVALS * interval
}

/// Why a file is not a table of metrics.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TableError {
    /// The file is missing, or not readable.
    #[error("{} cannot be opened", .path.display())]
    Open {
        /// Path of the file.
        path: PathBuf,
        /// The error of the system.
        #[source]
        cause: io::Error,
    },
    /// A damaged archive, or a disk error.
    #[error("the file cannot be read to its end")]
    Read(#[source] io::Error),
    /// The file is not text.
    #[error("line {line} is not text in UTF-8")]
    Text {
        /// Counted from 1, the header included.
        line: usize,
    },
    /// The CSV reader reported an error.
    #[error("the file cannot be read as CSV")]
    Csv(#[from] csv::Error),
    /// The file is empty.
    #[error("the file is empty: its first line has to name the columns")]
    Empty,
    /// Data where names should be.
    #[error("the first line has to name the columns, but all its cells are numbers: {0}")]
    NoHeader(String),
    /// Cells are separated by something else than commas.
    #[error("the first line is one cell with `{0}` in it: cells have to be separated by commas")]
    Separator(char),
    /// A column without a name.
    #[error("column {0} has no name")]
    Unnamed(usize),
    /// Two columns of one name.
    #[error("columns {first} and {second} are both called `{name}`")]
    Twice {
        /// The name of both columns.
        name: String,
        /// The first of them, from 1.
        first: usize,
        /// The second of them, from 1.
        second: usize,
    },
    /// There are only the columns time, label and fault.
    #[error("no column is a metric: `{TIME}`, `{LABEL}` and `{FAULT}` do not count")]
    NoMetric,
    /// The file has only a header.
    #[error("there are no rows after the header")]
    NoRows,
    /// A line with more or fewer cells than the first.
    #[error("line {line} has {found} cells, the first line has {expected}")]
    Ragged {
        /// Counted from 1, the header included.
        line: usize,
        /// Cells in the line.
        found: usize,
        /// Cells in the header.
        expected: usize,
    },
    /// A cell that cannot be read.
    #[error("line {line}, column {column} (`{name}`): `{cell}` is not {expected}")]
    Cell {
        /// Counted from 1, the header included.
        line: usize,
        /// Counted from 1.
        column: usize,
        /// The column's name.
        name: String,
        /// What is there, shortened.
        cell: String,
        /// What should be there.
        expected: &'static str,
    },
    /// Parquet, damaged or packed in a way that is not read.
    #[error("the file cannot be read as Parquet")]
    #[cfg(feature = "parquet")]
    Parquet(#[from] ParquetError),
    /// A Parquet file, and a build that does not read them.
    #[error("this is a Parquet file, which this build does not read")]
    NoParquet,
    /// A structure, list or map.
    #[error("column `{0}` holds more than one value in a row")]
    Nested(String),
    /// A value of a Parquet file that is of no use.
    #[error("row {row}, column `{name}`: `{cell}` is not {expected}")]
    Value {
        /// Counted from 1.
        row: usize,
        /// The column's name.
        name: String,
        /// What is there, shortened.
        cell: String,
        /// What should be there.
        expected: &'static str,
    },
    /// The file is too large.
    #[error("the file has more than {} MiB of text or numbers", MAX_BYTES >> 20)]
    TooLarge,
}

impl TableError {
    /// A remedy, for the user.
    #[must_use]
    pub fn advice(&self) -> &'static str {
        match self {
            Self::Open { .. } => "is the path right, and may you read it?",
            Self::Read(_) => "is the file complete? `gzip -t FILE` tests an archive",
            Self::Text { .. } | Self::Csv(_) => {
                "is this a CSV file? An archive other than gzip has to be unpacked first"
            }
            Self::Empty | Self::NoHeader(_) | Self::Unnamed(_) | Self::Twice { .. } => {
                "a first line with one name per column, each once"
            }
            Self::Separator(_) => "commas, and points in numbers",
            Self::NoMetric | Self::NoRows => "is this the file that you meant? `uview replay --help` tells the format",
            Self::Ragged { .. } => "is the line cut off, or a cell with a comma in it not in quotes?",
            Self::Cell { .. } => "a number with a point, or an empty cell if the value is missing",
            Self::NoParquet => "`cargo build --release` builds a `uview` that reads Parquet",
            #[cfg(feature = "parquet")]
            Self::Parquet(_) => {
                "is it complete? Packed with snappy, lz4 or nothing it is read: `compression='snappy'` in pandas, DuckDB and Polars"
            }
            Self::Nested(_) => "only columns of numbers: leave others out when the file is written",
            Self::Value { .. } => {
                "columns of numbers, `time` in seconds or as a timestamp, `label` 0, 1 or 2, `fault` a name"
            }
            Self::TooLarge => "cut the file in parts: --save-model with the first, --model with the next",
        }
    }
}

/// The first and last bytes of a Parquet file.
const PARQUET_MAGIC: &[u8] = b"PAR1";

/// The role of a column in a file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Metric,
    Time,
    Label,
    Fault,
}

/// Reads a file; gzip and Parquet are recognised by their first bytes, not by their names.
///
/// # Errors
///
/// [`TableError`] with line and column where it has one.
pub fn open(path: &Path) -> Result<Table, TableError> {
    let broken = |cause| TableError::Open { path: path.to_owned(), cause };
    let mut file = BufReader::new(File::open(path).map_err(broken)?);
    let first = file.fill_buf().map_err(broken)?;
    let (compressed, is_parquet) = (first.starts_with(&[0x1f, 0x8b]), first.starts_with(PARQUET_MAGIC));
    if is_parquet {
        #[cfg(feature = "parquet")]
        return parquet::read(file.into_inner());
        #[cfg(not(feature = "parquet"))]
        return Err(TableError::NoParquet);
    }
    if compressed { read(MultiGzDecoder::new(file)) } else { read(file) }
}

/// Reads a table from text.
///
/// # Errors
///
/// [`TableError`] with line and column where it has one.
pub fn read(file: impl Read) -> Result<Table, TableError> {
    let mut bytes = Vec::new();
    let read = file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(TableError::Read)?;
    if read as u64 > MAX_BYTES {
        return Err(TableError::TooLarge);
    }
    let text = std::str::from_utf8(&bytes).map_err(|e| TableError::Text { line: line_at(&bytes, e.valid_up_to()) })?;
    let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(text.as_bytes());
    let names: Vec<String> =
        reader.headers()?.iter().map(|name| name.trim_matches(['\u{feff}', ' ']).to_owned()).collect();
    let roles = roles(&names)?;
    let mut table = Table::empty(&names, &roles);
    let mut record = StringRecord::new();
    while reader.read_record(&mut record)? {
        let line = || line_at(&bytes, record.position().map_or(0, |position| position.byte() as usize));
        if record.len() != names.len() {
            return Err(TableError::Ragged { line: line(), found: record.len(), expected: names.len() });
        }
        for (column, (cell, role)) in record.iter().zip(&roles).enumerate() {
            let refused = |expected| TableError::Cell {
                line: line(),
                column: column + 1,
                name: names[column].clone(),
                cell: shortened(cell),
                expected,
            };
            table.take(cell.trim(), *role).map_err(refused)?;
        }
    }
    if table.values.is_empty() { Err(TableError::NoRows) } else { Ok(table) }
}

/// The line, from 1, of the first byte from `offset` on that is not the end of a line. The CSV reader knows where a
/// record begins only but for empty lines and halves of line ends before it.
fn line_at(text: &[u8], offset: usize) -> usize {
    let (before, after) = text.split_at(offset.min(text.len()));
    let ends = after.iter().take_while(|byte| b"\r\n".contains(byte));
    1 + before.iter().chain(ends).filter(|byte| **byte == b'\n').count()
}

impl Table {
    fn empty(names: &[String], roles: &[Role]) -> Self {
        let has = |role: Role| roles.contains(&role);
        let metrics = names.iter().zip(roles).filter(|(_, role)| **role == Role::Metric).map(|(name, _)| name.clone());
        Self {
            metrics: metrics.collect(),
            times: has(Role::Time).then(Vec::new),
            labels: has(Role::Label).then(Vec::new),
            faults: has(Role::Fault).then(Vec::new),
            missing: 0,
            not_finite: 0,
            values: Vec::new(),
        }
    }

    /// Takes the next cell of a row, or says what it should have been.
    fn take(&mut self, cell: &str, role: Role) -> Result<(), &'static str> {
        match role {
            Role::Metric if cell.is_empty() => {
                self.missing += 1;
                self.values.push(f64::NAN);
            }
            Role::Metric => {
                let value: f64 = cell.parse().map_err(|_| "a number")?;
                self.not_finite += usize::from(!value.is_finite());
                self.values.push(if value.is_finite() { value } else { f64::NAN });
            }
            Role::Time => {
                let seconds = cell.parse().ok().filter(|seconds: &f64| seconds.is_finite());
                self.times.get_or_insert_default().push(seconds.ok_or("a time in seconds")?);
            }
            Role::Label => self.labels.get_or_insert_default().push(match cell {
                "" | "0" => Label::Normal,
                "1" => Label::Anomalous,
                "2" => Label::Ignored,
                _ => return Err("a label (0 normal, 1 anomalous, 2 does not count)"),
            }),
            Role::Fault => self.faults.get_or_insert_default().push(cell.to_owned()),
        }
        Ok(())
    }
}

fn roles(names: &[String]) -> Result<Vec<Role>, TableError> {
    if names.is_empty() || (names.len() == 1 && names[0].is_empty()) {
        return Err(TableError::Empty);
    }
    if let [only] = names
        && let Some(separator) = only.chars().find(|c| [';', '\t', '|'].contains(c))
    {
        return Err(TableError::Separator(separator));
    }
    if names.iter().all(|name| name.parse::<f64>().is_ok()) {
        return Err(TableError::NoHeader(shortened(&names.join(","))));
    }
    let mut seen = HashMap::new();
    for (column, name) in names.iter().enumerate() {
        if name.is_empty() {
            return Err(TableError::Unnamed(column + 1));
        }
        if let Some(first) = seen.insert(name, column + 1) {
            return Err(TableError::Twice { name: shortened(name), first, second: column + 1 });
        }
    }
    let role = |name: &String| match name.as_str() {
        TIME => Role::Time,
        LABEL => Role::Label,
        FAULT => Role::Fault,
        _ => Role::Metric,
    };
    let roles: Vec<Role> = names.iter().map(role).collect();
    if roles.contains(&Role::Metric) { Ok(roles) } else { Err(TableError::NoMetric) }
}

/// A text from a file, safe to print: no control characters, and not the whole file if a quote is missing.
fn shortened(text: &str) -> String {
    let mut shown: String = text.chars().take(40).flat_map(char::escape_debug).collect();
    if text.chars().nth(40).is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
