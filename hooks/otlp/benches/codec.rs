//! Scanning a request for spans, compared with decoding all of it. `cargo bench -p otlp --bench codec`.

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use otlp::codec::scan;
use prost::Message;

#[path = "../tests/support/otlp_proto.rs"]
mod proto;

use proto::{Any, AnyValue, KeyValue};

/// An SDK's default batch.
const SPANS: u64 = 512;

fn main() {
    divan::main();
}

fn attribute(key: &str, value: Any) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }) }
}

/// SERVER spans with the attributes that instrumentation sets, about 300 bytes each.
fn request() -> Vec<u8> {
    let span = |number: u64| proto::Span {
        trace_id: (number + 1).to_be_bytes().repeat(2),
        span_id: (number + 1).to_be_bytes().to_vec(),
        parent_span_id: vec![1; 8],
        name: "POST /api/v1/orders/{id}/payment".to_owned(),
        kind: 2,
        start: 1_700_000_000_000_000_000 + number,
        end: 1_700_000_000_050_000_000 + number,
        attributes: vec![
            attribute("http.request.method", Any::Text("POST".to_owned())),
            attribute("http.route", Any::Text("/api/v1/orders/{id}/payment".to_owned())),
            attribute("http.response.status_code", Any::Whole(200)),
            attribute("server.address", Any::Text("payment.shop.svc.cluster.local".to_owned())),
            attribute("http.server.queue_share", Any::Number(0.25)),
        ],
        status: Some(proto::Status { message: String::new(), code: 1 }),
        ..Default::default()
    };
    let scope = Some(proto::Scope { name: "io.opentelemetry.http".to_owned() });
    let scope_spans = vec![proto::ScopeSpans { scope, spans: (0..SPANS).map(span).collect(), ..Default::default() }];
    let attributes = vec![attribute("service.name", Any::Text("payment".to_owned()))];
    let resource = Some(proto::Resource { attributes });
    let resource_spans = vec![proto::ResourceSpans { resource, scope_spans, ..Default::default() }];
    proto::Request { resource_spans }.encode_to_vec()
}

#[divan::bench]
fn found(bencher: Bencher<'_, '_>) {
    let request = request();

    bencher.counter(ItemsCount::new(SPANS)).bench_local(|| {
        let mut bytes = 0;
        let scanned = scan(black_box(&request), |_, span| bytes += span.map_or(0, |span| span.encoded.len()));
        scanned.map(|()| bytes)
    });
}

#[divan::bench]
fn decoded(bencher: Bencher<'_, '_>) {
    let request = request();

    bencher
        .counter(ItemsCount::new(SPANS))
        .bench_local(|| proto::Request::decode(black_box(&request[..])).map(|request| request.resource_spans.len()));
}
