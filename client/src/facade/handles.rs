//! Handles of the facade: uview's handles behind its traits.

use metrics::{CounterFn, GaugeFn, HistogramFn};

use crate::signed_histogram::SignedHistogram;
use crate::{Counter, Gauge};

impl CounterFn for Counter {
    fn increment(&self, value: u64) {
        self.add(value);
    }

    fn absolute(&self, value: u64) {
        self.raise_to(value);
    }
}

impl GaugeFn for Gauge {
    fn increment(&self, value: f64) {
        self.add(value);
    }

    fn decrement(&self, value: f64) {
        self.add(-value);
    }

    fn set(&self, value: f64) {
        Self::set(self, value);
    }
}

/// A histogram of the facade, whose values are in units.
#[derive(Debug)]
pub struct InUnits {
    /// Counts in parts of the unit.
    pub(super) histogram: SignedHistogram,
    /// Parts of a unit.
    pub(super) parts_per_unit: f64,
}

impl HistogramFn for InUnits {
    fn record(&self, value: f64) {
        self.record_many(value, 1);
    }

    fn record_many(&self, value: f64, count: usize) {
        if value.is_nan() {
            return;
        }
        // To the nearest part, which says the side: what becomes 0 is not below it. The conversion saturates.
        let parts = (value * self.parts_per_unit).round();
        let side = if parts < 0.0 { self.histogram.below() } else { self.histogram.above() };
        side.observe_many(parts.abs() as u64, count as u64);
    }
}
