//! The only place of this crate that reads the clock.
#![expect(clippy::disallowed_methods, reason = "this is where the edges ask for the time")]

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use wire::time::Nanos;

/// The time since the agent's start; never goes back.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Instant);

impl Clock {
    /// A clock that starts now.
    #[must_use]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// The time since the start.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.0.elapsed().into()
    }
}

/// Nanoseconds since 1970, as the system's clock says; it may jump.
#[must_use]
pub fn unix_now() -> Nanos {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(Nanos::ZERO, Nanos::from)
}

/// Processor time that this process has taken.
#[must_use]
pub fn processor_time() -> Nanos {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Nanos::from_secs(time.tv_sec as u64).plus(Nanos(time.tv_nsec as u64))
}

/// The time since the machine booted, on the clock that the kernel gives processes' start times in.
#[must_use]
pub fn since_boot() -> Nanos {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Nanos::from_secs(time.tv_sec as u64).plus(Nanos(time.tv_nsec as u64))
}
