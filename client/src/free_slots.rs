//! Which slots of one region are free. Pure: numbers in, numbers out.

use std::collections::BTreeMap;

use wire::layout::Slot;

/// Slots that were taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    /// The first of them.
    pub(crate) first: Slot,
    /// Whether any of them meant something else before.
    pub(crate) reused: bool,
}

/// The free slots of one region, as runs that do not touch each other.
#[derive(Debug)]
pub(crate) struct FreeSlots {
    /// First slot → how many, at least one.
    runs: BTreeMap<u32, u32>,
    /// All slots from here on have never been taken.
    fresh: u32,
}

impl FreeSlots {
    /// All of a region's `slots`.
    pub(crate) fn new(slots: u32) -> Self {
        Self { runs: (slots > 0).then_some((0, slots)).into_iter().collect(), fresh: 0 }
    }

    /// Takes `count` consecutive slots, the lowest that there are; `None` if there is no such run.
    pub(crate) fn take(&mut self, count: u32) -> Option<Taken> {
        let (&first, &length) = self.runs.iter().find(|(_, length)| **length >= count)?;
        self.runs.remove(&first);
        if length > count {
            self.runs.insert(first + count, length - count);
        }
        let reused = first < self.fresh;
        self.fresh = self.fresh.max(first + count);
        Some(Taken { first: Slot(first), reused })
    }

    /// Gives back what was taken.
    pub(crate) fn give_back(&mut self, first: Slot, count: u32) {
        let (mut first, mut count) = (first.0, count);
        debug_assert!(
            self.runs.range(..first + count).next_back().is_none_or(|(run, length)| run + length <= first),
            "only what was taken can be given back"
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
    fn what_was_given_back_is_known_to_have_meant_something() {
        let mut free = FreeSlots::new(10);

        assert_eq!(free.take(4), Some(Taken { first: Slot(0), reused: false }));
        assert_eq!(free.take(4), Some(Taken { first: Slot(4), reused: false }));
        free.give_back(Slot(4), 4);

        // Two old slots and three fresh ones.
        assert_eq!(free.take(6), Some(Taken { first: Slot(4), reused: true }));
        assert_eq!(free.take(1), None);
    }

    #[cfg(not(miri))]
    proptest! {
        #[test]
        fn no_slot_is_taken_twice_and_all_come_back_as_one_run(steps in prop::collection::vec((1_u32..140, any::<prop::sample::Index>()), 1..200)) {
            let mut free = FreeSlots::new(SLOTS);
            let mut taken: Vec<(u32, u32)> = Vec::new();

            for (count, which) in steps {
                match free.take(count) {
                    Some(Taken { first, .. }) => {
                        prop_assert!(first.0 + count <= SLOTS);
                        let apart = taken.iter().all(|(start, length)| start + length <= first.0 || first.0 + count <= *start);
                        prop_assert!(apart, "{first:?} + {count} is taken in {taken:?}");
                        taken.push((first.0, count));
                    }
                    None if taken.is_empty() => prop_assert!(false, "all are free, and {count} do not fit"),
                    None => {
                        let (first, count) = taken.swap_remove(which.index(taken.len()));
                        free.give_back(Slot(first), count);
                    }
                }
            }
            for (first, count) in taken {
                free.give_back(Slot(first), count);
            }

            prop_assert_eq!(free.take(SLOTS).map(|taken| taken.first), Some(Slot(0)));
        }
    }
}
