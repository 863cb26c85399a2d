//! Spans of a service.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use client::{Client, SpanKind, TraceContext};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyAny;

/// A span: a piece of a request's work, from its begin to its end. A block ends it, and an exception in it is an error.
#[pyclass(frozen, module = "uview")]
#[derive(Debug)]
pub struct Span {
    /// None once it has ended. Locked for moments in which no other thread of Python runs.
    open: Mutex<Option<client::Span>>,
    /// What it passes on, also after its end.
    headers: Headers,
    /// What was current before its blocks, as tokens of [`CURRENT`]; the innermost block is the last.
    entered: Mutex<Vec<Py<PyAny>>>,
}

/// The `ContextVar` with the span of the innermost block: each thread and each task has a value of its own.
static CURRENT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

fn variable(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    let make = || py.import("contextvars")?.getattr("ContextVar")?.call1(("uview.current_span",)).map(Bound::unbind);
    Ok(CURRENT.get_or_try_init(py, make)?.bind(py))
}

/// The span of the innermost block; None outside of all.
#[pyfunction]
pub fn current_span(py: Python<'_>) -> PyResult<Option<Bound<'_, Span>>> {
    let current = variable(py)?.call_method1("get", (py.None(),))?;
    Ok(if current.is_none() { None } else { Some(current.cast_into::<Span>()?) })
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

    fn context(&self) -> Option<TraceContext> {
        TraceContext::extract(|name| if name == "traceparent" { self.parent.as_deref() } else { self.state.as_deref() })
    }
}

impl Span {
    /// Begins a span of `client`: within `parent`, or in the trace of the caller with these headers, or within
    /// `current`, or in a new one.
    pub(crate) fn begin(
        client: &Client,
        name: &str,
        kind: &str,
        (traceparent, tracestate): (Option<&str>, Option<&str>),
        (parent, current): (Option<&Self>, Option<&Self>),
    ) -> PyResult<Self> {
        let kind = SpanKind::named(kind).ok_or_else(|| {
            PyValueError::new_err(format!("{kind}: a span is internal, server, client, producer or consumer"))
        })?;
        let caller = || TraceContext::extract(|name| if name == "traceparent" { traceparent } else { tracestate });
        let above = match parent {
            Some(parent) => parent.headers.context(),
            None => caller().or_else(|| current?.headers.context()),
        };
        let mut span = client.span(name);
        span.set_kind(kind);
        if let Some(above) = above {
            span.set_parent(&above);
        }
        Ok(Self { headers: Headers::of(&span), open: Mutex::new(Some(span)), entered: Mutex::default() })
    }

    fn open(&self) -> MutexGuard<'_, Option<client::Span>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn entered(&self) -> MutexGuard<'_, Vec<Py<PyAny>>> {
        self.entered.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Says that something happened now, with attributes as of a span. Events take at most half of the 448 bytes of a
    /// span. Nothing after its end.
    #[pyo3(signature = (name, attributes = None))]
    fn event(&self, name: &str, attributes: Option<BTreeMap<String, AttributeValue>>) {
        if let Some(span) = &mut *self.open() {
            let mut event = span.event(name);
            for (key, value) in attributes.unwrap_or_default() {
                match value {
                    AttributeValue::Bool(value) => event.set_bool(&key, value),
                    AttributeValue::Integer(value) => event.set_integer(&key, value),
                    AttributeValue::Float(value) => event.set_float(&key, value),
                    AttributeValue::Text(value) => event.set_text(&key, &value),
                };
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

    fn __enter__(this: &Bound<'_, Self>) -> PyResult<Py<Self>> {
        let token = variable(this.py())?.call_method1("set", (this,))?.unbind();
        this.get().entered().push(token);
        Ok(this.clone().unbind())
    }

    #[pyo3(signature = (kind, error, _traceback))]
    fn __exit__(&self, kind: Bound<'_, PyAny>, error: Bound<'_, PyAny>, _traceback: Bound<'_, PyAny>) {
        let token = self.entered().pop();
        if let Some(token) = token {
            // Refused in another context, as of a generator that another task ends: what is current there is not this.
            let _ = variable(kind.py()).and_then(|variable| variable.call_method1("reset", (token,)));
        }
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
