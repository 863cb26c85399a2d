//! What `main` does around an agent, once for both: arguments, the default configuration, and what is said when it cannot run.
//!
//! The only code here that prints: it is `main`, but for the name.

use core::error::Error;
use core::iter;
use std::io::{self, ErrorKind, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use crate::config::{self, ConfigError, Settings};

/// Arguments of an agent.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ConfigArgs {
    /// The configuration; without one, every key has its default
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print every key of the configuration with its default, and end
    #[arg(long)]
    pub print_default_config: bool,
}

impl ConfigArgs {
    /// What the file says, or the default without one.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if the file cannot be used.
    pub fn settings<S: Settings>(&self) -> Result<S, ConfigError> {
        self.config.as_ref().map_or_else(|| Ok(S::default()), |path| config::load(path))
    }
}

/// Runs the program `name`: prints `default` if that is asked for, else reads the configuration and starts the agent.
pub fn run<S: Settings>(
    name: &str,
    args: &ConfigArgs,
    default: &str,
    start: impl FnOnce(S) -> Result<(), Box<dyn Error>>,
) -> ExitCode {
    if args.print_default_config {
        // Whoever closes the pipe early has what they wanted.
        return match io::stdout().write_all(default.as_bytes()) {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => ExitCode::FAILURE,
            _ => ExitCode::SUCCESS,
        };
    }
    match args.settings().map_err(Into::into).and_then(start) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{name}: {}", complaint(&*error));
            ExitCode::FAILURE
        }
    }
}

/// An error with its causes in one line, and if it is one of the configuration, what helps in another.
fn complaint(error: &(dyn Error + 'static)) -> String {
    let causes = iter::successors(Some(error), |&error| error.source());
    let text = causes.map(ToString::to_string).collect::<Vec<_>>().join(": ");
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
    fn an_error_is_said_with_its_causes_and_one_of_the_configuration_with_what_helps() {
        let cause = io::Error::new(ErrorKind::NotFound, "no such file");
        let missing = ConfigError::Read { path: PathBuf::from("/a.yaml"), cause };

        let said = complaint(&missing);

        assert!(
            said.starts_with("cannot read the configuration file /a.yaml: no such file\n--print-default"),
            "{said}"
        );
        assert_eq!(complaint(&io::Error::other("broken")), "broken");
    }
}
