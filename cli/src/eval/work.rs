//! Every unit of every set through some work, on all cores, with a progress bar.

use std::sync::Mutex;
use std::thread;

use evaluation::candidate::TrainError;
use evaluation::data_set::{DataError, DataSet, UnitFiles};
use evaluation::unit::Unit;
use indicatif::{ProgressBar, ProgressStyle};

use crate::failure::Failure;

/// Why a unit was not evaluated.
#[derive(Debug)]
pub enum WorkError {
    /// Its files.
    Data(DataError),
    /// What one of the detectors said, in words.
    Untrained(String),
}

impl WorkError {
    /// As a failure to do `what`.
    #[must_use]
    pub fn told(&self, what: &str) -> Failure {
        match self {
            Self::Data(error) => Failure::to(what).caused_by(error).advice(error.advice()),
            Self::Untrained(cause) => {
                Failure::to(what).because(cause.as_str()).advice("longer training files, with metrics that move")
            }
        }
    }
}

/// `detector` cannot be trained on `unit`.
#[must_use]
pub fn untrained(detector: &str, unit: &Unit, error: &TrainError) -> WorkError {
    let mut cause = format!("{detector} cannot be trained on {}: {error}", unit.name);
    let mut next = std::error::Error::source(error);
    while let Some(error) = next {
        cause = format!("{cause}: {error}");
        next = error.source();
    }
    WorkError::Untrained(cause)
}

/// Does `work` for every unit, on as many threads as there are cores. It is given the unit and something to call with a word at the
/// beginning of each of its `steps`. Returns what it returned, per set and unit.
///
/// # Errors
///
/// The first error of any unit; the others are not finished then.
pub fn on_all_units<T: Send>(
    sets: &[DataSet],
    steps: u64,
    work: impl Fn(&Unit, &dyn Fn(&str)) -> Result<T, WorkError> + Sync,
) -> Result<Vec<Vec<T>>, WorkError> {
    let jobs: Vec<(usize, &UnitFiles)> =
        sets.iter().enumerate().flat_map(|(set, data)| data.units.iter().map(move |unit| (set, unit))).collect();
    let bar = progress_bar(steps * jobs.len() as u64);
    let next = Mutex::new(jobs.iter().enumerate());
    let done = Mutex::new((0..jobs.len()).map(|_| None).collect::<Vec<Option<Result<T, WorkError>>>>());
    let take = || next.lock().ok()?.next();
    let worker = || {
        while let Some((job, (set, files))) = take() {
            let step = |word: &str| {
                bar.set_message(format!("{} {} {word}", sets[*set].name, files.name));
                bar.inc(1);
            };
            let result = files.load().map_err(WorkError::Data).and_then(|unit| work(&unit, &step));
            let failed = result.is_err();
            if let Ok(mut done) = done.lock() {
                done[job] = Some(result);
            }
            if failed && let Ok(mut next) = next.lock() {
                next.by_ref().for_each(drop);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from).min(jobs.len()) {
            scope.spawn(worker);
        }
    });
    bar.finish_and_clear();
    let done = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let results: Vec<T> = done.into_iter().flatten().collect::<Result<_, _>>()?;
    let mut results = results.into_iter();
    Ok(sets.iter().map(|set| results.by_ref().take(set.units.len()).collect()).collect())
}

/// On stderr, and only if that is a terminal.
fn progress_bar(steps: u64) -> ProgressBar {
    let bar = ProgressBar::new(steps);
    let style = ProgressStyle::with_template("{bar:40} {pos} of {len}, {elapsed} so far: {msg}");
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
