//! What the runtime of an LMAP takes in memory.

use super::LmapRuntime;
use crate::detector_slot::Detectors;

impl LmapRuntime {
    /// Memory in bytes of its detectors and of the rows for subscribers, without the place for rows that have not come.
    pub(crate) fn used_bytes(&self) -> u64 {
        let detectors: usize = self.all_detectors().map(Detectors::used_bytes).sum();
        (detectors + self.history.memory_bytes()) as u64 + self.shelf.memory_bytes()
    }

    /// Memory of the models of other intervals, in bytes.
    pub(crate) fn shelf_bytes(&self) -> u64 {
        self.shelf.memory_bytes()
    }

    /// Memory of its columns, in bytes: where each value is read, and what is kept of it until the next read.
    pub(crate) fn column_bytes(&self) -> u64 {
        self.columns.kept_bytes() as u64
    }

    /// Memory into which its regions are fetched, in bytes.
    pub(crate) fn buffer_bytes(&self) -> u64 {
        let words: usize = self.regions.buffers.iter().map(|buffer| buffer.words.capacity()).sum();
        (words * size_of::<u64>()) as u64
    }
}
