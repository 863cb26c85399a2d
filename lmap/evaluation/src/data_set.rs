//! Reads folders of labelled data. A set is a folder of units:
//!
//! | file | content |
//! | --- | --- |
//! | `UNIT.train.csv`, `UNIT.test.csv` (or `.csv.gz`) | rows ([`table`](mod@crate::table)); test rows have a `label` |
//! | `columns.csv` (optional, for all units) | lines `metric,kind,group` |
//! | `interpretation.csv` (optional, for all units) | lines `unit,first_row,end_row,metrics` |
//!
//! A line of `interpretation.csv` names the metrics, separated by spaces, that are responsible for the test rows from
//! `first_row` (counted from 0) to before `end_row`.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::columns::{Columns, ColumnsError};
use crate::table::{self, TableError};
use crate::unit::{Unit, UnitError};

const COLUMNS: &str = "columns.csv";
const INTERPRETATION: &str = "interpretation.csv";
const HEADER: [&str; 4] = ["unit", "first_row", "end_row", "metrics"];

/// Why data sets cannot be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DataError {
    /// The folder is missing, or not readable.
    #[error("the folder {} cannot be read", .path.display())]
    Folder {
        /// Path of the folder.
        path: PathBuf,
        /// The error of the system.
        #[source]
        cause: io::Error,
    },
    /// No units, and no folders with units.
    #[error("{} has no files UNIT.train.csv(.gz) and UNIT.test.csv(.gz), and no folder in it has", .path.display())]
    NoUnits {
        /// Path of the folder.
        path: PathBuf,
    },
    /// One of the two files of a unit is missing.
    #[error("{} exists, but not {}", .found.display(), .missing.display())]
    Half {
        /// The file that exists.
        found: PathBuf,
        /// The missing file.
        missing: PathBuf,
    },
    /// A file of rows cannot be read.
    #[error("{} is not a table of metrics", .path.display())]
    Table {
        /// Path of the file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        cause: TableError,
    },
    /// `columns.csv` cannot be read.
    #[error("cannot read the kinds of the metrics")]
    Columns(#[from] ColumnsError),
    /// `interpretation.csv` cannot be read.
    #[error("line {line} of {}: {problem}", .path.display())]
    Interpretation {
        /// Path of the file.
        path: PathBuf,
        /// Counted from 1, the header included.
        line: u64,
        /// What is wrong with it.
        problem: String,
    },
    /// The two tables do not match.
    #[error("{} cannot be evaluated", .test.display())]
    Unit {
        /// The test file.
        test: PathBuf,
        /// Why the two files are not a unit.
        #[source]
        cause: UnitError,
    },
}

impl DataError {
    /// A remedy, for the user.
    #[must_use]
    pub fn advice(&self) -> String {
        match self {
            Self::Folder { .. } => "is the path right, and may you read it?".to_owned(),
            Self::NoUnits { .. } | Self::Half { .. } => {
                "for each service two files, its name with `.train.csv` and `.test.csv`; `.gz` after it is fine"
                    .to_owned()
            }
            Self::Table { cause, .. } => cause.advice().to_owned(),
            Self::Columns(_) => {
                "lines like `http.requests,counter,service`, or no such file: all are gauges then".to_owned()
            }
            Self::Interpretation { .. } => {
                format!("lines like `machine-1,246,252,m1 m2` under `{}`, or no such file", HEADER.join(","))
            }
            Self::Unit { cause: UnitError::NoLabels, .. } => {
                "a column `label` in the test file: 0 normal, 1 anomalous, 2 does not count".to_owned()
            }
            Self::Unit { cause: UnitError::Segment { .. }, .. } => {
                format!("test rows in {INTERPRETATION} are counted from 0; `end_row` is the row after the last")
            }
            Self::Unit { .. } => "the same metrics in both files, with few empty cells".to_owned(),
        }
    }
}

/// Test rows and the names of the metrics responsible for them.
type LabelledRows = (Range<usize>, Vec<String>);

/// A folder of units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataSet {
    /// The folder's name.
    pub name: String,
    /// The units, by name; never empty.
    pub units: Vec<UnitFiles>,
}

/// The files of one unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitFiles {
    /// The unit's name.
    pub name: String,
    train: PathBuf,
    test: PathBuf,
    columns: Option<PathBuf>,
    known: Vec<LabelledRows>,
}

