//! Makes a marker span: it says that spans of a trace are missing, where the node has no span that could carry the
//! attribute.

use crate::codec::annotate::{incomplete, text};
use crate::codec::export;
use hooks::tracing::{Completeness, Reason, TraceId};
use wire::time::UnixNanos;

// Field numbers in `Span`.
const TRACE: u8 = 1;
const SPAN: u8 = 2;
const NAME: u8 = 5;
const START: u8 = 7;
const END: u8 = 8;

/// Encodes a span `uview.incomplete` of `trace` with zero duration at `at`. It says what is missing at `node`, and why
/// the trace is kept. It has no parent, since the parent may be what is missing. Its id depends on `trace` and `node`
/// only: a repeated marker has the same id.
#[must_use]
pub fn mark(trace: TraceId, reason: &Reason, completeness: Completeness, node: &str, at: UnixNanos) -> Vec<u8> {
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
    incomplete(completeness, node, &mut span);
    span
}

/// The resource of marker spans, as [`Export::add`](crate::codec::Export::add) takes it: the service `uview`.
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

/// FNV-1a (Fowler, Noll, Vo) of trace and node, at least 1: 0 is no valid span id.
fn id(trace: TraceId, node: &str) -> u64 {
    let bytes = trace.bytes().into_iter().chain(node.bytes());
    let hash =
        bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    hash.max(1)
}
