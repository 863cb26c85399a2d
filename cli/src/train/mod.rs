//! `uview train`: trains a model on recordings, CSV or Parquet, and reports its quality on held-out rows.

pub mod page;
pub mod plots;
pub mod report;
pub mod trials;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum as _;
use evaluation::candidate::TrainError;
use evaluation::training::{self, Split, Trial, TrialOutcome};
use lmap::{ScoreForm, Settings};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::input::{self, Input};
use crate::output::{self, json};
use crate::replay;
use crate::replay::rules::{Form, SettingsSource};
use report::{Metrics, Training};
use trials::Outcome;

/// Values of k in the grid, up to the number of metrics.
const RANKS: [usize; 9] = [1, 2, 3, 5, 8, 12, 16, 20, 30];
/// Values of l in the grid.
const SKETCH_ROWS: [usize; 3] = [25, 50, 100];
/// Values of q in the grid, if faults are labelled. Without labels the highest would always be the best.
const PERCENTILES: [f64; 4] = [90.0, 95.0, 99.0, 99.9];

/// The long help of the subcommand.
pub(crate) const LONG_ABOUT: &str = "\
Trains a model of normal behaviour on recordings of `uview record`, or on CSV or Parquet as `uview replay` reads it. A
detector that starts from the model is armed at once: `uview replay --model`, and in a running agent `uview model set`.

Rows labelled as faults or as ignored are never used for training. Of the other rows, the first 70 % are used for training
and the rest is held out to measure the quality; the final model is then trained on all of them. Without --grid, k is
chosen by the variance that it explains, which is cheap and mostly as good. docs/training.md explains the figures.";

/// Arguments of `uview train`.
#[derive(Clone, Debug, clap::Args)]
pub struct TrainArgs {
    /// Recordings, CSV or Parquet files of one service; several files are joined in the order of their times
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// File for the model
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Kinds of the metrics in CSV or Parquet: a CSV file with `metric,kind,group`, where kind is counter, gauge or
    /// level [default: all gauges]
    #[arg(long, value_name = "FILE")]
    columns: Option<PathBuf>,
    /// Time between two rows, for files without `time` [default: from the file, else 1000]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    interval_ms: Option<u64>,
    #[command(flatten)]
    options: TrainOptions,
}

/// How a model is trained, and what is written beside it.
#[derive(Clone, Debug, clap::Args)]
pub struct TrainOptions {
    /// Search k (directions), l (sketch rows) and q (percentile) on all cores, for the highest F1 on labelled faults,
    /// else for the fewest normal rows over γ
    #[arg(long)]
    grid: bool,
    /// Values of k to try, instead of 1 to 30 [implies --grid]
    #[arg(long, value_name = "K,…", value_delimiter = ',')]
    ranks: Vec<usize>,
    /// Values of l to try, instead of 25, 50, 100 [implies --grid]
    #[arg(long, value_name = "L,…", value_delimiter = ',')]
    sketch_rows: Vec<usize>,
    /// Values of q to try, instead of 90 to 99.9 [implies --grid]
    #[arg(long, value_name = "Q,…", value_delimiter = ',')]
    percentiles: Vec<f64>,
    /// Start no further point of the grid after this many seconds
    #[arg(long, value_name = "S", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    time_limit_s: u64,
    /// Form of the pipeline: that of the agents, or one of the paper's [default: default]
    #[arg(long, value_enum)]
    form: Option<Form>,
    /// Settings of the default form [default: agent]
    #[arg(long, value_enum)]
    settings: Option<SettingsSource>,
    /// Write a self-contained web page about the training, DIR/index.html
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    /// Write the figures as JSON; `-` prints them instead of text
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Trains a model, writes it, and reports its quality.
///
/// # Errors
///
/// [`Failure`] if there are too few normal rows, or a file cannot be written.
pub fn run(args: &TrainArgs) -> Result<Exit, Failure> {
    let named = args.files.first().map(|file| file.display().to_string()).unwrap_or_default();
    let what = format!("train on {named}");
    let input = input::open_all(&args.files, args.columns.as_deref(), &what)?;
    let interval = replay::interval(args.interval_ms, input.interval, &input.table, &what)?;
    on_rows(&input, interval, &args.options, &args.out, &what)?;
    // Others may be of no service that an agent watches.
    if input.interval.is_some() {
        output::print_stderr(&applied("uview", &input.service, &args.out));
    }
    Ok(Exit::Fine)
}

/// The command that gives the model in `out` to a running agent, called as `program`, in words.
#[must_use]
pub fn applied(program: &str, service: &str, out: &Path) -> String {
    format!("uview: `{program} model set {service} {}` lets a running agent judge by it", out.display())
}

/// Trains a model on these rows, one every `interval` seconds, writes it to `out`, and reports its quality.
///
/// # Errors
///
/// [`Failure`] to do `what` if there are too few normal rows; or if a file cannot be written.
pub fn on_rows(input: &Input, interval: f64, args: &TrainOptions, out: &Path, what: &str) -> Result<(), Failure> {
    let base = settings(args, interval)?;
    let split = Split::of(&input.service, &input.table, &input.columns, Some(interval)).map_err(|error| {
        let advice = "record for longer: 120 rows are few, 2,000 are enough for most services";
        Failure::to(what).caused_by(&error).advice(advice)
    })?;
    let trials = plan(args, &base, &split);
    let outcome = trials::run_all(&trials, &base, &split, Duration::from_secs(args.time_limit_s));
    let chosen = choose(args, &outcome, what)?;
    let settings = chosen.trial.settings(&base);
    let model = split.model(&settings).map_err(|error| untrained(&error, what))?.of_rows_every(interval);
    let bytes = model.encode();
    std::fs::write(out, &bytes).map_err(|error| {
        Failure::to(format!("write the model {}", out.display()))
            .caused_by(&error)
            .advice("does the folder exist, and can you write to it?")
    })?;
    let summary = model.summary();
    let training = Training {
        input,
        interval,
        split: &split,
        chosen: &chosen,
        outcome: &outcome,
        searched: searches(args),
        base: &base,
        metrics: &Metrics::of(&summary, &split),
        model: &summary,
        out,
        bytes: bytes.len(),
    };
    write_output(args, &training, what)
}

impl TrainOptions {
    /// Refuses values that are out of range or contradict each other, for those who have no rows yet.
    ///
    /// # Errors
    ///
    /// [`Failure`] that names the flag.
    pub fn check(&self) -> Result<(), Failure> {
        settings(self, 1.0).map(drop)
    }
}

/// Writes the report and the figures, and prints the text.
fn write_output(args: &TrainOptions, training: &Training<'_>, what: &str) -> Result<(), Failure> {
    if let Some(folder) = &args.report {
        let refused =
            |error: &std::io::Error| Failure::to(format!("write the report {}", folder.display())).caused_by(error);
        let (_, run) =
            training.chosen.trial.run(training.base, training.split).map_err(|error| untrained(&error, what))?;
        std::fs::create_dir_all(folder).map_err(|error| refused(&error))?;
        std::fs::write(folder.join("index.html"), page::page(training, &run)).map_err(|error| refused(&error))?;
    }
    let figures = json(&training.view())?;
    match args.json.as_deref() {
        Some(path) if path == Path::new("-") => return output::print(&figures),
        Some(path) => std::fs::write(path, figures)
            .map_err(|error| Failure::to(format!("write the figures {}", path.display())).caused_by(&error))?,
        None => {}
    }
    output::print(&training.to_string())
}

fn settings(args: &TrainOptions, interval: f64) -> Result<Settings, Failure> {
    let refused = |cause: &str| Failure::to("train by these flags").because(cause).exit_with(Exit::Usage);
    if let Some(percentile) = args.percentiles.iter().find(|percentile| !(**percentile > 0.0 && **percentile <= 100.0))
    {
        return Err(refused(&format!("--percentiles has {percentile}; above 0 to 100 is possible")));
    }
    if let Some(rank) = args.ranks.iter().find(|rank| !(1..=4096).contains(*rank)) {
        return Err(refused(&format!("--ranks has {rank}; 1 to 4096 is possible")));
    }
    if let Some(rows) = args.sketch_rows.iter().find(|rows| !(2..=8192).contains(*rows)) {
        return Err(refused(&format!("--sketch-rows has {rows}; 2 to 8192 is possible")));
    }
    Ok(match (args.form.unwrap_or(Form::Default), args.settings) {
        (Form::Default, None | Some(SettingsSource::Agent)) => Settings::live(interval).lasting(interval),
        (Form::Default, Some(SettingsSource::Library)) => Settings::default(),
        (form, Some(_)) => {
            let form = form.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned());
            let cause = format!("the paper's form `{form}` has settings of its own");
            return Err(refused(&cause).advice("leave --settings out, or --form"));
        }
        (Form::Absolute, None) => Settings::paper(ScoreForm::PaperAbsolute),
        (Form::Relative, None) => Settings::paper(ScoreForm::PaperRelative),
    })
}

