//! Runs a tool to its end.

use std::io;
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

/// What `command` prints, which may not be installed: `advice` then says how it comes here.
///
/// # Errors
///
/// As those of [`output`].
pub fn output_of_tool(command: &mut Command, advice: &'static str) -> Result<String> {
    // Of what has started, nothing is an error of the system.
    output(command).map_err(|error| if error.is::<io::Error>() { error.context(advice) } else { error })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_to_install_is_given_for_what_does_not_start_and_not_for_what_fails() {
        let advised = |program: &str, arguments: &[&str]| {
            let output = output_of_tool(Command::new(program).args(arguments), "install it");
            output.map_err(|error| format!("{error:#}"))
        };

        let missing = advised("no-such-program-at-all", &[]).unwrap_err();
        assert!(missing.starts_with("install it: no-such-program-at-all: "), "{missing}");
        let failed = advised("sh", &["-c", "echo why >&2; exit 3"]).unwrap_err();
        assert!(failed.starts_with("sh ended with exit status: 3") && failed.contains("why"), "{failed}");
        assert_eq!(advised("echo", &["a"]).unwrap(), "a\n");
    }
}
