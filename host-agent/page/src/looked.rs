//! Services at which somebody looks, and for how long: only of these, each metric is fetched.

use std::collections::{BTreeMap, BTreeSet};

use wire::time::Nanos;

/// Services at which all viewers together may look.
pub const MAX_LOOKED: usize = 32;
/// Bytes of their metrics: a thousand each.
pub const MAX_BYTES: usize = 2 << 20;
/// Somebody who has not asked for so long looks elsewhere.
const LOOKS_FOR: Nanos = Nanos::from_secs(5);

/// The LMAPs at which somebody looks.
#[derive(Debug, Default)]
pub struct Looked(BTreeMap<u32, Nanos>);

impl Looked {
    /// Somebody asks for the metrics of `lmap` at `now`. Returns whether there is room.
    pub fn ask(&mut self, lmap: u32, now: Nanos) -> Room {
        self.forget(now);
        if self.0.len() >= MAX_LOOKED && !self.0.contains_key(&lmap) {
            return Room::Full;
        }
        self.0.insert(lmap, now);
        Room::Free
    }

    /// The LMAPs at which somebody looks at `now`.
    pub fn current(&mut self, now: Nanos) -> BTreeSet<u32> {
        self.forget(now);
        self.0.keys().copied().collect()
    }

    fn forget(&mut self, now: Nanos) {
        self.0.retain(|_, asked| now.since(*asked).is_none_or(|length| length < LOOKS_FOR));
    }
}

/// Whether another service can be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Room {
    /// Another one can.
    Free,
    /// Others look at [`MAX_LOOKED`] services.
    Full,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn somebody_who_does_not_ask_again_looks_elsewhere() {
        let mut looked = Looked::default();

        assert_eq!(looked.ask(1, Nanos::from_secs(10)), Room::Free);
        assert_eq!(looked.ask(2, Nanos::from_secs(13)), Room::Free);

        assert_eq!(looked.current(Nanos::from_secs(14)), BTreeSet::from([1, 2]));
        assert_eq!(looked.current(Nanos::from_secs(15)), BTreeSet::from([2]));
        assert_eq!(looked.current(Nanos::from_secs(18)), BTreeSet::new());
    }

    #[test]
    fn services_that_are_looked_at_are_bounded() {
        let mut looked = Looked::default();
        for lmap in 0..MAX_LOOKED as u32 {
            assert_eq!(looked.ask(lmap, Nanos(0)), Room::Free);
        }

        assert_eq!(looked.ask(1_000, Nanos(1)), Room::Full);
        assert_eq!(looked.ask(7, Nanos(1)), Room::Free, "somebody looks at it already");
        assert_eq!(looked.ask(1_000, Nanos::from_secs(5)), Room::Free);
    }
}
