//! Handles to slots, through which metrics are written. A handle owns the memory that it points into, so it cannot
//! dangle, whatever is dropped first.
#![expect(unsafe_code, reason = "a checked pointer in place of a check at every write")]

use core::ptr::NonNull;
use std::fmt;
use std::sync::Arc;

use wire::layout::Slot;

use crate::owned_region::OwnedRegion;
use crate::sync::AtomicU64;

/// The memory of a run, shared by all handles to the run, and by nothing else.
#[derive(Debug)]
enum Backing {
    /// Slots of a region.
    Region { region: Arc<OwnedRegion>, first: Slot, count: u32 },
    /// Private memory of this process.
    Detached(Box<[AtomicU64]>),
}

impl Backing {
    /// The words; at least one.
    fn words(&self) -> &[AtomicU64] {
        match self {
            Self::Region { region, first, count } => &region.words()[first.word()..][..*count as usize],
            Self::Detached(words) => words,
        }
    }
}

/// An owning handle to consecutive slots, at least one. Clones are handles to the same run.
#[derive(Clone, Debug)]
pub struct SlotRun(Arc<Backing>);

impl SlotRun {
    pub(crate) fn in_region(region: &Arc<OwnedRegion>, first: Slot, count: u32) -> Option<Self> {
        let inside = count > 0 && region.size().holds(first, count);
        inside.then(|| Self(Arc::new(Backing::Region { region: Arc::clone(region), first, count })))
    }

    /// A run of `count` slots (at least one) in private memory: it can be written like any other, but no agent reads
    /// it.
    #[must_use]
    pub fn detached(count: u32) -> Self {
        Self(Arc::new(Backing::Detached((0..count.max(1)).map(|_| AtomicU64::new(0)).collect())))
    }

    /// Whether the run is in private memory, not in a region.
    #[must_use]
    pub fn is_detached(&self) -> bool {
        matches!(*self.0, Backing::Detached(_))
    }

    /// The words of all slots.
    #[must_use]
    pub fn words(&self) -> &[AtomicU64] {
        self.0.words()
    }

    /// A handle to the slot at `index`; `None` beyond the end.
    #[must_use]
    pub fn slot(&self, index: u32) -> Option<SlotRef> {
        let word = NonNull::from(self.words().get(index as usize)?);
        Some(SlotRef { word, backing: Arc::clone(&self.0) })
    }

    /// A handle to all slots, with a checked pointer: cheaper to use than the run itself.
    #[must_use]
    pub fn all(&self) -> SlotsRef {
        SlotsRef { words: NonNull::from(self.words()), backing: Arc::clone(&self.0) }
    }

    /// Whether this is the only handle to the run, so that nothing else can write to it. All earlier writes are visible
    /// then.
    #[must_use]
    pub fn is_sole(&mut self) -> bool {
        Arc::get_mut(&mut self.0).is_some()
    }

    /// Whether both are handles to the same run.
    #[must_use]
    pub fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// An owning handle to one slot: a pointer that was checked once, and the memory that keeps it valid.
#[derive(Clone)]
pub struct SlotRef {
    word: NonNull<AtomicU64>,
    /// Keeps `word` valid.
    backing: Arc<Backing>,
}

/// An owning handle to all slots of a run, like [`SlotRef`].
#[derive(Clone)]
pub struct SlotsRef {
    words: NonNull<[AtomicU64]>,
    /// Keeps `words` valid.
    backing: Arc<Backing>,
}

// SAFETY: the pointer leads to an atomic, which any thread may use, inside `backing`, which is Send and Sync itself.
unsafe impl Send for SlotRef {}
// SAFETY: as for Send.
unsafe impl Sync for SlotRef {}
// SAFETY: the pointer leads to atomics, which any thread may use, inside `backing`, which is Send and Sync itself.
unsafe impl Send for SlotsRef {}
// SAFETY: as for Send.
unsafe impl Sync for SlotsRef {}

impl SlotRef {
    /// The slot's word. No check and no lookup: the cost of a pointer.
    #[must_use]
    #[inline]
    pub fn word(&self) -> &AtomicU64 {
        // SAFETY: `word` is one of `backing`'s words, which neither move nor go as long as `backing` is referred to.
        unsafe { self.word.as_ref() }
    }

    /// The run that the slot belongs to.
    #[must_use]
    pub fn run(&self) -> SlotRun {
        SlotRun(Arc::clone(&self.backing))
    }
}

impl SlotsRef {
    /// The run's words. No check and no lookup: the cost of a pointer.
    #[must_use]
    #[inline]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: `words` are `backing`'s words, which neither move nor go as long as `backing` is referred to.
        unsafe { self.words.as_ref() }
    }

    /// The run that the slots belong to.
    #[must_use]
    pub fn run(&self) -> SlotRun {
        SlotRun(Arc::clone(&self.backing))
    }
}

impl fmt::Debug for SlotRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlotRef").field("word", self.word()).finish_non_exhaustive()
    }
}

impl fmt::Debug for SlotsRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlotsRef").field("words", &self.words().len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    #[cfg(not(miri))]
    use wire::layout::RegionSize;

    use super::*;
    use crate::sync::Relaxed;

    #[cfg(not(miri))]
    fn region() -> Arc<OwnedRegion> {
        Arc::new(OwnedRegion::create("test", RegionSize::ONE_PAGE).unwrap())
    }

    #[test]
    fn handles_keep_their_memory_after_everything_else_is_gone() {
        let run = SlotRun::detached(3);
        let last = run.slot(2).unwrap();
        let all = run.all();
        drop(run);

        last.word().fetch_add(5, Relaxed);

        assert_eq!(all.words()[2].load(Relaxed), 5);
        assert_eq!(all.words().len(), 3);
    }

    #[test]
    fn a_run_is_sole_only_when_no_slot_of_it_is_held() {
        let mut run = SlotRun::detached(1);
        let slot = run.slot(0).unwrap();

        assert!(!run.is_sole());
        assert!(slot.run().same(&run));
        drop(slot);
        assert!(run.is_sole());
    }

    #[test]
    fn threads_count_right_through_clones() {
        let run = SlotRun::detached(1);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let slot = run.slot(0).unwrap();
                scope.spawn(move || (0..1000).for_each(|_| _ = slot.word().fetch_add(1, Relaxed)));
            }
        });

        assert_eq!(run.words()[0].load(Relaxed), 4000);
    }

    #[test]
    #[cfg(not(miri))]
    fn a_handle_keeps_the_region_mapped() {
        let region = region();
        let slot = region.run(Slot(9), 2).unwrap().slot(1).unwrap();
        let word = region.slot(Slot(10)).unwrap().as_ptr();
        drop(region);

        slot.word().store(7, Relaxed);

        assert_eq!(slot.word().as_ptr(), word);
        assert_eq!(slot.word().load(Relaxed), 7);
    }

    #[test]
    #[cfg(not(miri))]
    fn a_run_outside_its_region_does_not_exist() {
        let region = region();
        let slots = region.size().slots();

        assert!(
            region.run(Slot(0), slots).is_some_and(|run| !run.is_detached() && run.words().len() == slots as usize)
        );
        for (first, count) in [(0, 0), (0, slots + 1), (slots, 1), (slots - 1, 2), (u32::MAX, u32::MAX)] {
            assert!(region.run(Slot(first), count).is_none(), "{first} {count}");
        }
        assert!(region.run(Slot(3), 2).unwrap().slot(2).is_none());
    }
}
