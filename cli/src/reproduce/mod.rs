//! `uview reproduce`: checks the claims of chapter 4 of uView, one by one. `cargo lab reproduce uview` calls it.

pub mod chapter;
pub mod overload;
pub mod report;

use std::path::{Path, PathBuf};

use demo::autoscale::{self, AutoscaleRecord, Plan};
use evaluation::data_set;
use evaluation::reproduction::sampling::{self, SamplingCurve};
use evaluation::reproduction::{Claim, sweep};
use evaluation::unit::Unit;

use self::chapter::Reading;
use self::overload::OverloadRun;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{self, json};

const WHAT: &str = "reproduce chapter 4";

/// Arguments of `uview reproduce`.
#[derive(Clone, Debug, clap::Args)]
pub struct ReproduceArgs {
    /// Folder of labelled data with the sets `online-boutique` and `redis`; without it, their claims are not computable
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Folder for uview.md and uview.json
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Skip the experiment with replicas
    #[arg(long)]
    without_replicas: bool,
    /// Runs of that experiment, each of about five minutes
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=20))]
    runs: u64,
    /// Random seed of the first run; the others have the next ones
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Measures all claims, writes both files, and prints the table.
///
/// # Errors
///
/// [`Failure`] if the data cannot be read, the experiment fails, or a file cannot be written.
pub fn run(args: &ReproduceArgs, program: Option<PathBuf>) -> Result<Exit, Failure> {
    let mut claims = Vec::new();
    let (redis, boutique) = match &args.data {
        None => (None, None),
        Some(folder) => (Some(units(&folder.join("redis"))?), Some(units(&folder.join("online-boutique"))?)),
    };
    let mut curves = Vec::new();
    for reading in Reading::ALL {
        output::print_stderr("uview: k, l and q on every unit, and dynamic sampling");
        for (name, units) in [("redis", redis.as_deref()), ("boutique", boutique.as_deref())] {
            claims.extend(chapter::sweep(name, swept(units, reading)?.as_deref(), reading));
        }
        let curve = redis.as_deref().and_then(<[Unit]>::first).map(|unit| sampling::curve(unit, reading.sketch));
        let curve = curve.transpose().map_err(|error| Failure::to(WHAT).caused_by(&error))?;
        claims.extend(chapter::sampling(curve.as_ref(), reading));
        curves.extend(curve);
    }
    claims.extend(chapter::memory().map_err(|error| Failure::to(WHAT).caused_by(&error))?);
    let records = if args.without_replicas { Vec::new() } else { autoscale(args, program)? };
    let runs: Result<Vec<_>, _> = records.into_iter().map(OverloadRun::new).collect();
    let runs = runs.map_err(|error| Failure::to(WHAT).caused_by(&error))?;
    claims.extend(overload::claims(&runs));
    claims.extend(chapter::elsewhere());
    write(&args.out, &claims, &curves, &runs)?;
    output::print(&report::table(&claims))?;
    Ok(Exit::Fine)
}

fn units(folder: &Path) -> Result<Vec<Unit>, Failure> {
    let refused = |error: &data_set::DataError| Failure::to(WHAT).caused_by(error).advice(error.advice());
    let sets = data_set::open(folder).map_err(|error| refused(&error))?;
    let files = sets.iter().flat_map(|set| &set.units);
    files.map(|unit| unit.load().map_err(|error| refused(&error))).collect()
}

/// The mean sweep of all units that have an event; `None` without such a unit.
fn swept(units: Option<&[Unit]>, reading: Reading) -> Result<Option<Vec<sweep::Point>>, Failure> {
    let Some(units) = units else { return Ok(None) };
    let each = units.iter().filter(|unit| !unit.events().is_empty()).map(|unit| sweep::sweep(unit, reading.sketch));
    let each: Vec<_> = each.collect::<Result<_, _>>().map_err(|error| Failure::to(WHAT).caused_by(&error))?;
    Ok((!each.is_empty()).then(|| sweep::mean(&each)))
}

fn autoscale(args: &ReproduceArgs, program: Option<PathBuf>) -> Result<Vec<AutoscaleRecord>, Failure> {
    let nowhere = || Failure::to(WHAT).because("the path of this program is unknown").advice("mount /proc");
    let program = program.ok_or_else(nowhere)?;
    let run = |number: u64| {
        output::print_stderr(&format!("uview: run {} of {} with replicas", number + 1, args.runs));
        let plan = Plan { seed: args.seed + number, ..Plan::default() };
        autoscale::run(&plan, &program).map_err(|error| Failure::to(WHAT).caused_by(&error))
    };
    (0..args.runs).map(run).collect()
}

fn write(folder: &Path, claims: &[Claim], curves: &[SamplingCurve], runs: &[OverloadRun]) -> Result<(), Failure> {
    let page = report::page(claims, curves, runs);
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(folder.join("uview.md"), page))
        .and_then(|()| {
            let text = json(&report::rows(claims)).map_err(|failure| std::io::Error::other(failure.to_string()))?;
            std::fs::write(folder.join("uview.json"), text)
        })
        .map_err(|error| Failure::to(format!("write the result to {}", folder.display())).caused_by(&error))
}
