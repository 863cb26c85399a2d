//! Runs work on every unit of every set, on all cores, with a progress bar.

use std::sync::Mutex;
use std::thread;

use agent_runtime::chain;
use evaluation::candidate::TrainError;
use evaluation::data_set::{DataError, DataSet, UnitFiles};
use evaluation::folds::UnitIndex;
use evaluation::unit::Unit;
use indicatif::{ProgressBar, ProgressStyle};

use crate::failure::Failure;

/// Why a unit was not evaluated.
#[derive(Debug)]
pub enum WorkError {
    /// The files of the unit cannot be read.
    Data(DataError),
    /// A detector cannot be trained on the unit; the error as text.
    Untrained(String),
}

impl WorkError {
    /// The error message of a command that wanted to do `what`.
    #[must_use]
    pub fn to_failure(&self, what: &str) -> Failure {
        match self {
            Self::Data(error) => Failure::to(what).caused_by(error).advice(error.advice()),
            Self::Untrained(cause) => {
                Failure::to(what).because(cause.as_str()).advice("use longer training files, with metrics that change")
            }
        }
    }
}

/// The error that `detector` cannot be trained on `unit`.
#[must_use]
pub fn untrained(detector: &str, unit: &Unit, error: &TrainError) -> WorkError {
    WorkError::Untrained(format!("{detector} cannot be trained on {}: {}", unit.name, chain(error)))
}

/// Runs `work` for every unit, on as many threads as there are cores. `work` gets the unit, where it stands, and a
/// function that it calls with a name at the beginning of each of its `steps`. Returns the results per set and unit.
///
/// # Errors
///
/// The first error of any unit. The other units are not finished then.
pub fn on_all_units<T: Send>(
    sets: &[DataSet],
    steps: u64,
    work: impl Fn(UnitIndex, &Unit, &dyn Fn(&str)) -> Result<T, WorkError> + Sync,
) -> Result<Vec<Vec<T>>, WorkError> {
    let places = |(set, data): (usize, &DataSet)| (0..data.units.len()).map(move |unit| UnitIndex { set, unit });
    let jobs: Vec<UnitIndex> = sets.iter().enumerate().flat_map(places).collect();
    let bar = progress_bar(steps * jobs.len() as u64);
    let next = Mutex::new(jobs.iter().enumerate());
    let done = Mutex::new((0..jobs.len()).map(|_| None).collect::<Vec<Option<Result<T, WorkError>>>>());
    let take = || next.lock().ok()?.next();
    let worker = || {
        while let Some((job, place)) = take() {
            let set = &sets[place.set];
            let files: &UnitFiles = &set.units[place.unit];
            let step = |word: &str| {
                bar.set_message(format!("{} {} {word}", set.name, files.name));
                bar.inc(1);
            };
            let result = files.load().map_err(WorkError::Data).and_then(|unit| work(*place, &unit, &step));
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

/// A progress bar on stderr, shown only if that is a terminal.
fn progress_bar(steps: u64) -> ProgressBar {
    let bar = ProgressBar::new(steps);
    let style = ProgressStyle::with_template("{bar:40} {pos} of {len}, {elapsed} so far: {msg}");
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
