//! Ids that are reserved ahead, so that not every span changes a word that all threads share.

use crate::spans::ring::SpanRing;

/// Ids that are reserved at once.
const AT_ONCE: u64 = 64;

/// Ids of a ring that one holder gives to spans, one after the other.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReservedIds {
    next: u64,
    left: u64,
    /// That of the process that reserved them. Its children have a copy, of which they must not use what is left.
    generation: u64,
}

impl ReservedIds {
    /// The number of the next span's ids from `ring`: unique among all holders, forked children included.
    /// `generation` is that of this process ([`fork::generation`](crate::fork::generation)). An atomic operation for
    /// every 64th.
    pub(crate) fn draw(&mut self, ring: &SpanRing, generation: u64) -> u64 {
        if self.left == 0 || self.generation != generation {
            self.reserve(ring, generation);
        }
        self.left -= 1;
        let number = self.next;
        self.next = number.wrapping_add(1);
        number
    }

    #[cold]
    fn reserve(&mut self, ring: &SpanRing, generation: u64) {
        // Without a generation, a child would not know that it has a copy.
        self.left = if generation == 0 { 1 } else { AT_ONCE };
        self.next = ring.reserve_ids(self.left);
        self.generation = generation;
    }
}

#[cfg(test)]
#[cfg(not(miri))] // Needs memfd, which Miri does not have.
mod tests {
    use super::*;

    #[test]
    fn numbers_are_used_once_by_whoever_draws_them() {
        let ring = SpanRing::create("payment", 8).unwrap();
        let (mut one, mut other) = (ReservedIds::default(), ReservedIds::default());

        let numbers: Vec<_> = (0..130).flat_map(|_| [one.draw(&ring, 1), other.draw(&ring, 1)]).collect();

        assert_eq!((&numbers[..4], &numbers[126..130]), (&[0, 64, 1, 65][..], &[63, 127, 128, 192][..]));
        let mut sorted = numbers;
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), 260);
        assert_eq!(ring.reserve_ids(1), 384, "six times 64");
    }

    #[test]
    fn a_child_uses_nothing_that_its_parent_has_reserved() {
        let ring = SpanRing::create("payment", 8).unwrap();
        let mut parents = ReservedIds::default();
        assert_eq!(parents.draw(&ring, 1), 0);
        let mut childs = parents.clone();

        assert_eq!([childs.draw(&ring, 2), parents.draw(&ring, 1), childs.draw(&ring, 2)], [64, 1, 65]);
        // Nobody knows whether this is a child.
        let mut unknown = ReservedIds::default();
        assert_eq!([unknown.draw(&ring, 0), unknown.draw(&ring, 0)], [128, 129]);
    }
}
