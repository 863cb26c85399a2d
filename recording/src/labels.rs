//! What is known about a span of time: a fault, or that nothing counts.

use thiserror::Error;

use crate::block::{Kind, write};
use crate::bytes::{Malformed, Reader, put_number, put_text};

/// Spans of one block.
const MOST_SPANS: usize = 4096;
/// Bytes of the name of a fault.
const MOST_TEXT: usize = 256;

/// What rows of a span are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mark {
    /// A fault is known.
    Anomalous = 1,
    /// They count neither as normal nor as anomalous: just after a fault, for instance.
    Ignored = 2,
}

/// A span of time, both ends included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Its begin, in nanoseconds since 1970.
    pub from_unix_ns: u64,
    /// Its end; not before its begin.
    pub to_unix_ns: u64,
    /// What its rows are.
    pub mark: Mark,
    /// The kind of fault; may be empty.
    pub fault: String,
}

/// Spans that cannot be recorded.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SpanError {
    /// The other way round.
    #[error("a span ends at {to_unix_ns} ns, before its begin at {from_unix_ns} ns")]
    Backwards {
        /// Its begin.
        from_unix_ns: u64,
        /// Its end.
        to_unix_ns: u64,
    },
    /// A name without end.
    #[error("the name of a fault has {0} bytes, {MOST_TEXT} are possible")]
    Text(usize),
    /// Too many at once.
    #[error("{0} spans at once, {MOST_SPANS} are possible")]
    Many(usize),
}

/// A block of labels, to be appended to a recording, whether that has ended or not. They add to those that are there.
///
/// # Errors
///
/// [`SpanError`] if a span ends before it begins, or there is too much of anything.
pub fn encode(spans: &[Span]) -> Result<Vec<u8>, SpanError> {
    if spans.len() > MOST_SPANS {
        return Err(SpanError::Many(spans.len()));
    }
    let mut out = Vec::new();
    put_number(&mut out, spans.len() as u64);
    for span in spans {
        let &Span { from_unix_ns, to_unix_ns, mark, ref fault } = span;
        let length = to_unix_ns.checked_sub(from_unix_ns).ok_or(SpanError::Backwards { from_unix_ns, to_unix_ns })?;
        if fault.len() > MOST_TEXT {
            return Err(SpanError::Text(fault.len()));
        }
        out.push(mark as u8);
        put_number(&mut out, from_unix_ns);
        put_number(&mut out, length);
        put_text(&mut out, fault);
    }
    Ok(write(Kind::Labels, &out))
}

pub(crate) fn decode(payload: &[u8]) -> Result<Vec<Span>, Malformed> {
    let mut reader = Reader::new(payload);
    let count = reader.size(MOST_SPANS, "the number of spans")?;
    let mut spans = Vec::new();
    for _ in 0..count {
        let mark = match reader.byte()? {
            1 => Mark::Anomalous,
            2 => Mark::Ignored,
            _ => return Err(Malformed("what a span is")),
        };
        let from_unix_ns = reader.number()?;
        let to_unix_ns = from_unix_ns.checked_add(reader.number()?).ok_or(Malformed("the end of a span"))?;
        spans.push(Span { from_unix_ns, to_unix_ns, mark, fault: reader.text(MOST_TEXT, "a fault's name")? });
    }
    reader.end()?;
    Ok(spans)
}
