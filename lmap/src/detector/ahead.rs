//! The memory of the next row, asked for ahead of it.

use super::Detector;
use crate::kernels::prefetch::prefetch;

/// Lines of each array: all of a row of 64 columns. The machine sees by itself where a longer one goes on.
const FIRST_LINES: usize = 8;

impl Detector {
    /// Asks for the first lines of the arrays that the next row reads, in that order, and waits for none of them. For
    /// callers with many detectors, whose arrays have left the caches between two rows: call it before the row of
    /// another one, once the detector itself, which says where they are, is in the cache. It changes nothing but time;
    /// see [`prefetch`](crate::prefetch). Never allocates.
    pub fn prefetch(&self) {
        prefetch(self.intake.row(), FIRST_LINES);
        let Some(pipeline) = &self.pipeline else { return };
        prefetch(&pipeline.standard.mean, FIRST_LINES);
        prefetch(&pipeline.standard.inverse, FIRST_LINES);
        prefetch(&pipeline.projection.z, FIRST_LINES);
        prefetch(&pipeline.levels, FIRST_LINES);
        prefetch(&pipeline.projection.residual, FIRST_LINES);
        pipeline.scorer.prefetch(FIRST_LINES);
        prefetch(&pipeline.projection.coordinates, FIRST_LINES);
        prefetch(&pipeline.constants, FIRST_LINES);
    }
}
