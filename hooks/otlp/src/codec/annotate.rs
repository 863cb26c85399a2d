//! Adds attributes to a kept span: why it is kept, and what is missing of its trace.

use crate::codec::export;
use crate::codec::scan::{TRACESTATE, tracestate_of};
use hooks::tracing::{Completeness, KeptSpan, Reason, sampling_of, with_threshold};

/// Field number in `Span`.
const ATTRIBUTES: u8 = 9;

/// Writes the span as exported to `into`, replacing its content: the received span with annotations appended. `node` is
/// named where spans are missing. Its tracestate threshold `ot=th` becomes the floor's, or is removed: a trace that was
/// selected for an event represents no other traces.
///
/// | attribute | where | what |
/// | --- | --- | --- |
/// | `uview.policy` | spans without a parent | floor, error, lmap, latency, trigger |
/// | `uview.reason` | the same | the reason as text, with units |
/// | `uview.incident` | the same, if the policy is lmap and the incident is known | its address: node, slash, id |
/// | `uview.score`, `uview.threshold` | the same, if the policy is lmap | the score and γ |
/// | `uview.incomplete` | spans exported while something was missing | the node, and how many spans, if that is known |
pub fn annotate(span: &KeptSpan<'_>, node: &str, into: &mut Vec<u8>) {
    into.clear();
    into.extend_from_slice(span.encoded);
    if span.index.parent.is_none() {
        text("uview.policy", span.reason.policy().name(), into);
        text("uview.reason", &span.reason.to_string(), into);
        if let Reason::Lmap { score, gamma, incident, .. } = span.reason {
            number("uview.score", *score, into);
            number("uview.threshold", *gamma, into);
            if !incident.is_empty() {
                text("uview.incident", incident, into);
            }
        }
    }
    incomplete(span.completeness, node, into);
    let (original, threshold) = (tracestate_of(span.encoded), span.reason.threshold());
    if sampling_of(original).0 != threshold {
        export::bytes(TRACESTATE, with_threshold(original, threshold).as_bytes(), into);
    }
}

/// Adds `uview.incomplete` if `node` lacks spans of the trace.
pub(super) fn incomplete(completeness: Completeness, node: &str, into: &mut Vec<u8>) {
    match completeness {
        Completeness::Complete => {}
        Completeness::Missing { spans } => {
            text("uview.incomplete", &format!("{node}: {spans} spans are missing"), into);
        }
        Completeness::Unknown => text("uview.incomplete", &format!("{node}: spans may be missing"), into),
    }
}

pub(super) fn text(key: &str, value: &str, into: &mut Vec<u8>) {
    let mut any = Vec::with_capacity(value.len() + 6);
    export::bytes(1, value.as_bytes(), &mut any);
    attribute(key, &any, into);
}

fn number(key: &str, value: f64, into: &mut Vec<u8>) {
    // double_value = 4, eight bytes.
    let mut any = vec![4 << 3 | 1];
    any.extend_from_slice(&value.to_le_bytes());
    attribute(key, &any, into);
}

fn attribute(key: &str, any: &[u8], into: &mut Vec<u8>) {
    attribute_of(ATTRIBUTES, key, any, into);
}

/// Writes a `KeyValue` as the field `number`.
pub(super) fn attribute_of(number: u8, key: &str, any: &[u8], into: &mut Vec<u8>) {
    let mut pair = Vec::with_capacity(key.len() + any.len() + 12);
    export::bytes(1, key.as_bytes(), &mut pair);
    export::bytes(2, any, &mut pair);
    export::bytes(number, &pair, into);
}
