//! The one place of this crate that reads the clock.
#![expect(clippy::disallowed_methods, reason = "this is the edge that asks the clock")]

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use wire::time::Nanos;

/// Time since this clock was made, and how that relates to the time of day.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Instant,
    start_unix_ns: u64,
}

impl Clock {
    /// Starts at zero.
    pub(crate) fn start() -> Self {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { start: Instant::now(), start_unix_ns: Nanos::from(unix).0 }
    }

    /// When the start was, in milliseconds since 1970.
    pub(crate) const fn start_unix_ms(&self) -> u64 {
        self.start_unix_ns / 1_000_000
    }

    /// When the start was, in nanoseconds since 1970.
    pub(crate) const fn start_unix_ns(&self) -> u64 {
        self.start_unix_ns
    }

    /// How long ago the start was.
    pub(crate) fn now(&self) -> Nanos {
        Nanos::from(self.start.elapsed())
    }

    /// What this clock showed when it was `unix_ns`; [`Nanos::ZERO`] before its start.
    pub(crate) const fn at_unix(&self, unix_ns: u64) -> Nanos {
        Nanos(unix_ns.saturating_sub(self.start_unix_ns))
    }

    /// Something that differs from run to run: the time of day in nanoseconds, its digits mixed.
    pub(crate) const fn arbitrary(&self) -> u64 {
        self.start_unix_ns.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40
    }
}
