//! Kept spans in bounded memory, as traces.

use std::collections::HashMap;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, Span};
use prost::Message as _;
use wire::time::UnixNanos;

use super::{KeptSpan, PEER, STATUS, Side, Trace, TraceId};
use crate::clock::Clock;
use crate::graph::Service;

/// Maximal number of spans; a run keeps some tens of thousands, each about half a kilobyte.
const MAX_SPANS: usize = 300_000;

/// Traces by their ids.
#[derive(Debug)]
pub(crate) struct Store {
    clock: Clock,
    limit: usize,
    traces: HashMap<TraceId, Trace>,
    spans: usize,
    rejected_spans: u64,
}

impl Store {
    /// An empty store. Times of spans are converted to those of `clock`.
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, limit: MAX_SPANS, traces: HashMap::new(), spans: 0, rejected_spans: 0 }
    }

    /// The same store for at most `spans` spans.
    #[cfg(test)]
    pub(crate) fn with_limit(self, spans: usize) -> Self {
        Self { limit: spans, ..self }
    }

    /// Stores the spans of an OTLP request.
    ///
    /// # Errors
    ///
    /// `request` cannot be decoded.
    pub(crate) fn take(&mut self, request: &[u8]) -> Result<(), prost::DecodeError> {
        for resource in ExportTraceServiceRequest::decode(request)?.resource_spans {
            let service = service_of(&resource);
            for span in resource.scope_spans.into_iter().flat_map(|scope| scope.spans) {
                let ids = (TraceId(id_of(&span.trace_id)), service);
                // Ignores spans of other services.
                let (trace, Some(service)) = ids else { continue };
                self.add(trace, service, &span);
            }
        }
        Ok(())
    }

    fn add(&mut self, trace: TraceId, service: Service, span: &Span) {
        if self.spans >= self.limit {
            self.rejected_spans += 1;
            return;
        }
        let span = kept(service, span, &self.clock);
        let trace = self.traces.entry(trace).or_default();
        // A batch may be sent twice.
        if trace.spans.iter().all(|known| known.id != span.id) {
            trace.spans.push(span);
            self.spans += 1;
        }
    }

    /// Number of stored spans.
    pub(crate) const fn spans(&self) -> usize {
        self.spans
    }

    /// Number of spans rejected because the store was full.
    pub(crate) const fn rejected_spans(&self) -> u64 {
        self.rejected_spans
    }

    /// Removes and returns all traces.
    pub(crate) fn take_traces(&mut self) -> HashMap<TraceId, Trace> {
        self.spans = 0;
        core::mem::take(&mut self.traces)
    }
}

fn service_of(resource: &ResourceSpans) -> Option<Service> {
    let attributes = &resource.resource.as_ref()?.attributes;
    Service::named(text(attributes, "service.name")?)
}

fn kept(service: Service, span: &Span, clock: &Clock) -> KeptSpan {
    let peer = || text(&span.attributes, PEER).and_then(Service::named);
    let side = if span.kind == SpanKind::Client as i32 { peer().map(Side::Client) } else { None };
    let started = clock.at_wall(UnixNanos(span.start_time_unix_nano));
    KeptSpan {
        id: id_of(&span.span_id) as u64,
        parent: (!span.parent_span_id.is_empty()).then(|| id_of(&span.parent_span_id) as u64),
        service,
        name: span.name.clone(),
        side: side.unwrap_or(Side::Server),
        started,
        took: clock.at_wall(UnixNanos(span.end_time_unix_nano)).since(started).unwrap_or_default(),
        status: number(&span.attributes, STATUS).and_then(|status| status.try_into().ok()),
        failed: span.status.as_ref().is_some_and(|status| status.code == StatusCode::Error as i32),
        policy: text(&span.attributes, "uview.policy").map(str::to_owned),
        reason: text(&span.attributes, "uview.reason").map(str::to_owned),
        incomplete: text(&span.attributes, "uview.incomplete").is_some(),
        bytes: span.encoded_len(),
    }
}

/// An id of at most 16 bytes as a number.
fn id_of(bytes: &[u8]) -> u128 {
    bytes.iter().take(16).fold(0, |id, byte| id << 8 | u128::from(*byte))
}

fn value<'a>(attributes: &'a [KeyValue], key: &str) -> Option<&'a Value> {
    let found = attributes.iter().find(|attribute| attribute.key == key)?;
    let AnyValue { value } = found.value.as_ref()?;
    value.as_ref()
}

fn text<'a>(attributes: &'a [KeyValue], key: &str) -> Option<&'a str> {
    match value(attributes, key)? {
        Value::StringValue(text) => Some(text),
        _ => None,
    }
}

fn number(attributes: &[KeyValue], key: &str) -> Option<i64> {
    match value(attributes, key)? {
        Value::IntValue(number) => Some(*number),
        _ => None,
    }
}
