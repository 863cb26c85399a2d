//! `cargo lab reproduce`: compares the claims of publications with this project. The work is done by `uview reproduce`
//! and by the synopses' example `reproduce`.

mod hooks;
mod sampling;
mod two_agents;

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, ensure};
use clap::{Args, Subcommand};

use support::workspace;

/// The publications, as subcommands.
#[derive(Debug, Subcommand)]
pub enum Publication {
    /// Chapter 4 of uView: k and l, overload with replicas, dynamic sampling, memory. Writes docs/reproduction/uview.md
    /// and .json; a quarter of an hour, for three runs with replicas.
    Uview {
        /// Skip the experiment with replicas.
        #[arg(long)]
        without_replicas: bool,
        /// Folder of labelled data [default: UVIEW_DATA]
        #[arg(long)]
        data: Option<PathBuf>,
    },
    /// Fridges on synthetic traffic; two minutes of a core.
    Fridges(Synopsis),
    /// FineComb, and of the same runs LDA, as in the publications of FineComb and RDA; ten minutes of two cores.
    Finecomb(Synopsis),
    /// RAP and Space-Saving on synthetic streams.
    Rap(Synopsis),
    /// Reordering of TCP by prefix on synthetic traffic.
    Reordering(Synopsis),
    /// Distinct flows in sliding windows, on synthetic traffic; a minute of a core.
    Cardinality(Synopsis),
    /// Disaggregated sketches on a bus and in a fat tree, on synthetic traffic.
    Disaggregated(Synopsis),
    /// RDA, and two agents in network namespaces, which need root and `ip`; five minutes.
    Rda(Synopsis),
    /// Traces of faults that the trace hooks keep, against head sampling and plain policies, in virtual time.
    Hooks(Synopsis),
    /// Dynamic sampling of a live Redis (Debian's package) and of a recorded one: loss by share of samples sent.
    Sampling(sampling::SamplingArgs),
}

/// Output folder of the table of a synopsis: NAME.md, NAME.json and plots.
#[derive(Clone, Debug, Default, Args)]
pub struct Synopsis {
    /// Output folder [default: docs/reproduction]
    #[arg(long)]
    out: Option<PathBuf>,
    /// Write nothing: make fewer runs, and fail if a claim that holds in the stored table does not hold
    #[arg(long)]
    reduced: bool,
}

#[expect(clippy::disallowed_methods, reason = "the environment names the folder of the data")]
fn named_by_environment() -> Option<PathBuf> {
    std::env::var_os("UVIEW_DATA").filter(|folder| !folder.is_empty()).map(PathBuf::from)
}

/// Runs a reproduction, in a release build.
///
/// # Errors
///
/// The program that does the work fails.
pub fn run(what: &Publication) -> Result<()> {
    match what {
        Publication::Uview { without_replicas, data } => uview(*without_replicas, data.clone()),
        Publication::Fridges(synopsis) => of_synopsis("fridges", synopsis, &[]),
        Publication::Finecomb(synopsis) => of_synopsis("finecomb", synopsis, &[]),
        Publication::Rap(synopsis) => of_synopsis("rap", synopsis, &[]),
        Publication::Reordering(synopsis) => of_synopsis("reordering", synopsis, &[]),
        Publication::Cardinality(synopsis) => of_synopsis("cardinality", synopsis, &[]),
        Publication::Disaggregated(synopsis) => of_synopsis("disaggregated", synopsis, &[]),
        Publication::Rda(synopsis) => rda(synopsis),
        Publication::Hooks(synopsis) => hooks::run(synopsis),
        Publication::Sampling(args) => sampling::run(args, named_by_environment()),
    }
}

fn rda(synopsis: &Synopsis) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("two-agents.json");
    two_agents::measure(&file)?;
    of_synopsis("rda", synopsis, &["--two-agents".as_ref(), file.as_os_str()])
}

fn of_synopsis(name: &str, synopsis: &Synopsis, more: &[&OsStr]) -> Result<()> {
    let mut cargo = Command::new("cargo");
    cargo.args(["run", "--release", "--quiet", "--package", "synopses", "--example", "reproduce", "--"]);
    cargo.current_dir(workspace());
    let out = synopsis.out.clone().unwrap_or_else(|| workspace().join("docs/reproduction"));
    cargo.arg(name).arg(std::path::absolute(out)?).args(synopsis.reduced.then_some("--reduced")).args(more);
    let status = cargo.status()?;
    ensure!(status.success(), "the reproduction of {name} ended with {status}");
    Ok(())
}

fn uview(without_replicas: bool, data: Option<PathBuf>) -> Result<()> {
    let data = data.or_else(named_by_environment);
    if data.is_none() {
        println!("UVIEW_DATA names no folder of labelled data: its claims are not computable");
    }
    let mut command = Command::new("cargo");
    command.args([
        "run",
        "--release",
        "--quiet",
        "--package",
        "uview-cli",
        "--features",
        "lab",
        "--",
        "reproduce",
        "--out",
    ]);
    command.arg(workspace().join("docs/reproduction")).current_dir(workspace());
    command.args(without_replicas.then_some("--without-replicas"));
    if let Some(data) = data {
        command.arg("--data").arg(std::path::absolute(data)?);
    }
    let status = command.status()?;
    ensure!(status.success(), "uview reproduce ended with {status}");
    Ok(())
}
