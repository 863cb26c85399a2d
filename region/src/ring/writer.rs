//! A ring from its owner's side.

use std::sync::Arc;

use crate::owned::{CreateError, OwnedRegion};
use crate::ring::Cells;
use crate::sync::{AtomicU64, Relaxed};

use wire::layout::{RegionSize, Slot};
use wire::span_record::RECORD_WORDS;

/// A ring that this process owns, in a region of its own. Any thread may write, and so may a child after fork.
#[derive(Debug)]
pub struct RingWriter {
    region: Arc<OwnedRegion>,
}

impl RingWriter {
    /// Makes a ring in a region of `size` ([`size_for`](super::size_for)), named as [`OwnedRegion::create`] says.
    ///
    /// # Errors
    ///
    /// [`CreateError`] with the step that failed.
    pub fn create(name: &str, size: RegionSize) -> Result<Self, CreateError> {
        Ok(Self { region: Arc::new(OwnedRegion::create(name, size)?) })
    }

    /// The region, to be passed on.
    #[must_use]
    pub const fn region(&self) -> &Arc<OwnedRegion> {
        &self.region
    }

    /// Writes `record`, of which at most 63 words count, in place of the oldest one. `false` if it was given up: it counts as lost to the
    /// reader. No system call, no allocation, no lock: two atomic read-modify-writes and a store for each word.
    #[inline]
    pub fn push(&self, record: &[u64]) -> bool {
        self.cells().is_some_and(|cells| cells.push(&record[..record.len().min(RECORD_WORDS)]))
    }

    /// The first of `count` numbers that nobody else who writes to this ring was given.
    #[must_use]
    pub fn numbers(&self, count: u64) -> u64 {
        self.cells().map_or(0, |cells| cells.numbers(count))
    }

    /// A record could not even be made.
    pub fn unmade(&self) {
        if let Some(cells) = self.cells() {
            cells.unmade().fetch_add(1, Relaxed);
        }
    }

    /// The ticket that the next record will have: how many there were so far.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.cells().map_or(0, |cells| cells.next())
    }

    /// How many records it holds.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.cells().map_or(0, |cells| cells.cells())
    }

    /// Every region has room for 7 cells.
    fn cells(&self) -> Option<Cells<'_, AtomicU64>> {
        Cells::new(self.region.words().get(Slot(0).word()..)?)
    }
}
