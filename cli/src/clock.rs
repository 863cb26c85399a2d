//! The monotonic clock; the only module that reads it.
#![expect(clippy::disallowed_methods, reason = "this is the edge that reads the clock")]

use std::time::{Duration, Instant};

/// A monotonic clock that starts at zero.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Instant);

impl Clock {
    /// A clock that reads zero now.
    #[must_use]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Time since the start.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.0.elapsed()
    }
}
