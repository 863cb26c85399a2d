//! Collects kept spans into requests for the upstream.

use std::collections::VecDeque;

use crate::codec::{annotate, mark, mark_resource};
use hooks::id::{OperationId, ServiceId};
use hooks::paths::Exemplar;
use hooks::receipt::{DailyLedger, LedgerLimits};
use hooks::tracing::{Completeness, KeptSpan, Reason, TraceId};
use wire::time::UnixNanos;

use crate::forwarded_headers::ForwardedHeaders;
use crate::grouped::GroupedItems;
use crate::holders::Holder;
use crate::origins::Origins;

/// A request is closed when its spans exceed this many bytes.
pub(crate) const BATCH: usize = 512 << 10;
/// Maximum number of requests of kept traces that are remembered until they are drained, 64 bytes each and the
/// address of their incident: the newest.
const REQUESTS: usize = 4_096;

/// An `ExportTraceServiceRequest` or `ExportLogsServiceRequest` to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The encoded request.
    pub request: Vec<u8>,
    /// Number of spans, or log records, in it.
    pub spans: usize,
    /// Forwarded headers of the client whose items these are.
    pub(crate) forwarded: ForwardedHeaders,
    /// Whose share of the queue they are of.
    pub(crate) holder: Holder,
}

/// A request of a kept trace: the span with which it entered a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeptRequest {
    pub(crate) service: ServiceId,
    pub(crate) operation: OperationId,
    pub(crate) exemplar: Exemplar,
    /// Address of the incident of the alarm; empty: none.
    pub(crate) incident: Box<str>,
}

/// Kept spans that are not yet queued.
#[derive(Debug)]
pub(crate) struct ExportBuffer {
    node: Box<str>,
    scratch: Vec<u8>,
    spans: GroupedItems,
    /// Marker spans: something is missing and no span can carry the attribute.
    marks: Vec<Vec<u8>>,
    mark_bytes: usize,
    ready: Vec<Batch>,
    requests: VecDeque<KeptRequest>,
    /// Ledger of spans and log records seen and kept, by service.
    pub(crate) ledger: DailyLedger,
}

impl ExportBuffer {
    /// An empty buffer. `node` is named in spans of incomplete traces.
    pub(crate) fn new(node: &str) -> Self {
        Self {
            node: node.into(),
            scratch: Vec::new(),
            spans: GroupedItems::default(),
            marks: Vec::new(),
            mark_bytes: 0,
            ready: Vec::new(),
            requests: VecDeque::new(),
            ledger: DailyLedger::new(LedgerLimits::default()),
        }
    }

    /// Adds a kept span with its annotations.
    pub(crate) fn add(&mut self, span: &KeptSpan<'_>, origins: &Origins) {
        annotate(span, &self.node, &mut self.scratch);
        let (index, policy) = (span.index, span.reason.policy());
        self.ledger.kept(index.service, policy, span.encoded.len(), index.parent.is_none(), index.error);
        if index.kind.enters() {
            if self.requests.len() >= REQUESTS {
                self.requests.pop_front();
            }
            let exemplar = Exemplar { trace: span.trace, took: index.duration(), at: index.end, incident: None };
            let incident = span.reason.incident().into();
            let (service, operation) = (index.service, index.operation);
            self.requests.push_back(KeptRequest { service, operation, exemplar, incident });
        }
        self.spans.add(span.index.origin, &self.scratch, origins);
        self.seal_if_full();
    }

    /// Adds a marker span: spans of `trace` are missing at `node`, or at this node.
    pub(crate) fn mark(
        &mut self,
        trace: TraceId,
        reason: &Reason,
        completeness: Completeness,
        node: Option<&str>,
        at: UnixNanos,
    ) {
        let span = mark(trace, reason, completeness, node.unwrap_or(&self.node), at);
        self.mark_bytes += span.len();
        self.marks.push(span);
        self.seal_if_full();
    }

    /// Drains everything, in as few requests as possible.
    pub(crate) fn take(&mut self) -> Vec<Batch> {
        self.seal();
        core::mem::take(&mut self.ready)
    }

    /// Drains the requests of traces that were kept since the last call.
    pub(crate) fn take_requests(&mut self) -> VecDeque<KeptRequest> {
        core::mem::take(&mut self.requests)
    }

    fn seal_if_full(&mut self) {
        if self.spans.bytes() + self.mark_bytes >= BATCH {
            self.seal();
        }
    }

    /// Closes a request for each client's headers: they must not be sent with another client's spans.
    fn seal(&mut self) {
        let marks = core::mem::take(&mut self.marks);
        self.mark_bytes = 0;
        self.ready.extend(self.spans.drain(&marks, &mark_resource()));
    }
}
