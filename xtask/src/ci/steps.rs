//! Steps of CI: each is timed, and what could not be run is the last thing printed.

use std::time::Duration;

use anyhow::{Context as _, Error, Result, anyhow};
use rustix::process::nice;
use support::clock::{Stopwatch, timed};

/// Niceness of the steps beside others: the first of them get more than the next.
const PRIORITIES: [i32; 2] = [10, 19];

/// Where a run has so many minutes, no step begins that would end later.
#[derive(Clone, Copy, Debug)]
pub struct TimeLimit {
    clock: Stopwatch,
    /// What of the limit was left when the clock started.
    left: Duration,
}

impl TimeLimit {
    /// `limit` for all, of which `elapsed` is over.
    pub fn new(limit: Duration, elapsed: Duration) -> Self {
        Self { clock: Stopwatch::start(), left: limit.saturating_sub(elapsed) }
    }

    fn has(&self, time: Duration) -> bool {
        self.clock.elapsed() + time <= self.left
    }
}

/// Steps that run one after the other, beside others.
pub type Lane<'a> = Box<dyn FnOnce(&mut Steps) -> Result<()> + Send + 'a>;

/// What has been run so far, and what could not be.
#[derive(Default)]
pub struct Steps {
    ended: Vec<Ended>,
    not_run: Vec<NotRun>,
    limit: Option<TimeLimit>,
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
    /// No steps yet, within `limit` if there is one.
    pub fn within(limit: Option<TimeLimit>) -> Self {
        Self { limit, ..Self::default() }
    }

    /// Runs `step` if the time that is left is what it `needs` at most, on a slow machine; else it is one that cannot
    /// be run.
    ///
    /// # Errors
    ///
    /// The step's own error, with its name.
    pub fn in_time(&mut self, name: &str, needs: Duration, step: impl FnOnce() -> Result<()>) -> Result<()> {
        if self.limit.is_none_or(|limit| limit.has(needs)) {
            return self.run(name, step);
        }
        self.cannot(name, &format!("it may take {}, and the run's time is nearly over", minutes(needs)));
        Ok(())
    }

    /// Runs `step` and prints how long it took.
    ///
    /// # Errors
    ///
    /// The step's own error, with its name.
    pub fn run<T>(&mut self, name: &str, step: impl FnOnce() -> Result<T>) -> Result<T> {
        println!("== {name}");
        let (result, took) = timed(step);
        let result = result.with_context(|| format!("{name} failed after {}", minutes(took)))?;
        self.took(name, took);
        Ok(result)
    }

    /// Records a step that somebody else ran.
    pub fn took(&mut self, name: &str, took: Duration) {
        println!("== {name}: {}", minutes(took));
        self.ended.push(Ended { name: name.to_owned(), took, beside: false });
    }

    /// Runs `main`, and `lanes` beside it with low priority: their processes get what `main` leaves of the processors,
    /// the first lane most of it. All run to their ends.
    ///
    /// # Errors
    ///
    /// Those of all sides.
    pub fn beside(&mut self, main: impl FnOnce(&mut Self) -> Result<()>, lanes: Vec<Lane<'_>>) -> Result<()> {
        let limit = self.limit;
        let (mut errors, ended_beside) = std::thread::scope(|scope| {
            let priorities = PRIORITIES.into_iter().chain(std::iter::repeat(PRIORITIES[1]));
            let lanes: Vec<_> = lanes
                .into_iter()
                .zip(priorities)
                .map(|(lane, nice)| scope.spawn(move || with_priority(nice, limit, lane)))
                .collect();
            let errors: Vec<_> = main(self).err().into_iter().collect();
            let crashed = |_| (Self::default(), Err(anyhow!("the steps beside others panicked")));
            (errors, lanes.into_iter().map(|lane| lane.join().unwrap_or_else(crashed)).collect::<Vec<_>>())
        });
        for (steps, ended) in ended_beside {
            self.ended.extend(steps.ended.into_iter().map(|step| Ended { beside: true, ..step }));
            self.not_run.extend(steps.not_run);
            errors.extend(ended.err());
        }
        let together = |first: Error, next: Error| first.context(format!("and beside it {next:#}"));
        errors.into_iter().reduce(together).map_or(Ok(()), Err)
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

/// Runs a lane with this niceness, which holds for its thread and for the processes that it starts.
fn with_priority(niceness: i32, limit: Option<TimeLimit>, lane: Lane<'_>) -> (Steps, Result<()>) {
    let mut steps = Steps::within(limit);
    let ended =
        nice(niceness).context("cannot lower the priority of steps beside others").and_then(|_| lane(&mut steps));
    (steps, ended)
}

fn minutes(time: Duration) -> String {
    format!("{:.1} min", time.as_secs_f64() / 60.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The highest niceness that a process can have.
    const LOWEST_PRIORITY: i32 = 19;

    fn names(steps: &Steps) -> Vec<&str> {
        steps.ended.iter().map(|step| step.name.as_str()).collect()
    }

    #[test]
    fn steps_beside_others_have_low_priorities_and_are_reported() {
        let niceness = || nice(0).map_err(anyhow::Error::from);
        let (mut steps, before) = (Steps::default(), niceness().unwrap());
        let (mut first, mut second) = (None, None);

        let ended = steps.beside(
            |steps| steps.run("main", || Ok(())),
            vec![
                Box::new(|steps: &mut Steps| {
                    first = Some(steps.run("first", niceness)?);
                    Ok(())
                }),
                Box::new(|steps: &mut Steps| {
                    second = Some(steps.run("second", niceness)?);
                    Ok(())
                }),
            ],
        );

        assert!(ended.is_ok());
        assert_eq!([first, second], PRIORITIES.map(|priority| Some(LOWEST_PRIORITY.min(before + priority))));
        assert_eq!(niceness().unwrap(), before);
        assert_eq!(names(&steps), ["main", "first", "second"]);
    }

    #[test]
    fn a_failure_on_any_side_is_an_error_that_names_all() {
        let fails =
            |name: &'static str| move |steps: &mut Steps| steps.run(name, || -> Result<()> { Err(anyhow!("why")) });
        let works = |steps: &mut Steps| steps.run("works", || Ok(()));

        let main = Steps::default().beside(fails("a"), vec![Box::new(works)]).unwrap_err();
        let spare = Steps::default().beside(works, vec![Box::new(works), Box::new(fails("b"))]).unwrap_err();
        let all = Steps::default().beside(fails("a"), vec![Box::new(fails("b")), Box::new(fails("c"))]).unwrap_err();

        assert!(format!("{main:#}").contains("a failed") && format!("{spare:#}").contains("b failed"));
        assert!(["a failed", "b failed", "c failed"].iter().all(|failure| format!("{all:#}").contains(failure)));
    }

    #[test]
    fn a_step_that_would_end_too_late_is_not_begun_and_is_reported() {
        let limit = TimeLimit::new(Duration::from_mins(85), Duration::from_mins(80));
        let mut steps = Steps::within(Some(limit));
        let begun = std::cell::Cell::new(0);
        let begin = || {
            begun.set(begun.get() + 1);
            Ok(())
        };

        steps.in_time("short", Duration::from_mins(4), begin).unwrap();
        steps.in_time("long", Duration::from_mins(6), begin).unwrap();
        Steps::default().in_time("without a limit", Duration::from_hours(6), begin).unwrap();

        assert_eq!((begun.get(), names(&steps)), (2, vec!["short"]));
        let report = steps.report();
        assert!(
            report.ends_with("NOT RUN: long: it may take 6.0 min, and the run's time is nearly over\n"),
            "{report}"
        );
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
