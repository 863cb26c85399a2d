//! The owner's side of a region: created, sealed, written.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{FallocateFlags, MemfdFlags, Mode, SealFlags, fallocate, fchmod, fcntl_add_seals, memfd_create};
use wire::id::Generation;
use wire::layout::{HeaderWord, MAGIC, PAGE_BYTES, RegionSize, SLOT_BYTES, Slot, VERSION, sample_word};
use wire::time::Nanos;

use crate::mapping::{Mapping, Rights};
use crate::slots::SlotRun;
use crate::sync::{AtomicU64, Relaxed};

/// Why a region could not be created. Values can be counted in private memory instead ([`SlotRun::detached`]).
#[derive(Debug, thiserror::Error)]
#[error("cannot {step} a region of {} bytes", .size.bytes())]
pub struct CreateError {
    /// The step that failed: `create`, `allocate`, `map`, `protect` or `seal`.
    pub step: &'static str,
    /// The requested size.
    pub size: RegionSize,
    /// The error of the system call.
    #[source]
    pub cause: io::Error,
}

/// A region that this process owns: a memfd of whole pages, mapped, with a header, sealed against shrinking, growing
/// and further seals.
///
/// The memory lives as long as anything refers to it: this value, a [`SlotRef`](crate::SlotRef), a [`SlotRun`], or a
/// reader's own descriptor.
#[derive(Debug)]
pub struct OwnedRegion {
    memory: OwnedFd,
    mapping: Mapping,
}

impl OwnedRegion {
    /// Creates a region of `size`: all slots zero, generation 1.
    ///
    /// `name` appears in `/proc/PID/maps`; at most 249 bytes, none of them zero. Every page is allocated and written
    /// here: the memory is charged to this process, and a lack of memory is an error now, not a signal later. Costs one
    /// page fault per page.
    ///
    /// # Errors
    ///
    /// [`CreateError`] with the step that failed: no descriptors or memory left, or a system without memfd.
    pub fn create(name: &str, size: RegionSize) -> Result<Self, CreateError> {
        let failed = |step| move |cause: io::Error| CreateError { step, size, cause };
        let memory = create_memfd(name).map_err(failed("create"))?;
        fallocate(&memory, FallocateFlags::empty(), 0, size.bytes() as u64)
            .map_err(io::Error::from)
            .map_err(failed("allocate"))?;
        let mapping = Mapping::new(memory.as_fd(), size, Rights::ReadWrite).map_err(failed("map"))?;
        for page in mapping.words().chunks(PAGE_BYTES / SLOT_BYTES) {
            page[0].store(0, Relaxed);
        }
        let region = Self { memory, mapping };
        region.header(HeaderWord::Version).store(VERSION, Relaxed);
        region.set_generation(Generation(1));
        region.header(HeaderWord::Magic).store(MAGIC, Relaxed);
        // Mode 0444: processes of another uid can reopen the descriptor for reading only.
        fchmod(&region.memory, Mode::from_raw_mode(0o444)).map_err(io::Error::from).map_err(failed("protect"))?;
        fcntl_add_seals(&region.memory, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
            .map_err(io::Error::from)
            .map_err(failed("seal"))?;
        Ok(region)
    }

    /// The size of the region, which never changes.
    #[must_use]
    pub const fn size(&self) -> RegionSize {
        self.mapping.size()
    }

    /// The word of `slot`, or `None` outside the region.
    #[must_use]
    pub fn slot(&self, slot: Slot) -> Option<&AtomicU64> {
        self.mapping.words().get(slot.word())
    }

    /// A handle to `count` slots from `first` on that keeps the region, or `None` unless they lie inside and there is
    /// at least one.
    #[must_use]
    pub fn run(self: &Arc<Self>, first: Slot, count: u32) -> Option<SlotRun> {
        SlotRun::in_region(self, first, count)
    }

    /// Increments the heartbeat counter, which shows readers that this process is alive.
    pub fn beat(&self) {
        self.header(HeaderWord::Heartbeat).fetch_add(1, Relaxed);
    }

    /// All values were sampled at `time`, which the heartbeat word tells readers in place of a count: whoever calls
    /// this calls no [`Self::beat`]. For one writer at a time.
    pub fn sampled(&self, time: Nanos) {
        let word = self.header(HeaderWord::Heartbeat);
        word.store(sample_word(time, word.load(Relaxed)), Relaxed);
    }

    /// The heartbeat counter, or the time of the last sample in microseconds.
    #[must_use]
    pub fn heartbeat(&self) -> u64 {
        self.header(HeaderWord::Heartbeat).load(Relaxed)
    }

    /// Sets the generation, which changes when slots are reused for another series. A reader that sees a change
    /// discards one sample, in whatever order it saw this word and the slots: relaxed ordering is enough.
    pub fn set_generation(&self, generation: Generation) {
        self.header(HeaderWord::Generation).store(generation.0, Relaxed);
    }

    fn header(&self, word: HeaderWord) -> &AtomicU64 {
        &self.mapping.words()[word as usize]
    }

    pub(crate) fn words(&self) -> &[AtomicU64] {
        self.mapping.words()
    }
}

impl AsFd for OwnedRegion {
    /// The memfd, to be passed to the agent. It is open for writing, which RDMA registration requires.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }
}

/// Creates a memfd, non-executable where the kernel supports it (6.3 and later; some are configured to refuse others).
fn create_memfd(name: &str) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    match memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
        Err(rustix::io::Errno::INVAL) => Ok(memfd_create(name, flags)?),
        result => Ok(result?),
    }
}