/// The sets at `path`: the folder itself if it has units, otherwise its subfolders with units, by name.
///
/// # Errors
///
/// [`DataError`] if there are no units, a file of a unit is missing, or `interpretation.csv` cannot be read. The tables
/// are not opened yet.
pub fn open(path: &Path) -> Result<Vec<DataSet>, DataError> {
    if let Some(set) = set(path)? {
        return Ok(vec![set]);
    }
    let mut sets = Vec::new();
    for folder in entries(path)?.into_iter().filter(|entry| entry.is_dir()) {
        sets.extend(set(&folder)?);
    }
    if sets.is_empty() { Err(DataError::NoUnits { path: path.to_owned() }) } else { Ok(sets) }
}

/// The entries of a folder, by name.
fn entries(path: &Path) -> Result<Vec<PathBuf>, DataError> {
    let refused = |cause| DataError::Folder { path: path.to_owned(), cause };
    let found = fs::read_dir(path).map_err(refused)?;
    let mut found: Vec<PathBuf> =
        found.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>().map_err(refused)?;
    found.sort();
    Ok(found)
}

/// The set in a folder, `None` if it has no unit.
fn set(folder: &Path) -> Result<Option<DataSet>, DataError> {
    let files = entries(folder)?;
    let beside = |name: &str| Some(folder.join(name)).filter(|path| files.contains(path));
    let (trains, tests) = (halves(&files, "train"), halves(&files, "test"));
    let alone = tests.iter().find(|(name, _)| !trains.iter().any(|(other, _)| other == name));
    if let Some((name, found)) = alone {
        return Err(DataError::Half { found: found.clone(), missing: folder.join(format!("{name}.train.csv")) });
    }
    if trains.is_empty() {
        return Ok(None);
    }
    let columns = beside(COLUMNS);
    let mut known = beside(INTERPRETATION).map(|path| interpretation(&path)).transpose()?.unwrap_or_default();
    let unit = |(name, train): (String, PathBuf)| {
        let Some((_, test)) = tests.iter().find(|(other, _)| *other == name) else {
            return Err(DataError::Half { found: train, missing: folder.join(format!("{name}.test.csv")) });
        };
        let known = known.remove(&name).unwrap_or_default();
        Ok(UnitFiles { test: test.clone(), columns: columns.clone(), train, known, name })
    };
    let units = trains.into_iter().map(unit).collect::<Result<Vec<_>, _>>()?;
    let absolute = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let name = absolute.file_name().map_or_else(|| "data".to_owned(), |name| name.to_string_lossy().into_owned());
    Ok(Some(DataSet { name, units }))
}

/// Files called `UNIT.half.csv` or `UNIT.half.csv.gz`, with their unit.
fn halves(files: &[PathBuf], half: &str) -> Vec<(String, PathBuf)> {
    let unit = |path: &PathBuf| {
        let name = path.file_name()?.to_str()?;
        let name = name.strip_suffix(".gz").unwrap_or(name).strip_suffix(".csv")?;
        let unit = name.strip_suffix(half)?.strip_suffix('.').filter(|unit| !unit.is_empty())?;
        Some((unit.to_owned(), path.clone()))
    };
    files.iter().filter_map(unit).collect()
}

/// The responsible metrics of test rows, by unit.
fn interpretation(path: &Path) -> Result<HashMap<String, Vec<LabelledRows>>, DataError> {
    let wrong = |line, problem| DataError::Interpretation { path: path.to_owned(), line, problem };
    let broken = |error: csv::Error| wrong(error.position().map_or(1, csv::Position::line), error.to_string());
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_path(path).map_err(broken)?;
    if reader.headers().map_err(broken)?.iter().ne(HEADER) {
        return Err(wrong(1, format!("the first line has to be `{}`", HEADER.join(","))));
    }
    let mut known: HashMap<String, Vec<LabelledRows>> = HashMap::new();
    for record in reader.records() {
        let record = record.map_err(broken)?;
        let line = record.position().map_or(0, csv::Position::line);
        let row = |cell: usize| {
            let text = &record[cell];
            let shown = || text.chars().take(40).flat_map(char::escape_debug).collect::<String>();
            text.parse::<usize>().map_err(|_| wrong(line, format!("column {}: `{}` is not a row", cell + 1, shown())))
        };
        let rows = row(1)?..row(2)?;
        let metrics = record[3].split_whitespace().map(str::to_owned).collect();
        known.entry(record[0].to_owned()).or_default().push((rows, metrics));
    }
    Ok(known)
}

