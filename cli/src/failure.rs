//! Errors as prose: what could not be done, because of what, and what to do about it.

use core::error::Error;
use core::fmt;

use crate::exit::Exit;

/// A command that could not be carried out, for people to read.
#[derive(Debug, PartialEq, Eq)]
pub struct Failure {
    what: String,
    because: Vec<String>,
    advice: Vec<String>,
    exit: Exit,
}

impl Failure {
    /// Could not do `what`; an infinitive, without a full stop.
    #[must_use]
    pub fn to(what: impl Into<String>) -> Self {
        Self { what: what.into(), because: Vec::new(), advice: Vec::new(), exit: Exit::Failed }
    }

    /// Adds a cause in words.
    #[must_use]
    pub fn because(mut self, cause: impl Into<String>) -> Self {
        self.because.push(cause.into());
        self
    }

    /// Adds an error and everything that it names as its source. A source that repeats what was said is left out.
    #[must_use]
    pub fn caused_by(mut self, error: &(dyn Error + 'static)) -> Self {
        let mut next = Some(error);
        while let Some(error) = next {
            let text = error.to_string();
            if !self.because.iter().any(|said| said.contains(&text)) {
                self.because.push(text);
            }
            next = error.source();
        }
        self
    }

    /// Adds something that the reader can do.
    #[must_use]
    pub fn advice(mut self, advice: impl Into<String>) -> Self {
        self.advice.push(advice.into());
        self
    }

    /// Ends with another code than [`Exit::Failed`].
    #[must_use]
    pub fn exit_with(mut self, exit: Exit) -> Self {
        self.exit = exit;
        self
    }

    /// The code to end with.
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

/// Keeps a text of several lines together (a configuration file's error shows the lines around it).
fn indented(text: &str) -> String {
    text.trim_end().replace('\n', "\n    ")
}

impl Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot open the file")]
    struct Outer(#[source] std::io::Error);

    #[test]
    fn a_failure_reads_as_prose_with_causes_and_advice() {
        let error = Outer(std::io::Error::other("disk on fire"));

        let text = Failure::to("replay a.csv").caused_by(&error).advice("another disk").to_string();

        let expected = "uview: cannot replay a.csv\n  because cannot open the file\n  because disk on fire\n  \
                        try: another disk";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_cause_that_was_said_already_is_not_said_twice() {
        let error = std::io::Error::other("no room");

        let failure = Failure::to("write").because("no room on /dev/sda").caused_by(&error);

        assert_eq!(failure.to_string(), "uview: cannot write\n  because no room on /dev/sda");
    }
}
