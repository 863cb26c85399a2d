//! Transcodes OTLP/JSON to Protocol Buffers: everything after the server reads one encoding.
//!
//! Reads the text once, from left to right, along a table of fields, without a syntax tree. Unknown keys are skipped,
//! as OTLP demands. Differences from JSON of Protocol Buffers: trace and span ids are hexadecimal, enumerations are
//! numbers.

mod fields;
mod scalars;

use core::cell::Cell;
use core::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::Signal;
use fields::{Field, Kind, Message};
use scalars::Scalar;

/// Why a text is not a valid request.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JsonError {
    /// Not valid OTLP/JSON.
    #[error("not OTLP/JSON: {0}")]
    Malformed(serde_json::Error),
    /// The encoded message exceeds the limit of a request.
    #[error("the request is longer than {0} bytes as Protocol Buffers")]
    TooLarge(usize),
}

/// Transcodes `text` to a request of `signal`, at most `limit` bytes. Takes up to twice as much memory meanwhile;
/// O(bytes × depth).
///
/// # Errors
///
/// [`JsonError`] if it is not OTLP/JSON, or becomes longer than `limit`.
pub fn transcode(signal: Signal, text: &[u8], limit: usize) -> Result<Vec<u8>, JsonError> {
    let written = Cell::new(0);
    let mut into = Vec::new();
    let budget = Budget { written: &written, limit };
    let mut json = serde_json::Deserializer::from_slice(text);
    let read = MessageSeed { message: fields::request(signal), into: &mut into, budget }.deserialize(&mut json);
    match read.and_then(|()| json.end()) {
        Ok(()) => Ok(into),
        Err(_) if written.get() > limit => Err(JsonError::TooLarge(limit)),
        Err(error) => Err(JsonError::Malformed(error)),
    }
}

/// Limit of the output, and how much was written.
#[derive(Clone, Copy)]
struct Budget<'b> {
    written: &'b Cell<usize>,
    limit: usize,
}

impl Budget<'_> {
    fn spend<E: Error>(self, bytes: usize) -> Result<(), E> {
        self.written.set(self.written.get() + bytes);
        if self.written.get() > self.limit { Err(E::custom("too long")) } else { Ok(()) }
    }
}

/// Deserializes an object into the fields of a message.
struct MessageSeed<'m, 'b> {
    message: &'static Message,
    into: &'m mut Vec<u8>,
    budget: Budget<'b>,
}

impl<'de> DeserializeSeed<'de> for MessageSeed<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for MessageSeed<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(field) = map.next_key_seed(KeySeed(self.message))? {
            match field {
                Some(field) => map.next_value_seed(FieldSeed { field, into: &mut *self.into, budget: self.budget })?,
                None => _ = map.next_value::<IgnoredAny>()?,
            }
        }
        Ok(())
    }
}

/// Deserializes a key into a field of the message.
struct KeySeed(&'static Message);

impl<'de> DeserializeSeed<'de> for KeySeed {
    type Value = Option<&'static Field>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for KeySeed {
    type Value = Option<&'static Field>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<Self::Value, E> {
        Ok(self.0.0.iter().find(|field| field.is(key)))
    }
}

/// Deserializes the value of a key: one value, or a list for a repeated field.
struct FieldSeed<'m, 'b> {
    field: &'static Field,
    into: &'m mut Vec<u8>,
    budget: Budget<'b>,
}

impl FieldSeed<'_, '_> {
    fn tag(&mut self, wire_type: u32) {
        scalars::varint(u64::from(self.field.number << 3 | wire_type), self.into);
    }

    /// Writes a length-delimited field with the content `inner`.
    fn put<E: Error>(&mut self, inner: &[u8]) -> Result<(), E> {
        self.tag(2);
        scalars::varint(inner.len() as u64, self.into);
        self.into.extend_from_slice(inner);
        self.budget.spend(8)
    }

    fn scalar<E: Error>(mut self, scalar: Scalar<'_>) -> Result<(), E> {
        if self.field.repeated {
            return Err(E::custom(format_args!("{} is a list", self.field.name)));
        }
        self.tag(scalars::wire_type(self.field.kind));
        one(scalar, self.field, self.into, self.budget)
    }
}

/// Writes one value without its tag.
fn one<E: Error>(scalar: Scalar<'_>, field: &Field, into: &mut Vec<u8>, budget: Budget<'_>) -> Result<(), E> {
    let before = into.len();
    let wrong = || E::custom(format_args!("{} cannot have the value {scalar:?}", field.name));
    scalars::write(scalar, field.kind, into).ok_or_else(wrong)?;
    budget.spend(into.len() - before + 2)
}

