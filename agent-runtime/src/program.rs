//! The `main` of both agents: arguments, the default configuration, and the error message when the agent cannot run.
//!
//! This is the only module of this crate that prints.

use core::error::Error;
use std::io::{self, ErrorKind, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use wire::printable;

use crate::budget::{Budget, Load};
use crate::check::{Inspection, Level};
use crate::config::{self, ConfigError, Settings};
use crate::error::chain;
use crate::tls::TlsError;

/// Command line arguments of an agent.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ConfigArgs {
    /// Configuration file; without it, every key has its default
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print every configuration key with its default, and exit
    #[arg(long)]
    pub print_default_config: bool,
    /// Check the configuration, certificates, addresses, directories and rights, print all findings, and exit
    #[arg(long)]
    pub check_config: bool,
    /// Print what the agent may keep in memory with this configuration, in rows and as a sum, and exit
    #[arg(long)]
    pub budget: bool,
    /// Services that the budget assumes [default: 600]
    #[arg(long, value_name = "NUMBER", requires = "budget")]
    pub services: Option<u64>,
    /// Columns of each service's LMAP that the budget assumes: 1 for a counter or gauge, 3 for a
    /// histogram [default: 100]
    #[arg(long, value_name = "NUMBER", requires = "budget")]
    pub columns: Option<u64>,
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

    /// What the budget assumes.
    #[must_use]
    pub fn load(&self) -> Load {
        let Load { services, columns } = Load::default();
        Load { services: self.services.unwrap_or(services), columns: self.columns.unwrap_or(columns) }
    }
}

/// The commands of an agent.
#[derive(Clone, Copy, Debug)]
pub struct Program<'a> {
    /// Name in messages.
    pub name: &'a str,
    /// What `--print-default-config` prints.
    pub default: &'a str,
    /// What `--check-config` does.
    pub check: fn(&ConfigArgs) -> Inspection,
    /// What `--budget` prints.
    pub budget: fn(&ConfigArgs) -> Result<Budget, ConfigError>,
}

/// Runs `program`: prints the default configuration or the budget, or checks the given configuration, if `args` say so;
/// else reads the configuration and calls `start`.
pub fn run<S: Settings>(
    program: &Program<'_>,
    args: &ConfigArgs,
    start: impl FnOnce(S) -> Result<(), Box<dyn Error>>,
) -> ExitCode {
    if args.print_default_config {
        return print(program.default, ExitCode::SUCCESS);
    }
    if args.check_config {
        let inspection = (program.check)(args);
        let failed = inspection.worst() == Level::Error;
        return print(&inspection.to_string(), if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS });
    }
    let ended = if args.budget {
        (program.budget)(args).map_err(Into::into).map(|budget| print(&budget.to_string(), ExitCode::SUCCESS))
    } else {
        args.settings().map_err(Into::into).and_then(start).map(|()| ExitCode::SUCCESS)
    };
    match ended {
        Ok(code) => code,
        Err(error) => {
            _ = writeln!(io::stderr(), "{}", printable::lines(&format!("{}: {}", program.name, message(&*error))));
            ExitCode::FAILURE
        }
    }
}

/// Prints `text`. A closed pipe is no error: the reader has what it wanted.
pub fn print(text: &str, code: ExitCode) -> ExitCode {
    match io::stdout().write_all(printable::lines(text).as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => ExitCode::FAILURE,
        _ => code,
    }
}

/// Checks the configuration that `args` name, at `now_s` seconds since 1970: the file, the ranges of its values, and
/// what `inspect` looks at.
pub fn check<S: Settings>(args: &ConfigArgs, now_s: i64, inspect: impl FnOnce(&S, &mut Inspection)) -> Inspection {
    let mut inspection = Inspection::new(now_s);
    let settings = match &args.config {
        None => Ok(S::default()),
        Some(path) => config::read(path).and_then(|text| config::parse_unchecked::<S>(&text)),
    };
    let settings = match settings {
        Ok(settings) => settings,
        Err(error) => {
            // One mistake hides those behind it.
            let advice = "mend it and check again; --print-default-config shows every key";
            inspection.error("config", chain(&error), advice);
            return inspection;
        }
    };
    let file = args.config.as_ref().map_or_else(|| "every key has its default".to_owned(), |p| p.display().to_string());
    inspection.ok("config", file);
    // `inspect` looks at each file with a certificate.
    let is_of_files = |problem: &ConfigError| problem.source().is_some_and(<dyn Error>::is::<TlsError>);
    for problem in settings.problems().into_iter().filter(|problem| !is_of_files(problem)) {
        let text = chain(&problem);
        // The key is in front of the line already.
        let what = text.strip_prefix(problem.key()).map_or(text.as_str(), str::trim_start);
        inspection.error(problem.key(), what, "--print-default-config says what is possible");
    }
    inspect(&settings, &mut inspection);
    inspection
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
    use serde::Deserialize;

    use super::*;
    use crate::config::range;

    #[derive(Debug, Default, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    struct Example {
        workers: u32,
    }

    impl Settings for Example {
        fn check(&self) -> Result<(), ConfigError> {
            range(self.workers < 5, "workers", &self.workers, "at most 4 are possible")
        }
    }

    fn checked(text: &str) -> String {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, text).unwrap();
        let args = ConfigArgs { config: Some(file.path().to_owned()), ..ConfigArgs::default() };
        check(&args, 0, |_: &Example, inspection| inspection.ok("more", "was looked at")).to_string()
    }

    #[test]
    fn a_value_out_of_range_hides_nothing_and_a_file_that_is_none_hides_all() {
        assert!(checked("workers: 4\n").ends_with("0 errors, 0 warnings, 2 ok\n"));
        let found = checked("workers: 5\n");
        assert!(found.contains("is 5: at most 4") && found.contains("was looked at"), "{found}");
        let found = checked("worker: 5\n");
        assert!(found.contains("line 1") && found.ends_with("1 errors, 0 warnings, 0 ok\n"), "{found}");
    }

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
