//! `uview train`: recordings, CSV or Parquet → a model file, and how sure one may be of it.

pub mod page;
pub mod plots;
pub mod report;
pub mod trials;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum as _;
use evaluation::candidate::TrainError;
use evaluation::training::{self, Split, Trial, Tried};
use lmap::{ScoreForm, Settings};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::input;
use crate::output::{self, json};
use crate::replay;
use crate::replay::rules::{Form, Owner};
use report::{Metrics, Training};
use trials::Outcome;

/// k of a grid, as far as there are metrics.
const RANKS: [usize; 9] = [1, 2, 3, 5, 8, 12, 16, 20, 30];
/// l of a grid.
const SKETCH_ROWS: [usize; 3] = [25, 50, 100];
/// q of a grid, if faults are labelled: without, the highest would always be the best.
const PERCENTILES: [f64; 4] = [90.0, 95.0, 99.0, 99.9];

const LONG_ABOUT: &str = "\
Learns what is normal from recordings of `uview record`, or CSV or Parquet as `uview replay` takes it, and writes a model that starts a detector
armed: `uview replay --model`, or the operators' call NewLmap.

Rows that are labelled as faults, or as not counting, are never learnt. Of the others the first 70 % are learnt and the rest is held out, to say
how well it works; the model itself then learns all of them. Without --grid k is chosen by the variance that it explains, which is cheap and
mostly as good. docs/training.md tells what the figures mean.";

