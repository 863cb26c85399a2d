//! Finds spans in a request.

use crate::id::{OperationId, OriginId, ServiceId};
use crate::otlp::fields::{Fields, Rest, Value, WireError};
use crate::time::UnixNanos;
use crate::tracing::{Span, SpanId, SpanIndex, SpanKind, TraceId, sampling_of};

/// The attribute by which a service asks for its trace to be kept, and says why.
const TRIGGER: &[u8] = b"uview.trigger";
/// The attribute of a resource that names its service.
const SERVICE: &[u8] = b"service.name";

// Numbers of fields, as in opentelemetry/proto/{collector/trace,trace,resource,common}/v1.
const RESOURCE_SPANS: u32 = 1;
const RESOURCE: u32 = 1;
const SCOPE_SPANS: u32 = 2;
const SPANS: u32 = 2;
const ATTRIBUTES_OF_RESOURCE: u32 = 1;
const STATUS_ERROR: u64 = 2;
pub(super) const TRACESTATE: u8 = 3;

/// Spans of one resource and scope.
#[derive(Clone, Copy, Debug)]
pub struct Group<'a> {
    /// The `ResourceSpans` without their scopes: resource, schema, what else there may be.
    pub resource: Rest<'a>,
    /// The `ScopeSpans` without their spans.
    pub scope: Rest<'a>,
}

impl<'a> Group<'a> {
    /// Whether `self` and `other` are the same place of the same request: what was worked out for one span of a group holds for the next.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        self.scope.is(&other.scope)
    }

    /// `service.name` of the resource, as the client says: who may speak in this name is for the caller to check.
    #[must_use]
    pub fn service_name(&self) -> Option<&'a str> {
        let resources = self.resource.fields().filter(|field| field.number == RESOURCE);
        let attributes = resources.filter_map(|field| field.message().ok()).flat_map(|resource| {
            let fields = Fields::of(resource).map_while(Result::ok);
            fields.filter(|field| field.number == ATTRIBUTES_OF_RESOURCE)
        });
        attributes.filter_map(|field| text_of(field.message().ok()?, SERVICE)).last()
    }
}

/// A span as it stands in a request.
#[derive(Clone, Copy, Debug)]
pub struct RawSpan<'a> {
    /// Its trace.
    pub trace: TraceId,
    /// Its name within the trace.
    pub id: SpanId,
    /// The span that it belongs under.
    pub parent: Option<SpanId>,
    /// Its tracestate; empty if there is none.
    pub tracestate: &'a str,
    /// How what was done is called; empty if it is no text.
    pub name: &'a str,
    /// What it is about.
    pub kind: SpanKind,
    /// When it began.
    pub start: UnixNanos,
    /// When it ended.
    pub end: UnixNanos,
    /// Whether its status is an error.
    pub error: bool,
    /// Why its service wants the trace kept: attribute `uview.trigger`.
    pub trigger: Option<&'a str>,
    /// All of it.
    pub encoded: &'a [u8],
}

impl<'a> RawSpan<'a> {
    /// What is kept of it, with the ids that names were given.
    #[must_use]
    pub const fn index(&self, service: ServiceId, operation: OperationId, origin: OriginId) -> SpanIndex {
        let Self { id, parent, kind, start, end, error, .. } = *self;
        SpanIndex { id, parent, kind, service, operation, origin, start, end, error }
    }

    /// The span for a [`Keeper`](crate::tracing::Keeper); `entry` says whether a request enters the system with it.
    #[must_use]
    pub fn span(&self, index: SpanIndex, entry: bool) -> Span<'a> {
        let Self { trace, trigger, encoded, .. } = *self;
        let (threshold, randomness) = sampling_of(self.tracestate);
        Span { trace, index, entry, trigger, randomness, threshold, encoded }
    }

    /// Reads a `Span`; `None` if it is not one, or has no valid ids.
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

/// The tracestate of an encoded `Span`; empty if there is none.
pub(super) fn tracestate_of(encoded: &[u8]) -> &str {
    let states = Fields::of(encoded).map_while(Result::ok).filter(|field| field.number == u32::from(TRACESTATE));
    states.last().and_then(|field| str::from_utf8(field.message().ok()?).ok()).unwrap_or_default()
}

fn is_error(status: &[u8]) -> bool {
    let codes = Fields::of(status).map_while(Result::ok).filter(|field| field.number == 3);
    codes.last().is_some_and(|code| code.value == Value::Number(STATUS_ERROR))
}

/// The text of the `KeyValue` if it has this key.
fn text_of<'a>(attribute: &'a [u8], key: &[u8]) -> Option<&'a str> {
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

/// The text of an `AnyValue` that is one.
fn string_of(value: &[u8]) -> Option<&str> {
    let texts = Fields::of(value).map_while(Result::ok).filter(|field| field.number == 1);
    texts.last().and_then(|field| str::from_utf8(field.message().ok()?).ok())
}

/// Shows every span of `request` to `visit`, with its group, or the bytes that should have been one. O(bytes) at worst; attributes are
/// looked at by their first field only.
///
/// # Errors
///
/// [`WireError`] if the request is not made of spans. `visit` was not called then: a client that sends it again sends no span twice.
pub fn scan<'a>(
    request: &'a [u8],
    mut visit: impl FnMut(&Group<'a>, Result<RawSpan<'a>, &'a [u8]>),
) -> Result<(), WireError> {
    count(request)?;
    each_group(request, |group, scope| {
        messages(scope, SPANS).try_for_each(|span| {
            let span = span?;
            visit(group, RawSpan::read(span).ok_or(span));
            Ok(())
        })
    })
}

/// How many items `request` has, of whichever signal: spans, metrics and log records lie at the same depth. O(bytes), and reads lengths only.
///
/// # Errors
///
/// [`WireError`] if it is not made of resources, scopes and items.
pub fn count(request: &[u8]) -> Result<usize, WireError> {
    let mut items = 0;
    each_group(request, |_, scope| messages(scope, SPANS).try_for_each(|item| item.map(|_| items += 1)))?;
    Ok(items)
}

fn each_group<'a>(
    request: &'a [u8],
    mut group: impl FnMut(&Group<'a>, &'a [u8]) -> Result<(), WireError>,
) -> Result<(), WireError> {
    for resource in messages(request, RESOURCE_SPANS) {
        let resource = resource?;
        for scope in messages(resource, SCOPE_SPANS) {
            let scope = scope?;
            let around = Group { resource: Rest::new(resource, SCOPE_SPANS), scope: Rest::new(scope, SPANS) };
            group(&around, scope)?;
        }
    }
    Ok(())
}

/// The messages of this `number` in `message`, and every error on the way.
fn messages(message: &[u8], number: u32) -> impl Iterator<Item = Result<&[u8], WireError>> {
    Fields::of(message).filter_map(move |field| match field {
        Ok(field) if field.number == number => Some(field.message()),
        Ok(_) => None,
        Err(error) => Some(Err(error)),
    })
}
