//! What came out wrong of several things, each of which is tried whatever became of the one before.

use anyhow::{Error, Result, bail};

/// What failed, in order.
#[derive(Debug, Default)]
pub struct Failed(Vec<Error>);

impl Failed {
    /// Keeps the error of `result`, which is of `what`. Prints it at once: what comes next may take long, or end the
    /// run. Returns whether there was none.
    pub fn note(&mut self, what: &str, result: Result<()>) -> bool {
        let Err(error) = result else { return true };
        println!("FAILED: {what}: {error:#}");
        self.0.push(error.context(what.to_owned()));
        false
    }

    /// Judges all of them.
    ///
    /// # Errors
    ///
    /// At least one has failed: it names all that have.
    pub fn into_result(self) -> Result<()> {
        if self.0.is_empty() {
            return Ok(());
        }
        let all: Vec<_> = self.0.iter().map(|error| format!("{error:#}")).collect();
        bail!("not as it should be: {}", all.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn all_that_failed_is_named_also_if_something_worked_in_between() {
        let mut failed = Failed::default();

        let worked = [Err(anyhow!("no alarm")), Ok(()), Err(anyhow!("helm failed"))]
            .into_iter()
            .zip(["a leak", "its end", "the next one"])
            .map(|(result, what)| failed.note(what, result))
            .collect::<Vec<_>>();

        assert_eq!(worked, [false, true, false]);
        let error = failed.into_result().unwrap_err().to_string();
        assert_eq!(error, "not as it should be: a leak: no alarm; the next one: helm failed");
        assert!(Failed::default().into_result().is_ok());
    }
}
