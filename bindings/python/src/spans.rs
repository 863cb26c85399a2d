//! Spans of a service.

use std::sync::{Mutex, MutexGuard, PoisonError};

use client::{Client, SpanKind, TraceContext};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyAny;

/// A span: a piece of a request's work, from its begin to its end. A block ends it, and an exception in it is an error.
#[pyclass(frozen, module = "uview")]
#[derive(Debug)]
pub struct Span {
    /// None once it has ended. Locked for moments in which no other thread of Python runs.
    span: Mutex<Option<client::Span>>,
    /// What it passes on, also after its end.
    headers: Headers,
}

/// The headers of a span's context; empty without one.
#[derive(Debug, Default)]
struct Headers {
    parent: Option<String>,
    state: Option<String>,
}

/// The value of an attribute.
#[derive(FromPyObject)]
enum AttributeValue {
    Bool(bool),
    Integer(i64),
    Float(f64),
    Text(String),
}

impl Headers {
    fn of(span: &client::Span) -> Self {
        let mut headers = Self::default();
        if let Some(context) = span.context() {
            context.inject(|name, value| {
                let place = if name == "traceparent" { &mut headers.parent } else { &mut headers.state };
                *place = Some(value.to_owned());
            });
        }
        headers
    }
}

impl Span {
    /// Begins a span of `client`: within `parent`, or in the trace of the caller with these headers, or in a new one.
    pub(crate) fn begin(
        client: &Client,
        name: &str,
        kind: &str,
        (traceparent, tracestate): (Option<&str>, Option<&str>),
        parent: Option<&Self>,
    ) -> PyResult<Self> {
        let kind = SpanKind::named(kind).ok_or_else(|| {
            PyValueError::new_err(format!("{kind}: a span is internal, server, client, producer or consumer"))
        })?;
        let (traceparent, tracestate) = match parent {
            Some(above) => (above.headers.parent.as_deref(), above.headers.state.as_deref()),
            None => (traceparent, tracestate),
        };
        let mut span = client.span(name);
        span.set_kind(kind);
        if let Some(above) = TraceContext::extract(|name| if name == "traceparent" { traceparent } else { tracestate })
        {
            span.set_parent(&above);
        }
        Ok(Self { headers: Headers::of(&span), span: Mutex::new(Some(span)) })
    }

    fn open(&self) -> MutexGuard<'_, Option<client::Span>> {
        self.span.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Span {
    /// Adds an attribute: text, of which up to 160 bytes are kept, a number, or a truth value. Nothing after its end.
    fn set(&self, key: &str, value: AttributeValue) {
        if let Some(span) = &mut *self.open() {
            match value {
                AttributeValue::Bool(value) => span.set_bool(key, value),
                AttributeValue::Integer(value) => span.set_integer(key, value),
                AttributeValue::Float(value) => span.set_float(key, value),
                AttributeValue::Text(value) => span.set_text(key, &value),
            }
        }
    }

    /// Sets the status to error. The first message stays.
    #[pyo3(signature = (message = ""))]
    fn fail(&self, message: &str) {
        if let Some(span) = &mut *self.open() {
            span.fail(message);
        }
    }

    /// Asks the agent to keep the span's trace, for this reason.
    fn keep(&self, reason: &str) {
        if let Some(span) = &*self.open() {
            span.keep(reason);
        }
    }

    /// The header for requests made within the span; None if there is no shared memory and no caller.
    #[getter]
    fn traceparent(&self) -> Option<&str> {
        self.headers.parent.as_deref()
    }

    /// The header of that name; None if the caller had none.
    #[getter]
    fn tracestate(&self) -> Option<&str> {
        self.headers.state.as_deref()
    }

    /// Ends and records the span. Does nothing if it has ended.
    fn end(&self) {
        drop(self.open().take());
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    #[pyo3(signature = (kind, error, _traceback))]
    fn __exit__(&self, kind: Bound<'_, PyAny>, error: Bound<'_, PyAny>, _traceback: Bound<'_, PyAny>) {
        if !kind.is_none() {
            // An exception whose text cannot be had is one all the same.
            let name = kind.getattr("__name__").and_then(|name| name.extract::<String>()).unwrap_or_default();
            let text = error.str().map(|text| text.to_string()).unwrap_or_default();
            self.fail(&if text.is_empty() { name } else { format!("{name}: {text}") });
        }
        self.end();
    }

    fn __repr__(&self) -> String {
        format!("<uview.Span {}>", self.headers.parent.as_deref().unwrap_or("that is not recorded"))
    }
}
