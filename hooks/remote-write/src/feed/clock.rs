//! A wall clock that was ahead and is set back.

use wire::time::UnixNanos;

use super::{Feed, MAX_AHEAD};
use crate::series::start_before;

impl Feed {
    /// The wall clock shows `now`. If it was set back by more than a minute, what was sent with later times is
    /// forgotten, and samples go on from here: whether a receiver takes them is its decision, and it may have refused
    /// the later ones. Returns the latest of those times then.
    pub(crate) fn follow_clock(&mut self, now: UnixNanos) -> Option<UnixNanos> {
        let sent_ms = self.last_ms.max(self.not_before_ms).max(self.readings.last_ms());
        if sent_ms <= now.plus(MAX_AHEAD).millis() {
            return None;
        }
        self.times.retain(|at| *at <= now.0);
        // Rows of the last minute may come again, from a worker that connects again.
        let floor = now.minus(MAX_AHEAD).millis();
        let last_ms = self.times.back().map_or(floor, |at| UnixNanos(*at).millis().max(floor));
        self.last_ms = last_ms;
        self.began_ms = self.began_ms.min(last_ms);
        self.not_before_ms = self.not_before_ms.min(last_ms);
        (self.last_row, self.sums) = (None, std::collections::VecDeque::new());
        self.sampler.set_back(last_ms);
        self.readings.set_back(last_ms);
        for column in &mut self.columns {
            start_before(&mut column.baseline, last_ms);
            start_before(&mut column.dense, last_ms);
        }
        Some(UnixNanos(sent_ms.saturating_mul(1_000_000)))
    }

    /// Time of the last sample of a row, or of a stale marker, in milliseconds since 1970.
    pub(crate) const fn last_ms(&self) -> u64 {
        self.last_ms
    }
}
