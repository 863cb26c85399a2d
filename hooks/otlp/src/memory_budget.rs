//! The memory budget for requests that are being read: shared by all of them, never exceeded, and never all of it by
//! one sender. Bytes are reserved before a body is read or decompressed.

use std::sync::{Mutex, MutexGuard, PoisonError};

use agent_runtime::shares::{ShareError, Shares};
use bytes::Bytes;

use crate::gzip::{self, GzipError};
use crate::holders::Holder;

/// A body whose length is announced is allocated at once, and counts as it comes. All together may have so much more
/// than what has come: this part of the budget.
const ANNOUNCED: u64 = 16;

/// Bytes that all requests together may take while they are read, decompressed and ingested. Those of one sender may
/// take three times what is free.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    used: Mutex<UsedMemory>,
}

/// What is used of the budget at present.
#[derive(Debug)]
struct UsedMemory {
    shares: Shares<Holder>,
    /// Bytes that are allocated for what was announced and has not come yet.
    announced: u64,
}

/// The bytes reserved for one request. Released on drop.
#[derive(Debug)]
pub(crate) struct Reservation<'a> {
    budget: &'a MemoryBudget,
    holder: Holder,
    reserved: u64,
    /// Bytes that are allocated and have not come yet.
    announced: u64,
}

/// The memory budget, or the sender's share of it, is exhausted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no memory for the request, retry later: {0}")]
pub(crate) struct OverBudget(ShareError<Holder>);

impl MemoryBudget {
    pub(crate) const fn new(limit: usize) -> Self {
        let shares = Shares::new("bytes of requests that are received", "otlp.receive_memory_bytes", limit as u64);
        Self { used: Mutex::new(UsedMemory { shares, announced: 0 }) }
    }

    /// A reservation of nothing, for a request of `holder`.
    pub(crate) const fn reservation(&self, holder: Holder) -> Reservation<'_> {
        Reservation { budget: self, holder, reserved: 0, announced: 0 }
    }

    /// Bytes reserved now.
    pub(crate) fn reserved(&self) -> usize {
        self.used().shares.used() as usize
    }

    fn used(&self) -> MutexGuard<'_, UsedMemory> {
        // Nothing under this lock panics. If something did, the state would still be usable.
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reservation<'_> {
    /// Reserves `bytes` more.
    pub(crate) fn grow(&mut self, bytes: usize) -> Result<(), OverBudget> {
        let bytes = bytes as u64;
        let mut used = self.budget.used();
        used.shares.take(self.holder.clone(), bytes).map_err(OverBudget)?;
        self.reserved += bytes;
        let come = bytes.min(self.announced);
        self.announced -= come;
        used.announced -= come;
        Ok(())
    }

    /// Whether `bytes` that are announced may be allocated before they come. Each of them has to be reserved when it
    /// does.
    pub(crate) fn announce(&mut self, bytes: usize) -> bool {
        let mut used = self.budget.used();
        let announced = used.announced.saturating_add(bytes as u64);
        if announced > used.shares.limit() / ANNOUNCED {
            return false;
        }
        used.announced = announced;
        self.announced += bytes as u64;
        true
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        let mut used = self.budget.used();
        used.shares.release(&self.holder, self.reserved);
        used.announced -= self.announced;
    }
}

