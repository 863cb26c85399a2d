//! What a fridge found in all intervals together.

use packets::Delays;
use packets::delays::Interval;

/// The delays of all intervals.
#[derive(Clone, Debug)]
pub struct FridgeTotals {
    /// The histogram of all delays.
    pub histogram: synopses::fridge::Histogram,
    /// The counts of each interval.
    pub intervals: Vec<Interval>,
}

impl FridgeTotals {
    /// No delays yet, of the shape of those of `delays`.
    pub(super) fn new(delays: &Delays) -> Self {
        let mut histogram = delays.histogram().clone();
        histogram.clear();
        Self { histogram, intervals: Vec::new() }
    }

    /// Ends an interval of `delays` at `end_ns`, and adds it.
    pub(super) fn add(&mut self, delays: &mut Delays, end_ns: u64) {
        // Cannot fail: both histograms have the same shape.
        let _ = self.histogram.merge(delays.histogram());
        self.intervals.push(delays.end_interval(end_ns));
    }
}
