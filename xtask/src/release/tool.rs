//! Other programs that a release needs.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};

/// What a tool prints, without white space around it.
///
/// # Errors
///
/// It does not start, or fails: with what it says.
pub fn output(command: &mut Command) -> Result<String> {
    let name = command.get_program().display().to_string();
    let output = command.output().with_context(|| format!("{name} cannot be run"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{name} failed: {text}");
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}
