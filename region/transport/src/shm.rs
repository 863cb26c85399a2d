//! Fetches regions on the same host: maps the memory of the service read-only.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use region::SparseMapping;
use wire::id::RegionId;
use wire::layout::RegionSize;

use crate::fetch::{Access, AttachError, BatchError, FetchStatus, RegionBuffer, RegionError, RegionReader};
use crate::pages::Pages;

/// Reads regions that are mapped into this process. A fetch is a copy, with a system call now and then, and cannot fail
/// as a whole.
///
/// Only pages that hold values are read. Others are zeros, and stay unallocated: loading from them would charge them to
/// this process. A region whose pages vanish is refused ([`RegionError::Punched`]) within 64 fetches.
///
/// An attached region costs address space and a descriptor. It stays readable after its service has ended.
#[derive(Debug, Default)]
pub struct ShmReader {
    regions: HashMap<RegionId, AttachedRegion>,
}

#[derive(Debug)]
struct AttachedRegion {
    memory: SparseMapping,
    pages: Pages,
}

impl ShmReader {
    /// A reader without regions.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn fetch_one(&mut self, buffer: &mut RegionBuffer) -> Result<(), RegionError> {
        let AttachedRegion { memory, pages } = self.regions.get_mut(&buffer.region).ok_or(RegionError::NotAttached)?;
        buffer.check(memory.size().words())?;
        pages.copy(memory, buffer)
    }
}

impl RegionReader for ShmReader {
    fn name(&self) -> &'static str {
        "shm"
    }

    fn attach(&mut self, region: RegionId, size: RegionSize, access: Access) -> Result<(), AttachError> {
        let Entry::Vacant(place) = self.regions.entry(region) else {
            return Err(AttachError::Attached(region));
        };
        let Access::Descriptor(memory) = access else {
            return Err(AttachError::Access { reader: "shm", needed: "a descriptor", given: access.name() });
        };
        let memory = SparseMapping::map(memory, size)?;
        place.insert(AttachedRegion { memory, pages: Pages::new(size.words()) });
        Ok(())
    }

    fn detach(&mut self, region: RegionId) {
        self.regions.remove(&region);
    }

    fn fetch(&mut self, batch: &mut [RegionBuffer]) -> Result<(), BatchError> {
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
#[cfg(not(miri))] // Memory of the system, which Miri does not have.
mod tests {
    use std::os::fd::AsFd as _;

    use region::{MapError, OwnedRegion};
    use wire::layout::{Header, Slot};

    use super::*;
    use crate::conformance::Service;

    impl Service for OwnedRegion {
        fn create(size: RegionSize) -> Self {
            Self::create("conformance", size).expect("memory is left")
        }

        fn store(&self, slot: Slot, value: u64) {
            self.slot(slot).expect("the slot exists").store(value, std::sync::atomic::Ordering::Relaxed);
        }

        fn beat(&self) {
            self.beat();
        }

        fn access(&self) -> Access {
            Access::Descriptor(self.as_fd().try_clone_to_owned().expect("descriptors are left"))
        }
    }

    crate::on_every_backend!(OwnedRegion, ShmReader::new());

    #[test]
    fn a_memfd_that_can_shrink_is_not_attached() {
        let memory = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&memory, 4096).unwrap();

        let error = ShmReader::new().attach(RegionId(1), RegionSize::ONE_PAGE, Access::Descriptor(memory)).unwrap_err();

        assert!(matches!(error, AttachError::Map(MapError::Unsealed(_))), "{error}");
    }

    #[test]
    fn an_attached_region_outlives_its_service() {
        let region = OwnedRegion::create("test", RegionSize::ONE_PAGE).unwrap();
        region.beat();
        let mut reader = ShmReader::new();
        reader.attach(RegionId(1), region.size(), region.access()).unwrap();
        drop(region);

        let mut batch = [RegionBuffer::new(RegionId(1), RegionSize::ONE_PAGE)];
        reader.fetch(&mut batch).unwrap();

        assert_eq!(batch[0].status, FetchStatus::Fetched);
        assert!(Header::decode(&batch[0].words).is_ok_and(|header| header.heartbeat == 1));
    }
}
