//! Says within a span why it is kept, and what is missing of its trace.

use crate::otlp::export;
use crate::otlp::scan::{TRACESTATE, tracestate_of};
use crate::tracing::{Given, Part, Reason, sampling_of, with_threshold};

/// A field of a `Span`.
const ATTRIBUTES: u8 = 9;

/// Puts `given` as it is to be sent into `into`, in place of what it held: the span as it came, and what is to be said appended. `node` is named
/// where something is missing. Its `ot=th` becomes the floor's, or none: what was picked for what happened stands for nothing else.
///
/// | attribute | where | what |
/// | --- | --- | --- |
/// | `uview.policy` | spans without a parent | floor, error, lmap, latency, code |
/// | `uview.reason` | the same | in words, with units |
/// | `uview.score`, `uview.threshold` | the same, of policy lmap | the score and γ |
/// | `uview.incomplete` | spans given out when something was missing | the node, and how many spans, if that is known |
pub fn annotate(given: &Given<'_>, node: &str, into: &mut Vec<u8>) {
    into.clear();
    into.extend_from_slice(given.encoded);
    if given.index.parent.is_none() {
        text("uview.policy", given.reason.policy().name(), into);
        text("uview.reason", &given.reason.to_string(), into);
        if let Reason::Lmap { score, gamma, .. } = given.reason {
            number("uview.score", *score, into);
            number("uview.threshold", *gamma, into);
        }
    }
    incomplete(given.part, node, into);
    let (came, threshold) = (tracestate_of(given.encoded), given.reason.threshold());
    if sampling_of(came).0 != threshold {
        export::bytes(TRACESTATE, with_threshold(came, threshold).as_bytes(), into);
    }
}

/// What is missing at `node`, if anything is.
pub(super) fn incomplete(part: Part, node: &str, into: &mut Vec<u8>) {
    match part {
        Part::Whole => {}
        Part::Lacks { spans } => text("uview.incomplete", &format!("{node}: {spans} spans are missing"), into),
        Part::Unknown => text("uview.incomplete", &format!("{node}: spans may be missing"), into),
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
    let mut pair = Vec::with_capacity(key.len() + any.len() + 12);
    export::bytes(1, key.as_bytes(), &mut pair);
    export::bytes(2, any, &mut pair);
    export::bytes(ATTRIBUTES, &pair, into);
}
