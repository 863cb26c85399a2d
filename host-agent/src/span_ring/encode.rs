//! Encodes ring records as an `ExportTraceServiceRequest`. Only decoded values are written, so the result is
//! well-formed whatever the ring contained.

use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint};
use wire::span_record::{Head, Note, Record, Status};

/// Scope name of these spans.
const SCOPE: &str = "uview";

/// Memory that is kept for the next request: what comes in a few milliseconds.
pub(super) const KEPT_BYTES: usize = 16 << 10;

/// An export request with the spans of one replica.
#[derive(Debug)]
pub(super) struct SpanRequest {
    /// `ResourceSpans` without its scopes.
    resource: Vec<u8>,
    /// `ScopeSpans` so far.
    scope: Vec<u8>,
    /// Bytes of the scope before the first span.
    head: usize,
    spans: usize,
    span: Vec<u8>,
    event: Vec<u8>,
    pair: Vec<u8>,
}

impl SpanRequest {
    /// A request for this replica, without spans.
    pub(super) fn new(service: &str, instance: &str) -> Self {
        let (mut attributes, mut pair) = (Vec::new(), Vec::new());
        for (key, value) in [("service.name", service), ("service.instance.id", instance)] {
            attribute(1, key, Value::Text(value), &mut pair, &mut attributes);
        }
        let (mut resource, mut scope, mut name) = (Vec::new(), Vec::new(), Vec::new());
        bytes(1, &attributes, &mut resource);
        bytes(1, SCOPE.as_bytes(), &mut name);
        bytes(1, &name, &mut scope);
        Self { resource, head: scope.len(), scope, spans: 0, span: Vec::new(), event: Vec::new(), pair }
    }

    /// Number of spans.
    pub(super) const fn spans(&self) -> usize {
        self.spans
    }

    /// Adds a span.
    pub(super) fn add(&mut self, head: &Head, record: &Record) {
        let Self { span, event, pair, .. } = self;
        span.clear();
        bytes(1, &head.trace.get().to_be_bytes(), span);
        bytes(2, &head.span.get().to_be_bytes(), span);
        if let Some(parent) = head.parent {
            bytes(4, &parent.get().to_be_bytes(), span);
        }
        bytes(5, record.name().as_bytes(), span);
        number(6, head.kind.into(), span);
        fixed(7, head.start.0, span);
        fixed(8, head.end.0, span);
        let mut message = "";
        for note in record.notes() {
            match note {
                Note::State(state) => bytes(3, state.as_bytes(), span),
                Note::Message(text) => message = text,
                note => attribute_note(9, note, pair, span),
            }
        }
        for (number, happened) in record.events().enumerate() {
            event.clear();
            fixed(1, happened.at.0, event);
            bytes(2, happened.name.as_bytes(), event);
            record.event_attributes(number).for_each(|note| attribute_note(3, note, pair, event));
            bytes(11, event, span);
        }
        if record.left_out() > 0 {
            number(10, record.left_out().into(), span);
        }
        if head.status != Status::Unset || !message.is_empty() {
            pair.clear();
            bytes(2, message.as_bytes(), pair);
            number(3, head.status as u64, pair);
            bytes(15, pair, span);
        }
        bytes(2, span, &mut self.scope);
        self.spans += 1;
    }

    /// Takes the encoded request, and starts the next one.
    pub(super) fn take(&mut self) -> Vec<u8> {
        let length = self.resource.len() + 1 + encoded_len_varint(self.scope.len() as u64) + self.scope.len();
        let mut request = Vec::with_capacity(length + 8);
        encode_key(1, WireType::LengthDelimited, &mut request);
        encode_varint(length as u64, &mut request);
        request.extend_from_slice(&self.resource);
        bytes(2, &self.scope, &mut request);
        self.scope.truncate(self.head);
        // There is a buffer for each ring, and one is filled at a time.
        self.scope.shrink_to(KEPT_BYTES);
        self.spans = 0;
        request
    }
}

