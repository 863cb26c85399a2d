//! Memory for requests that are being read: shared by all of them, never more than was configured.

use std::io::Read as _;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use flate2::read::MultiGzDecoder;

/// So much is unpacked before it is asked again whether there is room; later, as much as there is already.
const STEP: usize = 64 << 10;

/// Bytes that all requests together may take while they are read, unpacked and taken.
#[derive(Debug)]
pub(crate) struct Room {
    limit: usize,
    taken: AtomicUsize,
}

/// One request's part. Given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Share<'a> {
    room: &'a Room,
    taken: usize,
}

/// All of it is taken at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("requests that are being read take all of {0} bytes")]
pub(crate) struct Crowded(pub(crate) usize);

/// Why something cannot be unpacked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InflateError {
    /// It is longer than a request may be; what came is forgotten.
    #[error("more than {0} bytes when unpacked")]
    TooLarge(usize),
    /// There is no room for it now.
    #[error(transparent)]
    Crowded(#[from] Crowded),
    /// It is no gzip.
    #[error("not gzip: {0}")]
    Malformed(std::io::Error),
}

impl Room {
    pub(crate) const fn new(limit: usize) -> Self {
        Self { limit, taken: AtomicUsize::new(0) }
    }

    pub(crate) const fn share(&self) -> Share<'_> {
        Share { room: self, taken: 0 }
    }

    /// Bytes that are taken now.
    pub(crate) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }
}

impl Share<'_> {
    /// Takes `bytes` more.
    pub(crate) fn grow(&mut self, bytes: usize) -> Result<(), Crowded> {
        let Room { limit, taken } = self.room;
        // Relaxed: a count, which orders nothing.
        let more = |taken: usize| taken.checked_add(bytes).filter(|taken| taken <= limit);
        taken.try_update(Ordering::Relaxed, Ordering::Relaxed, more).map_err(|_| Crowded(*limit))?;
        self.taken += bytes;
        Ok(())
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.room.taken.fetch_sub(self.taken, Ordering::Relaxed);
    }
}

/// Unpacks `packed`, at most `limit` bytes: what becomes longer is given up as soon as it does, whatever would still come.
pub(crate) fn inflate(packed: &[u8], limit: usize, share: &mut Share<'_>) -> Result<Bytes, InflateError> {
    let mut unpacked = Vec::new();
    let mut decoder = MultiGzDecoder::new(packed);
    loop {
        let before = unpacked.len();
        // One byte more than may be, so that it is noticed.
        let step = STEP.max(before).min(limit - before + 1);
        share.grow(step)?;
        unpacked.reserve_exact(step);
        let came = decoder.by_ref().take(step as u64).read_to_end(&mut unpacked).map_err(InflateError::Malformed)?;
        if unpacked.len() > limit {
            return Err(InflateError::TooLarge(limit));
        }
        if came < step {
            return Ok(unpacked.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn packed(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn what_unpacks_to_more_than_the_limit_is_given_up_at_the_limit() {
        let room = Room::new(1 << 20);
        let bomb = packed(&vec![0; 64 << 20]);
        assert!(bomb.len() < 1 << 20);

        let mut share = room.share();
        let refused = inflate(&bomb, 200_000, &mut share);

        assert!(matches!(refused, Err(InflateError::TooLarge(200_000))));
        assert!(room.taken() <= 200_001, "{}", room.taken());
        drop(share);
        assert_eq!(room.taken(), 0);
    }

    #[test]
    fn exactly_the_limit_is_unpacked_and_members_are_put_together() {
        let room = Room::new(1 << 20);
        for length in [0, 1, STEP - 1, STEP, STEP + 1, 3 * STEP] {
            let bytes: Vec<u8> = (0..length).map(|n| n as u8).collect();
            let whole = inflate(&packed(&bytes), length, &mut room.share());
            assert_eq!(whole.unwrap(), bytes, "{length}");
            if length > 0 {
                let one_too_many = inflate(&packed(&bytes), length - 1, &mut room.share());
                assert!(matches!(one_too_many, Err(InflateError::TooLarge(_))), "{length}");
            }
        }
        let two = [packed(b"ab"), packed(b"cd")].concat();
        assert_eq!(inflate(&two, 10, &mut room.share()).unwrap(), b"abcd"[..]);
    }

    #[test]
    fn what_is_cut_short_or_no_gzip_is_malformed() {
        let room = Room::new(1 << 20);
        let whole = packed(b"hello hello hello");

        for bytes in [&whole[..whole.len() - 3], &whole[..5], b"hello"] {
            let refused = inflate(bytes, 1_000, &mut room.share());
            assert!(matches!(refused, Err(InflateError::Malformed(_))), "{refused:?}");
        }
    }

    #[test]
    fn a_full_room_refuses_and_is_given_back() {
        let room = Room::new(100);
        let (mut one, mut other) = (room.share(), room.share());

        assert_eq!(one.grow(60), Ok(()));
        assert_eq!(other.grow(41), Err(Crowded(100)));
        assert_eq!(other.grow(40), Ok(()));
        drop(one);
        assert_eq!(other.grow(60), Ok(()));
        assert_eq!(room.taken(), 100);
    }
}
