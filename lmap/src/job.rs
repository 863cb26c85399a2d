//! Work that takes too long for a tick: the detector returns it as a job, which any thread may run.

use crate::basis::Basis;
use crate::column::Column;
use crate::fit::{NotFitted, Training};
use crate::frequent_directions::SketchError;
use crate::guard::Limit;
use crate::history::{History, Variances};
use crate::pipeline::Pipeline;
use crate::rows::KeptRows;
use crate::settings::Settings;
use std::sync::Arc;

/// Work to run outside of the tick, on any thread. A detector has at most one job in flight.
///
/// Pass the result of [`run`](Self::run) to [`Detector::install`](crate::Detector::install) of the same detector. A job
/// owns the sketch, or the kept rows: if it is dropped, call [`Detector::reset`](crate::Detector::reset).
#[derive(Debug)]
#[must_use = "the detector learns nothing more until the job's result is installed"]
pub enum Job {
    /// Decompose the sketch: tens of µs for 141 columns.
    Shrink(ShrinkJob),
    /// Fit a pipeline to the kept rows: milliseconds to seconds.
    Fit(FitJob),
}

impl Job {
    /// Runs the job. Allocates.
    pub fn run(self) -> JobResult {
        match self {
            Self::Shrink(job) => job.run(),
            Self::Fit(job) => job.run(),
        }
    }
}

/// The decomposition of a sketch.
#[derive(Debug)]
pub struct ShrinkJob {
    pub(crate) ticket: u64,
    pub(crate) history: History,
    pub(crate) rank: usize,
    /// How fast learnt rows may change variances; `None`: without limit.
    pub(crate) limit: Option<Limit>,
}

impl ShrinkJob {
    /// Decomposes. O(n² m + n³) for n rows in the sketch.
    pub fn run(mut self) -> JobResult {
        let found = match self.limit {
            Some(limit) => self.history.shrink_within(self.rank, limit),
            None => self.history.shrink(self.rank),
        };
        JobResult { ticket: self.ticket, result: JobOutcome::Shrunk { history: self.history, found } }
    }
}

/// A fit on kept rows.
#[derive(Debug)]
pub struct FitJob {
    pub(crate) ticket: u64,
    pub(crate) rows: KeptRows,
    pub(crate) columns: Arc<[Column]>,
    pub(crate) settings: Arc<Settings>,
    /// Minimum number of rows.
    pub(crate) least: usize,
    /// Capacity of the row ring when it is returned.
    pub(crate) capacity: usize,
    pub(crate) provisional: bool,
}

impl FitJob {
    /// Fits a pipeline. See [`Settings`] for what is chosen from the rows; O(n m k + min(n, m)³).
    pub fn run(self) -> JobResult {
        let (values, marks) = self.rows.ordered();
        let fitted = Training::new(&self.columns, &self.settings, values, marks).fit(self.least).map(Box::new);
        let rows = if self.rows.capacity() == self.capacity { self.rows } else { self.rows.resized(self.capacity) };
        JobResult { ticket: self.ticket, result: JobOutcome::Fitted { rows, fitted, provisional: self.provisional } }
    }
}

/// The result of a job, for [`Detector::install`](crate::Detector::install).
#[derive(Debug)]
#[must_use = "the detector learns nothing more until the job's result is installed"]
pub struct JobResult {
    pub(crate) ticket: u64,
    pub(crate) result: JobOutcome,
}

#[derive(Debug)]
pub(crate) enum JobOutcome {
    Shrunk { history: History, found: std::result::Result<(Basis, Variances), SketchError> },
    Fitted { rows: KeptRows, fitted: Result<Box<Pipeline>, NotFitted>, provisional: bool },
}
