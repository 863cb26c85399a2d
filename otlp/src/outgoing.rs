//! Kept spans, put together again into requests.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use hooks::id::{OperationId, OriginId, ServiceId};
use hooks::otlp::{Export, annotate, mark, mark_resource};
use hooks::paths::Exemplar;
use hooks::receipt::{BookLimits, Books};
use hooks::time::UnixNanos;
use hooks::tracing::{Given, Part, Reason, TraceId};

use crate::origins::{Origin, Origins};
use crate::passed::Passed;

/// A request is closed when it has so many bytes of spans.
const BATCH: usize = 512 << 10;
/// Requests of kept traces that are remembered until they are asked for, 48 bytes each: the last ones.
const REQUESTS: usize = 4_096;

/// Spans of one origin.
#[derive(Debug)]
struct Group {
    origin: Option<Arc<Origin>>,
    spans: Vec<Box<[u8]>>,
}

/// An `ExportTraceServiceRequest` that is to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// As it goes on the wire.
    pub request: Vec<u8>,
    /// How many spans are in it.
    pub spans: usize,
    /// What the clients said that they are of.
    pub(crate) passed: Passed,
}

/// A request of a trace that is kept: the span with which it entered a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeptRequest {
    pub(crate) service: ServiceId,
    pub(crate) operation: OperationId,
    pub(crate) exemplar: Exemplar,
}

/// What was kept and is not yet sent.
#[derive(Debug)]
pub(crate) struct Outgoing {
    node: Box<str>,
    scratch: Vec<u8>,
    groups: BTreeMap<OriginId, Group>,
    /// Spans of our own: where something is missing and no span says so.
    marks: Vec<Vec<u8>>,
    bytes: usize,
    ready: Vec<Batch>,
    requests: VecDeque<KeptRequest>,
    /// What was seen and kept of each service.
    pub(crate) books: Books,
}

impl Outgoing {
    /// Nothing; `node` is named in spans of traces of which it lacks something.
    pub(crate) fn new(node: &str) -> Self {
        Self {
            node: node.into(),
            scratch: Vec::new(),
            groups: BTreeMap::new(),
            marks: Vec::new(),
            bytes: 0,
            ready: Vec::new(),
            requests: VecDeque::new(),
            books: Books::new(BookLimits::default()),
        }
    }

    /// Adds a span, with what is to be said of it.
    pub(crate) fn add(&mut self, given: &Given<'_>, origins: &Origins) {
        annotate(given, &self.node, &mut self.scratch);
        let (index, policy) = (given.index, given.reason.policy());
        self.books.kept(index.service, policy, given.encoded.len(), index.parent.is_none(), index.error);
        if index.kind.enters() {
            if self.requests.len() >= REQUESTS {
                self.requests.pop_front();
            }
            let exemplar = Exemplar { trace: given.trace, took: index.duration(), at: index.end };
            let (service, operation) = (index.service, index.operation);
            self.requests.push_back(KeptRequest { service, operation, exemplar });
        }
        let id = given.index.origin;
        let group = self.groups.entry(id).or_insert_with(|| Group { origin: origins.get(id), spans: Vec::new() });
        group.spans.push(self.scratch.as_slice().into());
        self.bytes += self.scratch.len();
        if self.bytes >= BATCH {
            self.seal();
        }
    }

    /// Adds a span that says what is missing of `trace` at `node`, or here.
    pub(crate) fn mark(&mut self, trace: TraceId, reason: &Reason, part: Part, node: Option<&str>, at: UnixNanos) {
        let span = mark(trace, reason, part, node.unwrap_or(&self.node), at);
        self.bytes += span.len();
        self.marks.push(span);
        if self.bytes >= BATCH {
            self.seal();
        }
    }

    /// Takes all that is there, in as few requests as it may be.
    pub(crate) fn take(&mut self) -> Vec<Batch> {
        self.seal();
        core::mem::take(&mut self.ready)
    }

    /// Takes the requests of traces that were kept since the last call.
    pub(crate) fn take_requests(&mut self) -> VecDeque<KeptRequest> {
        core::mem::take(&mut self.requests)
    }

    /// A request for each client's headers: whose spans these are is not said of others' spans.
    fn seal(&mut self) {
        let mut exports: BTreeMap<Passed, Export> = BTreeMap::new();
        for group in core::mem::take(&mut self.groups).into_values() {
            let spans: Vec<&[u8]> = group.spans.iter().map(|span| &**span).collect();
            let origin = group.origin.as_deref();
            let (resource, scope) = origin.map_or_else(Default::default, |o| (o.resource(), o.scope()));
            let passed = Passed::from_bytes(origin.map_or_else(Default::default, Origin::passed));
            exports.entry(passed).or_default().add(resource, scope, &spans);
        }
        let marks = core::mem::take(&mut self.marks);
        if !marks.is_empty() {
            let spans: Vec<&[u8]> = marks.iter().map(Vec::as_slice).collect();
            exports.entry(Passed::default()).or_default().add(&mark_resource(), &[], &spans);
        }
        self.bytes = 0;
        for (passed, export) in exports {
            let (request, spans) = (export.bytes().to_vec(), export.spans());
            self.ready.push(Batch { request, spans, passed });
        }
    }
}
