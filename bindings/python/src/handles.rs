//! Handles to metrics. Writing takes no lock.

use std::time::Duration;

use client::Cause;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// A class with a handle of the client, and why no agent reads it, if so.
macro_rules! class {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[pyclass(frozen, module = "uview")]
        #[derive(Debug)]
        pub struct $name {
            pub(crate) handle: client::$name,
            detached: Option<String>,
        }

        impl $name {
            pub(crate) fn new((handle, cause): (client::$name, Option<Cause>)) -> Self {
                Self { handle, detached: cause.map(|cause| cause.to_string()) }
            }
        }
    };
}

class! {
    /// A value that only grows: requests, errors, bytes.
    Counter
}
class! {
    /// A value that grows and falls in steps: requests in flight, connections.
    UpDownCounter
}
class! {
    /// A value that is measured elsewhere: a queue's depth, a temperature.
    Gauge
}
class! {
    /// A distribution of values: durations, sizes.
    Histogram
}

#[pymethods]
impl Counter {
    /// Why no agent reads this handle; None for one that is registered.
    #[getter]
    fn detached(&self) -> Option<&str> {
        self.detached.as_deref()
    }

    /// The current count.
    #[getter]
    fn value(&self) -> u64 {
        self.handle.get()
    }

    /// Adds `count`. Wraps after 2^64.
    #[pyo3(signature = (count = 1))]
    fn add(&self, count: u64) {
        self.handle.add(count);
    }

    fn __repr__(&self) -> String {
        format!("<uview.Counter {}>", self.handle.get())
    }
}

#[pymethods]
impl UpDownCounter {
    /// Why no agent reads this handle; None for one that is registered.
    #[getter]
    fn detached(&self) -> Option<&str> {
        self.detached.as_deref()
    }

    /// The current value.
    #[getter]
    fn value(&self) -> i64 {
        self.handle.get()
    }

    /// Adds `difference`, which may be negative.
    #[pyo3(signature = (difference = 1))]
    fn add(&self, difference: i64) {
        self.handle.add(difference);
    }

    fn __repr__(&self) -> String {
        format!("<uview.UpDownCounter {}>", self.handle.get())
    }
}

#[pymethods]
impl Gauge {
    /// Why no agent reads this handle; None for one that is registered.
    #[getter]
    fn detached(&self) -> Option<&str> {
        self.detached.as_deref()
    }

    /// The current value.
    #[getter]
    fn value(&self) -> f64 {
        self.handle.get()
    }

    /// Sets the value. NaN and infinities are read as a missing value.
    fn set(&self, value: f64) {
        self.handle.set(value);
    }

    /// Adds `difference`, which may be negative.
    fn add(&self, difference: f64) {
        self.handle.add(difference);
    }

    fn __repr__(&self) -> String {
        format!("<uview.Gauge {}>", self.handle.get())
    }
}

#[pymethods]
impl Histogram {
    /// Why no agent reads this handle; None for one that is registered.
    #[getter]
    fn detached(&self) -> Option<&str> {
        self.detached.as_deref()
    }

    /// The number of values recorded.
    #[getter]
    fn count(&self) -> u64 {
        self.handle.count()
    }

    /// The sum of the values recorded, in parts of the unit.
    #[getter]
    fn sum(&self) -> u64 {
        self.handle.sum()
    }

    /// Records `value`, in parts of the unit.
    fn observe(&self, value: u64) {
        self.handle.observe(value);
    }

    /// Records a duration of `ns` nanoseconds.
    fn observe_ns(&self, ns: u64) {
        self.handle.observe_duration(Duration::from_nanos(ns));
    }

    /// Records a duration of `seconds`, 0 or more.
    fn observe_seconds(&self, seconds: f64) -> PyResult<()> {
        let duration = Duration::try_from_secs_f64(seconds);
        self.handle.observe_duration(duration.map_err(|error| PyValueError::new_err(format!("{seconds} s: {error}")))?);
        Ok(())
    }

    fn __repr__(&self) -> String {
        format!("<uview.Histogram of {} values>", self.handle.count())
    }
}
