//! The agents' clocks, in the controller's types: the wall clock in the API server's, monotonic time as a duration.

use core::time::Duration;

use agent_runtime::clock::unix_now;
use k8s_openapi::jiff::Timestamp;

/// The time of the day.
pub(crate) fn wall() -> Timestamp {
    Timestamp::from_nanosecond(unix_now().0.into()).unwrap_or_default()
}

/// Monotonic time since the clock was started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(agent_runtime::clock::Clock);

impl Clock {
    /// A clock that starts now.
    pub(crate) fn start() -> Self {
        Self(agent_runtime::clock::Clock::start())
    }

    /// The time since the start.
    pub(crate) fn now(self) -> Duration {
        self.0.now().into()
    }
}
