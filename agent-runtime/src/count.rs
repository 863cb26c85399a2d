//! A counter of an agent's own metrics.

use core::sync::atomic::{AtomicU64, Ordering};

/// A counter that many threads may add to. It starts at 0, and wraps after 2⁶⁴.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Adds one to the counter.
    pub fn one_more(&self) {
        self.add(1);
    }

    /// Adds one to the counter. Returns whether it was the first.
    pub fn is_first(&self) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed) == 0
    }

    /// Adds `many` to the counter.
    pub fn add(&self, many: u64) {
        // Relaxed: it orders nothing.
        self.0.fetch_add(many, Ordering::Relaxed);
    }

    /// The current value.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// The current value, with which the counter starts at 0 again.
    #[must_use]
    pub fn take(&self) -> u64 {
        self.0.swap(0, Ordering::Relaxed)
    }
}
