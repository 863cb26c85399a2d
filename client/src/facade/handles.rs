//! Handles of the facade: uview's handles behind its traits.

use metrics::{CounterFn, GaugeFn, HistogramFn};

use crate::{Counter, Gauge, Histogram};

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
    pub histogram: Histogram,
    /// Parts of a unit.
    pub parts_per_unit: f64,
}

impl HistogramFn for InUnits {
    fn record(&self, value: f64) {
        self.record_many(value, 1);
    }

    fn record_many(&self, value: f64, count: usize) {
        if !value.is_nan() {
            // To the nearest part; the conversion saturates, so that what is below 0 is 0.
            self.histogram.observe_many((value * self.parts_per_unit).round() as u64, count as u64);
        }
    }
}
