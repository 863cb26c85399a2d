//! Runs a tool to its end.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};

/// What `command` prints.
///
/// # Errors
///
/// It cannot be run, or it fails; the error has what it printed.
pub fn output(command: &mut Command) -> Result<String> {
    let name = command.get_program().display().to_string();
    let output = command.output().with_context(|| name.clone())?;
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "{name} ended with {}:\n{text}{errors}", output.status);
    Ok(text.into_owned())
}