impl<'de> DeserializeSeed<'de> for FieldSeed<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for FieldSeed<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a value of {}", self.field.name)
    }

    /// `null` means absent.
    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.scalar(Scalar::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.scalar(Scalar::Integer(value.into()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.scalar(Scalar::Integer(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        self.scalar(Scalar::Double(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        self.scalar(Scalar::Text(value))
    }

    fn visit_map<A: MapAccess<'de>>(mut self, map: A) -> Result<(), A::Error> {
        let (Kind::Message(message), false) = (self.field.kind, self.field.repeated) else {
            return Err(A::Error::custom(format_args!("{} is not an object", self.field.name)));
        };
        let mut inner = Vec::new();
        MessageSeed { message, into: &mut inner, budget: self.budget }.visit_map(map)?;
        self.put(&inner)
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        let field = self.field;
        if !field.repeated {
            return Err(A::Error::custom(format_args!("{} is not a list", field.name)));
        }
        let mut inner = Vec::new();
        if let Kind::Message(message) = field.kind {
            while list.next_element_seed(MessageSeed { message, into: &mut inner, budget: self.budget })?.is_some() {
                self.put(&inner)?;
                inner.clear();
            }
            return Ok(());
        }
        let packed = scalars::wire_type(field.kind) != 2;
        while list.next_element_seed(ElementSeed { field, into: &mut inner, budget: self.budget })?.is_some() {
            if !packed {
                self.tag(2);
                self.into.append(&mut inner);
            }
        }
        if packed && !inner.is_empty() { self.put(&inner) } else { Ok(()) }
    }
}

/// Deserializes one value of a list.
struct ElementSeed<'m, 'b> {
    field: &'static Field,
    into: &'m mut Vec<u8>,
    budget: Budget<'b>,
}

impl<'de> DeserializeSeed<'de> for ElementSeed<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Visitor<'_> for ElementSeed<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "one of {}", self.field.name)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        one(Scalar::Integer(value.into()), self.field, self.into, self.budget)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        one(Scalar::Integer(value.into()), self.field, self.into, self.budget)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        one(Scalar::Double(value), self.field, self.into, self.budget)
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        one(Scalar::Text(value), self.field, self.into, self.budget)
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest as Logs;
    use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest as Metrics;
    use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest as Traces;
    use opentelemetry_proto::tonic::common::v1::any_value::Value;
    use opentelemetry_proto::tonic::metrics::v1::metric::Data;
    use opentelemetry_proto::tonic::metrics::v1::number_data_point;
    use prost::Message as _;

    use super::*;

    const LIMIT: usize = 1 << 20;

    fn metric(data: &str) -> Data {
        let text = format!(r#"{{"resourceMetrics":[{{"scopeMetrics":[{{"metrics":[{{"name":"m",{data}}}]}}]}}]}}"#);
        let bytes = transcode(Signal::Metrics, text.as_bytes(), LIMIT).unwrap();
        let mut request = Metrics::decode(&bytes[..]).unwrap();
        request.resource_metrics.remove(0).scope_metrics.remove(0).metrics.remove(0).data.unwrap()
    }

    #[test]
    fn the_example_of_the_specification_is_read() {
        let text = r#"{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"my.service"}}]},
            "scopeSpans":[{"scope":{"name":"my.library","version":"1.0.0"},"spans":[
            {"traceId":"5B8EFFF798038103D269B633813FC60C","spanId":"EEE19B7EC3C1B174","parentSpanId":"eee19b7ec3c1b173",
            "name":"I'm a server \u00e9","startTimeUnixNano":"1544712660000000000","endTimeUnixNano":1544712661000000000,"kind":2,
            "attributes":[{"key":"a","value":{"intValue":"-5"}},{"key":"b","value":{"doubleValue":1}},{"key":"c","value":{"boolValue":false}}],
            "status":{"code":2,"message":null},"newerField":{"x":[1,{"y":2}]},"flags":257}]}]}]}"#;

        let bytes = transcode(Signal::Traces, text.as_bytes(), LIMIT).unwrap();
        let request = Traces::decode(&bytes[..]).unwrap();

        let span = &request.resource_spans[0].scope_spans[0].spans[0];
        assert_eq!(span.trace_id[..3], [0x5b, 0x8e, 0xff]);
        assert_eq!((span.span_id.len(), span.parent_span_id[7]), (8, 0x73));
        assert_eq!((span.name.as_str(), span.kind, span.flags), ("I'm a server é", 2, 257));
        assert_eq!(span.start_time_unix_nano, 1_544_712_660_000_000_000);
        assert_eq!(span.end_time_unix_nano, 1_544_712_661_000_000_000);
        let values: Vec<_> = span.attributes.iter().map(|a| a.value.clone().unwrap().value.unwrap()).collect();
        assert_eq!(values, [Value::IntValue(-5), Value::DoubleValue(1.0), Value::BoolValue(false)]);
        assert_eq!(span.status.as_ref().unwrap().code, 2);
    }

    #[test]
    fn numbers_may_be_text_and_names_as_in_the_proto_file() {
        let gauge =
            metric(r#""gauge":{"data_points":[{"asInt":"-9007199254740993"},{"as_double":"NaN"},{"asDouble":1e-3}]}"#);
        let Data::Gauge(gauge) = gauge else { panic!("{gauge:?}") };
        let values: Vec<_> = gauge.data_points.into_iter().map(|point| point.value.unwrap()).collect();
        assert_eq!(values[0], number_data_point::Value::AsInt(-9_007_199_254_740_993));
        assert!(matches!(values[1], number_data_point::Value::AsDouble(value) if value.is_nan()));
        assert_eq!(values[2], number_data_point::Value::AsDouble(0.001));

        let histogram = metric(
            r#""exponentialHistogram":{"aggregationTemporality":2,"dataPoints":[{"count":"7","sum":2.5,"scale":-3,"zeroCount":1,
            "positive":{"offset":-2,"bucketCounts":["1",300]},"explicitBounds":[],"min":"-Infinity"}]}"#,
        );
        let Data::ExponentialHistogram(histogram) = histogram else { panic!("{histogram:?}") };
        let point = &histogram.data_points[0];
        let positive = point.positive.as_ref().unwrap();
        assert_eq!((histogram.aggregation_temporality, point.count, point.scale, point.zero_count), (2, 7, -3, 1));
        assert_eq!(
            (positive.offset, &positive.bucket_counts[..], point.min),
            (-2, &[1, 300][..], Some(f64::NEG_INFINITY))
        );
    }

    #[test]
    fn values_within_values_and_bytes_are_read() {
        let text = r#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"severityNumber":9,"body":{"kvlistValue":{"values":[
            {"key":"a","value":{"arrayValue":{"values":[{"stringValue":"x"},{"bytesValue":"AQI="}]}}}]}}}]}]}]}"#;

        let bytes = transcode(Signal::Logs, text.as_bytes(), LIMIT).unwrap();
        let mut request = Logs::decode(&bytes[..]).unwrap();

        let body = request.resource_logs.remove(0).scope_logs.remove(0).log_records.remove(0).body.unwrap();
        let Some(Value::KvlistValue(mut list)) = body.value else { panic!("{body:?}") };
        let Some(Value::ArrayValue(array)) = list.values.remove(0).value.unwrap().value else { panic!() };
        let values: Vec<_> = array.values.into_iter().map(|value| value.value.unwrap()).collect();
        assert_eq!(values, [Value::StringValue("x".to_owned()), Value::BytesValue(vec![1, 2])]);
    }

    #[test]
    fn what_is_not_otlps_json_is_named_with_its_place() {
        let message = |text: &str| transcode(Signal::Traces, text.as_bytes(), LIMIT).unwrap_err().to_string();

        assert!(message("[]").contains("an object"), "{}", message("[]"));
        assert!(message(r#"{"resourceSpans":{}}"#).contains("resource_spans"));
        assert!(message(r#"{"resourceSpans":[{"schemaUrl":["x"]}]}"#).contains("schema_url is not a list"));
        assert!(message(r#"{"resourceSpans":[{"schemaUrl":7}]}"#).contains("line 1 column"));
        assert!(message(r#"{"resourceSpans":[{}"#).contains("EOF"));
        assert!(message(r#"{"resourceSpans":[]} x"#).contains("trailing"));
        let hex = r#"{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"xy"}]}]}]}"#;
        assert!(message(hex).contains("trace_id"), "{}", message(hex));
        let deep = format!("{}{}", r#"{"resourceSpans":["#, "[".repeat(100_000));
        assert!(message(&deep).len() < 300);
    }

    #[test]
    fn short_text_does_not_become_a_long_message() {
        let zeroes = vec!["0"; 10_000].join(",");
        let text = format!(
            r#"{{"resourceMetrics":[{{"scopeMetrics":[{{"metrics":[{{"histogram":{{"dataPoints":[{{"explicitBounds":[{zeroes}]}}]}}}}]}}]}}]}}"#
        );

        assert!(matches!(transcode(Signal::Metrics, text.as_bytes(), 50_000), Err(JsonError::TooLarge(50_000))));
        assert!(transcode(Signal::Metrics, text.as_bytes(), 200_000).is_ok());
        let empty = format!(r#"{{"resourceMetrics":[{}]}}"#, vec!["{}"; 50_000].join(","));
        assert!(matches!(transcode(Signal::Metrics, empty.as_bytes(), 50_000), Err(JsonError::TooLarge(_))));
    }
}
