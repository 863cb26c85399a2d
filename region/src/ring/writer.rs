//! The writer's side of a ring.

use std::sync::Arc;

use crate::owned_region::{CreateError, OwnedRegion};
use crate::ring::Cells;
use crate::sync::{AtomicU64, Relaxed};

use wire::layout::{RegionSize, Slot};
use wire::span_record::RECORD_WORDS;

/// A ring that this process owns, in a region of its own. Any thread may write, also in a forked child.
#[derive(Debug)]
pub struct RingWriter {
    region: Arc<OwnedRegion>,
}

impl RingWriter {
    /// Creates a ring in a region of `size` (see [`size_for`](super::size_for)) and `name` (see
    /// [`OwnedRegion::create`]).
    ///
    /// # Errors
    ///
    /// [`CreateError`] with the step that failed.
    pub fn create(name: &str, size: RegionSize) -> Result<Self, CreateError> {
        Ok(Self { region: Arc::new(OwnedRegion::create(name, size)?) })
    }

    /// The region, to be passed to the agent.
    #[must_use]
    pub const fn region(&self) -> &Arc<OwnedRegion> {
        &self.region
    }

    /// Writes `record` (its first 63 words) in place of the oldest one. `false` if the writer had to give it up; the
    /// reader counts it as lost. No system call, no allocation, no lock: two atomic read-modify-writes and one store
    /// per word.
    #[inline]
    pub fn push(&self, record: &[u64]) -> bool {
        self.cells().is_some_and(|cells| cells.push(&record[..record.len().min(RECORD_WORDS)]))
    }

    /// The same of a record that `make` writes, of so many words as it returns: it is made while the cell's cache lines
    /// come. A thread that is stopped meanwhile has drawn its ticket, and may have to give the record up.
    #[inline]
    pub fn push_with(&self, make: impl FnOnce(&mut [u64; RECORD_WORDS]) -> usize) -> bool {
        self.cells().is_some_and(|cells| cells.push_with(make))
    }

    /// Reserves `count` ids, unique among all writers of this ring. Returns the first.
    #[must_use]
    pub fn reserve_ids(&self, count: u64) -> u64 {
        self.cells().map_or(0, |cells| cells.reserve_ids(count))
    }

    /// Counts a record that could not be created.
    pub fn count_dropped(&self) {
        if let Some(cells) = self.cells() {
            cells.dropped().fetch_add(1, Relaxed);
        }
    }

    /// The ticket of the next record: the number of records so far.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.cells().map_or(0, |cells| cells.next())
    }

    /// The capacity of the ring, in records.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.cells().map_or(0, |cells| cells.cells())
    }

    /// The ring over the region's slots. Every region has room for 7 cells.
    fn cells(&self) -> Option<Cells<'_, AtomicU64>> {
        Cells::new(self.region.words().get(Slot(0).word()..)?)
    }
}
