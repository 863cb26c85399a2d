//! `cargo xtask reproduce`: what a publication claims, held against what this project does. The work is that of `uview reproduce` and of the
//! synopses' example of that name.

mod hooks;
mod sampling;

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, ensure};
use clap::{Args, Subcommand};

use crate::proto::workspace;
use crate::release::Programs;

/// Which publication.
#[derive(Debug, Subcommand)]
pub enum What {
    /// Chapter 4 of uView: k and l, overload with replicas, dynamic sampling, memory. Writes docs/reproduction/uview.md and .json; about six minutes.
    Uview {
        /// Leave out the experiment with replicas.
        #[arg(long)]
        without_replicas: bool,
        /// The folder of labelled data [default: what UVIEW_DATA names]
        #[arg(long)]
        data: Option<PathBuf>,
    },
    /// Fridges on synthetic traffic; two minutes of a core.
    Fridges(Synopsis),
    /// What FineComb's and RDA's publications say of LDA; two minutes.
    Lda(Synopsis),
    /// FineComb; six minutes of a core.
    Finecomb(Synopsis),
    /// RDA; ten seconds.
    Rda(Synopsis),
    /// What the trace hooks keep of what faults hit, beside head sampling and plain policies, in virtual time.
    Hooks(Synopsis),
    /// Dynamic sampling of a live Redis (Debian's package) and of the recorded one: loss by what is sent. As long as it watches.
    Sampling(sampling::SamplingArgs),
}

/// Where the table of a synopsis is. Writes NAME.md, NAME.json and plots there.
#[derive(Clone, Debug, Default, Args)]
pub struct Synopsis {
    /// The folder for them [default: docs/reproduction]
    #[arg(long)]
    out: Option<PathBuf>,
    /// Write nothing: fewer runs, and an error if a claim that holds in the kept table does not
    #[arg(long)]
    reduced: bool,
}

#[expect(clippy::disallowed_methods, reason = "where the data is can only be said by the environment")]
fn named_by_environment() -> Option<PathBuf> {
    std::env::var_os("UVIEW_DATA").filter(|folder| !folder.is_empty()).map(PathBuf::from)
}

/// Reproduces, in a release build.
///
/// # Errors
///
/// What the program that does the work ends with, if that is not 0.
pub fn run(what: &What) -> Result<()> {
    match what {
        What::Uview { without_replicas, data } => uview(*without_replicas, data.clone()),
        What::Fridges(synopsis) => of_synopsis("fridges", synopsis),
        What::Lda(synopsis) => of_synopsis("lda", synopsis),
        What::Finecomb(synopsis) => of_synopsis("finecomb", synopsis),
        What::Rda(synopsis) => of_synopsis("rda", synopsis),
        What::Hooks(synopsis) => hooks::run(synopsis),
        What::Sampling(args) => sampling::run(args, named_by_environment()),
    }
}

/// The reduced form of all synopses: less than a minute.
///
/// # Errors
///
/// The first claim that held and does not.
pub fn check_synopses(programs: &Programs) -> Result<()> {
    let reduced = Synopsis { reduced: true, ..Synopsis::default() };
    let names = ["fridges", "lda", "finecomb", "rda"];
    names.into_iter().try_for_each(|name| with(programs.command("reproduce", ".")?, name, &reduced))
}

fn of_synopsis(name: &str, synopsis: &Synopsis) -> Result<()> {
    let mut cargo = Command::new("cargo");
    cargo.args(["run", "--release", "--quiet", "--package", "synopses", "--example", "reproduce", "--"]);
    cargo.current_dir(workspace());
    with(cargo, name, synopsis)
}

fn with(mut command: Command, name: &str, synopsis: &Synopsis) -> Result<()> {
    let out = synopsis.out.clone().unwrap_or_else(|| workspace().join("docs/reproduction"));
    command.arg(name).arg(std::path::absolute(out)?).args(synopsis.reduced.then_some("--reduced"));
    let status = command.status()?;
    ensure!(status.success(), "the reproduction of {name} ended with {status}");
    Ok(())
}

fn uview(without_replicas: bool, data: Option<PathBuf>) -> Result<()> {
    let data = data.or_else(named_by_environment);
    if data.is_none() {
        println!("UVIEW_DATA names no folder of labelled data: its claims are not computable");
    }
    let mut command = Command::new("cargo");
    command.args(["run", "--release", "--quiet", "--package", "uview-cli", "--", "reproduce", "--out"]);
    command.arg(workspace().join("docs/reproduction")).current_dir(workspace());
    command.args(without_replicas.then_some("--without-replicas"));
    if let Some(data) = data {
        command.arg("--data").arg(std::path::absolute(data)?);
    }
    let status = command.status()?;
    ensure!(status.success(), "uview reproduce ended with {status}");
    Ok(())
}
