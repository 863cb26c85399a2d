//! Says that something is missing of a trace where there is no span of it that could say so.

use crate::otlp::annotate::{incomplete, text};
use crate::otlp::export;
use crate::time::UnixNanos;
use crate::tracing::{Part, Reason, TraceId};

// Fields of a `Span`.
const TRACE: u8 = 1;
const SPAN: u8 = 2;
const NAME: u8 = 5;
const START: u8 = 7;
const END: u8 = 8;

/// A span of `trace` without length at `at`, `uview.incomplete`, that says what is missing at `node`, and why the trace is kept. It has no parent: the
/// one that it belongs under may be what is missing. Its id is the same whenever `node` says it again.
#[must_use]
pub fn mark(trace: TraceId, reason: &Reason, part: Part, node: &str, at: UnixNanos) -> Vec<u8> {
    let mut span = Vec::new();
    export::bytes(TRACE, &trace.bytes(), &mut span);
    export::bytes(SPAN, &id(trace, node).to_be_bytes(), &mut span);
    export::bytes(NAME, b"uview.incomplete", &mut span);
    for field in [START, END] {
        // Eight bytes, little endian.
        span.push(field << 3 | 1);
        span.extend_from_slice(&at.0.to_le_bytes());
    }
    text("uview.policy", reason.policy().name(), &mut span);
    text("uview.reason", &reason.to_string(), &mut span);
    incomplete(part, node, &mut span);
    span
}

/// The resource of such spans, as [`Export::add`](crate::otlp::Export::add) takes it: the service `uview`.
#[must_use]
pub fn mark_resource() -> Vec<u8> {
    let (mut any, mut pair, mut resource, mut group) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    export::bytes(1, b"uview", &mut any);
    export::bytes(1, b"service.name", &mut pair);
    export::bytes(2, &any, &mut pair);
    export::bytes(1, &pair, &mut resource);
    export::bytes(1, &resource, &mut group);
    group
}

/// FNV-1a (Fowler, Noll, Vo) of trace and node: never zero in practice, and made so.
fn id(trace: TraceId, node: &str) -> u64 {
    let bytes = trace.bytes().into_iter().chain(node.bytes());
    let hash =
        bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    hash.max(1)
}
