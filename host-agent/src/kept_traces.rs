//! Traces that were kept, for the live page and for incidents: whoever looks first takes what the OTLP endpoint has.

mod kept_spans;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use otlp::Edge;
use page::traces::Traces;

/// Bytes of requests with kept spans that wait for the next look.
pub(crate) const KEPT_BYTES: usize = 4 << 20;

/// The newest kept traces.
#[derive(Debug)]
pub(crate) struct KeptTraces {
    edge: Option<Arc<Edge>>,
    traces: Mutex<Traces>,
}

impl KeptTraces {
    /// None yet, and room for `budget` bytes. Without an `edge` there will be none.
    pub(crate) fn new(edge: Option<Arc<Edge>>, budget: usize) -> Self {
        Self { edge, traces: Mutex::new(Traces::new(budget)) }
    }

    /// Those that were kept by now.
    pub(crate) fn look(&self) -> MutexGuard<'_, Traces> {
        // Nothing under this lock panics; if something did, the traces would still be usable.
        let mut traces = self.traces.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(edge) = &self.edge {
            edge.take_kept().for_each(|request| kept_spans::add(&request, &mut traces));
        }
        traces
    }

    /// Whether traces are chosen (`otlp.traces.keep: tail`).
    pub(crate) fn are_chosen(&self) -> bool {
        self.edge.as_ref().is_some_and(|edge| edge.with_tail(|_, _| ()).is_some())
    }
}
