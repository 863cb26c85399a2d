//! The fields of OTLP's messages (opentelemetry-proto 1.9), as far as JSON needs them: names, numbers, kinds.

use crate::Signal;

/// A message: its fields.
pub(super) struct Message(pub(super) &'static [Field]);

/// A field of a message.
pub(super) struct Field {
    /// As in the `.proto` file; JSON may use it, or its lower camel case.
    pub(super) name: &'static str,
    pub(super) number: u32,
    pub(super) kind: Kind,
    pub(super) repeated: bool,
}

/// Kind of a field's values.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Text,
    /// Ids, which OTLP/JSON has as hexadecimal digits.
    Hex,
    /// All other bytes, as base64.
    Base64,
    Bool,
    Double,
    Integer(Integer),
    Message(&'static Message),
}

/// Type of an integer: its encoding and range.
#[derive(Clone, Copy)]
pub(super) enum Integer {
    Int32,
    Int64,
    Uint32,
    Uint64,
    Sint32,
    Fixed32,
    Fixed64,
    Sfixed64,
}

use Kind::{Base64, Bool, Double, Hex, Text};

const ENUM: Kind = Kind::Integer(Integer::Int32);
const U32: Kind = Kind::Integer(Integer::Uint32);
const TIME: Kind = Kind::Integer(Integer::Fixed64);
const COUNT: Kind = Kind::Integer(Integer::Fixed64);
const FLAGS: Kind = Kind::Integer(Integer::Fixed32);
const INT: Kind = Kind::Integer(Integer::Sfixed64);

impl Field {
    const fn one(number: u32, name: &'static str, kind: Kind) -> Self {
        Self { name, number, kind, repeated: false }
    }

    const fn many(number: u32, name: &'static str, kind: Kind) -> Self {
        Self { name, number, kind, repeated: true }
    }

    const fn message(number: u32, name: &'static str, message: &'static Message) -> Self {
        Self::one(number, name, Kind::Message(message))
    }

    const fn messages(number: u32, name: &'static str, message: &'static Message) -> Self {
        Self::many(number, name, Kind::Message(message))
    }

    const fn attributes(number: u32) -> Self {
        Self::messages(number, "attributes", &KEY_VALUE)
    }

    const fn dropped_attributes(number: u32) -> Self {
        Self::one(number, "dropped_attributes_count", U32)
    }

    /// Whether the JSON `key` is this field: `start_time_unix_nano` or `startTimeUnixNano`.
    pub(super) fn is(&self, key: &str) -> bool {
        if key == self.name {
            return true;
        }
        let (mut key, mut upper) = (key.bytes(), false);
        for letter in self.name.bytes() {
            if letter == b'_' {
                upper = true;
                continue;
            }
            let expected = if upper { letter.to_ascii_uppercase() } else { letter };
            if key.next() != Some(expected) {
                return false;
            }
            upper = false;
        }
        key.next().is_none()
    }
}

/// The request message of `signal`.
pub(super) const fn request(signal: Signal) -> &'static Message {
    match signal {
        Signal::Traces => &TRACES,
        Signal::Metrics => &METRICS,
        Signal::Logs => &LOGS,
    }
}

static TRACES: Message = Message(&[Field::messages(1, "resource_spans", &RESOURCE_SPANS)]);
static METRICS: Message = Message(&[Field::messages(1, "resource_metrics", &RESOURCE_METRICS)]);
static LOGS: Message = Message(&[Field::messages(1, "resource_logs", &RESOURCE_LOGS)]);

// common/v1, resource/v1