impl UnitFiles {
    /// Reads the files of the unit.
    ///
    /// # Errors
    ///
    /// [`DataError`] with file, line and column where it has them.
    pub fn load(&self) -> Result<Unit, DataError> {
        let table = |path: &PathBuf| table::open(path).map_err(|cause| DataError::Table { path: path.clone(), cause });
        let (train, test) = (table(&self.train)?, table(&self.test)?);
        let unnamed = |_: &str| 0;
        let columns = match &self.columns {
            Some(path) => Columns::open(path, &train.metrics, unnamed)?,
            None => Columns::gauges(&train.metrics, unnamed),
        };
        Unit::new(self.name.clone(), (&train, &test), &columns, &self.known)
            .map_err(|cause| DataError::Unit { test: self.test.clone(), cause })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRAIN: &str = "a,b\n1,2\n2,3\n3,1\n";
    const TEST: &str = "a,b,label,fault\n1,2,0,\n9,2,1,x\n";

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        folder
    }

    #[track_caller]
    fn refused(files: &[(&str, &str)]) -> String {
        let folder = folder(files);
        let loaded = open(folder.path()).and_then(|sets| sets[0].units[0].load());
        let error = loaded.unwrap_err();
        assert!(!error.advice().is_empty());
        let mut text = error.to_string();
        let mut next = std::error::Error::source(&error);
        while let Some(error) = next {
            text = format!("{text}: {error}");
            next = error.source();
        }
        text
    }

    #[test]
    fn a_folder_is_a_set_or_a_folder_of_sets() {
        let nested = folder(&[
            ("y/u.train.csv", TRAIN),
            ("y/u.test.csv", TEST),
            ("x/readme", ""),
            ("w/v.train.csv", TRAIN),
            ("w/v.test.csv", TEST),
        ]);

        let all = open(nested.path()).unwrap();
        let one = open(&nested.path().join("y")).unwrap();

        assert_eq!(all.iter().map(|set| set.name.as_str()).collect::<Vec<_>>(), ["w", "y"]);
        assert_eq!(one[0], all[1]);
        assert_eq!(one[0].units[0].load().unwrap().events(), [(1, 2)]);
    }

    #[test]
    fn what_experts_say_belongs_to_its_unit() {
        let text = "unit,first_row,end_row,metrics\nu,1,2,b a z\nother,0,1,a\n";
        let folder = folder(&[("u.train.csv", TRAIN), ("u.test.csv", TEST), (INTERPRETATION, text)]);

        let unit = open(folder.path()).unwrap()[0].units[0].load().unwrap();

        assert_eq!((unit.segments[0].rows.clone(), &unit.segments[0].responsible[..]), (1..2, &[0, 1][..]));
        assert_eq!(unit.segments.len(), 1);
    }

    #[test]
    fn what_is_wrong_is_named_with_file_line_and_column() {
        let bad = refused(&[("u.train.csv", "a,b\n1,2\n1,x\n"), ("u.test.csv", TEST)]);
        assert!(bad.contains("u.train.csv") && bad.contains("line 3, column 2 (`b`)"), "{bad}");
        let unlabelled = refused(&[("u.train.csv", TRAIN), ("u.test.csv", TRAIN)]);
        assert!(unlabelled.contains("u.test.csv") && unlabelled.contains("no column `label`"), "{unlabelled}");
        let half = refused(&[("u.train.csv", TRAIN)]);
        assert!(half.contains("u.train.csv exists, but not") && half.contains("u.test.csv"), "{half}");
        assert!(refused(&[("u.test.csv", TEST)]).contains("u.train.csv"));
        let text = "unit,first_row,end_row,metrics\nu,one,2,a\n";
        let known = refused(&[("u.train.csv", TRAIN), ("u.test.csv", TEST), (INTERPRETATION, text)]);
        assert!(known.contains("line 2") && known.contains("column 2: `one`"), "{known}");
    }

    #[test]
    fn a_folder_without_units_is_refused() {
        let empty = folder(&[("x/readme", "")]);

        assert!(matches!(open(empty.path()), Err(DataError::NoUnits { .. })));
        assert!(matches!(open(&empty.path().join("nowhere")), Err(DataError::Folder { .. })));
    }
}
