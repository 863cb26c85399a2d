//! Finds spans in an encoded request.

use crate::codec::fields::{Envelope, Fields, Value, WireError, string_of};
use hooks::id::{OperationId, OriginId, SenderId, ServiceId};
use hooks::tracing::{Span, SpanId, SpanIndex, SpanKind, TraceId, sampling_of};
use wire::time::UnixNanos;

/// The attribute with which a service triggers the keeping of its trace; its value is the reason.
const TRIGGER: &[u8] = b"uview.trigger";
/// The resource attribute that names the service.
const SERVICE: &[u8] = b"service.name";

// Field numbers, as in opentelemetry/proto/{collector/trace,trace,resource,common}/v1.
const RESOURCE_SPANS: u32 = 1;
const RESOURCE: u32 = 1;
const SCOPE_SPANS: u32 = 2;
const SPANS: u32 = 2;
const ATTRIBUTES_OF_RESOURCE: u32 = 1;
const STATUS_ERROR: u64 = 2;
pub(super) const TRACESTATE: u8 = 3;

/// The resource and scope around a run of spans.
#[derive(Clone, Copy, Debug)]
pub struct Group<'a> {
    /// The `ResourceSpans` without its scopes: resource, schema URL, unknown fields.
    pub resource: Envelope<'a>,
    /// The `ScopeSpans` without its spans.
    pub scope: Envelope<'a>,
}

impl<'a> Group<'a> {
    /// Whether both are the same group of the same request: what the caller worked out for one span holds for the next.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        self.scope.is(&other.scope)
    }

    /// `service.name` of the resource as the client sent it. The caller checks whether the client may use it.
    #[must_use]
    pub fn service_name(&self) -> Option<&'a str> {
        text_in(self.resource, SERVICE)
    }
}

/// A resource of a request of any signal, with everything that it sends.
#[derive(Clone, Copy, Debug)]
pub struct RawResource<'a> {
    /// The `ResourceMetrics`, `ResourceSpans` or `ResourceLogs`.
    pub encoded: &'a [u8],
}

impl<'a> RawResource<'a> {
    /// As [`Group::service_name`].
    #[must_use]
    pub fn service_name(&self) -> Option<&'a str> {
        self.text(SERVICE)
    }

    /// The last attribute `key` that is text.
    #[must_use]
    pub fn text(&self, key: &[u8]) -> Option<&'a str> {
        text_in(Envelope::new(self.encoded, SCOPE_SPANS), key)
    }
}

/// The text of the last attribute `key` of the resource in `envelope`.
fn text_in<'a>(envelope: Envelope<'a>, key: &[u8]) -> Option<&'a str> {
    let resources = envelope.fields().filter(|field| field.number == RESOURCE);
    let attributes = resources.filter_map(|field| field.message().ok()).flat_map(|resource| {
        let fields = Fields::of(resource).map_while(Result::ok);
        fields.filter(|field| field.number == ATTRIBUTES_OF_RESOURCE)
    });
    attributes.filter_map(|field| text_of(field.message().ok()?, key)).last()
}

/// A span as encoded in a request.
#[derive(Clone, Copy, Debug)]
pub struct RawSpan<'a> {
    /// The trace that the span belongs to.
    pub trace: TraceId,
    /// Id of the span within the trace.
    pub id: SpanId,
    /// Parent span; `None` for a root.
    pub parent: Option<SpanId>,
    /// W3C tracestate; empty if there is none.
    pub tracestate: &'a str,
    /// Name of the operation; empty if it is not UTF-8.
    pub name: &'a str,
    /// Span kind; `Unspecified` if absent or unknown.
    pub kind: SpanKind,
    /// Start time as the client sent it.
    pub start: UnixNanos,
    /// End time as the client sent it.
    pub end: UnixNanos,
    /// Whether the status code is ERROR.
    pub error: bool,
    /// Value of the attribute `uview.trigger`: why the service wants the trace kept.
    pub trigger: Option<&'a str>,
    /// The whole encoded span.
    pub encoded: &'a [u8],
}

impl<'a> RawSpan<'a> {
    /// The index entry of this span, with the ids that its names were given.
    #[must_use]
    pub const fn index(&self, service: ServiceId, operation: OperationId, origin: OriginId) -> SpanIndex {
        let Self { id, parent, kind, start, end, error, .. } = *self;
        SpanIndex { id, parent, kind, service, operation, origin, start, end, error }
    }

