//! A service: opening, registering, status, closing.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use client::{Client, Limits, Registration, Scale, TraceId};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::handles::{Counter, Gauge, Histogram, UpDownCounter};
use crate::spans::{Span, current_span};
use crate::status::Status;

/// A service's connection to the node's host agent.
#[pyclass(frozen, module = "uview")]
#[derive(Debug)]
pub struct Service {
    /// None once it is closed. Locked for moments in which no other thread of Python runs.
    client: Mutex<Option<Client>>,
}

/// The labels of a metric or service.
type Labels = Option<BTreeMap<String, String>>;

/// A handle of any kind.
#[derive(FromPyObject)]
enum AnyHandle<'py> {
    Counter(PyRef<'py, Counter>),
    UpDownCounter(PyRef<'py, UpDownCounter>),
    Gauge(PyRef<'py, Gauge>),
    Histogram(PyRef<'py, Histogram>),
}

impl Service {
    fn client(&self) -> PyResult<Client> {
        let client = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        client.clone().ok_or_else(|| PyValueError::new_err("the service is closed"))
    }
}

/// What a metric of any kind may have.
struct Options {
    labels: Labels,
    unit: Option<String>,
    aggregation: Option<String>,
    read_every_ms: u32,
}

/// Adds what all kinds have, and registers without the interpreter's lock.
fn registered<H: client::Handle + Send>(
    py: Python<'_>,
    mut registration: Registration<'_, H>,
    Options { labels, unit, aggregation, read_every_ms }: Options,
) -> (H, Option<client::Cause>) {
    if let Some(unit) = unit {
        registration = registration.unit(&unit);
    }
    if let Some(aggregation) = aggregation {
        registration = registration.aggregation(&aggregation);
    }
    registration = registration.read_every(Duration::from_millis(read_every_ms.into()));
    for (key, value) in labels.unwrap_or_default() {
        registration = registration.label(&key, &value);
    }
    py.detach(|| registration.register_with_cause())
}

#[pymethods]
impl Service {
    /// Opens the service `name`: letters, digits and _.-/: as OpenTelemetry's service.name. Never waits for an agent.
    #[new]
    #[pyo3(signature = (
        name, *, instance = None, labels = None, socket = None, max_series = None, max_label_sets = None,
        max_regions = None, process_metrics = true,
    ))]
    #[expect(clippy::too_many_arguments, reason = "Python has named arguments where Rust has a builder")]
    fn new(
        py: Python<'_>,
        name: String,
        instance: Option<String>,
        labels: Labels,
        socket: Option<PathBuf>,
        max_series: Option<usize>,
        max_label_sets: Option<usize>,
        max_regions: Option<usize>,
        process_metrics: bool,
    ) -> Self {
        let usual = Limits::default();
        let mut service = client::Service::new(name).limits(Limits {
            series: max_series.unwrap_or(usual.series),
            label_sets_per_metric: max_label_sets.unwrap_or(usual.label_sets_per_metric),
            regions: max_regions.unwrap_or(usual.regions),
            ..usual
        });
        if let Some(instance) = instance {
            service = service.instance(instance);
        }
        if let Some(socket) = socket {
            service = service.socket(socket);
        }
        for (key, value) in labels.unwrap_or_default() {
            service = service.label(key, value);
        }
        if !process_metrics {
            service = service.without_process_metrics();
        }
        Self { client: Mutex::new(Some(py.detach(|| client::connect(service)))) }
    }

    /// Registers a counter, or finds it. Replicas of the service are aggregated by "sum", "mean", "min", "max" or a
    /// quantile such as "p90"; None: by kind. read_every_ms: how often it is worth reading; 0: in every row.
    #[pyo3(signature = (name, *, labels = None, unit = None, aggregation = None, read_every_ms = 0))]
    #[expect(clippy::too_many_arguments, reason = "Python has named arguments where Rust has a builder")]
    fn counter(
        &self,
        py: Python<'_>,
        name: &str,
        labels: Labels,
        unit: Option<String>,
        aggregation: Option<String>,
        read_every_ms: u32,
    ) -> PyResult<Counter> {
        let options = Options { labels, unit, aggregation, read_every_ms };
        Ok(Counter::new(registered(py, self.client()?.counter(name), options)))
    }

    /// Registers an up-down counter, or finds it.
    #[pyo3(signature = (name, *, labels = None, unit = None, aggregation = None, read_every_ms = 0))]
    #[expect(clippy::too_many_arguments, reason = "Python has named arguments where Rust has a builder")]
    fn up_down_counter(
        &self,
        py: Python<'_>,
        name: &str,
        labels: Labels,
        unit: Option<String>,
        aggregation: Option<String>,
        read_every_ms: u32,
    ) -> PyResult<UpDownCounter> {
        let options = Options { labels, unit, aggregation, read_every_ms };
        Ok(UpDownCounter::new(registered(py, self.client()?.up_down_counter(name), options)))
    }

    /// Registers a gauge, or finds it.
    #[pyo3(signature = (name, *, labels = None, unit = None, aggregation = None, read_every_ms = 0))]
    #[expect(clippy::too_many_arguments, reason = "Python has named arguments where Rust has a builder")]
    fn gauge(
        &self,
        py: Python<'_>,
        name: &str,
        labels: Labels,
        unit: Option<String>,
        aggregation: Option<String>,
        read_every_ms: u32,
    ) -> PyResult<Gauge> {
        let options = Options { labels, unit, aggregation, read_every_ms };
        Ok(Gauge::new(registered(py, self.client()?.gauge(name), options)))
    }

    /// Registers a histogram, or finds it. Values are in parts of the unit: microseconds for a unit of "s" and
    /// 1,000,000 parts. 2^sub_bits buckets per power of two, up to 2^max_bits.
    #[pyo3(signature = (
        name, *, labels = None, unit = None, parts_per_unit = 1, sub_bits = 2, max_bits = 32, aggregation = None,
        read_every_ms = 0,
    ))]
    #[expect(clippy::too_many_arguments, reason = "Python has named arguments where Rust has a builder")]
    fn histogram(
        &self,
        py: Python<'_>,
        name: &str,
        labels: Labels,
        unit: Option<String>,
        parts_per_unit: u64,
        sub_bits: u32,
        max_bits: u32,
        aggregation: Option<String>,
        read_every_ms: u32,
    ) -> PyResult<Histogram> {
        let scale = Scale::new(sub_bits, max_bits).map_err(|error| PyValueError::new_err(error.to_string()))?;
        let client = self.client()?;
        let registration = client.histogram(name).parts_per_unit(parts_per_unit).scale(scale);
        let options = Options { labels, unit, aggregation, read_every_ms };
        Ok(Histogram::new(registered(py, registration, options)))
    }

    /// Begins a span of the kind "internal", "server", "client", "producer" or "consumer": within `parent`, or in the
    /// trace of the caller whose headers these are, or within the span of the block around it, or in a new trace. It
    /// ends with its block, or by end().
    #[pyo3(signature = (name, *, kind = "internal", traceparent = None, tracestate = None, parent = None))]
    #[expect(clippy::too_many_arguments, reason = "Python has named arguments where Rust has a builder")]
    fn span(
        &self,
        py: Python<'_>,
        name: &str,
        kind: &str,
        traceparent: Option<&str>,
        tracestate: Option<&str>,
        parent: Option<PyRef<'_, Span>>,
    ) -> PyResult<Span> {
        let current = current_span(py)?;
        let above = (parent.as_deref(), current.as_ref().map(Bound::get));
        Span::begin(&self.client()?, name, kind, (traceparent, tracestate), above)
    }

    /// Asks the agent to keep the trace with this id, 32 lower-case hexadecimal digits, whatever it goes through.
    fn trigger(&self, py: Python<'_>, trace: &str, reason: &str) -> PyResult<()> {
        let id = trace.parse::<TraceId>().map_err(|error| PyValueError::new_err(format!("{trace}: {error}")))?;
        let client = self.client()?;
        py.detach(|| client.trigger(id, reason));
        Ok(())
    }

    /// Says what the values of a metric are about at present, such as the client behind a share; "": nothing. At most
    /// 16 metrics have such a text, and up to 160 characters of it are kept.
    fn set_subject(&self, py: Python<'_>, metric: &str, text: &str) -> PyResult<()> {
        let client = self.client()?;
        py.detach(|| client.set_subject(metric, text));
        Ok(())
    }

    /// Ends a series, for all of its handles: no agent reads what they write from then on.
    fn remove(&self, py: Python<'_>, handle: AnyHandle<'_>) -> PyResult<()> {
        let client = self.client()?;
        match handle {
            AnyHandle::Counter(counter) => {
                let handle = counter.handle.clone();
                py.detach(|| client.remove(handle));
            }
            AnyHandle::UpDownCounter(counter) => {
                let handle = counter.handle.clone();
                py.detach(|| client.remove(handle));
            }
            AnyHandle::Gauge(gauge) => {
                let handle = gauge.handle.clone();
                py.detach(|| client.remove(handle));
            }
            AnyHandle::Histogram(histogram) => {
                let handle = histogram.handle.clone();
                py.detach(|| client.remove(handle));
            }
        }
        Ok(())
    }

    /// The state of the connection, counts and problems.
    fn status(&self, py: Python<'_>) -> PyResult<Status> {
        let client = self.client()?;
        Ok(Status::new(py.detach(|| client.status())))
    }

    /// Disconnects; takes milliseconds. Handles go on working. Does nothing if it is closed.
    fn close(&self, py: Python<'_>) {
        let client = self.client.lock().unwrap_or_else(PoisonError::into_inner).take();
        py.detach(|| drop(client));
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    #[pyo3(signature = (*_reason))]
    fn __exit__(&self, py: Python<'_>, _reason: Bound<'_, pyo3::types::PyTuple>) {
        self.close(py);
    }
}
