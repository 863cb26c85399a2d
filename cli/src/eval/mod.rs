//! `uview eval`: compares detectors on labelled data. Files and threads are here, the measures are in `evaluation`.

pub mod report;
pub mod studies;
pub mod work;

use std::path::{Path, PathBuf};

use evaluation::candidate::Kind;
use evaluation::data_set::{self, DataSet};
use evaluation::protocol::Outcome;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{self, json};
use report::Report;
use studies::Study;

/// The long help of the subcommand.
pub(crate) const LONG_ABOUT: &str = "\
Trains detectors on healthy rows, runs them on labelled rows, and reports how well they did.

DATA is a folder of units, or a folder of such folders. A unit is what one LMAP watches: UNIT.train.csv and UNIT.test.csv
(also .csv.gz). The first line has the column names. Each column is a metric, except for
  time   seconds; a step of more than 1.5 intervals is a gap
  label  0 normal, 1 anomalous, 2 ignored; in test files
  fault  the kind of fault, as text
An empty cell is a missing value. Optional files beside the units:
  columns.csv         metric,kind,group: kind is counter (cumulative), gauge or level
  interpretation.csv  unit,first_row,end_row,metrics: the metrics that are responsible for these test rows

Detectors: lmap (the default), lmap-paper (as the paper has it), pca (static principal components), max-z (the largest
deviation), rcf (Random Cut Forest). All train on the same rows and score every test row once, in order. Labels choose
nothing but the thresholds of `best F1` and `composite F1`, which are hindsight.";

/// Arguments of `uview eval`.
#[derive(Clone, Debug, clap::Args)]
pub struct EvalArgs {
    /// Folder of labelled data
    data: PathBuf,
    /// Write the figures by set and detector as JSON; `-` prints it instead of the table
    #[arg(long, value_name = "FILE", conflicts_with = "study")]
    json: Option<PathBuf>,
    /// Compare variants of uview's detector instead, as a Markdown table
    #[arg(long, value_name = "STUDY")]
    study: Option<Study>,
}

/// Evaluates the detectors and prints the report.
///
/// # Errors
///
/// [`Failure`] with file, line and column of a mistake in the data, or if no test row is labelled as a fault.
pub fn run(args: &EvalArgs) -> Result<Exit, Failure> {
    let what = format!("evaluate on {}", args.data.display());
    let refused = |error: &data_set::DataError| Failure::to(what.as_str()).caused_by(error).advice(error.advice());
    let sets = data_set::open(&args.data).map_err(|error| refused(&error))?;
    if let Some(study) = args.study {
        let table = studies::run(study, &sets).map_err(|error| error.to_failure(&what))?;
        output::print(&table)?;
        return Ok(Exit::Fine);
    }
    let outcomes = work::on_all_units(&sets, Kind::ALL.len() as u64, |unit, step| {
        Kind::ALL
            .iter()
            .map(|kind| {
                step(kind.name());
                let mut candidate = kind.train(unit).map_err(|error| work::untrained(kind.name(), unit, &error))?;
                Ok(Outcome::of(unit, &evaluation::protocol::run(candidate.as_mut(), unit)))
            })
            .collect::<Result<Vec<_>, _>>()
    })
    .map_err(|error| error.to_failure(&what))?;
    let report = Report::new(&sets, &outcomes);
    report_skipped_sets(&sets, &report);
    if report.is_empty() {
        let failure = Failure::to(what).because("no test row is labelled 1 (anomalous)");
        return Err(failure.advice("mark the rows of faults with 1 in the column `label` of the test files"));
    }
    if let Some(path) = args.json.as_deref().filter(|path| *path != Path::new("-")) {
        let refused = |error| Failure::to(format!("write the result {}", path.display())).caused_by(&error);
        std::fs::write(path, json(&report)?).map_err(refused)?;
    }
    if args.json.as_deref() == Some(Path::new("-")) {
        output::print(&json(&report)?)?;
    } else {
        output::print(&report.to_string())?;
    }
    Ok(Exit::Fine)
}

fn report_skipped_sets(sets: &[DataSet], report: &Report) {
    for set in sets.iter().filter(|set| !report.has(&set.name)) {
        output::print_stderr(&format!("uview: {} is skipped: none of its test rows is labelled 1", set.name));
    }
}