#[cfg(test)]
#[cfg(not(miri))] // Memory of the system, which Miri does not have.
mod tests {
    use rustix::fs::{fcntl_get_seals, fstat, ftruncate};
    use wire::layout::Header;

    use super::*;

    fn region() -> OwnedRegion {
        OwnedRegion::create("test", RegionSize::new(8192).unwrap()).unwrap()
    }

    fn header(region: &OwnedRegion) -> Header {
        let words: Vec<u64> = region.words().iter().map(|word| word.load(Relaxed)).collect();
        Header::decode(&words).unwrap()
    }

    #[test]
    fn a_new_region_has_a_header_and_empty_slots() {
        let region = region();

        assert_eq!(header(&region), Header { generation: Generation(1), heartbeat: 0 });
        assert!((0..region.size().slots()).all(|slot| region.slot(Slot(slot)).unwrap().load(Relaxed) == 0));
        assert!(region.slot(Slot(region.size().slots())).is_none());
        assert!(region.slot(Slot(u32::MAX)).is_none());
    }

    #[test]
    fn heartbeat_and_generation_show_in_the_header() {
        let region = region();

        region.beat();
        region.beat();
        region.set_generation(Generation(7));

        assert_eq!(header(&region), Header { generation: Generation(7), heartbeat: 2 });
    }

    #[test]
    fn the_time_of_a_sample_shows_in_the_header_and_is_another_one_each_time() {
        let region = region();

        let words = [7, 7, 30].map(|millis| {
            region.sampled(Nanos::from_millis(millis));
            header(&region).heartbeat
        });

        assert_eq!(words, [7_000, 7_001, 30_000]);
    }

    #[test]
    fn a_region_can_neither_change_its_size_nor_be_sealed_further_nor_be_written_by_others() {
        let region = region();

        assert!(ftruncate(&region, 4096).is_err());
        assert!(ftruncate(&region, 16384).is_err());
        assert!(fcntl_add_seals(&region, SealFlags::FUTURE_WRITE).is_err());
        assert!(fcntl_get_seals(&region).unwrap().contains(SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL));
        assert_eq!(fstat(&region).unwrap().st_mode & 0o777, 0o444);
    }

    #[test]
    fn every_page_is_paid_for_by_its_owner_from_the_start() {
        let region = region();

        assert_eq!(fstat(&region).unwrap().st_blocks * 512, 8192);
    }

    #[test]
    fn a_name_that_no_memfd_can_have_is_an_error_that_says_what_failed() {
        let error = OwnedRegion::create(&"x".repeat(300), RegionSize::ONE_PAGE).unwrap_err();

        assert_eq!(error.to_string(), "cannot create a region of 4096 bytes");
    }
}
