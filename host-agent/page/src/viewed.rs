//! Services at which somebody looks, and for how long: only of these, each metric is fetched.

use std::collections::{BTreeMap, BTreeSet};

use wire::time::Nanos;

/// Services at which all viewers together may look.
pub const MAX_VIEWED: usize = 32;
/// Bytes of their metrics: a thousand each.
pub const MAX_BYTES: usize = 2 << 20;
/// Somebody who has not asked for so long looks elsewhere.
const VIEWED_FOR: Nanos = Nanos::from_secs(5);

/// The LMAPs at which somebody looks.
#[derive(Debug, Default)]
pub struct ViewedLmaps(BTreeMap<u32, Nanos>);

impl ViewedLmaps {
    /// Somebody asks for the metrics of `lmap` at `now`. Returns whether another one can be viewed.
    pub fn ask(&mut self, lmap: u32, now: Nanos) -> Availability {
        self.forget(now);
        if self.0.len() >= MAX_VIEWED && !self.0.contains_key(&lmap) {
            return Availability::Full;
        }
        self.0.insert(lmap, now);
        Availability::Free
    }

    /// The LMAPs at which somebody looks at `now`.
    pub fn current(&mut self, now: Nanos) -> BTreeSet<u32> {
        self.forget(now);
        self.0.keys().copied().collect()
    }

    fn forget(&mut self, now: Nanos) {
        self.0.retain(|_, asked| now.since(*asked).is_none_or(|length| length < VIEWED_FOR));
    }
}

/// Whether another service can be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Availability {
    /// Another one can.
    Free,
    /// Others look at [`MAX_VIEWED`] services.
    Full,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn somebody_who_does_not_ask_again_looks_elsewhere() {
        let mut viewed = ViewedLmaps::default();

        assert_eq!(viewed.ask(1, Nanos::from_secs(10)), Availability::Free);
        assert_eq!(viewed.ask(2, Nanos::from_secs(13)), Availability::Free);

        assert_eq!(viewed.current(Nanos::from_secs(14)), BTreeSet::from([1, 2]));
        assert_eq!(viewed.current(Nanos::from_secs(15)), BTreeSet::from([2]));
        assert_eq!(viewed.current(Nanos::from_secs(18)), BTreeSet::new());
    }

    #[test]
    fn services_that_are_looked_at_are_bounded() {
        let mut viewed = ViewedLmaps::default();
        for lmap in 0..MAX_VIEWED as u32 {
            assert_eq!(viewed.ask(lmap, Nanos(0)), Availability::Free);
        }

        assert_eq!(viewed.ask(1_000, Nanos(1)), Availability::Full);
        assert_eq!(viewed.ask(7, Nanos(1)), Availability::Free, "somebody looks at it already");
        assert_eq!(viewed.ask(1_000, Nanos::from_secs(5)), Availability::Free);
    }
}
