//! OTLP requests of eight services: each service has one span of every trace, in batches like those of SDKs.

use hooks::tracing::{BudgetRule, Limits, OrderKey, Switches};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::{Span, Status};
use otlp::{TailSettings, Timestamp};
use prost::Message as _;
use support::otlp::{text, traces};
use wire::time::{Nanos, UnixNanos};

/// Services on the path of a trace, with one span each.
pub const SERVICES: u64 = 8;
/// Spans per request, the SDKs' default.
pub const BATCH: u64 = 512;
/// One trace in so many fails: 5 % of all if a quarter is evicted.
const FAILS: u64 = 15;
/// Attributes of a server span.
const ATTRIBUTES: [(&str, &str); 5] = [
    ("http.request.method", "POST"),
    ("http.route", "/cart/{id}/items"),
    ("server.address", "cart.shop.svc"),
    ("user_agent.original", "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36"),
    ("network.peer.address", "10.12.7.31"),
];

/// `millis` milliseconds after a fixed start, by both clocks.
pub fn at(millis: u64) -> Timestamp {
    let monotonic = Nanos::from_millis(millis);
    Timestamp { monotonic, wall: UnixNanos::from_secs(1_700_000_000).plus(monotonic) }
}

/// Settings of a tail buffer of `bytes` that keeps failed traces and those with a verdict, without a byte quota.
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

/// The name of a service.
pub fn service(number: u64) -> String {
    format!("service-{number}")
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
        attributes: if attributes {
            ATTRIBUTES.iter().map(|(key, value)| text(key, value)).collect()
        } else {
            Vec::new()
        },
        ..Span::default()
    }
}

/// The only span of `trace`, with an attribute that makes it `bytes` encoded bytes, at least 75.
pub fn span_of(trace: u64, bytes: usize, start: UnixNanos) -> Span {
    let mut span = span(trace, 0, start, false);
    let mut value = bytes.saturating_sub(span.encoded_len());
    loop {
        span.attributes = vec![text("a", &"x".repeat(value))];
        match span.encoded_len().checked_sub(bytes) {
            Some(0) => return span,
            Some(over) => value = value.saturating_sub(over),
            // A length takes one byte more from 128 on, so that some sizes are left out by the attribute alone.
            None => span.name.push('x'),
        }
    }
}

/// An export request of `service`.
pub fn request(service: &str, spans: Vec<Span>) -> Vec<u8> {
    traces(service, spans).encode_to_vec()
}

/// The requests of all services for one batch of traces, from trace `first` on. Failures are in the last service's
/// spans.
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

/// Decodes everything, like a simple OTLP receiver. Returns the number of spans.
pub fn decode(request: &[u8]) -> usize {
    let request = ExportTraceServiceRequest::decode(request).unwrap_or_default();
    let scopes = request.resource_spans.iter().flat_map(|resource| &resource.scope_spans);
    scopes.map(|scope| scope.spans.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_of_a_size_has_it() {
        for bytes in 75..400 {
            assert_eq!(span_of(7, bytes, at(0).wall).encoded_len(), bytes);
        }
    }
}