/// Whether a grid is searched.
fn searches(args: &TrainOptions) -> bool {
    args.grid || !(args.ranks.is_empty() && args.sketch_rows.is_empty() && args.percentiles.is_empty())
}

/// The trials: first the default, then the grid. A report without a grid gets one line along k and one along l.
fn plan(args: &TrainOptions, base: &Settings, split: &Split) -> Vec<Trial> {
    let default = Trial { rank: None, sketch_rows: None, percentile: base.percentile };
    let mut trials = vec![default];
    let metrics = split.unit.columns.len();
    let or = |given: &[usize], others: &[usize]| -> Vec<Option<usize>> {
        if given.is_empty() {
            others.iter().copied().map(Some).collect()
        } else {
            given.iter().copied().map(Some).collect()
        }
    };
    let possible: Vec<usize> = RANKS.into_iter().filter(|rank| *rank < metrics.max(2)).collect();
    let ranks: Vec<Option<usize>> = [None].into_iter().chain(or(&args.ranks, &possible)).collect();
    let rows = or(&args.sketch_rows, &SKETCH_ROWS);
    if searches(args) {
        let given = &args.percentiles;
        let percentiles = match (given.is_empty(), split.has_faults) {
            (false, _) => given.clone(),
            (true, true) => PERCENTILES.to_vec(),
            (true, false) => vec![base.percentile],
        };
        trials.extend(training::grid(&ranks, &rows, &percentiles));
    } else if args.report.is_some() {
        trials.extend(training::grid(&ranks[1..], &[None], &[base.percentile]));
        trials.extend(training::grid(&[None], &rows, &[base.percentile]));
    }
    trials.dedup();
    trials
}

fn choose(args: &TrainOptions, outcome: &Outcome, what: &str) -> Result<TrialOutcome, Failure> {
    let found = if searches(args) { training::best(&outcome.tried) } else { outcome.tried.first() };
    match (found, &outcome.refused) {
        (Some(tried), _) => Ok(*tried),
        (None, Some(error)) => Err(untrained(error, what)),
        (None, None) => Err(Failure::to(what).because("no point of the grid was tried")),
    }
}

fn untrained(error: &TrainError, what: &str) -> Failure {
    let advice = match error {
        TrainError::Rows { .. } => "record for longer",
        TrainError::NotFitted => "use rows in which metrics change",
        _ => "try other settings, or fewer metrics",
    };
    Failure::to(what).caused_by(error).advice(advice)
}