/// Decompresses `compressed`, at most `limit` bytes. It stops as soon as a limit is exceeded.
pub(crate) fn inflate(
    compressed: &[u8],
    limit: usize,
    reservation: &mut Reservation<'_>,
) -> Result<Bytes, GzipError<OverBudget>> {
    gzip::unpack(compressed, limit, |bytes| reservation.grow(bytes)).map(Bytes::from)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use wire::id::Owner;

    use super::*;
    use crate::gzip::STEP;

    fn user(uid: u32) -> Holder {
        Holder::Owner(Owner::User(uid))
    }

    fn compressed(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn what_unpacks_to_more_than_the_limit_is_given_up_at_the_limit() {
        let budget = MemoryBudget::new(1 << 20);
        let bomb = compressed(&vec![0; 64 << 20]);
        assert!(bomb.len() < 1 << 20);

        let mut reservation = budget.reservation(user(7));
        let refused = inflate(&bomb, 200_000, &mut reservation);

        assert!(matches!(refused, Err(GzipError::TooLarge(200_000))));
        assert!(budget.reserved() <= 200_001, "{}", budget.reserved());
        drop(reservation);
        assert_eq!(budget.reserved(), 0);
    }

    #[test]
    fn exactly_the_limit_is_unpacked_and_members_are_put_together() {
        let budget = MemoryBudget::new(1 << 20);
        for length in [0, 1, STEP - 1, STEP, STEP + 1, 3 * STEP] {
            let bytes: Vec<u8> = (0..length).map(|n| n as u8).collect();
            let whole = inflate(&compressed(&bytes), length, &mut budget.reservation(user(7)));
            assert_eq!(whole.unwrap(), bytes, "{length}");
            if length > 0 {
                let one_too_many = inflate(&compressed(&bytes), length - 1, &mut budget.reservation(user(7)));
                assert!(matches!(one_too_many, Err(GzipError::TooLarge(_))), "{length}");
            }
        }
        let two = [compressed(b"ab"), compressed(b"cd")].concat();
        assert_eq!(inflate(&two, 10, &mut budget.reservation(user(7))).unwrap(), b"abcd"[..]);
    }

    #[test]
    fn what_is_cut_short_or_no_gzip_is_malformed() {
        let budget = MemoryBudget::new(1 << 20);
        let whole = compressed(b"hello hello hello");

        for bytes in [&whole[..whole.len() - 3], &whole[..5], b"hello"] {
            let refused = inflate(bytes, 1_000, &mut budget.reservation(user(7)));
            assert!(matches!(refused, Err(GzipError::Malformed(_))), "{refused:?}");
        }
    }

    #[test]
    fn what_is_announced_may_be_allocated_within_a_part_of_the_budget_until_it_has_come_or_is_given_up() {
        let budget = MemoryBudget::new(160);
        let (mut one, mut other) = (budget.reservation(user(7)), budget.reservation(user(8)));

        assert!(one.announce(8) && !other.announce(3) && other.announce(2));
        assert_eq!(budget.reserved(), 0, "nothing has come");
        assert_eq!((one.grow(5), one.announced, budget.used().announced), (Ok(()), 3, 5));
        assert!(other.announce(5) && !other.announce(1));
        // More than was announced, such as what it unpacks to.
        assert_eq!((one.grow(20), one.announced, budget.reserved()), (Ok(()), 0, 25));
        // What is refused has not come.
        assert!(other.grow(135).is_err());
        assert_eq!((other.announced, budget.used().announced), (7, 7));
        drop((one, other));
        assert_eq!((budget.reserved(), budget.used().announced), (0, 0));
    }

    #[test]
    fn whoever_fills_the_room_leaves_some_for_others_and_is_named_until_it_gives_it_back() {
        let budget = MemoryBudget::new(100);
        let (mut one, mut more) = (budget.reservation(user(7)), budget.reservation(user(7)));
        let mut other = budget.reservation(user(8));

        assert_eq!(one.grow(60), Ok(()));
        assert_eq!(more.grow(15), Ok(()));
        let refused = more.grow(1).unwrap_err().to_string();
        assert!(refused.contains("user 7 would have 76 of 100 bytes of requests"), "{refused}");
        assert!(refused.contains("retry later") && refused.contains("raise otlp.receive_memory_bytes"), "{refused}");
        assert_eq!(other.grow(18), Ok(()));
        let refused = other.grow(10).unwrap_err().to_string();
        assert!(refused.contains("user 8 would have 28") && refused.contains("user 7 has most, 75"), "{refused}");
        drop(one);
        assert_eq!(other.grow(42), Ok(()));
        assert_eq!(budget.reserved(), 75);
        drop((more, other));
        assert_eq!(budget.reserved(), 0);
    }
}
