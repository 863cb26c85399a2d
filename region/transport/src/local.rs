//! Regions in this process, with faults on demand, for tests and the simulation.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use wire::id::{Generation, RegionId};
use wire::layout::{HeaderWord, MAGIC, RegionSize, Slot, VERSION, sample_word};
use wire::time::Nanos;

use crate::fetch::{Access, AttachError, BatchError, FetchStatus, RegionBuffer, RegionError, RegionReader};

/// A region in ordinary memory. Clones share the region.
#[derive(Clone, Debug)]
pub struct Region(Arc<RegionInner>);

#[derive(Debug)]
struct RegionInner {
    size: RegionSize,
    words: Box<[AtomicU64]>,
    failure: Mutex<Option<RegionError>>,
}

impl Region {
    /// A region of `size`, all slots zero, at generation 1.
    #[must_use]
    pub fn new(size: RegionSize) -> Self {
        let words = (0..size.words()).map(|_| AtomicU64::new(0)).collect();
        let region = Self(Arc::new(RegionInner { size, words, failure: Mutex::new(None) }));
        region.header(HeaderWord::Magic).store(MAGIC, Relaxed);
        region.header(HeaderWord::Version).store(VERSION, Relaxed);
        region.set_generation(Generation(1));
        region
    }

    /// The size of the region.
    #[must_use]
    pub fn size(&self) -> RegionSize {
        self.0.size
    }

    /// The word of `slot`, or `None` outside the region.
    #[must_use]
    pub fn slot(&self, slot: Slot) -> Option<&AtomicU64> {
        self.0.words.get(slot.word())
    }

    /// A word of the header, for a test to write.
    #[must_use]
    pub fn header(&self, word: HeaderWord) -> &AtomicU64 {
        &self.0.words[word as usize]
    }

    /// Raises the heartbeat by one.
    pub fn beat(&self) {
        self.header(HeaderWord::Heartbeat).fetch_add(1, Relaxed);
    }

    /// Its values were sampled at `time`, which the heartbeat word tells in place of a count.
    pub fn sampled(&self, time: Nanos) {
        let word = self.header(HeaderWord::Heartbeat);
        word.store(sample_word(time, word.load(Relaxed)), Relaxed);
    }

    /// Sets the generation, which says that the layout of slots has changed.
    pub fn set_generation(&self, generation: Generation) {
        self.header(HeaderWord::Generation).store(generation.0, Relaxed);
    }

    /// Sets every word to zero, header included, like a service that punches a hole into its region.
    pub fn punch(&self) {
        self.0.words.iter().for_each(|word| word.store(0, Relaxed));
    }

    /// Makes fetching it fail with this error from now on, or work again.
    pub fn fail(&self, failure: Option<RegionError>) {
        *self.failure() = failure;
    }

    fn failure(&self) -> MutexGuard<'_, Option<RegionError>> {
        self.0.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The link between a [`LocalReader`] and its regions. Clones share the link.
#[derive(Clone, Debug, Default)]
pub struct Link(Arc<AtomicU64>);

impl Link {
    /// Makes the next `batches` fetches fail as a whole; 0 repairs the link.
    pub fn cut(&self, batches: u64) {
        self.0.store(batches, Relaxed);
    }

    fn take_cut(&self) -> bool {
        self.0.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok()
    }
}

/// Reads regions of this process.
#[derive(Debug, Default)]
pub struct LocalReader {
    regions: HashMap<RegionId, Region>,
    link: Link,
}

impl LocalReader {
    /// A reader without regions.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The link to its regions, which a test can cut.
    #[must_use]
    pub fn link(&self) -> Link {
        self.link.clone()
    }

    fn fetch_one(&self, buffer: &mut RegionBuffer) -> Result<(), RegionError> {
        let region = self.regions.get(&buffer.region).ok_or(RegionError::NotAttached)?;
        if let Some(failure) = &*region.failure() {
            return Err(failure.clone());
        }
        let words = &region.0.words;
        buffer.check(words.len())?;
        for (run, part) in buffer.parts() {
            for (copy, word) in part.iter_mut().zip(words.get(run).unwrap_or_default()) {
                *copy = word.load(Relaxed);
            }
        }
        Ok(())
    }
}

impl RegionReader for LocalReader {
    fn name(&self) -> &'static str {
        "local"
    }

    fn attach(&mut self, region: RegionId, size: RegionSize, access: Access) -> Result<(), AttachError> {
        let Entry::Vacant(place) = self.regions.entry(region) else {
            return Err(AttachError::Attached(region));
        };
        let Access::Memory(memory) = access else {
            return Err(AttachError::Access {
                reader: "local",
                needed: "memory of this process",
                given: access.name(),
            });
        };
        if memory.size() != size {
            return Err(AttachError::Size { announced: size, found: memory.size().bytes() as u64 });
        }
        place.insert(memory);
        Ok(())
    }

    fn detach(&mut self, region: RegionId) {
        self.regions.remove(&region);
    }

    fn fetch(&mut self, batch: &mut [RegionBuffer]) -> Result<(), BatchError> {
        if self.link.take_cut() {
            return Err(BatchError::Lost(None));
        }
        for buffer in batch {
            buffer.status = match self.fetch_one(buffer) {
                Ok(()) => FetchStatus::Fetched,
                Err(error) => FetchStatus::Failed(error),
            };
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use wire::layout::Header;

    use super::*;
    use crate::conformance::Service;

    impl Service for Region {
        fn create(size: RegionSize) -> Self {
            Self::new(size)
        }

        fn store(&self, slot: Slot, value: u64) {
            self.slot(slot).expect("the slot exists").store(value, Relaxed);
        }

        fn beat(&self) {
            self.beat();
        }

        fn access(&self) -> Access {
            Access::Memory(self.clone())
        }
    }

    crate::on_every_backend!(Region, LocalReader::new());

    fn attached() -> (LocalReader, Region, [RegionBuffer; 1]) {
        let region = Region::new(RegionSize::ONE_PAGE);
        let mut reader = LocalReader::new();
        reader.attach(RegionId(1), region.size(), Access::Memory(region.clone())).unwrap();
        (reader, region, [RegionBuffer::new(RegionId(1), RegionSize::ONE_PAGE)])
    }

    #[test]
    fn a_region_fails_as_long_as_it_is_told_to() {
        let (mut reader, region, mut batch) = attached();

        region.fail(Some(RegionError::Timeout));
        reader.fetch(&mut batch).unwrap();
        assert_eq!(batch[0].status, FetchStatus::Failed(RegionError::Timeout));

        region.fail(None);
        reader.fetch(&mut batch).unwrap();
        assert_eq!(batch[0].status, FetchStatus::Fetched);
    }

    #[test]
    fn a_cut_link_fails_as_many_batches_as_it_is_told_to() {
        let (mut reader, _region, mut batch) = attached();

        reader.link().cut(2);

        assert!(matches!(reader.fetch(&mut batch), Err(BatchError::Lost(None))));
        assert!(matches!(reader.fetch(&mut batch), Err(BatchError::Lost(None))));
        assert!(reader.fetch(&mut batch).is_ok());
    }

    #[test]
    fn a_punched_region_is_fetched_and_its_header_tells() {
        let (mut reader, region, mut batch) = attached();

        region.punch();
        reader.fetch(&mut batch).unwrap();

        assert_eq!(batch[0].status, FetchStatus::Fetched);
        assert!(Header::decode(&batch[0].words).is_err());
    }
}
