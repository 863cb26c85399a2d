//! The endpoint's clock: the only code in this crate that reads the time.
#![expect(clippy::disallowed_methods, reason = "this is where the edges ask for the time")]

use std::time::{SystemTime, UNIX_EPOCH};

use hooks::time::UnixNanos;
use tokio::time::Instant;
use wire::time::Nanos;

use crate::tail::Timestamp;

/// Monotonic time since the endpoint's start, by the runtime's clock, which tests may pause, and wall-clock time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    /// Starts the clock at 0.
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// Monotonic time since the start.
    pub(crate) fn now(self) -> Nanos {
        self.0.elapsed().into()
    }

    /// Monotonic and wall-clock time; the latter may jump.
    pub(crate) fn timestamp(self) -> Timestamp {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).map_or(Nanos::ZERO, Nanos::from);
        Timestamp { monotonic: self.now(), wall: UnixNanos(since_1970.0) }
    }
}
