//! The demo: a small shop of real processes that uview watches and this crate breaks, and an honest account of what came of it.
//!
//! | module | what |
//! | --- | --- |
//! | [`graph`] | the five services, who calls whom; the way between two of them |
//! | [`shop`], [`load`] | one service; the visitors. Each runs as a process of its own |
//! | [`child`] | how such a process is started so that it never outlives the demo |
//! | [`way`] | the way between two services, through a network namespace: a process of its own, too |
//! | [`fault`] | the faults, their order, the metrics that belong to each |
//! | [`record`] | what happened in a run, as data |
//! | [`judge`] | what that is worth |
//! | [`traces`] | the traces that were kept of it |
//! | [`autoscale`] | another experiment: one service, a load that grows, replicas that are added |
//!
//! [`run`] puts them together. All processes are the same program, which has the commands `host-agent`, `nic-agent`, `shop`, `load`,
//! `way` and `child`.

pub mod autoscale;
pub mod child;
mod clock;
mod cost;
mod error;
mod facts;
pub mod fault;
mod figures;
mod gather;
pub mod graph;
mod http;
pub mod judge;
mod link;
pub mod load;
mod noise;
mod processes;
mod ready;
pub mod record;
mod report;
mod run;
mod screen;
pub mod shop;
mod stage;
mod table;
mod tell;
pub mod traces;
pub mod way;

use std::fs;
use std::path::{Path, PathBuf};

pub use error::DemoError;
pub use link::LinkError;
pub use stage::StageError;

use clock::Clock;
use facts::Facts;
use fault::{Kind, Pace};
use judge::Finding;
use screen::Screen;
use stage::Setting;

/// A shop that uview watches, with faults.
#[derive(Clone, Debug, clap::Args)]
pub struct DemoArgs {
    /// Makes the load, the order of the faults and who has the CPU hog [default: another one each time]
    #[arg(long)]
    pub seed: Option<u64>,
    /// At most 90 s instead of 4 minutes: shorter faults and pauses, and less healthy traffic before them
    #[arg(long)]
    pub quick: bool,
    /// One fault, with as little as possible of everything else: to see that the demo works, not what uview is worth
    #[arg(long, value_name = "KIND", conflicts_with = "quick", hide = true)]
    pub only: Option<Kind>,
    /// The local scraping interval; arming takes 120 of them
    #[arg(long, value_name = "MS", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub interval_ms: u32,
    /// Write the account as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write the account as a web page, DIR/index.html, that needs nothing else [default: a new directory for temporary files]
    #[arg(long, value_name = "DIR")]
    pub report: Option<PathBuf>,
}

/// With `--only`: what a shop that is not optimised can serve on a machine that has other things to do.
const FEW_PER_SECOND: f64 = 60.0;

/// Runs the demo and tells what came of it. `program` is the command that all processes are.
///
/// # Errors
///
/// [`DemoError`] if there is no finding, or it could not be written. A bar that was missed is no error: see [`Finding::none_missed`].
pub fn run(args: &DemoArgs, program: &Path) -> Result<Finding, DemoError> {
    let seed = args.seed.unwrap_or_else(|| Clock::start().arbitrary());
    let (pace, per_second) = match args.only {
        Some(_) => (Pace::BRIEF, FEW_PER_SECOND),
        None if args.quick => (Pace::QUICK, load::PER_SECOND),
        None => (Pace::FULL, load::PER_SECOND),
    };
    let mut faults = fault::plan(seed, &pace);
    faults.retain(|planned| args.only.is_none_or(|only| planned.kind == only));
    let way = faults.iter().any(|planned| planned.kind == Kind::SlowWay);
    let setting = Setting { program: program.to_owned(), interval_ms: args.interval_ms, seed, per_second, way };
    let mut screen = Screen::new();
    screen.say(&format!("uview demo, seed {seed}, interval {} ms", args.interval_ms));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(DemoError::Runtime)?;
    let record = runtime.block_on(run::run(&setting, &pace, &faults, &mut screen))?;
    let finding = judge::judge(&record);
    let page = write_page(args, &report::page(&record, &finding))?;
    screen.say(&table::closing(&record, &finding, page.as_deref().map(report::address).as_deref()));
    if let Some(path) = &args.json {
        let facts = serde_json::to_vec_pretty(&Facts::new(&record, &finding));
        write(path, &facts.map_err(|error| DemoError::Write { path: path.clone(), cause: error.into() })?)?;
    }
    if let Some(path) = &page {
        screen.say(&format!("report: {}", path.display()));
    }
    Ok(finding)
}

/// Writes the page to where it was asked for; else to a directory for temporary files, if there is one. Where it is.
fn write_page(args: &DemoArgs, page: &str) -> Result<Option<PathBuf>, DemoError> {
    let directory = match &args.report {
        Some(directory) => {
            fs::create_dir_all(directory).map_err(|cause| DemoError::Write { path: directory.clone(), cause })?;
            directory.clone()
        }
        // A machine without room for it has the account at the terminal.
        None => match tempfile::Builder::new().prefix("uview-demo-report-").tempdir() {
            Ok(directory) => directory.keep(),
            Err(_) => return Ok(None),
        },
    };
    let path = directory.join("index.html");
    write(&path, page.as_bytes())?;
    Ok(Some(path))
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), DemoError> {
    fs::write(path, bytes).map_err(|cause| DemoError::Write { path: path.to_owned(), cause })
}
