//! The memory of the LMAPs that are next, asked for while another one is judged.
//!
//! A row reads some two hundred cache lines of its LMAP, in short loops over many arrays. On a node of many LMAPs none
//! of them is in the second cache any more when its turn comes, and each loop waits for its own
//! (docs/cost-model.md#a-round).

use core::slice;

use lmap::prefetch;

use super::LmapRuntime;
use crate::detector_slot::Detectors;

impl LmapRuntime {
    /// Asks for the runtime itself, which says where everything else is. Two LMAPs ahead.
    pub(crate) fn prefetch_head(&self) {
        prefetch(slice::from_ref(self), usize::MAX);
    }

    /// Asks for what its row reads, once the runtime itself is there. One LMAP ahead.
    pub(crate) fn prefetch(&self) {
        self.regions.prefetch();
        self.columns.prefetch();
        self.detectors.iter().for_each(Detectors::prefetch);
        self.history.prefetch();
    }
}
