//! KeepReason spans, from requests to the upstream into the page's traces.

use hooks::tracing::SpanKind;
use otlp::codec::{RawSpan, scan};
use page::traces::{KeepReason, Outcome, Side, Span, Traces};

/// Name of a service that does not say it.
const UNKNOWN: &str = "unknown";

/// Adds the spans of `request`, an `ExportTraceServiceRequest` that this agent has put together.
pub(super) fn add(request: &[u8], traces: &mut Traces) {
    // What cannot be read was refused when it came.
    _ = scan(request, |group, span| {
        if let Ok(span) = span {
            traces.add(u128::from_be_bytes(span.trace.bytes()), kept(group.service_name().unwrap_or(UNKNOWN), &span));
        }
    });
}

fn kept(service: &str, raw: &RawSpan<'_>) -> Span {
    let reason = raw.text(b"uview.reason").map(|reason| KeepReason {
        policy: raw.text(b"uview.policy").unwrap_or_default().into(),
        reason: reason.into(),
        incident: raw.text(b"uview.incident").unwrap_or_default().into(),
    });
    Span {
        id: u64::from_be_bytes(raw.id.bytes()),
        parent: raw.parent.map(|parent| u64::from_be_bytes(parent.bytes())),
        service: service.into(),
        name: raw.name.into(),
        side: match raw.kind {
            SpanKind::Server | SpanKind::Consumer => Side::Server,
            SpanKind::Client | SpanKind::Producer => Side::Client,
            SpanKind::Internal | SpanKind::Unspecified => Side::Other,
        },
        start: raw.start,
        end: raw.end,
        outcome: if raw.error { Outcome::Failed } else { Outcome::Fine },
        kept: reason,
    }
}
