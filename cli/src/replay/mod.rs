//! `uview replay`: runs a file of metrics through an LMAP, and reports its scores and episodes.

pub mod judge;
pub mod plot;
pub mod policy;
pub mod report;
pub mod rules;
pub mod sampling;
pub mod timeline;

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

/// --interval-ms is refused if it differs by more than this factor from the steps of `time`.
const MAX_INTERVAL_FACTOR: f64 = 2.0;

/// Seed for the rows above γ that are learnt. It is fixed, so that a replay can be repeated.
const SEED: u64 = 1;

/// Arguments that conflict with --policy.
const POLICY_CONFLICTS: [&str; 11] = [
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

/// The long help of the subcommand.
pub(crate) const LONG_ABOUT: &str = "\
Runs a file of metrics through an LMAP, row by row, and prints scores, episodes and the metrics that caused them.

The file is a recording of `uview record`, CSV (also .csv.gz), or Parquet. The first line of CSV has the column names. Each
column is a metric, except for
  time   seconds; a step of more than 1.5 intervals is a gap
  label  0 normal, 1 anomalous, 2 ignored
  fault  the kind of fault, as text
An empty cell is a missing value. Without --model, the LMAP arms itself on the first 140 rows, which should be healthy (20 to
settle, 120 to learn). Settings are those of the NIC agent, which treats gauges as states; if the file has rates as gauges,
use --settings library.

With --policy, the rows are judged by several named sets of settings, and a table compares what each would have caught and
at what cost.";

/// Arguments of `uview replay`.
#[derive(Clone, Debug, clap::Args)]
pub struct ReplayArgs {
    /// File of metrics: recording, CSV or Parquet
    file: PathBuf,
    /// Time between two rows [default: the median step of `time`, else 1000]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    interval_ms: Option<u64>,
    /// Kinds of the metrics: a CSV file with `metric,kind,group`, where kind is counter, gauge or level [default: all
    /// gauges]
    #[arg(long, value_name = "FILE")]
    columns: Option<PathBuf>,
    /// Start armed with this model, of `uview train` or --save-model
    #[arg(long, value_name = "FILE")]
    model: Option<PathBuf>,
    /// Write the model after the last row
    #[arg(long, value_name = "FILE")]
    save_model: Option<PathBuf>,
    /// Compare the policies of this YAML list instead; docs/training.md describes the fields
    #[arg(long, value_name = "FILE", conflicts_with_all = POLICY_CONFLICTS)]
    policy: Option<PathBuf>,
    /// Draw scores against γ
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// Report how many rows dynamic sampling would send and what accuracy it would lose, by threshold
    #[arg(long)]
    sampling: bool,
    /// Draw that report
    #[arg(long, value_name = "FILE.svg")]
    sampling_plot: Option<PathBuf>,
    /// Write everything as JSON, including the scores of all rows; `-` prints it instead of text
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(flatten)]
    rules: Rules,
}

/// Replays the file and prints the report.
///
/// # Errors
///
/// [`Failure`] with line and column of a mistake in the file, or if a result cannot be written.
pub fn run(args: &ReplayArgs) -> Result<Exit, Failure> {
    let what = format!("replay {}", args.file.display());
    let Input { name, table, columns, interval: recorded, .. } =
        input::open(&args.file, args.columns.as_deref(), &what)?;
    let interval = interval(args.interval_ms, recorded, &table, &what)?;
    if let Some(path) = &args.policy {
        return policy::run(path, args, &policy::Rows { name: &name, table: &table, columns: &columns, interval });
    }
    let mut detector = make_detector(args, &table, &columns, interval)?;
    let progress = progress_bar(table.rows().len());
    let timeline = timeline::run(&table, &columns, interval, &mut detector, |row| progress.set_position(row as u64))
        .map_err(|error| Failure::to(what.as_str()).caused_by(&error))?;
    progress.finish_and_clear();
    let judgement = Judgement::of(&table, &timeline);
    let replay = Replay {
        name: &name,
        table: &table,
        columns: &columns,
        interval,
        detector: &detector,
        timeline: &timeline,
        judgement: judgement.as_ref(),
    };
    let curves = curves(args, &replay)?;
    save(args, &replay, curves.as_ref())?;
    if args.json.as_deref() == Some(Path::new("-")) {
        output::print(&json(&replay.view(curves.as_ref()))?)?;
    } else {
        let size = if io::stdout().is_terminal() { terminal::size().ok() } else { None };
        let width = size.map_or(120, |(columns, _)| usize::from(columns));
        output::print(&replay.text(width))?;
        if let Some(curves) = &curves {
            output::print(&curves.text())?;
        }
    }
    Ok(Exit::Fine)
}

/// The curves of dynamic sampling, if they are requested.
fn curves(args: &ReplayArgs, replay: &Replay<'_>) -> Result<Option<Curves>, Failure> {
    if !args.sampling && args.sampling_plot.is_none() {
        return Ok(None);
    }
    let what = format!("sample {}", args.file.display());
    Curves::of(replay).map(Some).map_err(|error| Failure::to(what).caused_by(&error))
}

/// The time between two rows in seconds: from --interval-ms, the recording, or the column `time`. They may not
/// contradict each other.
pub(crate) fn interval(
    given_ms: Option<u64>,
    recorded: Option<f64>,
    table: &Table,
    what: &str,
) -> Result<f64, Failure> {
    let given = given_ms.map(|given| given as f64 / 1000.0);
    let step = recorded.or_else(|| table.interval());
    if let (Some(given), Some(step)) = (given, step)
        && !(step <= MAX_INTERVAL_FACTOR * given && given <= MAX_INTERVAL_FACTOR * step)
    {
        let cause = format!("the median step of `time` is {step} s, --interval-ms is {given} s");
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
            let cause = format!("the file has {rows} rows, but an LMAP needs {needed} before it judges");
            let failure = Failure::to(what).because(cause);
            return Err(failure.advice("a longer file, or --model FILE with a model from --save-model"));
        }
        return Detector::new(columns.columns.clone(), settings, SEED)
            .map_err(|error| Failure::to(what).caused_by(&error).advice("fewer metrics in one file"));
    };
    let what = format!("start from the model {}", path.display());
    let model = model::read(path, &what)?;
    Detector::from_model(&model, columns.columns.clone(), settings, SEED).map_err(|error| {
        Failure::to(what).caused_by(&error).advice("is it a model of these metrics? They are matched by name")
    })
}

/// Writes the requested files.
fn save(args: &ReplayArgs, replay: &Replay<'_>, curves: Option<&Curves>) -> Result<(), Failure> {
    let refused = |what: &str, path: &Path| Failure::to(format!("write the {what} {}", path.display()));
    if let Some(path) = &args.save_model {
        let Some(model) = replay.detector.model() else {
            let failure = refused("model", path).because("the detector never armed: there is nothing to save");
            return Err(failure.advice("use more rows, with metrics that change"));
        };
        let bytes = model.of_rows_every(replay.interval).encode();
        std::fs::write(path, bytes).map_err(|error| refused("model", path).caused_by(&error))?;
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

/// A progress bar on stderr, shown only if that is a terminal.
fn progress_bar(rows: usize) -> ProgressBar {
    let bar = ProgressBar::new(rows as u64);
    let style = ProgressStyle::with_template("{bar:40} {pos} of {len} rows, {eta} to go");
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
