//! `uview replay`: a file of metrics through an LMAP. Says what it would have said, had it been there.

pub mod course;
pub mod judge;
pub mod plot;
pub mod policy;
pub mod report;
pub mod rules;
pub mod sampling;

use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};

use indicatif::{ProgressBar, ProgressStyle};
use lmap::Detector;
use ratatui::crossterm::terminal;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::input::{self, Input};
use crate::model;
use crate::output::{self, json};
use evaluation::columns::Columns;
use evaluation::table::Table;
use judge::Judgement;
use report::Replay;
use rules::Rules;
use sampling::Curves;

/// A given interval and the steps of `time` that are further apart than this contradict each other.
const MOST_APART: f64 = 2.0;

/// Decides which rows above γ are learnt; always the same, so that a replay can be repeated.
const SEED: u64 = 1;

/// What a policy says itself.
const POLICY_DECIDES: [&str; 11] = [
    "model",
    "save_model",
    "plot",
    "sampling",
    "sampling_plot",
    "form",
    "settings",
    "rank",
    "sketch_rows",
    "percentile",
    "learning_rate",
];

const LONG_ABOUT: &str = "\
Puts a file of metrics through an LMAP, row by row, and says what it says.

The file is a recording of `uview record`, CSV, gzip'd or not, or Parquet. A CSV's first line names the columns; every other column than these is a metric:
  time   seconds; a step of more than 1.5 intervals is a gap
  label  0 normal, 1 anomalous, 2 does not count
  fault  the kind of fault, a text
An empty cell is a missing value. Without --model the LMAP arms itself on the first 140 rows, which should be healthy (120 of them
learnt). It judges as the NIC agent would have, which knows that a gauge is a state: where rates come as gauges, take --settings library.

With --policy the rows are judged by each of several named sets of settings, and a table says what each would have caught and cost.";

/// Arguments of `uview replay`.
#[derive(Clone, Debug, clap::Args)]
#[command(long_about = LONG_ABOUT)]
pub struct ReplayArgs {
    /// The file of metrics
    file: PathBuf,
    /// Time between two rows of a file without `time`, or what its steps are [default: the median step of `time`, else 1000]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    interval_ms: Option<u64>,
    /// What the metrics are: CSV with `metric,kind,group`, kind is counter, gauge or level [default: all gauges]
    #[arg(long, value_name = "FILE")]
    columns: Option<PathBuf>,
    /// Start armed, with a model from --save-model
    #[arg(long, value_name = "FILE")]
    model: Option<PathBuf>,
    /// Write the model as it is after the last row
    #[arg(long, value_name = "FILE")]
    save_model: Option<PathBuf>,
    /// Judge by each policy of this YAML list instead, and compare; docs/training.md tells the fields
    #[arg(long, value_name = "FILE", conflicts_with_all = POLICY_DECIDES)]
    policy: Option<PathBuf>,
    /// Draw scores against γ
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// Say what dynamic sampling would send of these rows, and what would be lost of them, by threshold
    #[arg(long)]
    sampling: bool,
    /// Draw that
    #[arg(long, value_name = "FILE.svg")]
    sampling_plot: Option<PathBuf>,
    /// Write everything as JSON, scores of all rows included; `-` prints it instead of the text
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(flatten)]
    rules: Rules,
}

/// Replays and reports.
///
/// # Errors
///
/// [`Failure`] with line and column where the file has a mistake.
pub fn run(args: &ReplayArgs) -> Result<Exit, Failure> {
    let what = format!("replay {}", args.file.display());
    let Input { name, table, columns, interval: known, .. } = input::open(&args.file, args.columns.as_deref(), &what)?;
    let interval = interval(args.interval_ms, known, &table, &what)?;
    if let Some(path) = &args.policy {
        return policy::run(path, args, &policy::Rows { name: &name, table: &table, columns: &columns, interval });
    }
    let mut detector = make_detector(args, &table, &columns, interval)?;
    let progress = progress_bar(table.rows().len());
    let course = course::run(&table, &columns, interval, &mut detector, |row| progress.set_position(row as u64))
        .map_err(|error| Failure::to(what.as_str()).caused_by(&error))?;
    progress.finish_and_clear();
    let judgement = Judgement::of(&table, &course);
    let replay = Replay {
        name: &name,
        table: &table,
        columns: &columns,
        interval,
        detector: &detector,
        course: &course,
        judgement: judgement.as_ref(),
    };
    let curves = curves(args, &replay)?;
    save(args, &replay, curves.as_ref())?;
    if args.json.as_deref() == Some(Path::new("-")) {
        output::print(&json(&replay.view(curves.as_ref()))?)?;
    } else {
        let known = if io::stdout().is_terminal() { terminal::size().ok() } else { None };
        let width = known.map_or(120, |(columns, _)| usize::from(columns));
        output::print(&replay.text(width))?;
        if let Some(curves) = &curves {
            output::print(&curves.text())?;
        }
    }
    Ok(Exit::Fine)
}

