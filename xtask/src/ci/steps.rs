//! Steps of CI: each is timed, and what could not be run is the last thing printed.

use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use rustix::process::nice;

use crate::clock;

/// The highest niceness that a process can have.
const LOWEST_PRIORITY: i32 = 19;

/// What has been run so far, and what could not be.
#[derive(Default)]
pub struct Steps {
    ended: Vec<Ended>,
    not_run: Vec<NotRun>,
}

/// A step that succeeded.
struct Ended {
    name: String,
    took: Duration,
    /// It ran beside another, with low priority.
    beside: bool,
}

/// A step that this machine cannot run.
struct NotRun {
    name: String,
    why: String,
}

impl Steps {
    /// Runs `step` and prints how long it took.
    ///
    /// # Errors
    ///
    /// The step's own error, with its name.
    pub fn run<T>(&mut self, name: &str, step: impl FnOnce() -> Result<T>) -> Result<T> {
        println!("== {name}");
        let (result, took) = clock::timed(step);
        let result = result.with_context(|| format!("{name} failed after {}", minutes(took)))?;
        self.took(name, took);
        Ok(result)
    }

    /// Records a step that somebody else ran.
    pub fn took(&mut self, name: &str, took: Duration) {
        println!("== {name}: {}", minutes(took));
        self.ended.push(Ended { name: name.to_owned(), took, beside: false });
    }

    /// Runs `main`, and `spare` beside it with low priority: its processes get what `main` leaves of the processors.
    /// Both run to their ends.
    ///
    /// # Errors
    ///
    /// Those of either side.
    pub fn beside(
        &mut self,
        main: impl FnOnce(&mut Self) -> Result<()>,
        spare: impl FnOnce(&mut Self) -> Result<()> + Send,
    ) -> Result<()> {
        let spare = || {
            // Holds for this thread and for the processes that it starts.
            nice(LOWEST_PRIORITY).context("cannot lower the priority of the steps beside others")?;
            let mut steps = Self::default();
            let ended = spare(&mut steps);
            Ok((steps, ended))
        };
        let (ended, spare) = std::thread::scope(|scope| {
            let spare = scope.spawn(spare);
            (main(self), spare.join().unwrap_or_else(|_| Err(anyhow!("the steps beside others panicked"))))
        });
        let (steps, ended_beside) = spare?;
        self.ended.extend(steps.ended.into_iter().map(|step| Ended { beside: true, ..step }));
        self.not_run.extend(steps.not_run);
        match (ended, ended_beside) {
            (Err(error), Err(other)) => Err(error.context(format!("and beside it {other:#}"))),
            (ended, other) => ended.and(other),
        }
    }

    /// Records that a step cannot be run on this machine, and why.
    pub fn cannot(&mut self, name: &str, why: &str) {
        println!("== {name}: NOT RUN: {why}");
        self.not_run.push(NotRun { name: name.to_owned(), why: why.to_owned() });
    }

    /// The time of each step, then everything that was not run.
    pub fn report(&self) -> String {
        let ended = self.ended.iter().map(|step| {
            let beside = if step.beside { "  (beside others)" } else { "" };
            format!("{:<40} {:>9}{beside}", step.name, minutes(step.took))
        });
        let alone: Duration = self.ended.iter().filter(|step| !step.beside).map(|step| step.took).sum();
        let together = format!("{:<40} {:>9}", "together", minutes(alone));
        let missing = self.not_run.iter().map(|step| format!("NOT RUN: {}: {}", step.name, step.why));
        let mut lines: Vec<String> = ended.chain([together]).chain(missing).collect();
        if self.not_run.is_empty() {
            lines.push("Everything was run.".to_owned());
        }
        lines.join("\n") + "\n"
    }
}

fn minutes(time: Duration) -> String {
    format!("{:.1} min", time.as_secs_f64() / 60.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(steps: &Steps) -> Vec<&str> {
        steps.ended.iter().map(|step| step.name.as_str()).collect()
    }

    #[test]
    fn steps_beside_others_have_low_priority_and_are_reported() {
        let niceness = || nice(0).map_err(anyhow::Error::from);
        let (mut steps, before, mut beside) = (Steps::default(), niceness().unwrap(), None);

        let ended = steps.beside(
            |steps| steps.run("main", || Ok(())),
            |steps| {
                beside = Some(steps.run("spare", niceness)?);
                Ok(())
            },
        );

        assert!(ended.is_ok());
        assert_eq!((beside, niceness().unwrap()), (Some(LOWEST_PRIORITY), before));
        assert_eq!(names(&steps), ["main", "spare"]);
    }

    #[test]
    fn a_failure_on_either_side_is_an_error_that_names_both() {
        let fails =
            |name: &'static str| move |steps: &mut Steps| steps.run(name, || -> Result<()> { Err(anyhow!("why")) });
        let works = |steps: &mut Steps| steps.run("works", || Ok(()));

        let main = Steps::default().beside(fails("a"), works).unwrap_err();
        let spare = Steps::default().beside(works, fails("b")).unwrap_err();
        let both = Steps::default().beside(fails("a"), fails("b")).unwrap_err();

        assert!(format!("{main:#}").contains("a failed") && format!("{spare:#}").contains("b failed"));
        assert!(format!("{both:#}").contains("a failed") && format!("{both:#}").contains("b failed"));
    }

    #[test]
    fn what_was_not_run_is_the_last_thing_in_the_report() {
        let mut steps = Steps::default();
        steps.cannot("Miri", "no nightly");
        steps.took("tests", Duration::from_secs(90));

        assert!(steps.report().ends_with("NOT RUN: Miri: no nightly\n"));
        assert!(steps.report().contains("1.5 min"));
    }
}
