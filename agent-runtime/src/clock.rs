//! The agents' clocks: the only module of them that reads monotonic and wall-clock time.
#![expect(clippy::disallowed_methods, reason = "the only module that reads the clock")]

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};
use wire::time::{Nanos, UnixNanos};

/// Monotonic clock: the time since it was started, which is when the agent starts.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Instant);

impl Clock {
    /// A clock that starts now.
    #[must_use]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// A clock that was started so long ago; as it starts now, if the machine has not been running for so long.
    #[must_use]
    pub fn started_before(ago: core::time::Duration) -> Self {
        let now = Instant::now();
        Self(now.checked_sub(ago).unwrap_or(now))
    }

    /// The time since the start.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.0.elapsed().into()
    }
}

/// The time of the runtime's timers, which a test may have paused.
#[must_use]
pub fn timer_now() -> tokio::time::Instant {
    tokio::time::Instant::now()
}

/// Wall-clock time; 1970 if the clock shows an earlier one. May jump.
#[must_use]
pub fn unix_now() -> UnixNanos {
    UnixNanos(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| Nanos::from(time).0))
}

/// CPU time used by all threads of this process.
#[must_use]
pub fn process_cpu() -> Nanos {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Nanos::from_secs(time.tv_sec as u64).plus(Nanos(time.tv_nsec as u64))
}
