//! `uview model`: shows the content of a model file, fetches a model from a NIC agent, merges several, or gives one to
//! a host agent.

pub mod fetch;
pub mod merge;
pub mod set;
pub mod show;

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use lmap::{Model, ModelError};
use nic_agent::fingerprint;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::input;
use crate::output::{self, json};
pub use fetch::FetchArgs;
pub use merge::MergeArgs;
pub use set::{SetArgs, UnsetArgs};
use show::ModelReport;

/// Larger files are refused.
const MAX_BYTES: u64 = 1 << 30;

/// Arguments of `uview model`.
#[derive(Clone, Debug, clap::Args)]
pub struct ModelArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Command {
    /// Show a model: threshold γ, size, training scores, and the role of each metric
    Show(ShowArgs),
    /// Get the learned model of a service from a running NIC agent
    Fetch(FetchArgs),
    /// Merge the models of several nodes (`uview model fetch` gets them)
    Merge(MergeArgs),
    /// Give a running agent a model for a service, which judges from the next row on
    #[command(long_about = set::LONG_ABOUT)]
    Set(SetArgs),
    /// Take back the model that a service was given: it learns by itself again
    Unset(UnsetArgs),
}

/// Arguments of `uview model show`.
#[derive(Clone, Debug, clap::Args)]
pub struct ShowArgs {
    /// Model file of `uview train` or `uview replay --save-model`
    file: PathBuf,
    /// A recording or CSV with the names of the metrics; a model has only their fingerprints
    #[arg(long, value_name = "FILE")]
    names: Option<PathBuf>,
    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand.
///
/// # Errors
///
/// [`Failure`] if a file is no model, an agent does not answer, or the output cannot be written.
pub fn run(args: &ModelArgs, from_environment: Option<PathBuf>) -> Result<Exit, Failure> {
    match &args.command {
        Command::Show(args) => show(args),
        Command::Fetch(args) => fetch::run(args),
        Command::Merge(args) => merge::run(args),
        Command::Set(args) => set::run(args, from_environment),
        Command::Unset(args) => set::undo(args, from_environment),
    }
}

fn show(args: &ShowArgs) -> Result<Exit, Failure> {
    let what = format!("show {}", args.file.display());
    let model = read(&args.file, &what)?;
    let names = match &args.names {
        None => HashMap::new(),
        Some(path) => {
            let input = input::open(path, None, &what)?;
            input.table.metrics.into_iter().map(|name| (fingerprint(&name), name)).collect()
        }
    };
    let report = ModelReport { file: &args.file, summary: &model.summary(), names: &names };
    if args.json {
        output::print(&json(&report.view())?)?;
    } else {
        output::print(&report.to_string())?;
    }
    Ok(Exit::Fine)
}

/// Reads a model file.
///
/// # Errors
///
/// [`Failure`] to do `what`, if the file cannot be read or decoded.
pub fn read(path: &Path, what: &str) -> Result<Model, Failure> {
    decode(&contents(path, what)?, &path.display().to_string(), what)
}

/// The bytes of a file that may be a model.
fn contents(path: &Path, what: &str) -> Result<Vec<u8>, Failure> {
    read_bytes(path).map_err(|error| {
        let failure = Failure::to(what).because(format!("{} cannot be read", path.display())).caused_by(&error);
        failure.advice("is the path right, and can you read it?")
    })
}

/// The model in `bytes`, which messages call `name`.
fn decode(bytes: &[u8], name: &str, what: &str) -> Result<Model, Failure> {
    Model::decode(bytes).map_err(|error| {
        let advice = match error {
            ModelError::Magic if recording::is_recording(bytes) => {
                "this is a recording: `uview train` trains a model on it"
            }
            ModelError::Magic => "a file of `uview train` or `uview replay --save-model`",
            ModelError::Version { .. } => "train again with this release, or use the release that wrote it",
            ModelError::Length { .. } | ModelError::Checksum { .. } => {
                "was it copied completely? Copy it again, or train again"
            }
            _ => "the file is damaged: train again",
        };
        Failure::to(what).because(format!("{name} cannot be used")).caused_by(&error).advice(advice)
    })
}

fn read_bytes(path: &Path) -> io::Result<Vec<u8>> {
    let bytes = std::fs::metadata(path)?.len();
    if bytes > MAX_BYTES {
        return Err(io::Error::other(format!("it has {bytes} bytes, a model has at most {MAX_BYTES}")));
    }
    std::fs::read(path)
}
