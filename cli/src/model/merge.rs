//! `uview model merge`: merges several models of a service into one.

use std::path::PathBuf;

use lmap::Model;

use super::read;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output;

/// Arguments of `uview model merge`.
#[derive(Clone, Debug, clap::Args)]
pub struct MergeArgs {
    /// Models of the same service; metrics are matched by name
    #[arg(required = true, num_args = 1..=1024)]
    files: Vec<PathBuf>,
    /// File for the merged model
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

/// Merges the models and writes the result.
///
/// # Errors
///
/// [`Failure`] if a file is no model, the models cannot be merged, or the result cannot be written.
pub fn run(args: &MergeArgs) -> Result<Exit, Failure> {
    let what = format!("merge {} models into {}", args.files.len(), args.out.display());
    let models: Vec<Model> = args.files.iter().map(|file| read(file, &what)).collect::<Result<_, _>>()?;
    let merged = Model::merge(&models.iter().collect::<Vec<_>>()).map_err(|error| {
        let advice = "all models need the same form of score, scaled or absolute; `uview model show` prints it";
        Failure::to(what.as_str()).caused_by(&error).advice(advice)
    })?;
    std::fs::write(&args.out, merged.encode()).map_err(|error| {
        let failure = Failure::to(what.as_str()).because(format!("{} cannot be written", args.out.display()));
        failure.caused_by(&error).advice("does the folder exist, and can you write to it?")
    })?;
    let columns = merged.summary().columns.len();
    output::print_stderr(&format!("uview: {} has {columns} metrics, γ {:.3}", args.out.display(), merged.gamma()));
    Ok(Exit::Fine)
}
