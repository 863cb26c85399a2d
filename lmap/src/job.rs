//! Work that is too long for a tick: handed out, run anywhere, taken back.

use crate::basis::Basis;
use crate::column::Column;
use crate::fit::{NotFitted, Training};
use crate::frequent_directions::SketchError;
use crate::guard::Limit;
use crate::past::{Past, Variances};
use crate::pipeline::Pipeline;
use crate::rows::KeptRows;
use crate::settings::Settings;
use std::sync::Arc;

/// Work to run outside of the tick, on any thread. At most one per detector is out at a time.
///
/// Give what [`run`](Self::run) returns to [`Detector::install`](crate::Detector::install) of the detector that handed the
/// job out. A job that is dropped takes the sketch, or the kept rows, with it: [`Detector::reset`](crate::Detector::reset)
/// then.
#[derive(Debug)]
#[must_use = "the detector learns nothing more until the job's result is installed"]
pub enum Job {
    /// Decompose the sketch: some tens of µs for 141 columns.
    Shrink(ShrinkJob),
    /// Fit a pipeline to the kept rows: ms to s.
    Fit(FitJob),
}

impl Job {
    /// Does the work. Allocates.
    pub fn run(self) -> Done {
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
    pub(crate) past: Past,
    pub(crate) rank: usize,
    /// How fast rows may change what is normal.
    pub(crate) limit: Option<Limit>,
}

impl ShrinkJob {
    /// Decomposes. O(n² m + n³) for n rows in the sketch.
    pub fn run(mut self) -> Done {
        let found = match self.limit {
            Some(limit) => self.past.shrink_within(self.rank, limit),
            None => self.past.shrink(self.rank),
        };
        Done { ticket: self.ticket, result: Result::Shrunk { past: self.past, found } }
    }
}

/// A fit on kept rows.
#[derive(Debug)]
pub struct FitJob {
    pub(crate) ticket: u64,
    pub(crate) rows: KeptRows,
    pub(crate) columns: Arc<[Column]>,
    pub(crate) settings: Arc<Settings>,
    /// A fit on fewer rows is refused.
    pub(crate) least: usize,
    /// The room for rows to come back with.
    pub(crate) capacity: usize,
    pub(crate) provisional: bool,
}

impl FitJob {
    /// Fits. See [`Settings`] for what is chosen from the rows; O(n m k + min(n, m)³).
    pub fn run(self) -> Done {
        let (values, marks) = self.rows.ordered();
        let fitted = Training::new(&self.columns, &self.settings, values, marks).fit(self.least).map(Box::new);
        let rows = if self.rows.capacity() == self.capacity { self.rows } else { self.rows.resized(self.capacity) };
        Done { ticket: self.ticket, result: Result::Fitted { rows, fitted, provisional: self.provisional } }
    }
}

/// What a job found, for [`Detector::install`](crate::Detector::install).
#[derive(Debug)]
#[must_use = "the detector learns nothing more until the job's result is installed"]
pub struct Done {
    pub(crate) ticket: u64,
    pub(crate) result: Result,
}

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "moved once per decomposition: a box would be one more allocation")]
pub(crate) enum Result {
    Shrunk { past: Past, found: std::result::Result<(Basis, Variances), SketchError> },
    Fitted { rows: KeptRows, fitted: std::result::Result<Box<Pipeline>, NotFitted>, provisional: bool },
}
