//! Fair shares of something bounded: who holds how much of it, and who may have more.
//!
//! An owner may hold at most three times what is left free (dynamic thresholds: A. Choudhury and E. Hahne, *Dynamic
//! Queue Length Thresholds for Shared-Memory Packet Switches*, 1998). Alone, it gets three quarters. The second greedy
//! owner gets three quarters of the rest, and so on, so that there is something left for a newcomer, however much some
//! owner holds. Nothing is ever taken away from an owner.

use core::fmt;
use std::collections::BTreeMap;

/// What an owner may hold, as a multiple of what is free.
const OF_FREE: u64 = 3;

/// Why an owner does not get more of something.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{owner} would have {wanted} of {limit} {what} with {free} free, and one owner may have three times what is free; {largest} has most, {held}: release some, or raise {key}"
)]
pub struct ShareError<K: fmt::Display> {
    /// The owner that asked.
    pub owner: K,
    /// What it would hold.
    pub wanted: u64,
    /// What there is of it, for all owners.
    pub limit: u64,
    /// What would be free.
    pub free: u64,
    /// What it is, such as "services".
    pub what: &'static str,
    /// The owner that holds most.
    pub largest: K,
    /// What that owner holds.
    pub held: u64,
    /// The key of the configuration that sets the limit.
    pub key: &'static str,
}

/// Who holds how much of something, of which there is `limit`.
#[derive(Clone, Debug)]
pub struct Shares<K> {
    what: &'static str,
    key: &'static str,
    limit: u64,
    used: u64,
    held: BTreeMap<K, u64>,
}

impl<K: Clone + Ord + fmt::Display> Shares<K> {
    /// Nobody holds anything. `what` and the `key` of the configuration that sets the `limit` are for errors.
    #[must_use]
    pub const fn new(what: &'static str, key: &'static str, limit: u64) -> Self {
        Self { what, key, limit, used: 0, held: BTreeMap::new() }
    }

    /// What `owner` holds.
    #[must_use]
    pub fn held(&self, owner: &K) -> u64 {
        self.held.get(owner).copied().unwrap_or(0)
    }

    /// What all owners hold together.
    #[must_use]
    pub const fn used(&self) -> u64 {
        self.used
    }

    /// What there is of it, for all owners.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// The owner that holds most, and how much; the last in their order if several do.
    #[must_use]
    pub fn largest(&self) -> Option<(K, u64)> {
        self.held.iter().max_by_key(|(_, held)| **held).map(|(owner, held)| (owner.clone(), *held))
    }

    /// Checks whether `owner` may have `more`.
    ///
    /// # Errors
    ///
    /// [`ShareError`] if it would hold more than its share, or all owners more than there is.
    pub fn check(&self, owner: K, more: u64) -> Result<(), ShareError<K>> {
        let wanted = self.held(&owner).saturating_add(more);
        let free = self.limit.checked_sub(self.used.saturating_add(more));
        if free.is_some_and(|free| wanted / OF_FREE <= free) {
            return Ok(());
        }
        let (largest, held) = self.largest().unwrap_or_else(|| (owner.clone(), 0));
        let Self { what, key, limit, .. } = *self;
        Err(ShareError { owner, wanted, limit, free: free.unwrap_or(0), what, largest, held, key })
    }

    /// How much more `owner` may have: the most for which [`Self::check`] is no error.
    #[must_use]
    pub fn room(&self, owner: &K) -> u64 {
        let free = self.limit.saturating_sub(self.used);
        // held + more ≤ 3 (free - more) + 2, where the last term is what `check` rounds off.
        let spread = free.saturating_mul(OF_FREE).saturating_add(OF_FREE - 1).saturating_sub(self.held(owner));
        (spread / (OF_FREE + 1)).min(free)
    }

    /// Gives `owner` more, if it may have it.
    ///
    /// # Errors
    ///
    /// As [`Self::check`]; nothing has changed then.
    pub fn take(&mut self, owner: K, more: u64) -> Result<(), ShareError<K>> {
        self.check(owner.clone(), more)?;
        self.add(owner, more);
        Ok(())
    }

    /// Gives `owner` more, even above its share: what it holds already in another form.
    pub fn add(&mut self, owner: K, more: u64) {
        if more > 0 {
            self.used = self.used.saturating_add(more);
            let held = self.held.entry(owner).or_default();
            *held = held.saturating_add(more);
        }
    }

