//! `uview eval`: detectors side by side on labelled data. Files and threads are here, what is measured is in `evaluation`.

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

const LONG_ABOUT: &str = "\
Trains detectors on healthy rows, lets them judge labelled ones, and says how well they did.

DATA is a folder of units, or a folder of such folders. A unit is what one LMAP watches: UNIT.train.csv and
UNIT.test.csv, gzip'd (.csv.gz) or not. The first line names the columns; every other column than these is a metric:
  time   seconds; a step of more than 1.5 intervals is a gap
  label  0 normal, 1 anomalous, 2 does not count; in test files
  fault  the kind of fault, a text
An empty cell is a missing value. Beside the units there may be
  columns.csv         metric,kind,group: what is a counter (cumulative), a gauge, a level
  interpretation.csv  unit,first_row,end_row,metrics: which metrics are responsible for which test rows

Detectors: lmap (the default), lmap-paper (as the paper has it), pca (static principal components), max-z (the largest
deviation), rcf (Random Cut Forest). All learn the same training rows and judge every test row once, in order; nothing is
chosen by labels, except for the thresholds of `best F1` and `composite F1`, which are hindsight.";

/// Arguments of `uview eval`.
#[derive(Clone, Debug, clap::Args)]
#[command(long_about = LONG_ABOUT)]
pub struct EvalArgs {
    /// The folder of labelled data
    data: PathBuf,
    /// Write set → detector → figures as JSON; `-` prints it instead of the table
    #[arg(long, value_name = "FILE", conflicts_with = "study")]
    json: Option<PathBuf>,
    /// Compare ours with itself instead, as a table in Markdown
    #[arg(long, value_name = "WHICH")]
    study: Option<Study>,
}

/// Evaluates and reports.
///
/// # Errors
///
/// [`Failure`] with file, line and column where the data has a mistake.
pub fn run(args: &EvalArgs) -> Result<Exit, Failure> {
    let what = format!("evaluate on {}", args.data.display());
    let refused = |error: &data_set::DataError| Failure::to(what.as_str()).caused_by(error).advice(error.advice());
    let sets = data_set::open(&args.data).map_err(|error| refused(&error))?;
    if let Some(study) = args.study {
        let table = studies::run(study, &sets).map_err(|error| error.told(&what))?;
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
    .map_err(|error| error.told(&what))?;
    let report = Report::new(&sets, &outcomes);
    tell_what_was_left_out(&sets, &report);
    if report.is_empty() {
        let failure = Failure::to(what).because("no test row is labelled 1 (anomalous): there is nothing to find");
        return Err(failure.advice("test files whose column `label` marks the rows of faults with 1"));
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

fn tell_what_was_left_out(sets: &[DataSet], report: &Report) {
    for set in sets.iter().filter(|set| !report.has(&set.name)) {
        output::tell(&format!("uview: {} is left out: none of its test rows is labelled 1", set.name));
    }
}
