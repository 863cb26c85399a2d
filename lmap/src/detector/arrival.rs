//! Columns whose sources are others from the next row on.

use super::Detector;

impl Detector {
    /// Replicas have come or gone: from the next row on, the gauge of `column` is not judged until it has come to rest,
    /// wherever that is, for as many rows at most as it takes to latch ([`Settings::latch_rows`]). What is beyond twice
    /// its value in training counts at once. Nothing changes before the first fit, nor for a column that does not exist
    /// or is no gauge that can latch. O(log m).
    ///
    /// [`Settings::latch_rows`]: crate::Settings::latch_rows
    pub fn arrive(&mut self, column: usize) {
        if let (Some(pipeline), Ok(column)) = (&mut self.pipeline, u32::try_from(column)) {
            pipeline.latches.arrive(column);
        }
    }
}
