//! The steps of the test, with the time that each took.

use core::fmt;

use anyhow::{Context as _, Result};

use support::clock::timed;

/// What each step took, in order; a line each.
#[derive(Debug, Default)]
pub struct Steps(Vec<String>);

impl Steps {
    /// Runs a step, and measures it.
    ///
    /// # Errors
    ///
    /// That of the step, with its name.
    pub fn run<T>(&mut self, name: &str, step: impl FnOnce() -> Result<T>) -> Result<T> {
        let (result, took) = timed(step);
        self.0.push(format!("{name:<86} {:6.1} s", took.as_secs_f64()));
        result.with_context(|| name.to_owned())
    }
}

impl fmt::Display for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("\n"))
    }
}
