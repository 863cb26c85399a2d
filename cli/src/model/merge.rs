//! `uview model merge`: one model of several.

use std::path::PathBuf;

use lmap::Model;

use super::read;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output;

/// Arguments of `uview model merge`.
#[derive(Clone, Debug, clap::Args)]
pub struct MergeArgs {
    /// The models, of the same service; metrics are matched by their names
    #[arg(required = true, num_args = 1..=1024)]
    files: Vec<PathBuf>,
    /// Where to write what stands for the rows of all
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

/// Merges and writes.
///
/// # Errors
///
/// [`Failure`] in a sentence for a file that is no model, models that do not go together, and a file that cannot be written.
pub fn run(args: &MergeArgs) -> Result<Exit, Failure> {
    let what = format!("merge {} models into {}", args.files.len(), args.out.display());
    let models: Vec<Model> = args.files.iter().map(|file| read(file, &what)).collect::<Result<_, _>>()?;
    let merged = Model::merge(&models.iter().collect::<Vec<_>>()).map_err(|error| {
        let advice = "models that score in the same way, scaled or absolute; `uview model show` says which";
        Failure::to(what.as_str()).caused_by(&error).advice(advice)
    })?;
    std::fs::write(&args.out, merged.encode()).map_err(|error| {
        let failure = Failure::to(what.as_str()).because(format!("{} cannot be written", args.out.display()));
        failure.caused_by(&error).advice("is there such a folder, and may you write into it?")
    })?;
    let columns = merged.summary().columns.len();
    output::tell(&format!("uview: {} has {columns} metrics, γ {:.3}", args.out.display(), merged.gamma()));
    Ok(Exit::Fine)
}
