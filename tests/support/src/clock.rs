//! Monotonic time for waiting and for tools, which may not depend on an agent's clock. Wall-clock time in tests is
//! `agent_runtime::clock::unix_now`.
#![expect(clippy::disallowed_methods, reason = "this is the clock")]

use std::time::{Duration, Instant};

/// Runs `work` and returns how long it took.
pub fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let result = work();
    (result, start.elapsed())
}

/// A monotonic clock that starts at zero.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// A stopwatch that starts now.
    #[must_use]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// The time since the start.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}
