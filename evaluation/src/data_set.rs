//! Folders of labelled data.
//!
//! A set is a folder of units. A unit is two files, `UNIT.train.csv` and `UNIT.test.csv`, gzip'd (`.csv.gz`) or not, in the format of
//! [`table`](mod@crate::table); the test file has a column `label`. Beside them, for all units: `columns.csv` (`metric,kind,group`) and
//! `interpretation.csv` (`unit,first_row,end_row,metrics`: the metrics, separated by spaces, that are responsible for test rows
//! from `first_row`, counted from 0, to before `end_row`). Both may be absent.

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

/// Why there is nothing to evaluate on.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DataError {
    /// Not there, or not readable.
    #[error("the folder {} cannot be read", .path.display())]
    Folder {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// Neither units nor folders with units.
    #[error("{} has no files UNIT.train.csv(.gz) and UNIT.test.csv(.gz), and no folder in it has", .path.display())]
    NoUnits {
        /// Which.
        path: PathBuf,
    },
    /// Half a unit.
    #[error("{} is there, but not {}", .found.display(), .missing.display())]
    Half {
        /// The file there.
        found: PathBuf,
        /// The file not there.
        missing: PathBuf,
    },
    /// A file of rows.
    #[error("{} is no table of metrics", .path.display())]
    Table {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        cause: TableError,
    },
    /// `columns.csv`.
    #[error("what the metrics are cannot be told")]
    Columns(#[from] ColumnsError),
    /// `interpretation.csv`.
    #[error("line {line} of {}: {problem}", .path.display())]
    Interpretation {
        /// Which.
        path: PathBuf,
        /// Counted from 1, the header included.
        line: u64,
        /// What is wrong with it.
        problem: String,
    },
    /// Two tables that do not go together.
    #[error("{} cannot be evaluated", .test.display())]
    Unit {
        /// The test file.
        test: PathBuf,
        /// Why.
        #[source]
        cause: UnitError,
    },
}

impl DataError {
    /// What the reader can do about it.
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
type Known = (Range<usize>, Vec<String>);

/// A folder of units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataSet {
    /// The folder's name.
    pub name: String,
    /// In the order of their names; never empty.
    pub units: Vec<UnitFiles>,
}

/// Where the files of one unit are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitFiles {
    /// The unit's name.
    pub name: String,
    train: PathBuf,
    test: PathBuf,
    columns: Option<PathBuf>,
    known: Vec<Known>,
}

/// The sets at `path`: the folder itself if it has units, else the folders in it that have, in the order of their names.
///
/// # Errors
///
/// [`DataError`] if there is none, half a unit, or an `interpretation.csv` that cannot be read. The tables are not opened yet.
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

/// What is in a folder, in the order of the names.
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

/// What is known of each unit's test rows.
fn interpretation(path: &Path) -> Result<HashMap<String, Vec<Known>>, DataError> {
    let wrong = |line, problem| DataError::Interpretation { path: path.to_owned(), line, problem };
    let broken = |error: csv::Error| wrong(error.position().map_or(1, csv::Position::line), error.to_string());
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_path(path).map_err(broken)?;
    if reader.headers().map_err(broken)?.iter().ne(HEADER) {
        return Err(wrong(1, format!("the first line has to be `{}`", HEADER.join(","))));
    }
    let mut known: HashMap<String, Vec<Known>> = HashMap::new();
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
    /// Reads the files and makes them ready.
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
        assert!(half.contains("u.train.csv is there, but not") && half.contains("u.test.csv"), "{half}");
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
