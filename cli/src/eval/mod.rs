//! `uview eval`: compares detectors on labelled data. Files and threads are here, the measures are in `evaluation`.

pub mod held_out;
pub mod report;
pub mod studies;
pub mod work;

use std::path::{Path, PathBuf};

use evaluation::candidate::Kind;
use evaluation::data_set::{self, DataSet};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{self, json};
use held_out::Basis;
use report::Report;
use studies::Study;

/// The long help of the subcommand.
pub(crate) const LONG_ABOUT: &str = "\
Trains detectors on healthy rows, runs them on labelled rows, and reports how well they did.

DATA is a folder of units, or a folder of such folders. A unit is what one LMAP watches: UNIT.train.csv and
UNIT.test.csv (also .csv.gz). The first line has the column names. Each column is a metric, except for
  time   seconds; a step of more than 1.5 intervals is a gap
  label  0 normal, 1 anomalous, 2 ignored; in test files
  fault  the kind of fault, as text
An empty cell is a missing value. Optional files beside the units:
  columns.csv         metric,kind,group: kind is counter (cumulative), gauge or level
  interpretation.csv  unit,first_row,end_row,metrics: the metrics that are responsible for these test rows

Detectors: lmap (ours), lmap-paper (as the paper has it), pca (static principal components), max-z (the largest
deviation), norm-z (the norm of all deviations), rcf (Random Cut Forest). NAME+prepared is the same over rows prepared
as lmap's are, with its score smoothed. All train on the same rows and score every test row once, in order. Labels
choose nothing but the thresholds of `best F1` and `composite F1`, which are hindsight.

With --folds, labels choose settings too, for lmap and for each NAME+prepared (for rcf+prepared those of lmap), though
never those by which the same rows are judged: units are dealt to K folds by service (what stands before the last `_`
of a unit's name), a set of one service is cut into K blocks of time, and the rows of each fold are judged by settings
chosen on the others.";

/// Arguments of `uview eval`.
#[derive(Clone, Debug, clap::Args)]
pub struct EvalArgs {
    /// Folder of labelled data
    data: PathBuf,
    /// Write the figures by set and detector as JSON; `-` prints it instead of the table
    #[arg(long, value_name = "FILE", conflicts_with = "study")]
    json: Option<PathBuf>,
    /// Compare variants of uview's detector instead, as Markdown tables
    #[arg(long, value_name = "STUDY", value_delimiter = ',')]
    study: Vec<Study>,
    /// Judge each of K folds by settings chosen on the others, not by the default
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u8).range(2..=50))]
    folds: Option<u8>,
}

/// Evaluates the detectors and prints the report.
///
/// # Errors
///
/// [`Failure`] with file, line and column of a mistake in the data, or if no test row is labelled as a fault.
pub fn run(args: &EvalArgs) -> Result<Exit, Failure> {
    let what = format!("evaluate on {}", args.data.display());
    let refused = |error: &data_set::DataError| Failure::to(what.as_str()).caused_by(error).advice(error.advice());
    let untrained = |error: work::WorkError| error.to_failure(&what);
    let sets = data_set::open(&args.data).map_err(|error| refused(&error))?;
    let kinds = Kind::ALL.into_iter().filter(|kind| kind.takes_settings() && !kind.is_slow());
    let kinds: Vec<Kind> = kinds.filter(|kind| args.study.is_empty() || *kind == Kind::Lmap).collect();
    let basis = Basis::new(&sets, &kinds, args.folds.map(usize::from)).map_err(untrained)?;
    if args.json.as_deref() != Some(Path::new("-")) {
        output::print(&basis.tables())?;
    }
    for study in &args.study {
        output::print(&studies::run(*study, &sets, &basis).map_err(untrained)?)?;
    }
    if args.study.is_empty() {
        let report = Report::run(&sets, &basis).map_err(untrained)?;
        report_skipped_sets(&sets, &report);
        if report.is_empty() {
            let failure = Failure::to(what).because("no test row is labelled 1 (anomalous)");
            return Err(failure.advice("mark the rows of faults with 1 in the column `label` of the test files"));
        }
        show(args, &report)?;
    }
    Ok(Exit::Fine)
}

fn show(args: &EvalArgs, report: &Report) -> Result<(), Failure> {
    match args.json.as_deref() {
        Some(path) if path == Path::new("-") => return output::print(&json(report)?),
        Some(path) => {
            let refused = |error| Failure::to(format!("write the result {}", path.display())).caused_by(&error);
            std::fs::write(path, json(report)?).map_err(refused)?;
        }
        None => {}
    }
    output::print(&report.to_string())
}

fn report_skipped_sets(sets: &[DataSet], report: &Report) {
    for set in sets.iter().filter(|set| !report.has(&set.name)) {
        output::print_stderr(&format!("uview: {} is skipped: none of its test rows is labelled 1", set.name));
    }
}
