//! Commands of steps. What a failed one said last is part of its error: CI's output is long, and its middle may be
//! lost.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use support::workspace;

/// Lines of a failed command's stderr that its error repeats.
const LAST_LINES: usize = 12;
/// How long its next line is waited for when it has failed.
const SAID_WITHIN: Duration = Duration::from_secs(1);

/// Runs `command` to its end.
///
/// # Errors
///
/// It does not start, or ends with another status than 0: with the last lines of its stderr.
pub fn succeed(command: &mut Command) -> Result<()> {
    let mut child = command.stderr(Stdio::piped()).spawn()?;
    let (says, said) = channel();
    let stderr = child.stderr.take();
    std::thread::spawn(move || {
        for line in stderr.into_iter().flat_map(|stderr| BufReader::new(stderr).split(b'\n')).map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).into_owned();
            eprintln!("{line}");
            // Nobody listens any more if it succeeded.
            _ = says.send(line);
        }
    });
    let status = child.wait()?;
    if status.success() {
        return Ok(());
    }
    // What it has started may hold its stderr open for longer.
    let lines: Vec<_> = std::iter::from_fn(|| said.recv_timeout(SAID_WITHIN).ok()).collect();
    let last = &lines[lines.len().saturating_sub(LAST_LINES)..];
    bail!("{} ended with {status}:\n{}", command.get_program().display(), last.join("\n"))
}

/// Runs cargo in the workspace.
///
/// # Errors
///
/// It ends with another status than 0.
pub fn cargo(arguments: &[&str]) -> Result<()> {
    cargo_with("CARGO_TERM_COLOR", "never", arguments)
}

/// Like [`cargo`], with a variable of the environment.
///
/// # Errors
///
/// It ends with another status than 0.
pub fn cargo_with(variable: &str, value: &str, arguments: &[&str]) -> Result<()> {
    let status = Command::new("cargo").args(arguments).env(variable, value).current_dir(workspace()).status()?;
    ensure!(status.success(), "`cargo {}` failed", arguments.join(" "));
    Ok(())
}

/// Whether cargo can do this here.
pub fn cargo_works(arguments: &[&str]) -> bool {
    let output = Command::new("cargo").args(arguments).current_dir(workspace()).output();
    output.is_ok_and(|output| output.status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_failed_command_said_last_is_in_its_error() {
        let mut command = Command::new("sh");
        command.args(["-c", "for line in $(seq 20); do echo line $line >&2; done; exit 3"]);

        let error = succeed(&mut command).unwrap_err().to_string();

        assert!(error.contains("exit status: 3") && error.ends_with("line 19\nline 20"), "{error}");
        assert_eq!(error.lines().count(), 1 + LAST_LINES);
        assert!(succeed(&mut Command::new("true")).is_ok());
    }
}
