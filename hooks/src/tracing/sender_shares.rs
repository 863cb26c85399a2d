//! What each sender holds of a tail buffer, and up to which rank its own traces were evicted. One that holds more than
//! three quarters of what is buffered makes room itself: its own lowest traces go first, whatever it sends. So a flood
//! takes nothing of senders that need no more than a quarter together.

use wire::time::Nanos;

use crate::id::SenderId;
use crate::tracing::order::Rank;
use crate::tracing::watermark::Watermark;

/// Senders that are told apart: as many as an id can name.
const SENDERS: usize = 1 << u8::BITS;

/// What one sender holds.
#[derive(Debug)]
struct Holding {
    bytes: usize,
    /// No trace of it is in a bucket below.
    lowest: usize,
    /// Its traces that were evicted or refused since it had more than its share.
    evicted: Watermark,
}

/// What all senders hold. About 16 KiB, whatever their number.
#[derive(Debug)]
pub(super) struct SenderShares {
    all: Box<[Holding]>,
    /// The sender that held most when it was last looked for.
    largest: SenderId,
}

impl SenderShares {
    /// Nobody holds anything. What was evicted is remembered for `age`.
    pub(super) fn new(age: Nanos, now: Nanos) -> Self {
        let nothing = || Holding { bytes: 0, lowest: usize::MAX, evicted: Watermark::new(age, now) };
        Self { all: (0..SENDERS).map(|_| nothing()).collect(), largest: SenderId::default() }
    }

    fn of(&self, sender: SenderId) -> &Holding {
        &self.all[usize::from(sender.0)]
    }

    fn of_mut(&mut self, sender: SenderId) -> &mut Holding {
        &mut self.all[usize::from(sender.0)]
    }

    /// `sender` holds `bytes` more.
    pub(super) fn add(&mut self, sender: SenderId, bytes: usize) {
        self.of_mut(sender).bytes += bytes;
    }

    /// A trace of `sender` is in the bucket `bucket`.
    pub(super) fn insert(&mut self, sender: SenderId, bucket: usize) {
        let holding = self.of_mut(sender);
        holding.lowest = holding.lowest.min(bucket);
    }

    /// `sender` holds `bytes` less.
    pub(super) fn release(&mut self, sender: SenderId, bytes: usize) {
        let holding = self.of_mut(sender);
        debug_assert!(holding.bytes >= bytes, "a sender gives back what it has");
        holding.bytes = holding.bytes.saturating_sub(bytes);
    }

    /// Bytes that `sender` holds.
    pub(super) fn held(&self, sender: SenderId) -> usize {
        self.of(sender).bytes
    }

    /// No trace of `sender` is in a bucket below this one.
    pub(super) fn lowest(&self, sender: SenderId) -> usize {
        self.of(sender).lowest
    }

    /// From now on no trace of `sender` is in a bucket below `bucket`.
    pub(super) fn set_lowest(&mut self, sender: SenderId, bucket: usize) {
        self.of_mut(sender).lowest = bucket;
    }

    /// The sender that holds more than three quarters of the bytes `in_use`, if there is one.
    pub(super) fn over_share(&mut self, in_use: usize) -> Option<SenderId> {
        if !self.is_over(self.largest, in_use) {
            let senders = (0..=u8::MAX).map(SenderId);
            self.largest = senders.max_by_key(|sender| self.held(*sender)).unwrap_or_default();
        }
        Some(self.largest).filter(|sender| self.is_over(*sender, in_use))
    }

    fn is_over(&self, sender: SenderId, in_use: usize) -> bool {
        self.held(sender).saturating_mul(4) > in_use.saturating_mul(3)
    }

    /// A trace of `sender` with this rank was evicted, or refused, since the sender has more than its share.
    pub(super) fn raise(&mut self, sender: SenderId, rank: Rank, now: Nanos) {
        self.of_mut(sender).evicted.raise(rank, now);
    }

    /// Whether traces of `sender` with this rank were evicted lately, since it had more than its share.
    pub(super) fn covers(&self, sender: SenderId, rank: Rank, now: Nanos) -> bool {
        self.of(sender).evicted.covers(rank, now)
    }

    /// The highest rank that was evicted lately of any sender's own.
    pub(super) fn level(&self, now: Nanos) -> Option<Rank> {
        self.all.iter().filter_map(|holding| holding.evicted.level(now)).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_sender_at_most_has_more_than_three_quarters_whoever_comes_and_goes() {
        let mut shares = SenderShares::new(Nanos(100), Nanos(0));
        let [a, b, c] = [7, 8, 9].map(SenderId);
        assert_eq!(shares.over_share(0), None);

        shares.add(a, 76);
        shares.add(b, 24);
        assert_eq!(shares.over_share(100), Some(a));
        shares.add(b, 2);
        assert_eq!(shares.over_share(102), None, "three quarters are 76.5");
        shares.release(a, 70);
        assert_eq!(shares.over_share(32), Some(b));
        shares.release(b, 26);
        shares.add(c, 100);
        assert_eq!(shares.over_share(106), Some(c));
    }

    #[test]
    fn what_is_evicted_of_one_sender_covers_nothing_of_others() {
        let mut shares = SenderShares::new(Nanos(100), Nanos(0));
        let [flood, other] = [7, 8].map(SenderId);
        shares.raise(flood, Rank(50), Nanos(1));

        assert!(shares.covers(flood, Rank(50), Nanos(2)) && !shares.covers(flood, Rank(51), Nanos(2)));
        assert!(!shares.covers(other, Rank(0), Nanos(2)));
        assert_eq!((shares.level(Nanos(2)), shares.level(Nanos(300))), (Some(Rank(50)), None));
    }
}
