//! The only place of this tool that reads a clock.
#![expect(clippy::disallowed_methods, reason = "this is the clock")]

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Runs `work` and returns how long it took.
pub fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let result = work();
    (result, start.elapsed())
}

/// Processor time that all threads of this process use during `work`.
pub fn processor_time(work: &mut dyn FnMut()) -> Duration {
    let now = || {
        let time = clock_gettime(ClockId::ProcessCPUTime);
        Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
    };
    let start = now();
    work();
    now().saturating_sub(start)
}

/// Processor time that this thread has used so far.
pub fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// A monotonic clock that starts at zero.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// A stopwatch that starts now.
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// The time since the start.
    pub fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}
