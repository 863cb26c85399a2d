//! The commit that is released: its name, and the one time that everything in a release has.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};

use crate::command::output;

/// The commit that is released.
#[derive(Clone, Debug)]
pub struct Commit {
    /// Its hash, in full.
    pub id: String,
    /// Seconds since 1970: the time of everything in the archive.
    pub seconds: u64,
    /// The same, such as 2026-11-24T01:45:00Z.
    pub time: String,
}

impl Commit {
    /// The commit of the clone in `root`.
    ///
    /// # Errors
    ///
    /// Changes that are not committed.
    pub fn of(root: &Path) -> Result<Self> {
        let git = |arguments: &[&str]| -> Result<String> {
            let mut command = Command::new("git");
            Ok(output(command.args(arguments).env("TZ", "UTC0").current_dir(root))?.trim().to_owned())
        };
        let changes = git(&["status", "--porcelain"])?;
        ensure!(changes.is_empty(), "commit first: a release is of a commit, and these files differ:\n{changes}");
        let show = |format: &str| {
            let date = "--date=format-local:%Y-%m-%dT%H:%M:%SZ";
            git(&["show", "--no-patch", date, &format!("--format={format}")])
        };
        Ok(Self { id: show("%H")?, seconds: show("%ct")?.parse()?, time: show("%cd")? })
    }
}