/// An `AnyValue` of OTLP.
#[derive(Clone, Copy)]
enum Value<'a> {
    Text(&'a str),
    Bool(bool),
    Integer(i64),
    Float(f64),
}

/// A note that is an attribute, as a `KeyValue`; nothing for any other.
fn attribute_note(field: u32, note: Note<'_>, pair: &mut Vec<u8>, into: &mut Vec<u8>) {
    let (key, value) = match note {
        Note::Text(key, value) => (key, Value::Text(value)),
        Note::Integer(key, value) => (key, Value::Integer(value)),
        Note::Float(key, value) => (key, Value::Float(value)),
        Note::Bool(key, value) => (key, Value::Bool(value)),
        Note::Name(_) | Note::Message(_) | Note::State(_) => return,
    };
    attribute(field, key, value, pair, into);
}

/// A `KeyValue`; `pair` is a scratch buffer.
fn attribute(field: u32, key: &str, value: Value<'_>, pair: &mut Vec<u8>, into: &mut Vec<u8>) {
    let length = match value {
        Value::Text(text) => 1 + encoded_len_varint(text.len() as u64) + text.len(),
        Value::Bool(_) => 2,
        // OTLP integers are not zigzag-encoded: a negative one takes ten bytes.
        Value::Integer(value) => 1 + encoded_len_varint(value as u64),
        Value::Float(_) => 9,
    };
    pair.clear();
    bytes(1, key.as_bytes(), pair);
    encode_key(2, WireType::LengthDelimited, pair);
    encode_varint(length as u64, pair);
    match value {
        Value::Text(text) => bytes(1, text.as_bytes(), pair),
        Value::Bool(value) => number(2, value.into(), pair),
        Value::Integer(value) => number(3, value as u64, pair),
        Value::Float(value) => fixed(4, value.to_bits(), pair),
    }
    bytes(field, pair, into);
}

fn bytes(field: u32, value: &[u8], into: &mut Vec<u8>) {
    encode_key(field, WireType::LengthDelimited, into);
    encode_varint(value.len() as u64, into);
    into.extend_from_slice(value);
}

fn number(field: u32, value: u64, into: &mut Vec<u8>) {
    encode_key(field, WireType::Varint, into);
    encode_varint(value, into);
}

