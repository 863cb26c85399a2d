//! The only module that reads a clock.

use std::time::{Instant, SystemTime};

use wire::time::Nanos;

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

/// Wall clock: nanoseconds since 1970; 0 before. No system call where the vDSO provides the clock, as on all usual
/// machines.
#[expect(clippy::disallowed_methods, reason = "the clock is read here and nowhere else")]
pub(crate) fn unix_nanos() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}
