//! The only place of this crate that reads a clock.

use std::time::{Duration, Instant};

/// A moment, to measure from.
#[derive(Clone, Copy, Debug)]
pub struct Moment(Instant);

impl Moment {
    /// This one.
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    pub fn now() -> Self {
        Self(Instant::now())
    }

    /// How long ago it was.
    pub fn age(self) -> Duration {
        self.0.elapsed()
    }
}