fn fixed(field: u32, value: u64, into: &mut Vec<u8>) {
    encode_key(field, WireType::SixtyFourBit, into);
    into.extend_from_slice(&value.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use core::num::{NonZeroU64, NonZeroU128};

    use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
    use opentelemetry_proto::tonic::common::v1::KeyValue;
    use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
    use prost::Message as _;
    use wire::span_record::{Notes, RECORD_WORDS, Subject, Tag};
    use wire::time::UnixNanos;

    use super::*;

    fn head(parent: Option<u64>) -> Head {
        let (trace, span) = (NonZeroU128::new(0xab << 120 | 7).unwrap(), NonZeroU64::new(5).unwrap());
        let parent = parent.and_then(NonZeroU64::new);
        let (start, end) = (UnixNanos(1_000), UnixNanos(2_000));
        Head { trace, span, parent, kind: 2, status: Status::Error, start, end }
    }

    /// Keys and values as OpenTelemetry has them.
    fn pairs(of: &[KeyValue]) -> Vec<(String, Option<Any>)> {
        of.iter().map(|pair| (pair.key.clone(), pair.value.clone().unwrap().value)).collect()
    }

    #[test]
    fn events_go_on_with_their_attributes() {
        let mut notes = Notes::default();
        notes.text(Tag::Name, "", "POST /pay");
        notes.event("retried", UnixNanos(1_200));
        let attributes =
            [Note::Text("why", "timeout"), Note::Integer("n", -3), Note::Float("after", 0.5), Note::Bool("late", true)];
        for attribute in attributes {
            notes.last_event().unwrap().add(attribute);
        }
        notes.event("given up", UnixNanos(1_900));
        let mut words = [0; RECORD_WORDS];
        notes.span(&head(None), &mut words);
        let record = Record::decode(&words).unwrap();

        let mut request = SpanRequest::new("payment", "payment-1");
        request.add(&head(None), &record);
        let read = ExportTraceServiceRequest::decode(&*request.take()).unwrap();

        let span = &read.resource_spans[0].scope_spans[0].spans[0];
        assert_eq!((span.attributes.len(), span.events.len()), (0, 2));
        let expected = [
            ("why", Any::StringValue("timeout".to_owned())),
            ("n", Any::IntValue(-3)),
            ("after", Any::DoubleValue(0.5)),
            ("late", Any::BoolValue(true)),
        ];
        assert_eq!(pairs(&span.events[0].attributes), expected.map(|(key, value)| (key.to_owned(), Some(value))));
        let last = &span.events[1];
        assert_eq!((&*last.name, last.time_unix_nano, last.attributes.len()), ("given up", 1_900, 0));
    }

    #[test]
    fn opentelemetry_reads_what_a_service_recorded() {
        let mut notes = Notes::default();
        notes.text(Tag::Name, "", "span");
        notes.text(Tag::Name, "", "POST /pay");
        notes.text(Tag::Text, "user", "mäx");
        notes.integer("n", -3);
        notes.float("x", 0.5);
        notes.event("retried", UnixNanos(1_200));
        notes.bool("b", true);
        notes.event("given up", UnixNanos(1_900));
        notes.text(Tag::Message, "", "refused");
        notes.text(Tag::State, "", "ot=rv:0123456789abcd");
        notes.integer(&"k".repeat(65), 1);
        let mut words = [0; RECORD_WORDS];
        notes.span(&head(Some(9)), &mut words);
        let record = Record::decode(&words).unwrap();
        let Subject::Span(found) = record.subject else { unreachable!("{record:?}") };

        let mut request = SpanRequest::new("payment", "payment-1");
        request.add(&found, &record);
        request.add(&Head { parent: None, status: Status::Unset, ..found }, &record);
        assert_eq!(request.spans(), 2);
        let read = ExportTraceServiceRequest::decode(&*request.take()).unwrap();
        assert_eq!((request.spans(), read.resource_spans.len()), (0, 1));

        let resource = read.resource_spans[0].resource.as_ref().unwrap();
        let text = |text: &str| Some(Any::StringValue(text.to_owned()));
        let expected =
            [("service.name".to_owned(), text("payment")), ("service.instance.id".to_owned(), text("payment-1"))];
        assert_eq!(pairs(&resource.attributes), expected);
        let scope = &read.resource_spans[0].scope_spans[0];
        assert_eq!((scope.scope.as_ref().unwrap().name.as_str(), scope.spans.len()), ("uview", 2));
        let span = &scope.spans[0];
        assert_eq!((span.trace_id[0], span.trace_id[15], span.span_id[7], span.parent_span_id[7]), (0xab, 7, 5, 9));
        assert_eq!(
            (&*span.name, span.kind, span.start_time_unix_nano, span.end_time_unix_nano),
            ("POST /pay", 2, 1_000, 2_000)
        );
        let attributes = [
            ("user".to_owned(), text("mäx")),
            ("n".to_owned(), Some(Any::IntValue(-3))),
            ("x".to_owned(), Some(Any::DoubleValue(0.5))),
            ("b".to_owned(), Some(Any::BoolValue(true))),
        ];
        assert_eq!(pairs(&span.attributes), attributes);
        let events: Vec<_> = span.events.iter().map(|event| (&*event.name, event.time_unix_nano)).collect();
        assert_eq!(events, [("retried", 1_200), ("given up", 1_900)]);
        assert_eq!((span.dropped_attributes_count, &*span.trace_state), (1, "ot=rv:0123456789abcd"));
        let status = span.status.as_ref().unwrap();
        assert_eq!((&*status.message, status.code), ("refused", 2));
        assert!(scope.spans[1].parent_span_id.is_empty());
        assert_eq!(
            ExportTraceServiceRequest::decode(&*request.take()).unwrap().resource_spans[0].scope_spans[0].spans,
            []
        );
    }
}