/// What dynamic sampling would do, if that is asked for.
fn curves(args: &ReplayArgs, replay: &Replay<'_>) -> Result<Option<Curves>, Failure> {
    if !args.sampling && args.sampling_plot.is_none() {
        return Ok(None);
    }
    let what = format!("sample {}", args.file.display());
    Curves::of(replay).map(Some).map_err(|error| Failure::to(what).caused_by(&error))
}

/// The time between two rows in seconds, which both may say who know of it, if they say the same.
pub(crate) fn interval(given_ms: Option<u64>, known: Option<f64>, table: &Table, what: &str) -> Result<f64, Failure> {
    let given = given_ms.map(|given| given as f64 / 1000.0);
    let step = known.or_else(|| table.interval());
    if let (Some(given), Some(step)) = (given, step)
        && !(step <= MOST_APART * given && given <= MOST_APART * step)
    {
        let cause = format!("`time` goes on by {step} s from row to row (median), --interval-ms says {given} s");
        return Err(Failure::to(what).because(cause).advice("leave --interval-ms out, or is `time` not in seconds?"));
    }
    Ok(given.or(step).unwrap_or(1.0))
}

fn make_detector(args: &ReplayArgs, table: &Table, columns: &Columns, interval: f64) -> Result<Detector, Failure> {
    let what = format!("replay {}", args.file.display());
    let settings = args.rules.settings(interval)?;
    let (rows, needed) = (table.rows().len(), settings.warm_up_rows + settings.settle_rows as usize);
    let Some(path) = &args.model else {
        if rows <= needed {
            let cause = format!("the file has {rows} rows, and an LMAP learns from {needed} before it judges");
            let failure = Failure::to(what).because(cause);
            return Err(failure.advice("a longer file, or --model FILE with a model from --save-model"));
        }
        return Detector::new(columns.columns.clone(), settings, SEED)
            .map_err(|error| Failure::to(what).caused_by(&error).advice("fewer metrics in one file"));
    };
    let what = format!("start from the model {}", path.display());
    let model = model::read(path, &what)?;
    Detector::from_model(&model, columns.columns.clone(), settings, SEED).map_err(|error| {
        Failure::to(what).caused_by(&error).advice("is it a model of these metrics? They are found by their names")
    })
}

/// Writes whatever files were asked for.
fn save(args: &ReplayArgs, replay: &Replay<'_>, curves: Option<&Curves>) -> Result<(), Failure> {
    let refused = |what: &str, path: &Path| Failure::to(format!("write the {what} {}", path.display()));
    if let Some(path) = &args.save_model {
        let Some(model) = replay.detector.model() else {
            let failure = refused("model", path).because("the detector never armed: there is nothing to save");
            return Err(failure.advice("more rows, with metrics that move"));
        };
        std::fs::write(path, model.encode()).map_err(|error| refused("model", path).caused_by(&error))?;
    }
    if let Some(path) = &args.plot {
        plot::save(replay, path).map_err(|error| refused("plot", path).because(error))?;
    }
    if let (Some(path), Some(curves)) = (&args.sampling_plot, curves) {
        curves.save(path).map_err(|error| refused("plot", path).because(error))?;
    }
    if let Some(path) = args.json.as_deref().filter(|path| *path != Path::new("-")) {
        let text = json(&replay.view(curves))?;
        std::fs::write(path, text).map_err(|error| refused("result", path).caused_by(&error))?;
    }
    Ok(())
}

/// On stderr, and only if that is a terminal.
fn progress_bar(rows: usize) -> ProgressBar {
    let bar = ProgressBar::new(rows as u64);
    let style = ProgressStyle::with_template("{bar:40} {pos} of {len} rows, {eta} to go");
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
