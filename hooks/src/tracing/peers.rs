//! Members of the cluster as a set, what each of them has taken of what they share, and what each says that it lacks.

use core::ops::BitOr;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use wire::time::Nanos;

use crate::tracing::order::Rank;

/// Numbers that members have.
const NUMBERS: usize = u64::BITS as usize;

/// A set of members, by the numbers that this node has given them. In a cluster of more than 64 several have one
/// number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peers(u64);

impl Peers {
    /// Nobody in particular: whose it is was not said.
    pub const UNKNOWN: Self = Self(0);

    /// The member with this `number`, modulo 64.
    #[must_use]
    pub const fn one(number: u8) -> Self {
        Self(1 << (number as usize % NUMBERS))
    }

    /// The numbers in the set, in order.
    pub fn numbers(self) -> impl Iterator<Item = u8> {
        let mut left = self.0;
        core::iter::from_fn(move || {
            let number = left.trailing_zeros();
            left &= left.wrapping_sub(1);
            (number < u64::BITS).then_some(number as u8)
        })
    }

    /// A bit for each number.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }
}

impl BitOr for Peers {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The node that says something, whoever relays it: a hash of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Author(u64);

impl Author {
    /// The node of this `name`.
    #[must_use]
    pub fn named(name: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        Self(hasher.finish())
    }
}

/// The rank up to which each other node has evicted traces, by its own word. It holds for what that node itself asks
/// for, and for nothing that others find.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerLevels(BTreeMap<Author, Rank>);

impl PeerLevels {
    /// The level of the node `author`; `None` if it has evicted nothing, as far as known.
    #[must_use]
    pub fn of(&self, author: Author) -> Option<Rank> {
        self.0.get(&author).copied()
    }
}

impl FromIterator<(Author, Rank)> for PeerLevels {
    /// Of several levels of one node the highest counts.
    fn from_iter<T: IntoIterator<Item = (Author, Rank)>>(levels: T) -> Self {
        let mut highest = BTreeMap::new();
        for (author, level) in levels {
            let known = highest.entry(author).or_insert(level);
            *known = level.max(*known);
        }
        Self(highest)
    }
}

/// What each member has taken lately of something that all of them share, so that a loud one leaves the others theirs.
#[derive(Clone, Debug)]
pub(super) struct PeerShares {
    /// By number; the last one is of [`Peers::UNKNOWN`]. A part is forgotten with time.
    taken: [f64; NUMBERS + 1],
    /// When each of them last wanted something.
    wanted: [Option<Nanos>; NUMBERS + 1],
    /// How many of them wanted something within `memory`, at `at`.
    sharing: usize,
    /// What is shared gives all of this back in `memory`.
    shared: f64,
    memory: Nanos,
    at: Nanos,
}

impl PeerShares {
    /// Nobody has taken anything of `shared`, which is there again after `memory`.
    pub(super) const fn new(shared: f64, memory: Nanos, at: Nanos) -> Self {
        Self { taken: [0.0; NUMBERS + 1], wanted: [None; NUMBERS + 1], sharing: 0, shared, memory, at }
    }

    /// One of `peers` wants something at `now`: the place of the one that has taken least, and whether that is less
    /// than its share, all being equal that wanted something within `memory`. O(64) where time has passed, else O(1)
    /// for each of `peers`.
    pub(super) fn wants(&mut self, peers: Peers, now: Nanos) -> (usize, bool) {
        self.forget(now);
        let less = |a: &usize, b: &usize| self.taken[*a].total_cmp(&self.taken[*b]);
        let place = peers.numbers().map(usize::from).min_by(less).unwrap_or(NUMBERS);
        let is_new = !self.is_recent(self.wanted[place]);
        self.wanted[place] = Some(self.at);
        self.sharing += usize::from(is_new);
        (place, self.taken[place] < self.shared / self.sharing as f64)
    }

    /// The member at `place` has taken so much.
    pub(super) fn take(&mut self, place: usize, much: f64) {
        self.taken[place] += much;
    }

    fn forget(&mut self, now: Nanos) {
        let Some(passed) = now.since(self.at).filter(|passed| *passed > Nanos::ZERO) else { return };
        self.at = now;
        let stays = (-passed.as_secs_f64() / self.memory.as_secs_f64()).exp();
        self.taken.iter_mut().for_each(|taken| *taken *= stays);
        self.sharing = self.wanted.iter().filter(|wanted| self.is_recent(**wanted)).count();
    }

    fn is_recent(&self, wanted: Option<Nanos>) -> bool {
        wanted.is_some_and(|wanted| self.at.since(wanted).is_none_or(|age| age < self.memory))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMORY: Nanos = Nanos::from_secs(10);

    #[test]
    fn who_is_alone_has_all_and_who_comes_later_has_a_share_at_once() {
        let mut shares = PeerShares::new(1_000.0, MEMORY, Nanos::ZERO);
        let (loud, other) = (Peers::one(3), Peers::one(64 + 5));

        let (place, has_share) = shares.wants(loud, Nanos::ZERO);
        assert_eq!((place, has_share), (3, true));
        shares.take(place, 900.0);
        assert!(shares.wants(loud, Nanos::ZERO).1, "nobody else wants any");
        let (place, has_share) = shares.wants(other, Nanos::ZERO);
        assert_eq!((place, has_share), (5, true));
        assert!(!shares.wants(loud, Nanos::ZERO).1, "more than its half is taken");
        assert_eq!(shares.wants(loud | other, Nanos::ZERO), (5, true), "who has taken less pays for both");
        assert!(shares.wants(loud, MEMORY).1, "what was taken is forgotten, and the other wants none any more");
    }

    #[test]
    fn each_node_has_a_level_of_its_own() {
        let [a, b, c] = ["a", "b", "c"].map(Author::named);

        let levels: PeerLevels = [(a, Rank(7)), (b, Rank(3)), (a, Rank(5))].into_iter().collect();

        assert_eq!([a, b, c].map(|author| levels.of(author)), [Some(Rank(7)), Some(Rank(3)), None]);
    }

    #[test]
    fn what_nobody_in_particular_wants_is_a_share_like_any_other() {
        let mut shares = PeerShares::new(1_000.0, MEMORY, Nanos::ZERO);

        let (place, _) = shares.wants(Peers::UNKNOWN, Nanos::ZERO);
        shares.take(place, 800.0);

        assert!(shares.wants(Peers::one(0), Nanos::ZERO).1);
        assert!(!shares.wants(Peers::UNKNOWN, Nanos::ZERO).1);
        assert_eq!((Peers::one(0) | Peers::one(63)).bits(), 1 << 63 | 1);
    }
}
