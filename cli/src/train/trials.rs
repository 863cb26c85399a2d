//! Runs the points of a grid on all cores, with a progress bar and a time limit.

use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use agent_runtime::clock::Clock;
use evaluation::candidate::TrainError;
use evaluation::training::{Split, Trial, TrialOutcome};
use indicatif::{ProgressBar, ProgressStyle};
use lmap::Settings;

/// The result of a grid search.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The successful points, in the order of the plan.
    pub tried: Vec<TrialOutcome>,
    /// The error of the first point that failed.
    pub refused: Option<TrainError>,
    /// Number of points that failed.
    pub failed: usize,
    /// Number of points that were not tried before the time limit.
    pub untried: usize,
    /// The duration of the whole search.
    pub took: Duration,
}

/// Runs every point until the time limit. The first point always runs.
#[must_use]
pub fn run_all(trials: &[Trial], base: &Settings, split: &Split, limit: Duration) -> Outcome {
    let clock = Clock::start();
    let bar = progress_bar(trials.len());
    let next = Mutex::new(trials.iter().enumerate());
    let done = Mutex::new((0..trials.len()).map(|_| None).collect::<Vec<Option<Result<TrialOutcome, TrainError>>>>());
    let take = || {
        let mut next = next.lock().unwrap_or_else(PoisonError::into_inner);
        let in_time = next.len() == trials.len() || Duration::from(clock.now()) < limit;
        if in_time { next.next() } else { None }
    };
    let worker = || {
        while let Some((place, trial)) = take() {
            let tried = trial.run(base, split).map(|(tried, _)| tried);
            done.lock().unwrap_or_else(PoisonError::into_inner)[place] = Some(tried);
            bar.inc(1);
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from).min(trials.len()) {
            scope.spawn(worker);
        }
    });
    bar.finish_and_clear();
    let mut outcome = Outcome { took: clock.now().into(), ..Outcome::default() };
    for result in done.into_inner().unwrap_or_else(PoisonError::into_inner) {
        match result {
            None => outcome.untried += 1,
            Some(Ok(tried)) => outcome.tried.push(tried),
            Some(Err(error)) => {
                outcome.failed += 1;
                outcome.refused.get_or_insert(error);
            }
        }
    }
    outcome
}

/// A progress bar on stderr, shown only if that is a terminal.
fn progress_bar(trials: usize) -> ProgressBar {
    let bar = ProgressBar::new(trials as u64);
    let style = ProgressStyle::with_template("{bar:40} {pos} of {len} points tried, {eta} to go");
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
