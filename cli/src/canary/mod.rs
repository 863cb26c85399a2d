//! `uview canary`: whether a new version of a service behaves differently from the old one, and in which metrics.

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

/// The first bytes of a model file.
const MODEL_MAGIC: &[u8] = b"uvLMAP";

/// The long help of the subcommand.
pub(crate) const LONG_ABOUT: &str = "\
Compares a new version of a service with the old one. Each is a recording, a CSV of metrics, or a model file.

A model of the old version scores the rows of the new one. More load is no difference, since the model predicts each
metric from the others. A metric whose mean has moved is listed with the expected and the seen value. A metric that only
varies more is listed, but does not decide, since a rare event looks the same. Rows labelled as a fault are left out.
Record both versions side by side if you can: the time of day makes a difference, too.

The exit code is 2 if the versions differ.";

/// Arguments of `uview canary`.
#[derive(Clone, Debug, clap::Args)]
pub struct CanaryArgs {
    /// The old version
    old: PathBuf,
    /// The new version
    new: PathBuf,
    /// Kinds of the metrics in CSV input: a CSV file with `metric,kind,group` [default: all gauges]
    #[arg(long, value_name = "FILE")]
    columns: Option<PathBuf>,
    /// A recording or CSV with the names of the metrics; needed if both inputs are models
    #[arg(long, value_name = "FILE")]
    names: Option<PathBuf>,
    /// Tolerated change of a mean, in standard deviations not explained by the other metrics
    #[arg(long, value_name = "DEVIATIONS", default_value_t = Tolerance::default().shift)]
    shift: f64,
    /// Tolerated growth of that standard deviation, as a factor
    #[arg(long, value_name = "TIMES", default_value_t = Tolerance::default().spread)]
    spread: f64,
    /// Number of metrics to list
    #[arg(long, value_name = "NUMBER", default_value_t = 10)]
    top: usize,
    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
}

/// Compares both versions and prints the report. Returns [`Exit::Attention`] if they differ.
///
/// # Errors
///
/// [`Failure`] if one of the files cannot be used, or both are not of the same service.
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
            CanaryError::Form(_) => "train the old version again without --form, or pass its rows",
            _ => "are both files of the same service? Metrics are matched by name",
        };
        Failure::to(what.as_str()).caused_by(&error).advice(advice)
    })?;
    let report = Report { old: &args.old, new: &args.new, canary: &canary, names: &names, top: args.top };
    let text = if args.json { json(&report.view())? } else { report.to_string() };
    output::print(&text)?;
    Ok(if canary.differs() { Exit::Attention } else { Exit::Fine })
}

fn tolerance(args: &CanaryArgs, what: &str) -> Result<Tolerance, Failure> {
    let CanaryArgs { shift, spread, .. } = *args;
    for (flag, found, least) in [("--shift", shift, 0.0), ("--spread", spread, 1.0)] {
        if !(found.is_finite() && found >= least) {
            let failure = Failure::to(what).because(format!("{flag} is {found}"));
            return Err(failure.advice(format!("a number of at least {least}")));
        }
    }
    Ok(Tolerance { shift, spread, ..Tolerance::default() })
}

/// Reads the model in `path`, or trains one on its rows and adds the names of its metrics to `names`.
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
    let trained = canary::model(&input.table, &input.columns, input.interval);
    remember(input.table.metrics, names);
    trained.map_err(|error| {
        let failure = Failure::to(what).because(format!("no model can be trained on {}", path.display()));
        failure.caused_by(&error).advice("a longer recording, without faults or with its faults labelled")
    })
}

/// Whether the file begins like a model. False if it cannot be read; reading it later reports the error.
fn is_model(path: &Path) -> bool {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(MODEL_MAGIC.len() as u64).read_to_end(&mut bytes));
    read.is_ok() && bytes == MODEL_MAGIC
}

fn remember(metrics: Vec<String>, names: &mut HashMap<u64, String>) {
    names.extend(metrics.into_iter().map(|name| (fingerprint(&name), name)));
}