/// Arguments of `uview train`.
#[derive(Clone, Debug, clap::Args)]
#[command(long_about = LONG_ABOUT)]
pub struct TrainArgs {
    /// Recordings of one service, or CSV or Parquet; several are put together in the order of their times
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// The model
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// What the metrics of CSV or Parquet are: CSV with `metric,kind,group`, kind is counter, gauge or level [default: all gauges]
    #[arg(long, value_name = "FILE")]
    columns: Option<PathBuf>,
    /// Time between two rows of a file without `time` [default: as the file says, else 1000]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    interval_ms: Option<u64>,
    /// Try k, l and q, on all cores, and keep the best: by F1 on labelled faults, else by the rate of quiet rows over γ
    #[arg(long)]
    grid: bool,
    /// k to try, instead of 1 to 30 [implies --grid]
    #[arg(long, value_name = "K,…", value_delimiter = ',')]
    ranks: Vec<usize>,
    /// l to try, instead of 25, 50, 100 [implies --grid]
    #[arg(long, value_name = "L,…", value_delimiter = ',')]
    sketch_rows: Vec<usize>,
    /// q to try, instead of 90 to 99.9 [implies --grid]
    #[arg(long, value_name = "Q,…", value_delimiter = ',')]
    percentiles: Vec<f64>,
    /// Begin no further point of the grid after so many seconds
    #[arg(long, value_name = "S", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    time_limit_s: u64,
    /// The pipeline: what the agents use, or one of the paper's forms [default: default]
    #[arg(long, value_enum)]
    form: Option<Form>,
    /// Whose settings, with the default form [default: agent]
    #[arg(long, value_enum)]
    settings: Option<Owner>,
    /// Write a page about the training, DIR/index.html, that needs nothing else
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    /// Write the figures as JSON; `-` prints them instead of the text
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Trains, writes the model, and says how good it is.
///
/// # Errors
///
/// [`Failure`] if there is nothing to learn from, or something cannot be written.
pub fn run(args: &TrainArgs) -> Result<Exit, Failure> {
    let named = args.files.first().map(|file| file.display().to_string()).unwrap_or_default();
    let what = format!("train on {named}");
    let input = input::open_all(&args.files, args.columns.as_deref(), &what)?;
    let interval = replay::interval(args.interval_ms, input.interval, &input.table, &what)?;
    let base = settings(args, interval)?;
    let split = Split::of(&input.service, &input.table, &input.columns, Some(interval)).map_err(|error| {
        let advice = "record for longer: 120 rows are little, 2,000 are enough for most services";
        Failure::to(what.as_str()).caused_by(&error).advice(advice)
    })?;
    let trials = plan(args, &base, &split);
    let outcome = trials::run_all(&trials, &base, &split, Duration::from_secs(args.time_limit_s));
    let chosen = choose(args, &outcome, &what)?;
    let settings = chosen.trial.settings(&base);
    let model = split.model(&settings).map_err(|error| untrained(&error, &what))?;
    let bytes = model.encode();
    std::fs::write(&args.out, &bytes).map_err(|error| {
        Failure::to(format!("write the model {}", args.out.display()))
            .caused_by(&error)
            .advice("is the folder there, and yours?")
    })?;
    let summary = model.summary();
    let training = Training {
        input: &input,
        interval,
        split: &split,
        chosen: &chosen,
        outcome: &outcome,
        searched: searches(args),
        base: &base,
        metrics: &Metrics::of(&summary, &split),
        model: &summary,
        out: &args.out,
        bytes: bytes.len(),
    };
    tell(args, &training, &what)?;
    Ok(Exit::Fine)
}

/// Prints and writes what was asked for.
fn tell(args: &TrainArgs, training: &Training<'_>, what: &str) -> Result<(), Failure> {
    if let Some(folder) = &args.report {
        let refused =
            |error: &std::io::Error| Failure::to(format!("write the report {}", folder.display())).caused_by(error);
        let (_, course) =
            training.chosen.trial.run(training.base, training.split).map_err(|error| untrained(&error, what))?;
        std::fs::create_dir_all(folder).map_err(|error| refused(&error))?;
        std::fs::write(folder.join("index.html"), page::page(training, &course)).map_err(|error| refused(&error))?;
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

fn settings(args: &TrainArgs, interval: f64) -> Result<Settings, Failure> {
    let refused = |cause: &str| Failure::to("train by these flags").because(cause).exit_with(Exit::Usage);
    if let Some(percentile) = args.percentiles.iter().find(|percentile| !(**percentile > 0.0 && **percentile <= 100.0))
    {
        return Err(refused(&format!("--percentiles has {percentile}, they go from above 0 to 100")));
    }
    if let Some(rank) = args.ranks.iter().find(|rank| !(1..=4096).contains(*rank)) {
        return Err(refused(&format!("--ranks has {rank}, they go from 1 to 4096")));
    }
    if let Some(rows) = args.sketch_rows.iter().find(|rows| !(2..=8192).contains(*rows)) {
        return Err(refused(&format!("--sketch-rows has {rows}, they go from 2 to 8192")));
    }
    Ok(match (args.form.unwrap_or(Form::Default), args.settings) {
        (Form::Default, None | Some(Owner::Agent)) => Settings::live(interval),
        (Form::Default, Some(Owner::Library)) => Settings::default(),
        (form, Some(_)) => {
            let form = form.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned());
            let cause = format!("the paper's form `{form}` has settings of its own");
            return Err(refused(&cause).advice("leave --settings out, or --form"));
        }
        (Form::Absolute, None) => Settings::paper(ScoreForm::PaperAbsolute),
        (Form::Relative, None) => Settings::paper(ScoreForm::PaperRelative),
    })
}

/// Whether the best of a grid is looked for.
fn searches(args: &TrainArgs) -> bool {
    args.grid || !(args.ranks.is_empty() && args.sketch_rows.is_empty() && args.percentiles.is_empty())
}

/// What is tried: first the default, then the grid; for a report without a grid one line along k and one along l.
fn plan(args: &TrainArgs, base: &Settings, split: &Split) -> Vec<Trial> {
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

fn choose(args: &TrainArgs, outcome: &Outcome, what: &str) -> Result<Tried, Failure> {
    let found = if searches(args) { training::best(&outcome.tried) } else { outcome.tried.first() };
    match (found, &outcome.refused) {
        (Some(tried), _) => Ok(*tried),
        (None, Some(error)) => Err(untrained(error, what)),
        (None, None) => Err(Failure::to(what).because("no point of the grid could be tried")),
    }
}

fn untrained(error: &TrainError, what: &str) -> Failure {
    let advice = match error {
        TrainError::Rows { .. } => "record for longer",
        TrainError::NotFitted => "rows in which metrics move",
        _ => "other settings, or fewer metrics",
    };
    Failure::to(what).caused_by(error).advice(advice)
}
