//! A number of bytes that several share: who has some gives them back on drop.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

/// Bytes that are shared. Clones share the same.
#[derive(Clone, Debug)]
pub(crate) struct Room {
    taken: Arc<AtomicUsize>,
    most: usize,
}

/// A part of them, given back on drop.
#[derive(Debug)]
pub(crate) struct Reservation {
    room: Room,
    bytes: usize,
}

impl Room {
    /// `most` bytes, all of them free.
    pub(crate) fn new(most: usize) -> Self {
        Self { taken: Arc::default(), most }
    }

    /// All bytes, free or not.
    pub(crate) const fn most(&self) -> usize {
        self.most
    }

    /// Takes `bytes`; `None` if there are fewer.
    pub(crate) fn take(&self, bytes: usize) -> Option<Reservation> {
        let sum = |taken: usize| taken.checked_add(bytes).filter(|sum| *sum <= self.most);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum).ok()?;
        Some(Reservation { room: self.clone(), bytes })
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.room.taken.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_comes_back_and_what_is_not_there_is_not_given() {
        let room = Room::new(10);
        let first = room.take(7).unwrap();

        assert!(room.take(4).is_none() && room.take(usize::MAX).is_none());
        let second = room.take(3).unwrap();
        drop(first);
        assert!(room.take(8).is_none());
        drop(second);
        assert!(room.take(10).is_some());
    }
}
