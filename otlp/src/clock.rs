//! The only place of this crate that reads the clock.
#![expect(clippy::disallowed_methods, reason = "this is where the edges ask for the time")]

use std::time::{SystemTime, UNIX_EPOCH};

use hooks::time::UnixNanos;
use tokio::time::Instant;
use wire::time::Nanos;

use crate::tail::Moment;

/// The time since the edge's start, by the runtime's clock, which tests may stop, and of the day.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    /// A clock that starts now.
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// The time since the start; never goes back.
    pub(crate) fn now(self) -> Nanos {
        self.0.elapsed().into()
    }

    /// Both times; that of the day may jump.
    pub(crate) fn moment(self) -> Moment {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).map_or(Nanos::ZERO, Nanos::from);
        Moment { own: self.now(), day: UnixNanos(since_1970.0) }
    }
}
