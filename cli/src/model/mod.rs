//! `uview model`: what is in a model file, in words; and one model of several.

pub mod merge;
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
pub use merge::MergeArgs;
use show::Show;

/// Larger files are no models.
const MOST_BYTES: u64 = 1 << 30;

/// Arguments of `uview model`.
#[derive(Clone, Debug, clap::Args)]
pub struct ModelArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Command {
    /// Say what a model has learnt: γ, k, l, scores of training, and what it makes of each metric
    Show(ShowArgs),
    /// Make one model of several, as of the nodes of a service (a NIC agent gives its own at /models/SERVICE)
    Merge(MergeArgs),
}

/// Arguments of `uview model show`.
#[derive(Clone, Debug, clap::Args)]
pub struct ShowArgs {
    /// The model, as `uview train` or `uview replay --save-model` wrote it
    file: PathBuf,
    /// A recording or CSV with the metrics' names: the model itself knows them by a number only
    #[arg(long, value_name = "FILE")]
    names: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Does what the arguments say.
///
/// # Errors
///
/// [`Failure`] in a sentence for every file that is no model.
pub fn run(args: &ModelArgs) -> Result<Exit, Failure> {
    match &args.command {
        Command::Show(args) => show(args),
        Command::Merge(args) => merge::run(args),
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
    let show = Show { file: &args.file, summary: &model.summary(), names: &names };
    if args.json {
        output::print(&json(&show.view())?)?;
    } else {
        output::print(&show.to_string())?;
    }
    Ok(Exit::Fine)
}

/// Reads a model.
///
/// # Errors
///
/// [`Failure`] to do `what`, with what can be done about it.
pub fn read(path: &Path, what: &str) -> Result<Model, Failure> {
    let bytes = read_bytes(path).map_err(|error| {
        let failure = Failure::to(what).because(format!("{} cannot be read", path.display())).caused_by(&error);
        failure.advice("is the path right, and may you read it?")
    })?;
    Model::decode(&bytes).map_err(|error| {
        let advice = match error {
            ModelError::Magic if recording::is_recording(&bytes) => {
                "this is a recording: `uview train` makes a model of it"
            }
            ModelError::Magic => "a file that `uview train` or `uview replay --save-model` wrote",
            ModelError::Version { .. } => "train again with this release, or use the one that wrote it",
            ModelError::Length { .. } | ModelError::Checksum { .. } => {
                "was it copied whole? Copy it again, or train again"
            }
            _ => "train again: no release writes such a file",
        };
        Failure::to(what).because(format!("{} cannot be used", path.display())).caused_by(&error).advice(advice)
    })
}

fn read_bytes(path: &Path) -> io::Result<Vec<u8>> {
    let bytes = std::fs::metadata(path)?.len();
    if bytes > MOST_BYTES {
        return Err(io::Error::other(format!("it has {bytes} bytes, a model has at most {MOST_BYTES}")));
    }
    std::fs::read(path)
}
