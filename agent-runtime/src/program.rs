//! The `main` of both agents: arguments, the default configuration, and the error message when the agent cannot run.
//!
//! This is the only module of this crate that prints.

use core::error::Error;
use std::io::{self, ErrorKind, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use crate::config::{self, ConfigError, Settings};
use crate::error::chain;

/// Command line arguments of an agent.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ConfigArgs {
    /// Configuration file; without it, every key has its default
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print every configuration key with its default, and exit
    #[arg(long)]
    pub print_default_config: bool,
}

impl ConfigArgs {
    /// The settings in the file, or the defaults without a file.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if the file cannot be used.
    pub fn settings<S: Settings>(&self) -> Result<S, ConfigError> {
        self.config.as_ref().map_or_else(|| Ok(S::default()), |path| config::load(path))
    }
}

/// Runs the program `name`: with `--print-default-config` prints `default`, else reads the configuration and calls
/// `start`.
pub fn run<S: Settings>(
    name: &str,
    args: &ConfigArgs,
    default: &str,
    start: impl FnOnce(S) -> Result<(), Box<dyn Error>>,
) -> ExitCode {
    if args.print_default_config {
        // A closed pipe is no error: the reader has what it wanted.
        return match io::stdout().write_all(default.as_bytes()) {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => ExitCode::FAILURE,
            _ => ExitCode::SUCCESS,
        };
    }
    match args.settings().map_err(Into::into).and_then(start) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{name}: {}", message(&*error));
            ExitCode::FAILURE
        }
    }
}

/// `error` with its causes in one line. An error in the configuration has a second line that says what helps.
fn message(error: &(dyn Error + 'static)) -> String {
    let text = chain(error);
    if error.is::<ConfigError>() {
        text + "\n--print-default-config shows every key with its default and what it is for"
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_the_causes_and_for_the_configuration_also_what_helps() {
        let cause = io::Error::new(ErrorKind::NotFound, "no such file");
        let missing = ConfigError::Read { path: PathBuf::from("/a.yaml"), cause };

        let text = message(&missing);

        assert!(
            text.starts_with("cannot read the configuration file /a.yaml: no such file\n--print-default"),
            "{text}"
        );
        assert_eq!(message(&io::Error::other("broken")), "broken");
    }
}