    /// Takes back up to `less` of what `owner` holds.
    pub fn release(&mut self, owner: &K, less: u64) {
        let Some(held) = self.held.get_mut(owner) else { return };
        let less = less.min(*held);
        *held -= less;
        self.used = self.used.saturating_sub(less);
        if *held == 0 {
            self.held.remove(owner);
        }
    }

    /// Checks that no owner of `changed` has more than its share now, unless it had as much in `before`.
    ///
    /// # Errors
    ///
    /// [`ShareError`] of the first such owner.
    pub fn check_since(&self, before: &Self, changed: impl IntoIterator<Item = K>) -> Result<(), ShareError<K>> {
        let mut grown = changed.into_iter().filter(|owner| self.held(owner) > before.held(owner));
        grown.try_for_each(|owner| self.check(owner, 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(limit: u64) -> Shares<char> {
        Shares::new("places", "limits.places", limit)
    }

    /// What `owner` gets if it takes all that it can, one by one.
    fn fill(shares: &mut Shares<char>, owner: char) -> u64 {
        while shares.take(owner, 1).is_ok() {}
        shares.held(&owner)
    }

    #[test]
    fn one_owner_gets_three_quarters_and_each_later_one_three_quarters_of_the_rest() {
        let mut shares = shares(1024);

        let filled: Vec<u64> = "abcde".chars().map(|owner| fill(&mut shares, owner)).collect();

        assert_eq!(filled, [768, 192, 48, 12, 3]);
    }

    #[test]
    fn a_newcomer_finds_a_place_however_many_owners_take_in_turn_what_they_can() {
        for owners in 1..40_u8 {
            let mut shares = shares(1024);
            let all: Vec<char> = (0..owners).map(|owner| char::from(b'A' + owner)).collect();
            for _ in 0..1024 {
                for &owner in &all {
                    _ = shares.take(owner, 1);
                }
            }

            assert!(shares.take('\u{fe}', 1).is_ok(), "{owners} owners: {shares:?}");
        }
    }

    #[test]
    fn what_is_released_can_be_taken_again_and_more_than_is_held_cannot_be_released() {
        let mut shares = shares(4);
        assert_eq!(fill(&mut shares, 'a'), 3);
        assert!(shares.take('b', 1).is_ok());
        assert!(shares.take('b', 1).is_err());

        shares.release(&'a', 7);

        assert_eq!((shares.held(&'a'), shares.used(), shares.largest()), (0, 1, Some(('b', 1))));
        assert!(shares.take('b', 1).is_ok());
    }

    #[test]
    fn the_room_of_an_owner_is_the_most_that_it_may_take_at_once() {
        for held in 0..40 {
            for used_by_others in 0..40 {
                let mut shares = shares(64);
                shares.add('a', held);
                shares.add('b', used_by_others);

                let room = shares.room(&'a');

                assert!(room == 0 || shares.check('a', room).is_ok(), "{held} {used_by_others}: {room}");
                assert!(shares.check('a', room + 1).is_err(), "{held} {used_by_others}: {room}");
            }
        }
    }

    #[test]
    fn an_error_says_who_asked_who_has_most_and_what_to_do() {
        let mut shares = shares(100);
        shares.take('a', 60).unwrap();

        let error = shares.take('b', 40).unwrap_err().to_string();

        let expected = "b would have 40 of 100 places with 0 free, and one owner may have three times what is free; a has most, 60: release some, or raise limits.places";
        assert_eq!(error, expected);
        assert!(shares.take('b', 31).is_err());
        assert!(shares.take('b', 30).is_ok());
    }

    #[test]
    fn an_owner_keeps_what_it_had_when_others_have_come_since() {
        let mut before = shares(100);
        before.take('a', 70).unwrap();
        before.take('b', 20).unwrap();

        let (mut same, mut more) = (before.clone(), before.clone());
        same.release(&'a', 70);
        same.add('a', 70);
        more.add('a', 1);

        assert!(same.check_since(&before, ['a']).is_ok());
        assert_eq!(more.check_since(&before, ['b', 'a']).unwrap_err().owner, 'a');
    }
}
