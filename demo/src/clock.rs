//! The one place of this crate that reads the clock.
#![expect(clippy::disallowed_methods, reason = "this is the edge that reads the clock")]

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use wire::time::{Nanos, UnixNanos};

/// The runtime's time, by which tasks sleep and which tests pause.
pub(crate) fn runtime_now() -> tokio::time::Instant {
    tokio::time::Instant::now()
}

/// A monotonic clock that starts at zero, with the wall-clock time of its start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Instant,
    wall: UnixNanos,
}

impl Clock {
    /// A clock that reads zero now.
    pub(crate) fn start() -> Self {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { start: Instant::now(), wall: UnixNanos(Nanos::from(unix).0) }
    }

    /// Wall-clock time of the start.
    pub(crate) const fn started(&self) -> UnixNanos {
        self.wall
    }

    /// Time since the start.
    pub(crate) fn now(&self) -> Nanos {
        Nanos::from(self.start.elapsed())
    }

    /// Reading of this clock at a wall-clock time; [`Nanos::ZERO`] before its start.
    pub(crate) const fn at_wall(&self, wall: UnixNanos) -> Nanos {
        wall.since(self.wall)
    }

    /// A number that differs from run to run: the hashed wall-clock time.
    pub(crate) const fn arbitrary(&self) -> u64 {
        self.wall.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40
    }
}