    /// Text value of its last attribute `key`; `None` without one. O(bytes).
    #[must_use]
    pub fn text(&self, key: &[u8]) -> Option<&'a str> {
        let attributes = Fields::of(self.encoded).map_while(Result::ok).filter(|field| field.number == 9);
        attributes.filter_map(|field| text_of(field.message().ok()?, key)).last()
    }

    /// The span, which `sender` sent, as input for a [`Keeper`](hooks::tracing::Keeper). `entry`: with it a request
    /// enters the system.
    #[must_use]
    pub fn span(&self, index: SpanIndex, sender: SenderId, entry: bool) -> Span<'a> {
        let Self { trace, trigger, encoded, .. } = *self;
        let (threshold, randomness) = sampling_of(self.tracestate);
        Span { trace, index, sender, entry, trigger, randomness, threshold, encoded }
    }

    /// Reads a `Span`; `None` if it is malformed or has no valid ids.
    fn read(encoded: &'a [u8]) -> Option<Self> {
        let (mut trace, mut id, mut parent) = (None, None, None);
        let (mut tracestate, mut name, mut kind) = ("", "", SpanKind::Unspecified);
        let (mut start, mut end, mut error, mut trigger) = (UnixNanos(0), UnixNanos(0), false, None);
        for field in Fields::of(encoded) {
            let field = field.ok()?;
            match (field.number, field.value) {
                (1, Value::Bytes(bytes)) => trace = TraceId::from_slice(bytes),
                (2, Value::Bytes(bytes)) => id = SpanId::from_slice(bytes),
                (3, Value::Bytes(bytes)) => tracestate = str::from_utf8(bytes).unwrap_or_default(),
                (4, Value::Bytes([] | [0, 0, 0, 0, 0, 0, 0, 0])) => parent = None,
                (4, Value::Bytes(bytes)) => parent = Some(SpanId::from_slice(bytes)?),
                (5, Value::Bytes(bytes)) => name = str::from_utf8(bytes).unwrap_or_default(),
                (6, Value::Number(number)) => kind = SpanKind::from_number(number),
                (7, Value::Fixed64(nanos)) => start = UnixNanos(nanos),
                (8, Value::Fixed64(nanos)) => end = UnixNanos(nanos),
                (9, Value::Bytes(attribute)) => trigger = text_of(attribute, TRIGGER).or(trigger),
                (15, Value::Bytes(status)) => error = is_error(status),
                _ => {}
            }
        }
        let (trace, id) = (trace?, id?);
        Some(Self { trace, id, parent, tracestate, name, kind, start, end, error, trigger, encoded })
    }
}

/// Tracestate of an encoded `Span`; empty if there is none.
pub(super) fn tracestate_of(encoded: &[u8]) -> &str {
    let states = Fields::of(encoded).map_while(Result::ok).filter(|field| field.number == u32::from(TRACESTATE));
    states.last().and_then(|field| str::from_utf8(field.message().ok()?).ok()).unwrap_or_default()
}

fn is_error(status: &[u8]) -> bool {
    let codes = Fields::of(status).map_while(Result::ok).filter(|field| field.number == 3);
    codes.last().is_some_and(|code| code.value == Value::Number(STATUS_ERROR))
}

/// The text value of a `KeyValue` with this key.
pub(super) fn text_of<'a>(attribute: &'a [u8], key: &[u8]) -> Option<&'a str> {
    let (mut found, mut text) = (false, None);
    for field in Fields::of(attribute).map_while(Result::ok) {
        match (field.number, field.value) {
            (1, Value::Bytes(bytes)) if bytes == key => found = true,
            (1, _) => return None,
            (2, Value::Bytes(value)) => text = string_of(value).or(text),
            _ => {}
        }
    }
    text.filter(|_| found)
}

/// Calls `visit` with every span of `request` and its group, or with the bytes of a malformed span. O(bytes) at worst;
/// of attributes only the first field is read.
///
/// # Errors
///
/// [`WireError`] if the request is malformed above its spans. `visit` was not called then: a client that retries sends
/// no span twice.
pub fn scan<'a>(
    request: &'a [u8],
    mut visit: impl FnMut(&Group<'a>, Result<RawSpan<'a>, &'a [u8]>),
) -> Result<(), WireError> {
    each_item(request, |group, span| visit(group, RawSpan::read(span).ok_or(span)))
}

/// Calls `visit` with the bytes of each item of a `request` of any signal and its group: of none, if it is malformed
/// above its items.
pub(super) fn each_item<'a>(request: &'a [u8], mut visit: impl FnMut(&Group<'a>, &'a [u8])) -> Result<(), WireError> {
    count(request)?;
    each_group(request, |group, scope| {
        messages(scope, SPANS).try_for_each(|item| {
            visit(group, item?);
            Ok(())
        })
    })
}

/// Counts the items of a request of any signal: spans, metrics and log records are at the same depth. O(bytes), reads
/// lengths only.
///
/// # Errors
///
/// [`WireError`] if it does not consist of resources, scopes and items.
pub fn count(request: &[u8]) -> Result<usize, WireError> {
    let mut items = 0;
    each_group(request, |_, scope| messages(scope, SPANS).try_for_each(|item| item.map(|_| items += 1)))?;
    Ok(items)
}

/// Calls `visit` with each resource of a `request` of any signal. O(bytes), reads lengths only.
///
/// # Errors
///
/// [`WireError`] if it does not consist of resources. Those before the error were visited.
pub fn resources<'a>(request: &'a [u8], mut visit: impl FnMut(&RawResource<'a>)) -> Result<(), WireError> {
    messages(request, RESOURCE_SPANS).try_for_each(|encoded| {
        visit(&RawResource { encoded: encoded? });
        Ok(())
    })
}

fn each_group<'a>(
    request: &'a [u8],
    mut group: impl FnMut(&Group<'a>, &'a [u8]) -> Result<(), WireError>,
) -> Result<(), WireError> {
    for resource in messages(request, RESOURCE_SPANS) {
        let resource = resource?;
        for scope in messages(resource, SCOPE_SPANS) {
            let scope = scope?;
            let around = Group { resource: Envelope::new(resource, SCOPE_SPANS), scope: Envelope::new(scope, SPANS) };
            group(&around, scope)?;
        }
    }
    Ok(())
}

/// The messages in field `number` of `message`, and every error on the way.
fn messages(message: &[u8], number: u32) -> impl Iterator<Item = Result<&[u8], WireError>> {
    Fields::of(message).filter_map(move |field| match field {
        Ok(field) if field.number == number => Some(field.message()),
        Ok(_) => None,
        Err(error) => Some(Err(error)),
    })
}
