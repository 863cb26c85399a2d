//! Which pages of a region hold values. A load from a page that nobody has touched makes the system allocate it at the
//! reader's expense, so such a page is not loaded from: its words are zeros.

use core::ops::Range;

use region::SparseMapping;
use wire::layout::{PAGE_BYTES, SLOT_BYTES};

use crate::fetch::{RegionBuffer, RegionError};
use crate::runs::Runs;

/// Words of a page.
const PAGE_WORDS: usize = PAGE_BYTES / SLOT_BYTES;
/// Most pages that are loaded from between two looks at a region, unless it has more in use. A look is a system call
/// for each hole, and one for each run; so a small region, as most are, is looked at rarely. A load from a punched page
/// costs a page fault, which is more than a look; so a large region is looked at in every fetch.
const PAGES_BETWEEN_LOOKS: usize = 64;

/// The pages of one region that are known to hold values.
#[derive(Debug)]
pub(crate) struct Pages {
    /// A bit for each page.
    known: Box<[u64]>,
    /// Fetches until the next look.
    next_look: usize,
}

impl Pages {
    /// Nothing is known of a region of `words`.
    pub(crate) fn new(words: usize) -> Self {
        let pages = words.div_ceil(PAGE_WORDS);
        Self { known: vec![0; pages.div_ceil(64)].into(), next_look: 0 }
    }

    fn is_known(&self, page: usize) -> bool {
        self.known.get(page / 64).is_some_and(|bits| bits >> (page % 64) & 1 == 1)
    }

    fn are_known(&self, pages: &Range<usize>) -> bool {
        pages.clone().all(|page| self.is_known(page))
    }

    /// Copies the runs of `buffer` out of `memory`. Words of pages without values are zeros.
    pub(crate) fn copy(&mut self, memory: &SparseMapping, buffer: &mut RegionBuffer) -> Result<(), RegionError> {
        self.look(memory, &buffer.runs)?;
        for (run, part) in buffer.parts() {
            let pages = run.start / PAGE_WORDS..run.end.div_ceil(PAGE_WORDS);
            if self.are_known(&pages) {
                memory.load(run.start, part);
                continue;
            }
            for page in pages {
                let words = (page * PAGE_WORDS).max(run.start)..((page + 1) * PAGE_WORDS).min(run.end);
                let Some(part) = part.get_mut(words.start - run.start..words.end - run.start) else { continue };
                if self.is_known(page) {
                    memory.load(words.start, part);
                } else {
                    part.fill(0);
                }
            }
        }
        Ok(())
    }

    /// Finds out which pages of `runs` hold values, if it is time to, or if some were holes.
    fn look(&mut self, memory: &SparseMapping, runs: &Runs) -> Result<(), RegionError> {
        self.next_look = self.next_look.saturating_sub(1);
        if self.next_look > 0 && runs.pages().all(|pages| self.are_known(&pages)) {
            return Ok(());
        }
        let (mut in_use, mut punched) = (0, 0);
        for pages in runs.pages() {
            in_use += pages.len();
            punched += self.look_at(memory, pages);
        }
        self.next_look = PAGES_BETWEEN_LOOKS / in_use.max(1);
        if punched > 0 { Err(RegionError::Punched { pages: punched }) } else { Ok(()) }
    }

    /// Looks at `pages`. Returns how many held values before and are holes now.
    fn look_at(&mut self, memory: &SparseMapping, pages: Range<usize>) -> usize {
        let (mut page, mut punched) = (pages.start, 0);
        while page < pages.end {
            let hole = memory.next_hole(page).clamp(page, pages.end);
            for known in page..hole {
                if let Some(bits) = self.known.get_mut(known / 64) {
                    *bits |= 1 << (known % 64);
                }
            }
            if hole == pages.end {
                break;
            }
            page = memory.next_data(hole).clamp(hole + 1, pages.end);
            punched += (hole..page).filter(|page| self.is_known(*page)).count();
        }
        punched
    }
}

#[cfg(test)]
#[cfg(not(miri))] // Memory of the system, which Miri does not have.
mod tests {
    use std::os::fd::OwnedFd;

    use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
    use rustix::fs::{fallocate, fcntl_add_seals, fstat, ftruncate, memfd_create};
    use rustix::io::pwrite;
    use wire::id::RegionId;
    use wire::layout::{MAX_REGION_BYTES, RegionSize, Slot};

