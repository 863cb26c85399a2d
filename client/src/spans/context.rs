//! Trace context: the ids that W3C Trace Context headers carry between services.

use core::fmt;
use core::num::{NonZeroU64, NonZeroU128};
use core::str::FromStr;

use wire::span_record::{ShortText, TEXT_BYTES};

/// The header with trace id, span id and flags.
const PARENT: &str = "traceparent";
/// The header with vendor-specific entries.
const STATE: &str = "tracestate";

/// Identifies a trace: 16 bytes, not all zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TraceId(pub(crate) NonZeroU128);

/// Identifies a span within its trace: 8 bytes, not all zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpanId(pub(crate) NonZeroU64);

/// A text that is not a valid id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an id has {0} lower-case hexadecimal digits, not all zero")]
pub struct IdError(usize);

/// Parses exactly `digits` lower-case hexadecimal digits.
fn hexadecimal(text: &str, digits: usize) -> Option<u128> {
    let plain = text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    u128::from_str_radix(text, 16).ok().filter(|_| plain)
}

impl TraceId {
    /// The id with these big-endian bytes, as other tracing libraries have them; `None` if all are zero.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Option<Self> {
        match NonZeroU128::new(u128::from_be_bytes(bytes)) {
            Some(id) => Some(Self(id)),
            None => None,
        }
    }

    /// The id as big-endian bytes.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0.get().to_be_bytes()
    }
}

impl FromStr for TraceId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        hexadecimal(text, 32).and_then(NonZeroU128::new).map(Self).ok_or(IdError(32))
    }
}

impl FromStr for SpanId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        hexadecimal(text, 16).and_then(|id| NonZeroU64::new(id as u64)).map(Self).ok_or(IdError(16))
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TraceId({self})")
    }
}

impl fmt::Debug for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SpanId({self})")
    }
}

/// The trace and span that a request belongs to, as headers carry them from service to service. Allocates nothing.
#[derive(Clone, Copy, Debug)]
pub struct TraceContext {
    /// The trace that the span belongs to.
    pub trace: TraceId,
    /// The span that becomes the parent of spans in the called service.
    pub span: SpanId,
    /// `tracestate`: the whole text if it fits, else only the entry `ot`, which decides about sampling.
    pub(crate) state: ShortText,
}

impl TraceContext {
    /// A context without `tracestate`.
    #[must_use]
    pub fn new(trace: TraceId, span: SpanId) -> Self {
        Self { trace, span, state: ShortText::default() }
    }

    /// Reads the context of a received request. `header` returns the value of a header by its lower-case name. `None`
    /// without a valid `traceparent`.
    #[must_use]
    pub fn extract<'a>(header: impl Fn(&str) -> Option<&'a str>) -> Option<Self> {
        let mut binding = header(PARENT)?.trim().splitn(5, '-');
        let (version, trace, span, flags) = (binding.next()?, binding.next()?, binding.next()?, binding.next()?);
        let version = hexadecimal(version, 2).filter(|version| *version != 0xff)?;
        hexadecimal(flags, 2)?;
        // Later versions may append fields; version 0 may not.
        if version == 0 && binding.next().is_some() {
            return None;
        }
        let state = header(STATE).map(short).unwrap_or_default();
        Some(Self {
            trace: trace.parse().ok()?,
            span: span.parse().ok()?,
            state: ShortText::of(format_args!("{state}")),
        })
    }

    /// Passes the headers for an outgoing request to `header`: `traceparent`, and `tracestate` if there is one. The
    /// sampled flag is always set, since the agent decides later which traces to keep.
    pub fn inject(&self, mut header: impl FnMut(&'static str, &str)) {
        header(PARENT, ShortText::of(format_args!("00-{}-{}-01", self.trace, self.span)).as_str());
        if !self.state.is_empty() {
            header(STATE, self.state.as_str());
        }
    }

    /// The `tracestate`, empty if there is none.
    #[must_use]
    pub fn state(&self) -> &str {
        self.state.as_str()
    }
}

/// A `tracestate` that fits as a whole; of a longer one only the entry `ot`, on which nodes have to agree.
fn short(state: &str) -> &str {
    let state = state.trim();
    if state.len() <= TEXT_BYTES {
        return state;
    }
    let member = state.split(',').map(str::trim).find(|member| member.starts_with("ot="));
    member.filter(|member| member.len() <= TEXT_BYTES).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn extract(parent: &str, state: Option<&str>) -> Option<TraceContext> {
        let (parent, state) = (parent.to_owned(), state.map(str::to_owned));
        TraceContext::extract(|name| if name == PARENT { Some(&parent) } else { state.as_deref() })
    }

    #[test]
    fn what_is_extracted_is_injected() {
        let context = extract(HEADER, Some("ot=rv:0123456789abcd,other=1")).unwrap();
        let mut headers = Vec::new();
        context.inject(|name, value| headers.push((name, value.to_owned())));

        assert_eq!(context.trace.to_string(), "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(context.span.to_string(), "b7ad6b7169203331");
        let expected = [(PARENT, HEADER.to_owned()), (STATE, "ot=rv:0123456789abcd,other=1".to_owned())];
        assert_eq!(headers, expected);
        assert_eq!(TraceId::from_bytes(context.trace.to_bytes()), Some(context.trace));
    }

    #[test]
    fn what_is_no_traceparent_is_none() {
        for wrong in [
            "",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "00-+af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ] {
            assert!(extract(wrong, None).is_none(), "{wrong}");
        }
        assert!(extract(&HEADER.replacen("00", "01", 1).replace("-01", "-01-more"), None).is_some());
    }

    #[test]
    fn of_a_long_tracestate_what_decides_about_sampling_is_left() {
        let long = format!("a={},ot=th:8,b=1", "x".repeat(200));

        assert_eq!(extract(HEADER, Some(&long)).unwrap().state(), "ot=th:8");
        assert_eq!(extract(HEADER, Some(&"y".repeat(200))).unwrap().state(), "");
    }
}