static ANY_VALUE: Message = Message(&[
    Field::one(1, "string_value", Text),
    Field::one(2, "bool_value", Bool),
    Field::one(3, "int_value", Kind::Integer(Integer::Int64)),
    Field::one(4, "double_value", Double),
    Field::message(5, "array_value", &ARRAY),
    Field::message(6, "kvlist_value", &KEY_VALUES),
    Field::one(7, "bytes_value", Base64),
]);
static ARRAY: Message = Message(&[Field::messages(1, "values", &ANY_VALUE)]);
static KEY_VALUES: Message = Message(&[Field::messages(1, "values", &KEY_VALUE)]);
static KEY_VALUE: Message = Message(&[Field::one(1, "key", Text), Field::message(2, "value", &ANY_VALUE)]);
static SCOPE: Message = Message(&[
    Field::one(1, "name", Text),
    Field::one(2, "version", Text),
    Field::attributes(3),
    Field::dropped_attributes(4),
]);
static ENTITY: Message = Message(&[
    Field::one(1, "schema_url", Text),
    Field::one(2, "type", Text),
    Field::many(3, "id_keys", Text),
    Field::many(4, "description_keys", Text),
]);
static RESOURCE: Message =
    Message(&[Field::attributes(1), Field::dropped_attributes(2), Field::messages(3, "entity_refs", &ENTITY)]);

// trace/v1

static RESOURCE_SPANS: Message = Message(&[
    Field::message(1, "resource", &RESOURCE),
    Field::messages(2, "scope_spans", &SCOPE_SPANS),
    Field::one(3, "schema_url", Text),
]);
static SCOPE_SPANS: Message = Message(&[
    Field::message(1, "scope", &SCOPE),
    Field::messages(2, "spans", &SPAN),
    Field::one(3, "schema_url", Text),
]);
static SPAN: Message = Message(&[
    Field::one(1, "trace_id", Hex),
    Field::one(2, "span_id", Hex),
    Field::one(3, "trace_state", Text),
    Field::one(4, "parent_span_id", Hex),
    Field::one(5, "name", Text),
    Field::one(6, "kind", ENUM),
    Field::one(7, "start_time_unix_nano", TIME),
    Field::one(8, "end_time_unix_nano", TIME),
    Field::attributes(9),
    Field::dropped_attributes(10),
    Field::messages(11, "events", &EVENT),
    Field::one(12, "dropped_events_count", U32),
    Field::messages(13, "links", &LINK),
    Field::one(14, "dropped_links_count", U32),
    Field::message(15, "status", &STATUS),
    Field::one(16, "flags", FLAGS),
]);
static EVENT: Message = Message(&[
    Field::one(1, "time_unix_nano", TIME),
    Field::one(2, "name", Text),
    Field::attributes(3),
    Field::dropped_attributes(4),
]);
static LINK: Message = Message(&[
    Field::one(1, "trace_id", Hex),
    Field::one(2, "span_id", Hex),
    Field::one(3, "trace_state", Text),
    Field::attributes(4),
    Field::dropped_attributes(5),
    Field::one(6, "flags", FLAGS),
]);
static STATUS: Message = Message(&[Field::one(2, "message", Text), Field::one(3, "code", ENUM)]);

// metrics/v1

static RESOURCE_METRICS: Message = Message(&[
    Field::message(1, "resource", &RESOURCE),
    Field::messages(2, "scope_metrics", &SCOPE_METRICS),
    Field::one(3, "schema_url", Text),
]);
static SCOPE_METRICS: Message = Message(&[
    Field::message(1, "scope", &SCOPE),
    Field::messages(2, "metrics", &METRIC),
    Field::one(3, "schema_url", Text),
]);
static METRIC: Message = Message(&[
    Field::one(1, "name", Text),
    Field::one(2, "description", Text),
    Field::one(3, "unit", Text),
    Field::message(5, "gauge", &GAUGE),
    Field::message(7, "sum", &SUM),
    Field::message(9, "histogram", &HISTOGRAM),
    Field::message(10, "exponential_histogram", &EXPONENTIAL_HISTOGRAM),
    Field::message(11, "summary", &SUMMARY),
    Field::messages(12, "metadata", &KEY_VALUE),
]);
static GAUGE: Message = Message(&[Field::messages(1, "data_points", &NUMBER_POINT)]);
static SUM: Message = Message(&[
    Field::messages(1, "data_points", &NUMBER_POINT),
    Field::one(2, "aggregation_temporality", ENUM),
    Field::one(3, "is_monotonic", Bool),
]);
static HISTOGRAM: Message =
    Message(&[Field::messages(1, "data_points", &HISTOGRAM_POINT), Field::one(2, "aggregation_temporality", ENUM)]);
