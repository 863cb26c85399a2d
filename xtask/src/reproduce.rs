//! `cargo xtask reproduce uview`: what a publication claims, held against what this project does. The work is `uview reproduce`'s.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, ensure};
use clap::Subcommand;

use crate::proto::workspace;

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
}

#[expect(clippy::disallowed_methods, reason = "where the data is can only be said by the environment")]
fn named_by_environment() -> Option<PathBuf> {
    std::env::var_os("UVIEW_DATA").filter(|folder| !folder.is_empty()).map(PathBuf::from)
}

/// Reproduces, in a release build.
///
/// # Errors
///
/// What `uview reproduce` ends with, if that is not 0.
pub fn run(what: &What) -> Result<()> {
    let What::Uview { without_replicas, data } = what;
    let data = data.clone().or_else(named_by_environment);
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
