//! How long something has not happened.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};

use client::Gauge;

/// A gauge of the time for which something has not happened: 0 s while it happens, and more with each interval without
/// it. To an LMAP, a share that stays at 1 looks like a state that has changed once; this gauge keeps growing.
#[derive(Debug)]
pub(super) struct Silence {
    gauge: Gauge,
    interval_s: f64,
    intervals: AtomicU32,
}

impl Silence {
    /// No interval was silent yet.
    pub(super) fn new(gauge: Gauge, interval_ms: NonZeroU32) -> Self {
        Self { gauge, interval_s: f64::from(interval_ms.get()) / 1e3, intervals: AtomicU32::new(0) }
    }

    /// Writes one interval.
    pub(super) fn write(&self, is_silent: bool) {
        let before = self.intervals.load(Ordering::Relaxed);
        let intervals = if is_silent { before.saturating_add(1) } else { 0 };
        self.intervals.store(intervals, Ordering::Relaxed);
        self.gauge.set(f64::from(intervals) * self.interval_s);
    }
}

#[cfg(test)]
impl Silence {
    /// What was written last, in seconds.
    pub(super) fn seconds(&self) -> f64 {
        self.gauge.get()
    }
}
