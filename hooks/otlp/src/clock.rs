//! The endpoint's clock.

use agent_runtime::clock::unix_now;
use tokio::time::Instant;
use wire::time::{Nanos, Timestamp};

/// Monotonic time since the endpoint's start, by the runtime's clock, which tests may pause, and wall-clock time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    /// Starts the clock at 0.
    #[expect(
        clippy::disallowed_methods,
        reason = "the endpoint's limits are of the runtime's clock, which tests pause"
    )]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// Monotonic time since the start.
    pub(crate) fn now(self) -> Nanos {
        self.0.elapsed().into()
    }

    /// Monotonic and wall-clock time; the latter may jump.
    pub(crate) fn timestamp(self) -> Timestamp {
        Timestamp { monotonic: self.now(), wall: unix_now() }
    }
}