static EXPONENTIAL_HISTOGRAM: Message =
    Message(&[Field::messages(1, "data_points", &EXPONENTIAL_POINT), Field::one(2, "aggregation_temporality", ENUM)]);
static SUMMARY: Message = Message(&[Field::messages(1, "data_points", &SUMMARY_POINT)]);
static NUMBER_POINT: Message = Message(&[
    Field::one(2, "start_time_unix_nano", TIME),
    Field::one(3, "time_unix_nano", TIME),
    Field::one(4, "as_double", Double),
    Field::messages(5, "exemplars", &EXEMPLAR),
    Field::one(6, "as_int", INT),
    Field::attributes(7),
    Field::one(8, "flags", U32),
]);
static HISTOGRAM_POINT: Message = Message(&[
    Field::one(2, "start_time_unix_nano", TIME),
    Field::one(3, "time_unix_nano", TIME),
    Field::one(4, "count", COUNT),
    Field::one(5, "sum", Double),
    Field::many(6, "bucket_counts", COUNT),
    Field::many(7, "explicit_bounds", Double),
    Field::messages(8, "exemplars", &EXEMPLAR),
    Field::attributes(9),
    Field::one(10, "flags", U32),
    Field::one(11, "min", Double),
    Field::one(12, "max", Double),
]);
static EXPONENTIAL_POINT: Message = Message(&[
    Field::attributes(1),
    Field::one(2, "start_time_unix_nano", TIME),
    Field::one(3, "time_unix_nano", TIME),
    Field::one(4, "count", COUNT),
    Field::one(5, "sum", Double),
    Field::one(6, "scale", Kind::Integer(Integer::Sint32)),
    Field::one(7, "zero_count", COUNT),
    Field::message(8, "positive", &BUCKETS),
    Field::message(9, "negative", &BUCKETS),
    Field::one(10, "flags", U32),
    Field::messages(11, "exemplars", &EXEMPLAR),
    Field::one(12, "min", Double),
    Field::one(13, "max", Double),
    Field::one(14, "zero_threshold", Double),
]);
static BUCKETS: Message = Message(&[
    Field::one(1, "offset", Kind::Integer(Integer::Sint32)),
    Field::many(2, "bucket_counts", Kind::Integer(Integer::Uint64)),
]);
static SUMMARY_POINT: Message = Message(&[
    Field::one(2, "start_time_unix_nano", TIME),
    Field::one(3, "time_unix_nano", TIME),
    Field::one(4, "count", COUNT),
    Field::one(5, "sum", Double),
    Field::messages(6, "quantile_values", &QUANTILE),
    Field::attributes(7),
    Field::one(8, "flags", U32),
]);
static QUANTILE: Message = Message(&[Field::one(1, "quantile", Double), Field::one(2, "value", Double)]);
static EXEMPLAR: Message = Message(&[
    Field::one(2, "time_unix_nano", TIME),
    Field::one(3, "as_double", Double),
    Field::one(4, "span_id", Hex),
    Field::one(5, "trace_id", Hex),
    Field::one(6, "as_int", INT),
    Field::messages(7, "filtered_attributes", &KEY_VALUE),
]);

// logs/v1

static RESOURCE_LOGS: Message = Message(&[
    Field::message(1, "resource", &RESOURCE),
    Field::messages(2, "scope_logs", &SCOPE_LOGS),
    Field::one(3, "schema_url", Text),
]);
static SCOPE_LOGS: Message = Message(&[
    Field::message(1, "scope", &SCOPE),
    Field::messages(2, "log_records", &LOG_RECORD),
    Field::one(3, "schema_url", Text),
]);
static LOG_RECORD: Message = Message(&[
    Field::one(1, "time_unix_nano", TIME),
    Field::one(2, "severity_number", ENUM),
    Field::one(3, "severity_text", Text),
    Field::message(5, "body", &ANY_VALUE),
    Field::attributes(6),
    Field::dropped_attributes(7),
    Field::one(8, "flags", FLAGS),
    Field::one(9, "trace_id", Hex),
    Field::one(10, "span_id", Hex),
    Field::one(11, "observed_time_unix_nano", TIME),
    Field::one(12, "event_name", Text),
]);
