//! `cargo lab switch`: real TCP through P4 programs. The NIC agent measures it at the host's own interface and in the
//! switch that the packets pass, and both verdicts stand side by side in one table.
//!
//! ```text
//! here0 ── switch ── relay ── switch ── there0      delays, losses and reordering are the relay's
//! ```
//!
//! The switch is `simple_switch` if it is on the `PATH`, else the interpreter of `p4/equality`.

mod alarms;
mod experiment;
mod figures;
mod link;
mod passage;
mod processes;
mod requests;
mod segments;
mod server;
mod setting;
mod tables;
mod traffic;

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use support::programs::Programs;
use support::workspace;

use crate::unavailable::Unavailable;
use processes::{SwitchProgram, TestedPrograms};
use setting::Measure;
use tables::Report;

/// The reference switch.
const SIMPLE_SWITCH: &str = "simple_switch";

/// Arguments of `cargo lab switch`.
#[derive(Debug, clap::Args)]
pub struct SwitchArgs {
    /// The program to test [default: a new build].
    #[arg(long, value_name = "FILE")]
    uview: Option<PathBuf>,
    /// What is measured.
    #[arg(long, value_delimiter = ',', value_enum, default_value = "handshake,one-way,reordering")]
    measures: Vec<Measure>,
    /// How long each condition of the link is measured, in seconds.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(5..=600))]
    seconds: u64,
    /// Take the interpreter, also where `simple_switch` is on the PATH.
    #[arg(long)]
    interpreter: bool,
    /// Write docs/reproduction/switch.json and switch.md.
    #[arg(long)]
    write: bool,
    /// Keep the folder with all logs.
    #[arg(long)]
    keep: bool,
}

/// Measures, and prints the table.
///
/// # Errors
///
/// [`Unavailable`] without root or network namespaces; a process that does not start; or a missed bar.
pub fn run(args: &SwitchArgs) -> Result<()> {
    ensure!(rustix::process::geteuid().is_root(), Unavailable("root, for network namespaces".to_owned()));
    let uview = match &args.uview {
        Some(path) => path.canonicalize().with_context(|| path.display().to_string())?,
        None => Programs::build()?.path("uview")?.to_owned(),
    };
    let version = if args.interpreter { None } else { simple_switch() };
    let (switch, name) = if let Some(version) = version {
        (SwitchProgram::Reference(SIMPLE_SWITCH.into()), format!("{SIMPLE_SWITCH} {version}"))
    } else {
        let built = Programs::release(&[("equality", "--bin=equality")])?;
        let interpreter = built.path("equality")?.to_owned();
        (SwitchProgram::Interpreter(interpreter), "the interpreter of p4/equality".to_owned())
    };
    println!("switches: {name}");
    let tested = TestedPrograms { uview, switch };
    let cores = std::thread::available_parallelism()?.get();
    let mut report = Report { switch: name, seconds: args.seconds, cores, results: Vec::new() };
    for measure in &args.measures {
        println!("{}", measure.title());
        let folder = tempfile::Builder::new().prefix("uview-switch-").tempdir()?;
        let result = experiment::run(*measure, &tested, folder.path(), args.seconds);
        if args.keep || result.is_err() {
            println!("logs: {}", folder.keep().display());
        }
        report.results.push(result?);
    }
    println!("\n{}", report.tables());
    if args.write {
        write(&report)?;
    }
    ensure!(report.bars().iter().all(|bar| bar.met), "a bar is missed");
    Ok(())
}

/// The version of the reference switch, if it can be run.
fn simple_switch() -> Option<String> {
    let output = Command::new(SIMPLE_SWITCH).arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    text.lines().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned)
}

/// The figures as JSON, and the page.
fn write(report: &Report) -> Result<()> {
    let folder = workspace().join("docs/reproduction");
    fs::write(folder.join("switch.json"), serde_json::to_string_pretty(report)? + "\n")?;
    let page = folder.join("switch.md");
    fs::write(&page, report.page())?;
    println!("written: {}", page.display());
    Ok(())
}
