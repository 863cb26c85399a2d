//! A number of bytes that several share: who has reserved some gives them back on drop.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

/// Bytes that are shared. Clones share the same.
#[derive(Clone, Debug)]
pub(crate) struct MemoryBudget {
    reserved: Arc<AtomicUsize>,
    limit: usize,
}

/// A part of them, given back on drop.
#[derive(Debug)]
pub(crate) struct Reservation {
    budget: MemoryBudget,
    bytes: usize,
}

impl MemoryBudget {
    /// `limit` bytes, all of them free.
    pub(crate) fn new(limit: usize) -> Self {
        Self { reserved: Arc::default(), limit }
    }

    /// All bytes, free or not.
    pub(crate) const fn limit(&self) -> usize {
        self.limit
    }

    /// Reserves `bytes`; `None` if fewer are free.
    pub(crate) fn reserve(&self, bytes: usize) -> Option<Reservation> {
        let sum = |reserved: usize| reserved.checked_add(bytes).filter(|sum| *sum <= self.limit);
        self.reserved.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum).ok()?;
        Some(Reservation { budget: self.clone(), bytes })
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.reserved.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_reserved_comes_back_and_what_is_not_free_is_not_given() {
        let budget = MemoryBudget::new(10);
        let first = budget.reserve(7).unwrap();

        assert!(budget.reserve(4).is_none() && budget.reserve(usize::MAX).is_none());
        let second = budget.reserve(3).unwrap();
        drop(first);
        assert!(budget.reserve(8).is_none());
        drop(second);
        assert!(budget.reserve(10).is_some());
    }
}
