//! The only place of this tool that reads a clock.

use std::time::{Duration, Instant};

/// Runs `work` and says how long it took.
#[expect(clippy::disallowed_methods, reason = "this is the clock")]
pub fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let result = work();
    (result, start.elapsed())
}
