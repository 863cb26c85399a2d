//! OTLP requests in OpenTelemetry's own messages, as other programs send them.

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};

/// How long a span of [`span`] takes, in nanoseconds.
pub const TOOK_NS: u64 = 20_000_000;

/// `text` as a value.
#[must_use]
pub fn string(text: &str) -> AnyValue {
    AnyValue { value: Some(Value::StringValue(text.to_owned())) }
}

/// An attribute of any kind.
#[must_use]
pub fn attribute(key: &str, value: Value) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }) }
}

/// An attribute that is a text.
#[must_use]
pub fn text(key: &str, value: &str) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(string(value)) }
}

/// The resource of `service`, with no other attribute than its name.
#[must_use]
pub fn resource(service: &str) -> Resource {
    Resource { attributes: vec![text("service.name", service)], ..Resource::default() }
}

/// A SERVER span of `trace`, 20 ms long, all bytes of whose id are `id`; those of its parent's are `parent`, 0: it has
/// none. It began at `start_ns`, nanoseconds since 1970.
#[must_use]
pub fn span(trace: u128, id: u8, parent: u8, name: &str, start_ns: u64) -> Span {
    Span {
        trace_id: trace.to_be_bytes().to_vec(),
        span_id: vec![id; 8],
        parent_span_id: if parent == 0 { Vec::new() } else { vec![parent; 8] },
        name: name.to_owned(),
        kind: 2,
        start_time_unix_nano: start_ns,
        end_time_unix_nano: start_ns + TOOK_NS,
        ..Span::default()
    }
}

/// `spans` of `service`, in one scope without a name.
#[must_use]
pub fn spans_of(service: &str, spans: Vec<Span>) -> ResourceSpans {
    let scope_spans = vec![ScopeSpans { spans, ..ScopeSpans::default() }];
    ResourceSpans { resource: Some(resource(service)), scope_spans, ..ResourceSpans::default() }
}

/// A request with `spans` of `service`.
#[must_use]
pub fn traces(service: &str, spans: Vec<Span>) -> ExportTraceServiceRequest {
    ExportTraceServiceRequest { resource_spans: vec![spans_of(service, spans)] }
}

/// A request with `log_records` of `service`, in one scope without a name.
#[must_use]
pub fn logs(service: &str, log_records: Vec<LogRecord>) -> ExportLogsServiceRequest {
    let scope_logs = vec![ScopeLogs { log_records, ..ScopeLogs::default() }];
    let resource = Some(resource(service));
    ExportLogsServiceRequest { resource_logs: vec![ResourceLogs { resource, scope_logs, ..ResourceLogs::default() }] }
}

/// The text of attribute `key`; `None` if there is none, or it is no text.
#[must_use]
pub fn text_of<'a>(attributes: &'a [KeyValue], key: &str) -> Option<&'a str> {
    match attributes.iter().find(|attribute| attribute.key == key)?.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text),
        _ => None,
    }
}

/// The name of the service of a group of spans; empty without one.
#[must_use]
pub fn service_of(group: &ResourceSpans) -> &str {
    let attributes = group.resource.as_ref().map(|resource| &resource.attributes[..]).unwrap_or_default();
    text_of(attributes, "service.name").unwrap_or_default()
}
