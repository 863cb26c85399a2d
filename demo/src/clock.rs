//! The one place of this crate that reads the clock.
#![expect(clippy::disallowed_methods, reason = "this is the edge that reads the clock")]

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use wire::time::Nanos;

/// The runtime's time, by which tasks sleep and which tests pause.
pub(crate) fn runtime_now() -> tokio::time::Instant {
    tokio::time::Instant::now()
}

/// A monotonic clock that starts at zero, with the wall-clock time of its start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Instant,
    start_unix_ns: u64,
}

impl Clock {
    /// A clock that reads zero now.
    pub(crate) fn start() -> Self {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { start: Instant::now(), start_unix_ns: Nanos::from(unix).0 }
    }

    /// Wall-clock time of the start in milliseconds since 1970.
    pub(crate) const fn start_unix_ms(&self) -> u64 {
        self.start_unix_ns / 1_000_000
    }

    /// Wall-clock time of the start in nanoseconds since 1970.
    pub(crate) const fn start_unix_ns(&self) -> u64 {
        self.start_unix_ns
    }

    /// Time since the start.
    pub(crate) fn now(&self) -> Nanos {
        Nanos::from(self.start.elapsed())
    }

    /// Reading of this clock at wall-clock time `unix_ns`; [`Nanos::ZERO`] before its start.
    pub(crate) const fn at_unix(&self, unix_ns: u64) -> Nanos {
        Nanos(unix_ns.saturating_sub(self.start_unix_ns))
    }

    /// A number that differs from run to run: the hashed wall-clock time.
    pub(crate) const fn arbitrary(&self) -> u64 {
        self.start_unix_ns.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40
    }
}
