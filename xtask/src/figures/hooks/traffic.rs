//! Requests with spans, as eight services send them: each has one span of every trace, in batches as SDKs make them.

use hooks::time::UnixNanos;
use hooks::tracing::{BudgetRule, Limits, OrderKey, Switches};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status};
use otlp::{Moment, TailSettings};
use prost::Message as _;
use wire::time::Nanos;

/// Services that a trace passes, with one span each.
pub const SERVICES: u64 = 8;
/// Spans of one request, as many as SDKs send.
pub const BATCH: u64 = 512;
/// One trace in so many fails: 5 % of all where a quarter gives way.
const FAILS: u64 = 15;
/// What instrumentation says of a server's request.
const SAID: [(&str, &str); 5] = [
    ("http.request.method", "POST"),
    ("http.route", "/cart/{id}/items"),
    ("server.address", "cart.shop.svc"),
    ("user_agent.original", "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36"),
    ("network.peer.address", "10.12.7.31"),
];

/// So many milliseconds after some midday, by both clocks.
pub fn at(millis: u64) -> Moment {
    let own = Nanos::from_millis(millis);
    Moment { own, day: UnixNanos::from_secs(1_700_000_000).plus(own) }
}

/// A tail that keeps what failed and what a verdict is about, whatever the bytes.
pub fn settings(bytes: usize) -> TailSettings {
    TailSettings {
        limits: Limits { bytes, ..Limits::default() },
        key: OrderKey::new(7),
        switches: Switches { floor: None, latency: false, ..Switches::default() },
        budget: BudgetRule { bytes_per_s: 1 << 30, ..BudgetRule::default() },
        frontends: vec![service(0)],
        node: "node-7".to_owned(),
    }
}

/// What a service is called.
pub fn service(number: u64) -> String {
    format!("service-{number}")
}

fn text(key: &str, value: &str) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(Value::StringValue(value.to_owned())) }) }
}

/// Span `number` of `trace`: 278 bytes or a few more with attributes, 63 or a few more without.
pub fn span(trace: u64, number: u64, start: UnixNanos, attributes: bool) -> Span {
    let id = u128::from(trace).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    let own = |number: u64| (trace * SERVICES + number + 1).to_be_bytes().to_vec();
    Span {
        trace_id: id.to_be_bytes().to_vec(),
        span_id: own(number),
        parent_span_id: if number == 0 { Vec::new() } else { own(number - 1) },
        name: format!("POST /cart/{:02}", trace % 50),
        kind: 2,
        start_time_unix_nano: start.0,
        end_time_unix_nano: start.0 + 20_000_000,
        attributes: if attributes { SAID.iter().map(|(key, value)| text(key, value)).collect() } else { Vec::new() },
        ..Span::default()
    }
}

/// What `service` sends.
pub fn request(service: &str, spans: Vec<Span>) -> Vec<u8> {
    let resource = Resource { attributes: vec![text("service.name", service)], ..Resource::default() };
    let scope_spans = vec![ScopeSpans { spans, ..ScopeSpans::default() }];
    let resource_spans = vec![ResourceSpans { resource: Some(resource), scope_spans, ..ResourceSpans::default() }];
    ExportTraceServiceRequest { resource_spans }.encode_to_vec()
}

/// The requests of all services with the spans of as many traces as a batch has, from trace `first` on; the last service's spans say what failed.
pub fn block(first: u64, start: UnixNanos) -> Vec<Vec<u8>> {
    let of = |number: u64| {
        let one = |trace: u64| {
            let failed = number + 1 == SERVICES && trace.is_multiple_of(FAILS);
            let status = failed.then(|| Status { code: 2, ..Status::default() });
            Span { status, ..span(trace, number, start, true) }
        };
        request(&service(number), (first..first + BATCH).map(one).collect())
    };
    (0..SERVICES).map(of).collect()
}

/// Reads everything, as a receiver of OTLP does that knows nothing better: so many spans.
pub fn decode(request: &[u8]) -> usize {
    let request = ExportTraceServiceRequest::decode(request).unwrap_or_default();
    let scopes = request.resource_spans.iter().flat_map(|resource| &resource.scope_spans);
    scopes.map(|scope| scope.spans.len()).sum()
}
