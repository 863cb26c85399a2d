//! The only place of this tool that reads a clock.
#![expect(clippy::disallowed_methods, reason = "this is the clock")]

use std::time::{Duration, Instant};

/// Runs `work` and returns how long it took.
pub fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let result = work();
    (result, start.elapsed())
}

/// A limit of waiting.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(Instant);

impl Deadline {
    /// One that is over in `time` from now.
    pub fn after(time: Duration) -> Self {
        Self(Instant::now() + time)
    }

    /// Whether it is over.
    pub fn is_over(self) -> bool {
        Instant::now() >= self.0
    }
}
