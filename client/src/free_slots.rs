//! The free slots of one region. Pure: no I/O.

use std::collections::BTreeMap;

use wire::layout::Slot;

/// A run of slots that was allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotAllocation {
    /// The first slot of the run.
    pub(crate) first: Slot,
    /// Whether any of them belonged to another series before.
    pub(crate) reused: bool,
}

/// The free slots of one region, as maximal runs.
#[derive(Debug)]
pub(crate) struct FreeSlots {
    /// First slot → length of the run, at least 1.
    runs: BTreeMap<u32, u32>,
    /// Slots from here on were never allocated.
    fresh: u32,
}

impl FreeSlots {
    /// A region of `slots` slots, all free.
    pub(crate) fn new(slots: u32) -> Self {
        Self { runs: (slots > 0).then_some((0, slots)).into_iter().collect(), fresh: 0 }
    }

    /// Allocates the lowest run of `count` consecutive slots; `None` if there is none.
    pub(crate) fn allocate(&mut self, count: u32) -> Option<SlotAllocation> {
        let (&first, &length) = self.runs.iter().find(|(_, length)| **length >= count)?;
        self.runs.remove(&first);
        if length > count {
            self.runs.insert(first + count, length - count);
        }
        let reused = first < self.fresh;
        self.fresh = self.fresh.max(first + count);
        Some(SlotAllocation { first: Slot(first), reused })
    }

    /// Frees a run that was allocated.
    pub(crate) fn release(&mut self, first: Slot, count: u32) {
        let (mut first, mut count) = (first.0, count);
        debug_assert!(
            self.runs.range(..first + count).next_back().is_none_or(|(run, length)| run + length <= first),
            "only allocated slots can be released"
        );
        if let Some(after) = self.runs.remove(&(first + count)) {
            count += after;
        }
        if let Some((&before, &length)) = self.runs.range(..first).next_back()
            && before + length == first
        {
            (first, count) = (before, length + count);
        }
        self.runs.insert(first, count);
    }
}

#[cfg(test)]
mod tests {
    #[cfg(not(miri))]
    use proptest::prelude::*;

    use super::*;

    #[cfg(not(miri))]
    const SLOTS: u32 = 504;

    #[test]
    fn released_slots_are_marked_as_reused() {
        let mut free = FreeSlots::new(10);

        assert_eq!(free.allocate(4), Some(SlotAllocation { first: Slot(0), reused: false }));
        assert_eq!(free.allocate(4), Some(SlotAllocation { first: Slot(4), reused: false }));
        free.release(Slot(4), 4);

        // Two old slots and three fresh ones.
        assert_eq!(free.allocate(6), Some(SlotAllocation { first: Slot(4), reused: true }));
        assert_eq!(free.allocate(1), None);
    }

    #[cfg(not(miri))]
    proptest! {
        #[test]
        fn no_slot_is_taken_twice_and_all_come_back_as_one_run(steps in prop::collection::vec((1_u32..140, any::<prop::sample::Index>()), 1..200)) {
            let mut free = FreeSlots::new(SLOTS);
            let mut taken: Vec<(u32, u32)> = Vec::new();

            for (count, which) in steps {
                match free.allocate(count) {
                    Some(SlotAllocation { first, .. }) => {
                        prop_assert!(first.0 + count <= SLOTS);
                        let apart = taken.iter().all(|(start, length)| start + length <= first.0 || first.0 + count <= *start);
                        prop_assert!(apart, "{first:?} + {count} is taken in {taken:?}");
                        taken.push((first.0, count));
                    }
                    None if taken.is_empty() => prop_assert!(false, "all are free, and {count} do not fit"),
                    None => {
                        let (first, count) = taken.swap_remove(which.index(taken.len()));
                        free.release(Slot(first), count);
                    }
                }
            }
            for (first, count) in taken {
                free.release(Slot(first), count);
            }

            prop_assert_eq!(free.allocate(SLOTS).map(|taken| taken.first), Some(Slot(0)));
        }
    }
}
