//! Up to which rank peers that have left had evicted traces.

use std::collections::BTreeMap;

use wire::time::Nanos;

use crate::tracing::{Author, Rank};

/// A peer keeps its own verdicts from at most 7/8 of all traces, whatever it says.
pub(super) const MAX_LEVEL: Rank = Rank::at(u64::MAX / 8 * 7);

/// The level of a peer that has left holds for so long. One that leaves and comes back does not make it rise and fall:
/// traces would be selected late, and be gone by then.
const HOLD: Nanos = Nanos::from_secs(60);
/// Peers whose levels are held. One more has none, and what it asks for is kept in part.
const MAX_HELD: usize = 1_024;

/// Levels of peers that have left, and when they did. Memory: at most 1,024 levels.
#[derive(Debug)]
pub(super) struct DepartedLevels(BTreeMap<Author, (Rank, Nanos)>);

impl DepartedLevels {
    /// No peer has left.
    pub(super) const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// The peer `author` leaves at `now`, and had evicted traces up to `level`. If it leaves again, the higher level
    /// counts.
    pub(super) fn hold(&mut self, author: Author, level: Option<Rank>, now: Nanos) {
        self.0.retain(|_, (_, left)| is_held(*left, now));
        let before = self.0.get(&author).map(|(level, _)| *level);
        let Some(level) = level.max(before) else { return };
        if before.is_some() || self.0.len() < MAX_HELD {
            self.0.insert(author, (level, now));
        }
    }

    /// The levels that hold at `now`.
    pub(super) fn held(&self, now: Nanos) -> impl Iterator<Item = (Author, Rank)> {
        let held = self.0.iter().filter(move |(_, (_, left))| is_held(*left, now));
        held.map(|(author, (level, _))| (*author, *level))
    }
}

fn is_held(left: Nanos, now: Nanos) -> bool {
    now.since(left).is_none_or(|age| age < HOLD)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_level_of_a_peer_holds_for_a_minute_after_it_left_last_and_their_number_is_bounded() {
        let mut levels = DepartedLevels::new();
        let (a, b) = (Author::named("a"), Author::named("b"));
        levels.hold(a, Some(Rank::at(9)), Nanos::from_secs(1));
        levels.hold(b, None, Nanos::from_secs(1));
        levels.hold(a, Some(Rank::at(5)), Nanos::from_secs(31));

        let held = |second| levels.held(Nanos::from_secs(second)).collect::<Vec<_>>();
        assert_eq!([held(90), held(91)], [vec![(a, Rank::at(9))], vec![]]);

        for number in 0..2 * MAX_HELD {
            levels.hold(Author::named(&format!("{number}")), Some(Rank::at(1)), Nanos::from_secs(100));
        }
        assert_eq!(levels.0.len(), MAX_HELD);
    }
}
