//! The only module of this crate that reads the clock.
#![expect(clippy::disallowed_methods, reason = "this is where the edges ask for the time")]

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};
use wire::time::Nanos;

/// The monotonic time since the agent's start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    /// Starts a clock.
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// The time since the start.
    pub(crate) fn now(&self) -> Nanos {
        self.0.elapsed().into()
    }
}

/// The wall clock, in nanoseconds since 1970. It may jump.
pub(crate) fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| Nanos::from(time).0)
}

/// CPU time of all threads of this process.
pub(crate) fn process_cpu() -> Nanos {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Nanos::from_secs(time.tv_sec as u64).plus(Nanos(time.tv_nsec as u64))
}
