//! `uview canary`: does a new version of a service behave unlike the old one, and in which metrics.

pub mod report;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use evaluation::canary;
use lmap::{Canary, CanaryError, Model, Tolerance};
use nic_agent::fingerprint;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{self, json};
use crate::{input, model};
use report::Report;

/// How a model file begins.
const MODEL: &[u8] = b"uvLMAP";

const LONG_ABOUT: &str = "\
Holds a new version of a service against the old one: each a recording, a CSV of metrics, or a model file.

The new version's rows are judged by what the old one's taught. More load is no difference, since a metric is held against
what the others let expect; a metric that lies elsewhere is named with what was expected and seen. One that is only less
steady is named, too, and does not decide: a rare event looks the same. Rows labelled as a fault are left out. Best are
replicas of both versions side by side: what a day brings is a difference, too.

Ends with 2 if they differ.";

/// Arguments of `uview canary`.
#[derive(Clone, Debug, clap::Args)]
#[command(long_about = LONG_ABOUT)]
pub struct CanaryArgs {
    /// The old version
    old: PathBuf,
    /// The new version
    new: PathBuf,
    /// What the metrics of a CSV are: CSV with `metric,kind,group` [default: all gauges]
    #[arg(long, value_name = "FILE")]
    columns: Option<PathBuf>,
    /// A recording or CSV with the metrics' names, if both are models, which know them by a number only
    #[arg(long, value_name = "FILE")]
    names: Option<PathBuf>,
    /// A mean may be off by so many of the deviations that the other metrics leave unexplained
    #[arg(long, value_name = "DEVIATIONS", default_value_t = Tolerance::default().shift)]
    shift: f64,
    /// What the other metrics leave unexplained may spread by so much more
    #[arg(long, value_name = "TIMES", default_value_t = Tolerance::default().spread)]
    spread: f64,
    /// Metrics named
    #[arg(long, value_name = "NUMBER", default_value_t = 10)]
    top: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Compares and reports.
///
/// # Errors
///
/// [`Failure`] with file and place where one of them cannot be used.
pub fn run(args: &CanaryArgs) -> Result<Exit, Failure> {
    let what = format!("compare {} with {}", args.new.display(), args.old.display());
    let tolerance = tolerance(args, &what)?;
    let mut names = HashMap::new();
    let old = version(&args.old, args.columns.as_deref(), &what, &mut names)?;
    let new = version(&args.new, args.columns.as_deref(), &what, &mut names)?;
    if let Some(path) = &args.names {
        remember(input::open(path, None, &what)?.table.metrics, &mut names);
    }
    let canary = Canary::compare(&old, &new, tolerance).map_err(|error| {
        let advice = match error {
            CanaryError::Form(_) => "train the old version again without --form, or give its rows",
            _ => "are both files of one service? Metrics are found by their names",
        };
        Failure::to(what.as_str()).caused_by(&error).advice(advice)
    })?;
    let report = Report { old: &args.old, new: &args.new, canary: &canary, names: &names, top: args.top };
    let text = if args.json { json(&report.view())? } else { report.to_string() };
    output::print(&text)?;
    Ok(if canary.is_unlike() { Exit::Attention } else { Exit::Fine })
}

fn tolerance(args: &CanaryArgs, what: &str) -> Result<Tolerance, Failure> {
    let CanaryArgs { shift, spread, .. } = *args;
    for (flag, found, least) in [("--shift", shift, 0.0), ("--spread", spread, 1.0)] {
        if !(found.is_finite() && found >= least) {
            let failure = Failure::to(what).because(format!("{flag} is {found}"));
            return Err(failure.advice(format!("a number from {least} on")));
        }
    }
    Ok(Tolerance { shift, spread, ..Tolerance::default() })
}

/// The model in `path`, or one of the rows in it, whose names are added.
fn version(
    path: &Path,
    columns: Option<&Path>,
    what: &str,
    names: &mut HashMap<u64, String>,
) -> Result<Model, Failure> {
    if is_model(path) {
        return model::read(path, what);
    }
    let input = input::open(path, columns, what)?;
    let made = canary::model(&input.table, &input.columns, input.interval);
    remember(input.table.metrics, names);
    made.map_err(|error| {
        let failure = Failure::to(what).because(format!("no model can be made of {}", path.display()));
        failure.caused_by(&error).advice("a longer recording, without faults or with labels for them")
    })
}

/// By the first bytes; a file that cannot be read is for whoever reads it to complain about.
fn is_model(path: &Path) -> bool {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(MODEL.len() as u64).read_to_end(&mut bytes));
    read.is_ok() && bytes == MODEL
}

fn remember(metrics: Vec<String>, names: &mut HashMap<u64, String>) {
    names.extend(metrics.into_iter().map(|name| (fingerprint(&name), name)));
}