    use super::*;
    use crate::fetch::FetchStatus;
    use crate::{Access, RegionReader as _, ShmReader};

    const LAST: Slot = Slot((MAX_REGION_BYTES / 8 - 9) as u32);

    struct Setup {
        memory: OwnedFd,
        reader: ShmReader,
        batch: [RegionBuffer; 1],
    }

    /// The largest region, of which only the header was touched, and of which these slots are read.
    fn setup(slots: impl IntoIterator<Item = u32>) -> Setup {
        let memory = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&memory, MAX_REGION_BYTES as u64).unwrap();
        fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::GROW).unwrap();
        let mut reader = ShmReader::new();
        let access = Access::Descriptor(memory.try_clone().unwrap());
        reader.attach(RegionId(1), RegionSize::new(MAX_REGION_BYTES as u64).unwrap(), access).unwrap();
        let slots = slots.into_iter().map(|slot| Slot(slot).word()..Slot(slot).word() + 1);
        let runs = Runs::covering(core::iter::once(0..8).chain(slots));
        pwrite(&memory, &[1], 0).unwrap();
        Setup { memory, reader, batch: [RegionBuffer::for_runs(RegionId(1), runs)] }
    }

    impl Setup {
        fn store(&self, slot: Slot, value: u64) {
            pwrite(&self.memory, &value.to_ne_bytes(), slot.offset() as u64).unwrap();
        }

        fn fetch(&mut self) -> &FetchStatus {
            self.reader.fetch(&mut self.batch).unwrap();
            &self.batch[0].status
        }

        fn value(&self, slot: Slot) -> u64 {
            self.batch[0].words[self.batch[0].runs.position(slot.word()).unwrap()]
        }

        fn allocated_pages(&self) -> i64 {
            fstat(&self.memory).unwrap().st_blocks / 8
        }

        fn punch(&self, page: u64) {
            let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fallocate(&self.memory, mode, page * PAGE_BYTES as u64, PAGE_BYTES as u64).unwrap();
        }
    }

    #[test]
    fn memory_that_was_never_touched_is_zeros_and_stays_unallocated() {
        let slots: Vec<u32> = (0..4096).map(|page| page * 512 + 100).chain([LAST.0]).collect();
        let mut setup = setup(slots.iter().copied().take_while(|slot| *slot <= LAST.0));

        for _ in 0..3 {
            assert_eq!(setup.fetch(), &FetchStatus::Fetched);
        }

        assert_eq!(setup.value(LAST), 0);
        assert_eq!(setup.allocated_pages(), 1, "its header");
    }

    #[test]
    fn a_page_is_read_from_the_fetch_on_that_follows_its_first_value() {
        let mut setup = setup([5, 600, LAST.0]);
        setup.fetch();
        assert_eq!(setup.value(LAST), 0);

        setup.store(LAST, 7);
        setup.store(Slot(5), 8);
        setup.fetch();

        assert_eq!((setup.value(Slot(5)), setup.value(Slot(600)), setup.value(LAST)), (8, 0, 7));
        assert_eq!(setup.allocated_pages(), 2, "the page of slot 600 is still a hole");
    }

    #[test]
    fn a_region_whose_pages_vanish_is_refused_however_many_it_has() {
        for pages in [2_u32, 200] {
            let slots: Vec<Slot> = (0..pages).map(|page| Slot(page * 512)).collect();
            let mut setup = setup(slots.iter().map(|slot| slot.0));
            for slot in slots {
                setup.store(slot, 1);
            }
            assert_eq!(setup.fetch(), &FetchStatus::Fetched);

            // The hole is punched before each fetch: what a fetch has loaded from would hide it otherwise.
            let refused = (0..PAGES_BETWEEN_LOOKS).find(|_| {
                setup.punch(1);
                *setup.fetch() == FetchStatus::Failed(RegionError::Punched { pages: 1 })
            });

            assert!(refused.is_some_and(|fetch| fetch <= PAGES_BETWEEN_LOOKS / pages as usize), "{refused:?}");
        }
    }

    #[test]
    fn pages_behind_those_in_use_may_come_and_go() {
        let mut setup = setup([5]);
        for _ in 0..3 * PAGES_BETWEEN_LOOKS {
            setup.store(LAST, 7);
            assert_eq!(setup.fetch(), &FetchStatus::Fetched);
            setup.punch(4095);
        }
    }
}
