//! Error messages for people: what could not be done, why, and what to try.

use core::error::Error;
use core::fmt;

use crate::exit::Exit;

/// The error message of a command: what failed, causes, advice, and the exit code.
#[derive(Debug, PartialEq, Eq)]
pub struct Failure {
    what: String,
    because: Vec<String>,
    advice: Vec<String>,
    exit: Exit,
}

impl Failure {
    /// "cannot `what`": an infinitive without a full stop, such as `read a.csv`.
    #[must_use]
    pub fn to(what: impl Into<String>) -> Self {
        Self { what: what.into(), because: Vec::new(), advice: Vec::new(), exit: Exit::Failed }
    }

    /// Adds a cause as text.
    #[must_use]
    pub fn because(mut self, cause: impl Into<String>) -> Self {
        self.because.push(cause.into());
        self
    }

    /// Adds an error and its sources as causes. A text that an earlier cause already contains is left out.
    #[must_use]
    pub fn caused_by(mut self, error: &(dyn Error + 'static)) -> Self {
        let mut next = Some(error);
        while let Some(error) = next {
            let text = error.to_string();
            if !self.because.iter().any(|cause| cause.contains(&text)) {
                self.because.push(text);
            }
            next = error.source();
        }
        self
    }

    /// Adds something for the reader to try.
    #[must_use]
    pub fn advice(mut self, advice: impl Into<String>) -> Self {
        self.advice.push(advice.into());
        self
    }

    /// Sets another exit code than [`Exit::Failed`].
    #[must_use]
    pub fn exit_with(mut self, exit: Exit) -> Self {
        self.exit = exit;
        self
    }

    /// The exit code of the command.
    #[must_use]
    pub fn exit(&self) -> Exit {
        self.exit
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "uview: cannot {}", self.what)?;
        for cause in &self.because {
            write!(f, "\n  because {}", indented(cause))?;
        }
        for advice in &self.advice {
            write!(f, "\n  try: {}", indented(advice))?;
        }
        Ok(())
    }
}

/// Indents the further lines of a text, such as an error in a configuration file.
fn indented(text: &str) -> String {
    text.trim_end().replace('\n', "\n    ")
}

impl Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot open the file")]
    struct OpenError(#[source] std::io::Error);

    #[test]
    fn a_failure_prints_causes_and_advice() {
        let error = OpenError(std::io::Error::other("disk on fire"));

        let text = Failure::to("replay a.csv").caused_by(&error).advice("another disk").to_string();

        let expected = "uview: cannot replay a.csv\n  because cannot open the file\n  because disk on fire\n  \
                        try: another disk";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_repeated_cause_is_printed_once() {
        let error = std::io::Error::other("no room");

        let failure = Failure::to("write").because("no room on /dev/sda").caused_by(&error);

        assert_eq!(failure.to_string(), "uview: cannot write\n  because no room on /dev/sda");
    }
}
