//! Where a series is read.

use crate::observation::SeriesLocation;

/// Where a series of a replica is read.
#[derive(Clone, Copy, Debug)]
pub(super) struct SeriesPlace {
    pub(super) location: SeriesLocation,
    /// Index of its region.
    pub(super) region: usize,
    /// Its first word in the region's buffer.
    pub(super) word: usize,
}
