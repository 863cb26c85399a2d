//! The demo: a small shop of real processes. This crate injects faults into it, uview monitors it, and the report says
//! which faults uview detected and at what cost.
//!
//! | module | what |
//! | --- | --- |
//! | [`graph`] | the five services, their call graph, and the network link between two of them |
//! | [`shop`], [`load`] | one service; the load generator. Each runs as a process of its own |
//! | [`child`] | starts such a process so that it never outlives the demo |
//! | [`link`] | the network link between two services, through a network namespace; also a process of its own |
//! | [`fault`] | the faults, their order, and the metrics that belong to each |
//! | [`record`], [`reason`] | the data of one run; a metric that explains a verdict |
//! | [`judge`] | evaluates a record: detection delay, ranking, false alarms |
//! | [`traces`] | the traces that were kept |
//! | [`talkers`] | who visits the frontend |
//! | [`autoscale`] | another experiment: one service, growing load, replicas that are added |
//!
//! [`run`] puts them together. All processes run the same program with one of its commands `host-agent`, `nic-agent`,
//! `shop`, `load`, `link` and `child`.

mod anchor;
pub mod autoscale;
pub mod child;
mod clock;
mod cost;
mod error;
pub mod fault;
mod figures;
pub mod graph;
mod host_agent;
mod http;
mod json_report;
pub mod judge;
mod ledger;
pub mod link;
pub mod load;
mod messages;
pub mod noise;
pub mod processes;
pub mod reason;
pub mod record;
mod report;
mod run;
mod screen;
pub mod shop;
mod state_file;
mod table;
pub mod talkers;
mod testbed;
pub mod traces;

use std::fs;
use std::path::{Path, PathBuf};

pub use error::DemoError;
pub use host_agent::HostAgentError;
pub use testbed::TestbedError;

use clock::Clock;
use fault::{Kind, Pace};
use json_report::JsonReport;
use judge::Finding;
use screen::Screen;
use testbed::TestbedConfig;

/// Arguments of `uview demo`.
#[derive(Clone, Debug, clap::Args)]
pub struct DemoArgs {
    /// Seed of the load, the order of the faults and the service with the CPU hog [default: a new one each time]
    #[arg(long)]
    pub seed: Option<u64>,
    /// Take at most 90 s instead of 4 minutes: shorter faults and pauses, less healthy traffic before them
    #[arg(long)]
    pub quick: bool,
    /// Inject only this fault, with minimal load: checks that the demo works, says nothing about detection quality
    #[arg(long, value_name = "KIND", conflicts_with = "quick", hide = true)]
    pub only: Option<Kind>,
    /// Scrape interval of the NIC agent; an LMAP is armed after 120 intervals
    #[arg(long, value_name = "MS", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub interval_ms: u32,
    /// Write the report as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write the report as a self-contained web page, DIR/index.html [default: a new temporary directory]
    #[arg(long, value_name = "DIR")]
    pub report: Option<PathBuf>,
}

/// Requests per second with `--only`: an unoptimised build on a busy machine can serve as many.
const FEW_PER_SECOND: f64 = 60.0;

/// Runs the demo, prints the report and returns the evaluation. `program` is the executable of all processes.
///
/// # Errors
///
/// [`DemoError`] if the run fails or the report cannot be written. A missed bar is no error: see
/// [`Finding::none_missed`].
pub fn run(args: &DemoArgs, program: &Path) -> Result<Finding, DemoError> {
    let seed = args.seed.unwrap_or_else(|| Clock::start().arbitrary());
    let (pace, per_second) = match args.only {
        Some(_) => (Pace::BRIEF, FEW_PER_SECOND),
        None if args.quick => (Pace::QUICK, load::PER_SECOND),
        None => (Pace::FULL, load::PER_SECOND),
    };
    let mut faults = fault::plan(seed, &pace);
    faults.retain(|planned| args.only.is_none_or(|only| planned.kind == only));
    let link = faults.iter().any(|planned| planned.kind == Kind::SlowLink);
    let config = TestbedConfig { program: program.to_owned(), interval_ms: args.interval_ms, seed, per_second, link };
    let mut screen = Screen::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(DemoError::Runtime)?;
    let record = runtime.block_on(run::run(&config, &pace, &faults, &mut screen))?;
    let finding = judge::judge(&record);
    let page = write_page(args, &report::page(&record, &finding))?;
    screen.print(&table::closing(&record, &finding, page.as_deref().map(report::address).as_deref()));
    if let Some(path) = &args.json {
        let facts = serde_json::to_vec_pretty(&JsonReport::new(&record, &finding));
        write(path, &facts.map_err(|error| DemoError::Write { path: path.clone(), cause: error.into() })?)?;
    }
    if let Some(path) = &page {
        screen.print(&format!("report: {}", path.display()));
    }
    Ok(finding)
}

/// Writes the page to `--report`, or to a new temporary directory if there is space for one. Returns its path.
fn write_page(args: &DemoArgs, page: &str) -> Result<Option<PathBuf>, DemoError> {
    let directory = match &args.report {
        Some(directory) => {
            fs::create_dir_all(directory).map_err(|cause| DemoError::Write { path: directory.clone(), cause })?;
            directory.clone()
        }
        // Without space for temporary files, the report at the terminal has to do.
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
