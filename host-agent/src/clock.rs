//! The only place of this crate that reads the clock.
#![expect(clippy::disallowed_methods, reason = "the only module that reads the clock")]

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use wire::time::Nanos;

/// Monotonic clock: the time since the agent's start.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Instant);

impl Clock {
    /// A clock that starts now.
    #[must_use]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// A clock that is `ahead` already.
    #[cfg(test)]
    pub(crate) fn ahead(ahead: core::time::Duration) -> Self {
        Self(Instant::now().checked_sub(ahead).expect("the machine runs for longer"))
    }

    /// The time since the start.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.0.elapsed().into()
    }
}

/// Wall clock: nanoseconds since 1970. May jump.
#[must_use]
pub fn unix_now() -> Nanos {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(Nanos::ZERO, Nanos::from)
}

/// CPU time used by this process.
#[must_use]
pub fn processor_time() -> Nanos {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Nanos::from_secs(time.tv_sec as u64).plus(Nanos(time.tv_nsec as u64))
}

/// Time since boot (CLOCK_BOOTTIME), the clock of process start times in /proc.
#[must_use]
pub fn since_boot() -> Nanos {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Nanos::from_secs(time.tv_sec as u64).plus(Nanos(time.tv_nsec as u64))
}
