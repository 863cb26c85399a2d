//! The only module that reads a clock.

use std::time::{Instant, SystemTime};

use wire::time::{Nanos, UnixNanos};

/// Monotonic clock: time since it was started.
#[derive(Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    #[expect(clippy::disallowed_methods, reason = "the clock is read here and nowhere else")]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn now(&self) -> Nanos {
        self.0.elapsed().into()
    }
}

/// Wall-clock time; 1970 if the clock shows an earlier one. No system call where the vDSO provides the clock, as on all
/// usual machines.
#[expect(clippy::disallowed_methods, reason = "the clock is read here and nowhere else")]
pub(crate) fn unix_now() -> UnixNanos {
    UnixNanos(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| Nanos::from(since).0))
}
