//! `uview reproduce`: checks the claims of chapter 4 of uView, one by one. `cargo lab reproduce uview` calls it.

pub mod chapter;
pub mod overload;
pub mod report;

use std::path::{Path, PathBuf};

use demo::autoscale::{self, AutoscaleRecord, Plan};
use evaluation::data_set;
use evaluation::reproduction::{Claim, sampling, sweep};
use evaluation::unit::Unit;

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
    /// Skip the experiment with replicas, which takes about five minutes
    #[arg(long)]
    without_replicas: bool,
    /// Random seed of that experiment
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
    output::print_stderr("uview: k, l and q on every unit");
    claims.extend(chapter::sweeps(swept(redis.as_deref())?.as_deref(), swept(boutique.as_deref())?.as_deref()));
    output::print_stderr("uview: dynamic sampling");
    let curve = match redis.as_deref().and_then(<[Unit]>::first) {
        None => None,
        Some(unit) => Some(sampling::curve(unit).map_err(|error| Failure::to(WHAT).caused_by(&error))?),
    };
    claims.extend(chapter::sampling(curve.as_deref()));
    claims.extend(chapter::memory().map_err(|error| Failure::to(WHAT).caused_by(&error))?);
    let autoscaled = if args.without_replicas { None } else { Some(autoscale(args.seed, program)?) };
    claims.extend(overload::claims(autoscaled.as_ref()).map_err(|error| Failure::to(WHAT).caused_by(&error))?);
    claims.extend(chapter::elsewhere());
    write(&args.out, &claims, curve.as_deref(), autoscaled.as_ref())?;
    output::print(&report::table(&claims))?;
    Ok(Exit::Fine)
}

fn units(folder: &Path) -> Result<Vec<Unit>, Failure> {
    let refused = |error: &data_set::DataError| Failure::to(WHAT).caused_by(error).advice(error.advice());
    let sets = data_set::open(folder).map_err(|error| refused(&error))?;
    let files = sets.iter().flat_map(|set| &set.units);
    files.map(|unit| unit.load().map_err(|error| refused(&error))).collect()
}

/// The mean sweep of all units that have an event; `None` without units.
fn swept(units: Option<&[Unit]>) -> Result<Option<Vec<sweep::Point>>, Failure> {
    let Some(units) = units else { return Ok(None) };
    let each = units.iter().filter(|unit| !unit.events().is_empty()).map(sweep::sweep);
    let each: Vec<_> = each.collect::<Result<_, _>>().map_err(|error| Failure::to(WHAT).caused_by(&error))?;
    Ok(Some(sweep::mean(&each)))
}

fn autoscale(seed: u64, program: Option<PathBuf>) -> Result<AutoscaleRecord, Failure> {
    let nowhere = || Failure::to(WHAT).because("the path of this program is unknown").advice("mount /proc");
    let plan = Plan { seed, ..Plan::default() };
    autoscale::run(&plan, &program.ok_or_else(nowhere)?).map_err(|error| Failure::to(WHAT).caused_by(&error))
}

fn write(
    folder: &Path,
    claims: &[Claim],
    curve: Option<&[sampling::SamplingPoint]>,
    autoscaled: Option<&AutoscaleRecord>,
) -> Result<(), Failure> {
    let page = report::page(claims, curve, autoscaled);
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(folder.join("uview.md"), page))
        .and_then(|()| {
            let text = json(&report::rows(claims)).map_err(|failure| std::io::Error::other(failure.to_string()))?;
            std::fs::write(folder.join("uview.json"), text)
        })
        .map_err(|error| Failure::to(format!("write the result to {}", folder.display())).caused_by(&error))
}
