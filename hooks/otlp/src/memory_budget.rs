//! The memory budget for requests that are being read: shared by all of them, never exceeded. Bytes are reserved before
//! a body is read or decompressed.

use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

use crate::gzip::{self, GzipError};

/// Bytes that all requests together may take while they are read, decompressed and ingested.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    limit: usize,
    reserved: AtomicUsize,
}

/// The bytes reserved for one request. Released on drop.
#[derive(Debug)]
pub(crate) struct Reservation<'a> {
    budget: &'a MemoryBudget,
    reserved: usize,
}

/// The memory budget is exhausted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the memory budget of {0} bytes for requests is exhausted: retry later")]
pub(crate) struct OverBudget(pub(crate) usize);

impl MemoryBudget {
    pub(crate) const fn new(limit: usize) -> Self {
        Self { limit, reserved: AtomicUsize::new(0) }
    }

    pub(crate) const fn reservation(&self) -> Reservation<'_> {
        Reservation { budget: self, reserved: 0 }
    }

    /// Bytes reserved now.
    pub(crate) fn reserved(&self) -> usize {
        self.reserved.load(Ordering::Relaxed)
    }
}

impl Reservation<'_> {
    /// Reserves `bytes` more.
    pub(crate) fn grow(&mut self, bytes: usize) -> Result<(), OverBudget> {
        let MemoryBudget { limit, reserved } = self.budget;
        // Relaxed: the counter orders nothing.
        let more = |reserved: usize| reserved.checked_add(bytes).filter(|reserved| reserved <= limit);
        reserved.try_update(Ordering::Relaxed, Ordering::Relaxed, more).map_err(|_| OverBudget(*limit))?;
        self.reserved += bytes;
        Ok(())
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.budget.reserved.fetch_sub(self.reserved, Ordering::Relaxed);
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

    use super::*;
    use crate::gzip::STEP;

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

        let mut reservation = budget.reservation();
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
            let whole = inflate(&compressed(&bytes), length, &mut budget.reservation());
            assert_eq!(whole.unwrap(), bytes, "{length}");
            if length > 0 {
                let one_too_many = inflate(&compressed(&bytes), length - 1, &mut budget.reservation());
                assert!(matches!(one_too_many, Err(GzipError::TooLarge(_))), "{length}");
            }
        }
        let two = [compressed(b"ab"), compressed(b"cd")].concat();
        assert_eq!(inflate(&two, 10, &mut budget.reservation()).unwrap(), b"abcd"[..]);
    }

    #[test]
    fn what_is_cut_short_or_no_gzip_is_malformed() {
        let budget = MemoryBudget::new(1 << 20);
        let whole = compressed(b"hello hello hello");

        for bytes in [&whole[..whole.len() - 3], &whole[..5], b"hello"] {
            let refused = inflate(bytes, 1_000, &mut budget.reservation());
            assert!(matches!(refused, Err(GzipError::Malformed(_))), "{refused:?}");
        }
    }

    #[test]
    fn a_full_room_refuses_and_is_given_back() {
        let budget = MemoryBudget::new(100);
        let (mut one, mut other) = (budget.reservation(), budget.reservation());

        assert_eq!(one.grow(60), Ok(()));
        assert_eq!(other.grow(41), Err(OverBudget(100)));
        assert_eq!(other.grow(40), Ok(()));
        drop(one);
        assert_eq!(other.grow(60), Ok(()));
        assert_eq!(budget.reserved(), 100);
    }
}
