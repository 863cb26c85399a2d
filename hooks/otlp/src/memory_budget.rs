//! The memory budget for requests that are being read: shared by all of them, never exceeded, and never all of it by
//! one sender. Bytes are reserved before a body is read or decompressed.

use std::sync::{Mutex, MutexGuard, PoisonError};

use agent_runtime::shares::{ShareError, Shares};
use bytes::Bytes;

use crate::gzip::{self, GzipError};
use crate::holders::Holder;

/// Bytes that all requests together may take while they are read, decompressed and ingested. Those of one sender may
/// take three times what is free.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    shares: Mutex<Shares<Holder>>,
}

/// The bytes reserved for one request. Released on drop.
#[derive(Debug)]
pub(crate) struct Reservation<'a> {
    budget: &'a MemoryBudget,
    holder: Holder,
    reserved: u64,
}

/// The memory budget, or the sender's share of it, is exhausted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no memory for the request, retry later: {0}")]
pub(crate) struct OverBudget(ShareError<Holder>);

impl MemoryBudget {
    pub(crate) const fn new(limit: usize) -> Self {
        let shares = Shares::new("bytes of requests that are received", "otlp.receive_memory_bytes", limit as u64);
        Self { shares: Mutex::new(shares) }
    }

    /// A reservation of nothing, for a request of `holder`.
    pub(crate) const fn reservation(&self, holder: Holder) -> Reservation<'_> {
        Reservation { budget: self, holder, reserved: 0 }
    }

    /// Bytes reserved now.
    pub(crate) fn reserved(&self) -> usize {
        self.shares().used() as usize
    }

    fn shares(&self) -> MutexGuard<'_, Shares<Holder>> {
        // Nothing under this lock panics. If something did, the state would still be usable.
        self.shares.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reservation<'_> {
    /// Reserves `bytes` more.
    pub(crate) fn grow(&mut self, bytes: usize) -> Result<(), OverBudget> {
        let bytes = bytes as u64;
        self.budget.shares().take(self.holder.clone(), bytes).map_err(OverBudget)?;
        self.reserved += bytes;
        Ok(())
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.budget.shares().release(&self.holder, self.reserved);
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
