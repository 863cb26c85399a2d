//! Collects kept spans into requests for the upstream.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::codec::{Export, annotate, mark, mark_resource};
use hooks::id::{OperationId, OriginId, ServiceId};
use hooks::paths::Exemplar;
use hooks::receipt::{DailyLedger, LedgerLimits};
use hooks::tracing::{Completeness, KeptSpan, Reason, TraceId};
use wire::time::UnixNanos;

use crate::forwarded_headers::ForwardedHeaders;
use crate::origins::{Origin, Origins};

/// A request is closed when its spans exceed this many bytes.
const BATCH: usize = 512 << 10;
/// Maximum number of requests of kept traces that are remembered until they are drained, 48 bytes each: the newest.
const REQUESTS: usize = 4_096;

/// Spans of one origin.
#[derive(Debug)]
struct Group {
    origin: Option<Arc<Origin>>,
    spans: Vec<Box<[u8]>>,
}

/// An `ExportTraceServiceRequest` to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The encoded request.
    pub request: Vec<u8>,
    /// Number of spans in it.
    pub spans: usize,
    /// Forwarded headers of the client whose spans these are.
    pub(crate) forwarded: ForwardedHeaders,
}

/// A request of a kept trace: the span with which it entered a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeptRequest {
    pub(crate) service: ServiceId,
    pub(crate) operation: OperationId,
    pub(crate) exemplar: Exemplar,
}

/// Kept spans that are not yet queued.
#[derive(Debug)]
pub(crate) struct ExportBuffer {
    node: Box<str>,
    scratch: Vec<u8>,
    groups: BTreeMap<OriginId, Group>,
    /// Marker spans: something is missing and no span can carry the attribute.
    marks: Vec<Vec<u8>>,
    bytes: usize,
    ready: Vec<Batch>,
    requests: VecDeque<KeptRequest>,
    /// Ledger of spans seen and kept, by service.
    pub(crate) ledger: DailyLedger,
}

impl ExportBuffer {
    /// An empty buffer. `node` is named in spans of incomplete traces.
    pub(crate) fn new(node: &str) -> Self {
        Self {
            node: node.into(),
            scratch: Vec::new(),
            groups: BTreeMap::new(),
            marks: Vec::new(),
            bytes: 0,
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
            let exemplar = Exemplar { trace: span.trace, took: index.duration(), at: index.end };
            let (service, operation) = (index.service, index.operation);
            self.requests.push_back(KeptRequest { service, operation, exemplar });
        }
        let id = span.index.origin;
        let group = self.groups.entry(id).or_insert_with(|| Group { origin: origins.get(id), spans: Vec::new() });
        group.spans.push(self.scratch.as_slice().into());
        self.bytes += self.scratch.len();
        if self.bytes >= BATCH {
            self.seal();
        }
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
        self.bytes += span.len();
        self.marks.push(span);
        if self.bytes >= BATCH {
            self.seal();
        }
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

    /// Closes a request for each client's headers: they must not be sent with another client's spans.
    fn seal(&mut self) {
        let mut exports: BTreeMap<ForwardedHeaders, Export> = BTreeMap::new();
        for group in core::mem::take(&mut self.groups).into_values() {
            let spans: Vec<&[u8]> = group.spans.iter().map(|span| &**span).collect();
            let origin = group.origin.as_deref();
            let (resource, scope) = origin.map_or_else(Default::default, |o| (o.resource(), o.scope()));
            let forwarded = ForwardedHeaders::from_bytes(origin.map_or_else(Default::default, Origin::forwarded));
            exports.entry(forwarded).or_default().add(resource, scope, &spans);
        }
        let marks = core::mem::take(&mut self.marks);
        if !marks.is_empty() {
            let spans: Vec<&[u8]> = marks.iter().map(Vec::as_slice).collect();
            exports.entry(ForwardedHeaders::default()).or_default().add(&mark_resource(), &[], &spans);
        }
        self.bytes = 0;
        for (forwarded, export) in exports {
            let (request, spans) = (export.bytes().to_vec(), export.spans());
            self.ready.push(Batch { request, spans, forwarded });
        }
    }
}
