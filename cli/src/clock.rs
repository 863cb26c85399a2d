//! The one place of this crate that reads the clock.
#![expect(clippy::disallowed_methods, reason = "this is the edge that asks the clock")]

use std::time::{Duration, Instant};

/// Time since this clock was made.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Instant);

impl Clock {
    /// Starts at zero.
    #[must_use]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// How long ago the start was.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.0.elapsed()
    }
}
