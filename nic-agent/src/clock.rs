//! The only place of this crate that reads the clock.
#![expect(clippy::disallowed_methods, reason = "this is where the edges ask for the time")]

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};
use wire::time::Nanos;

/// The time since the agent's start; never goes back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    /// A clock that starts now.
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// The time since the start.
    pub(crate) fn now(&self) -> Nanos {
        self.0.elapsed().into()
    }
}

/// Nanoseconds since 1970, as the system's clock says; it may jump.
pub(crate) fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| Nanos::from(time).0)
}

/// Processor time that all threads of this process have used.
pub(crate) fn process_cpu() -> Nanos {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Nanos::from_secs(time.tv_sec as u64).plus(Nanos(time.tv_nsec as u64))
}
