//! A span as this crate sees it: a few fields, and its encoded bytes.

use core::fmt;
use core::num::NonZeroU64;

use wire::time::{Nanos, UnixNanos};

use crate::id::{OperationId, OriginId, SenderId, ServiceId};
use crate::tracing::threshold::{Randomness, Threshold};

/// Id of a trace: 16 bytes, not all zero (W3C Trace Context). Drawn by the service that began the trace; clients may
/// forge it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TraceId([u8; 16]);

impl TraceId {
    /// `bytes` as on the wire, or `None` if all are zero.
    #[must_use]
    pub const fn new(bytes: [u8; 16]) -> Option<Self> {
        if u128::from_be_bytes(bytes) == 0 { None } else { Some(Self(bytes)) }
    }

    /// `bytes` as on the wire, or `None` unless there are 16, not all zero.
    #[must_use]
    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        Self::new(bytes.try_into().ok()?)
    }

    /// The bytes as on the wire.
    #[must_use]
    pub const fn bytes(self) -> [u8; 16] {
        self.0
    }

    /// Both halves, the first bytes in the upper one.
    #[must_use]
    pub(crate) const fn halves(self) -> (u64, u64) {
        let whole = u128::from_be_bytes(self.0);
        ((whole >> 64) as u64, whole as u64)
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TraceId({self})")
    }
}

/// Id of a span within its trace: 8 bytes, not all zero. Drawn by the service that records the span.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpanId(NonZeroU64);

impl SpanId {
    /// `bytes` as on the wire, or `None` if all are zero.
    #[must_use]
    pub const fn new(bytes: [u8; 8]) -> Option<Self> {
        match NonZeroU64::new(u64::from_be_bytes(bytes)) {
            Some(id) => Some(Self(id)),
            None => None,
        }
    }

    /// `bytes` as on the wire, or `None` unless there are 8, not all zero.
    #[must_use]
    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        Self::new(bytes.try_into().ok()?)
    }

    /// As on the wire.
    #[must_use]
    pub const fn bytes(self) -> [u8; 8] {
        self.0.get().to_be_bytes()
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SpanId({self})")
    }
}

/// Kind of a span, numbered as in OTLP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum SpanKind {
    /// Not stated, or unknown to this version.
    #[default]
    Unspecified = 0,
    /// Work within a service.
    Internal = 1,
    /// A request that a service handles.
    Server = 2,
    /// A request that a service makes.
    Client = 3,
    /// A message that a service sends.
    Producer = 4,
    /// A message that a service receives.
    Consumer = 5,
}

impl SpanKind {
    /// The kind with OTLP's `number`; an unknown one is [`SpanKind::Unspecified`].
    #[must_use]
    pub const fn from_number(number: u64) -> Self {
        match number {
            1 => Self::Internal,
            2 => Self::Server,
            3 => Self::Client,
            4 => Self::Producer,
            5 => Self::Consumer,
            _ => Self::Unspecified,
        }
    }

    /// Whether a request enters a service with such a span.
    #[must_use]
    pub const fn enters(self) -> bool {
        matches!(self, Self::Server | Self::Consumer)
    }
}

/// Fields of a buffered span that are kept decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanIndex {
    /// Id within the trace.
    pub id: SpanId,
    /// Id of the parent; `None` for the first span of a trace.
    pub parent: Option<SpanId>,
    /// Its kind, as in OTLP.
    pub kind: SpanKind,
    /// The service that recorded it.
    pub service: ServiceId,
    /// Its operation: the name of the span.
    pub operation: OperationId,
    /// Resource and scope with which it is exported.
    pub origin: OriginId,
    /// Start, by the service's clock.
    pub start: UnixNanos,
    /// End, by the service's clock. May be before `start`, if a clock was set.
    pub end: UnixNanos,
    /// Whether its status is error.
    pub error: bool,
}

impl SpanIndex {
    /// Its duration; zero if it ended before it began.
    #[must_use]
    pub const fn duration(&self) -> Nanos {
        self.end.since(self.start)
    }

    /// Clamps both times to between `longest` before and 10 s after `now`: a span from 1970 must not make its trace
    /// overlap every window. The encoded bytes are not changed.
    #[must_use]
    pub fn plausible(self, now: UnixNanos, longest: Nanos) -> Self {
        let (first, last) = (now.minus(longest), now.plus(Nanos::from_secs(10)));
        Self { start: self.start.clamp(first, last), end: self.end.clamp(first, last), ..self }
    }
}

/// A received span, borrowed from its request.
#[derive(Clone, Copy, Debug)]
pub struct Span<'a> {
    /// Id of its trace.
    pub trace: TraceId,
    /// Its decoded fields.
    pub index: SpanIndex,
    /// Who sent it. A trace is of the share of whoever sent its first span here.
    pub sender: SenderId,
    /// Whether a request enters the system with it: it is of a frontend, and of kind SERVER or CONSUMER
    /// ([`Frontends::enters`](crate::paths::Frontends::enters)).
    pub entry: bool,
    /// Reason for which the service requests its trace; `None` if it does not.
    pub trigger: Option<&'a str>,
    /// `rv` of its tracestate; without it, the lower 56 bits of the trace id count.
    pub randomness: Option<Randomness>,
    /// `th` of its tracestate: the sampling before it arrived here.
    pub threshold: Option<Threshold>,
    /// The encoded span, without resource and scope.
    pub encoded: &'a [u8],
}

impl Span<'_> {
    /// The number by which consistent sampling decides about its trace.
    #[must_use]
    pub fn randomness(&self) -> Randomness {
        self.randomness.unwrap_or_else(|| Randomness::of(self.trace))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_of_zeroes_or_of_another_length_is_none() {
        assert_eq!(TraceId::new([0; 16]), None);
        assert_eq!(TraceId::from_slice(&[1; 15]), None);
        assert_eq!(SpanId::from_slice(&[0; 8]), None);
        assert_eq!(SpanId::from_slice(&[1; 9]), None);

        let trace = TraceId::from_slice(&[0xab; 16]).unwrap();
        assert_eq!(trace.to_string(), "ab".repeat(16));
        assert_eq!(SpanId::new([0, 0, 0, 0, 0, 0, 0, 7]).unwrap().to_string(), "0000000000000007");
    }

    #[test]
    fn a_span_from_another_time_is_moved_to_the_nearest_plausible_one() {
        let now = UnixNanos::from_secs(1_000_000);
        let index = SpanIndex {
            id: SpanId::new([1; 8]).unwrap(),
            parent: None,
            kind: SpanKind::Server,
            service: ServiceId(0),
            operation: OperationId(0),
            origin: OriginId(0),
            start: UnixNanos(0),
            end: UnixNanos(u64::MAX),
            error: false,
        };

        let plausible = index.plausible(now, Nanos::from_secs(3600));

        assert_eq!(plausible.start, UnixNanos::from_secs(1_000_000 - 3600));
        assert_eq!(plausible.end, UnixNanos::from_secs(1_000_010));
        let usual = SpanIndex { start: now, end: now.plus(Nanos(5)), ..index };
        assert_eq!(usual.plausible(now, Nanos::from_secs(3600)), usual);
    }
}
