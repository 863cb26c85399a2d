//! Labels: spans of time with a known fault, or that do not count.

use thiserror::Error;
use wire::time::{Nanos, UnixNanos};

use crate::block::{Kind, write};
use crate::bytes::{FormatError, Reader, put_number, put_text};

/// Maximum spans per block.
const MAX_SPANS: usize = 4096;
/// Maximum length of a fault's name, in bytes.
const MAX_TEXT: usize = 256;

/// How the rows of a span count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mark {
    /// Anomalous: a fault is known.
    Anomalous = 1,
    /// Neither normal nor anomalous, for instance just after a fault.
    Ignored = 2,
}

/// A span of time, both ends included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// When it begins.
    pub from: UnixNanos,
    /// Its end, not before the begin.
    pub to: UnixNanos,
    /// How its rows count.
    pub mark: Mark,
    /// The kind of fault; may be empty.
    pub fault: String,
}

/// Why spans cannot be recorded.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SpanError {
    /// The end is before the begin.
    #[error("a span ends at {} ns, before its begin at {} ns", .to.0, .from.0)]
    Backwards {
        /// The begin of the span.
        from: UnixNanos,
        /// The end of the span.
        to: UnixNanos,
    },
    /// The name of a fault is too long.
    #[error("the name of a fault has {0} bytes, at most {MAX_TEXT} are possible")]
    Text(usize),
    /// Too many spans for one block.
    #[error("{0} spans at once, at most {MAX_SPANS} are possible")]
    Many(usize),
}

/// Encodes `spans` as a block, to be appended to a recording, also after its end. They add to existing labels.
///
/// # Errors
///
/// [`SpanError`] if a span ends before it begins, a name is too long, or there are too many spans.
pub fn encode(spans: &[Span]) -> Result<Vec<u8>, SpanError> {
    if spans.len() > MAX_SPANS {
        return Err(SpanError::Many(spans.len()));
    }
    let mut out = Vec::new();
    put_number(&mut out, spans.len() as u64);
    for span in spans {
        let &Span { from, to, mark, ref fault } = span;
        if to < from {
            return Err(SpanError::Backwards { from, to });
        }
        if fault.len() > MAX_TEXT {
            return Err(SpanError::Text(fault.len()));
        }
        out.push(mark as u8);
        put_number(&mut out, from.0);
        put_number(&mut out, to.since(from).0);
        put_text(&mut out, fault);
    }
    Ok(write(Kind::Labels, &out))
}

pub(crate) fn decode(payload: &[u8]) -> Result<Vec<Span>, FormatError> {
    let mut reader = Reader::new(payload);
    let count = reader.size(MAX_SPANS, "the number of spans")?;
    let mut spans = Vec::new();
    for _ in 0..count {
        let mark = match reader.byte()? {
            1 => Mark::Anomalous,
            2 => Mark::Ignored,
            _ => return Err(FormatError("what a span is")),
        };
        let from = UnixNanos(reader.number()?);
        let length = Nanos(reader.number()?);
        let to = from.0.checked_add(length.0).map(UnixNanos).ok_or(FormatError("the end of a span"))?;
        spans.push(Span { from, to, mark, fault: reader.text(MAX_TEXT, "a fault's name")? });
    }
    reader.end()?;
    Ok(spans)
}
