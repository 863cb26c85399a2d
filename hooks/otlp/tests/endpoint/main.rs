//! The endpoint over real sockets, between OpenTelemetry's own clients and an upstream that records every byte.
#![expect(clippy::unwrap_used, reason = "what a test prepares has to work, or the test fails")]

mod client;
mod down;
mod hostile;
mod idle;
mod logs;
mod metrics;
mod pods;
mod senders;
mod shares;
mod tenants;
mod tls;
mod upstream;
mod watch_only;

use std::net::SocketAddr;
use std::time::Duration;

use hooks::tracing::{BudgetRule, Limits, OrderKey, Switches};
use opentelemetry_proto::tonic::collector::logs::v1::logs_service_client::LogsServiceClient;
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_client::MetricsServiceClient;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use opentelemetry_proto::tonic::trace::v1::Span;
use otlp::counts::UpstreamLoss;
use otlp::{EdgeHandle, Protocol, Settings, Signal, TailSettings, UpstreamSettings};
use prost::Message as _;
use support::otlp::text_of;
use tokio::net::TcpListener;

use client::{WAIT, logs, metrics, post, span, traces};
use upstream::{Reply, Upstream};

/// Settings for an upstream at `address`.
fn settings(address: SocketAddr, protocol: Protocol) -> Settings {
    Settings::new(UpstreamSettings {
        endpoint: format!("http://{address}"),
        protocol,
        headers: vec![("X-Tenant".to_owned(), "shop".to_owned())],
        tls: None,
        gzip: false,
        timeout: Duration::from_secs(5),
    })
}

/// Errors are kept and nothing else: no floor.
fn tail() -> TailSettings {
    TailSettings {
        limits: Limits { bytes: 32 << 20, ..Limits::default() },
        key: OrderKey::new(1),
        switches: Switches { floor: None, ..Switches::default() },
        budget: BudgetRule::default(),
        frontends: Vec::new(),
        node: "node-7".to_owned(),
    }
}

async fn start(settings: &Settings) -> (EdgeHandle, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (otlp::start(settings, [listener]).unwrap(), address)
}

fn spans(request: &ExportTraceServiceRequest) -> Vec<&Span> {
    request.resource_spans.iter().flat_map(|r| &r.scope_spans).flat_map(|s| &s.spans).collect()
}

fn attribute_of(span: &Span, key: &str) -> Option<String> {
    text_of(&span.attributes, key).map(str::to_owned)
}

#[tokio::test]
async fn a_trace_that_failed_arrives_with_its_reason_and_a_fine_one_does_not() {
    let upstream = Upstream::start().await;
    let settings = Settings { tail: Some(tail()), ..settings(upstream.address, Protocol::Grpc) };
    let (running, address) = start(&settings).await;
    let mut client = TraceServiceClient::connect(format!("http://{address}")).await.unwrap();

    let sent = traces("payment", vec![span(1, false), span(2, true), span(3, false)]);
    let answer = client.export(sent.clone()).await.unwrap().into_inner();

    assert_eq!(answer.partial_success, None);
    let path = Signal::Traces.grpc_path();
    let came = WAIT.until_async("the kept trace", async || upstream.messages(path).first().cloned()).await;
    let came = ExportTraceServiceRequest::decode(came).unwrap();
    let kept = spans(&came);
    assert_eq!(kept.len(), 1);
    assert_eq!(kept[0].trace_id, [2; 16]);
    assert_eq!(attribute_of(kept[0], "uview.policy").as_deref(), Some("error"));
    assert_eq!(attribute_of(kept[0], "uview.reason").as_deref(), Some("payment: POST /pay ended in an error"));
    // Resource, scope and attributes are unchanged.
    assert_eq!(came.resource_spans[0].resource, sent.resource_spans[0].resource);
    assert_eq!(came.resource_spans[0].schema_url, sent.resource_spans[0].schema_url);
    assert_eq!(came.resource_spans[0].scope_spans[0].scope, sent.resource_spans[0].scope_spans[0].scope);
    assert_eq!(kept[0].attributes[..2], spans(&sent)[1].attributes[..]);
    let (seen, kept, waiting) =
        running.edge().with_tail(|tail, _| (tail.account().seen, tail.account().kept, tail.account().waiting)).unwrap();
    assert_eq!((seen.spans, kept.spans, waiting.spans), (3, 1, 2));
    assert_eq!(upstream.seen()[0].tenant.as_deref(), Some("shop"));
}

#[tokio::test]
async fn packed_bodies_are_what_they_were_when_they_are_unpacked() {
    for protocol in [Protocol::Grpc, Protocol::Http] {
        let upstream = Upstream::start().await;
        let mut settings = settings(upstream.address, protocol);
        settings.upstream.as_mut().unwrap().gzip = true;
        let (_running, address) = start(&settings).await;
        let request = traces("cart", (0..50).map(|n| span(n + 1, false)).collect()).encode_to_vec();

        assert_eq!(post(address, "/v1/traces", "application/x-protobuf", &[], request.clone()).await.status, 200);

        let came = WAIT.until_async("the request", async || upstream.seen().first().cloned()).await;
        assert!(came.packed, "{protocol:?}");
        assert_eq!(came.message, request, "{protocol:?}");
    }
}

#[tokio::test]
async fn what_passes_through_arrives_byte_by_byte() {
    let upstream = Upstream::start().await;
    let (running, address) = start(&settings(upstream.address, Protocol::Grpc)).await;
    let address = format!("http://{address}");
    let (traces, metrics, logs) = (traces("cart", vec![span(1, false), span(2, true)]), metrics("cart"), logs("cart"));

    TraceServiceClient::connect(address.clone()).await.unwrap().export(traces.clone()).await.unwrap();
    MetricsServiceClient::connect(address.clone()).await.unwrap().export(metrics.clone()).await.unwrap();
    LogsServiceClient::connect(address).await.unwrap().export(logs.clone()).await.unwrap();

    let expected = [traces.encode_to_vec(), metrics.encode_to_vec(), logs.encode_to_vec()];
    for (signal, expected) in Signal::ALL.into_iter().zip(expected) {
        let came =
            WAIT.until_async(signal.name(), async || upstream.messages(signal.grpc_path()).first().cloned()).await;
        assert_eq!(came, expected, "{signal:?}");
        assert_eq!(running.edge().counts.of(signal).accepted.get(), 1);
    }
    assert_eq!(running.edge().counts.of(Signal::Traces).items.get(), 2);
    assert_eq!(running.edge().counts.of(Signal::Metrics).items.get(), 2);
    assert_eq!(running.edge().counts.of(Signal::Logs).items.get(), 1);
}

#[tokio::test]
async fn http_packed_or_not_with_fields_that_nobody_knows_arrives_byte_by_byte() {
    let upstream = Upstream::start().await;
    let (_running, address) = start(&settings(upstream.address, Protocol::Http)).await;
    let mut newer = logs("cart").encode_to_vec();
    // Field 1000 of the request, a varint.
    newer.extend_from_slice(&[0xc0, 0x3e, 7]);
    let proto = "application/x-protobuf";

    let plain = post(address, "/v1/logs", proto, &[], newer.clone()).await;
    let sent = metrics("cart").encode_to_vec();
    let gzip = [("content-encoding", "gzip")];
    let packed = post(address, "/v1/metrics", proto, &gzip, client::packed(&sent)).await;

    assert_eq!((plain.status.as_u16(), packed.status.as_u16()), (200, 200));
    assert_eq!((plain.body.as_ref(), plain.headers["content-type"].as_bytes()), (&b""[..], proto.as_bytes()));
    let came = WAIT.until_async("logs", async || upstream.messages("/v1/logs").first().cloned()).await;
    assert_eq!(came, newer);
    let came =
        WAIT.until_async("metrics", async || upstream.seen().into_iter().find(|seen| seen.path == "/v1/metrics")).await;
    assert_eq!((came.content.as_str(), came.tenant.as_deref()), (proto, Some("shop")));
    assert_eq!(came.message, sent);
}

#[tokio::test]
async fn json_arrives_as_it_came_or_as_what_it_says() {
    for protocol in [Protocol::Http, Protocol::Grpc] {
        let upstream = Upstream::start().await;
        let (_running, address) = start(&settings(upstream.address, protocol)).await;
        let (traces, metrics, logs) = (traces("cart", vec![span(1, true)]), metrics("cart"), logs("cart"));
        let json = [
            serde_json::to_vec(&traces).unwrap(),
            serde_json::to_vec(&metrics).unwrap(),
            serde_json::to_vec(&logs).unwrap(),
        ];
        let messages = [traces.encode_to_vec(), metrics.encode_to_vec(), logs.encode_to_vec()];

        for ((signal, json), message) in Signal::ALL.into_iter().zip(json).zip(messages) {
            let answer = post(address, signal.http_path(), "application/json", &[], json.clone()).await;
            assert_eq!((answer.status.as_u16(), answer.body.as_ref()), (200, &b"{}"[..]), "{answer:?}");
            let came = WAIT
                .until_async("json", async || {
                    upstream.seen().into_iter().find(|seen| seen.path.contains(path(signal, protocol)))
                })
                .await;
            match protocol {
                Protocol::Http => assert_eq!((came.content.as_str(), came.message), ("application/json", json.into())),
                Protocol::Grpc => assert_same(signal, &came.message, &message),
            }
        }
    }
}

const fn path(signal: Signal, protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Http => signal.http_path(),
        Protocol::Grpc => signal.grpc_path(),
    }
}

/// Fields may be in another order: compares decoded messages.
fn assert_same(signal: Signal, came: &[u8], expected: &[u8]) {
    use opentelemetry_proto::tonic::collector::{logs, metrics};
    match signal {
        Signal::Traces => {
            let decode = |bytes| ExportTraceServiceRequest::decode(bytes).unwrap();
            assert_eq!(decode(came), decode(expected));
        }
        Signal::Metrics => {
            let decode = |bytes| metrics::v1::ExportMetricsServiceRequest::decode(bytes).unwrap();
            assert_eq!(decode(came), decode(expected));
        }
        Signal::Logs => {
            let decode = |bytes| logs::v1::ExportLogsServiceRequest::decode(bytes).unwrap();
            assert_eq!(decode(came), decode(expected));
        }
    }
}

#[tokio::test]
async fn what_comes_while_the_upstream_is_down_arrives_when_it_is_back() {
    let upstream = Upstream::start().await;
    let (running, address) = start(&settings(upstream.address, Protocol::Grpc)).await;
    let mut client = MetricsServiceClient::connect(format!("http://{address}")).await.unwrap();
    client.export(metrics("before")).await.unwrap();
    WAIT.until_async("the first", async || upstream.messages(Signal::Metrics.grpc_path()).first().cloned()).await;
    let place = upstream.address;
    drop(upstream);

    client.export(metrics("meanwhile")).await.unwrap();
    let counts = running.edge().counts.of(Signal::Metrics);
    WAIT.until_async("a retry", async || (counts.retries.get() > 0).then_some(())).await;
    assert_eq!(counts.sent.get(), 1);
    let upstream = Upstream::at(place).await;

    let came =
        WAIT.until_async("the second", async || upstream.messages(Signal::Metrics.grpc_path()).first().cloned()).await;
    assert!(came.windows(9).any(|window| window == b"meanwhile"));
    WAIT.until_async("nothing waits", async || (running.edge().queued_bytes(Signal::Metrics) == 0).then_some(())).await;
    assert_eq!(counts.sent.get(), 2);
}

#[tokio::test]
async fn what_the_upstream_refuses_is_lost_once_and_counted_and_what_it_puts_off_is_not() {
    let upstream = Upstream::start().await;
    let (running, address) = start(&settings(upstream.address, Protocol::Http)).await;
    let counts = running.edge().counts.of(Signal::Logs);
    let (proto, body) = ("application/x-protobuf", logs("cart").encode_to_vec());

    upstream.answer(Reply::Refused);
    post(address, "/v1/logs", proto, &[], body.clone()).await;
    WAIT.until_async("the refusal", async || (counts.lost(UpstreamLoss::Refused).get() == 1).then_some(())).await;
    assert_eq!(counts.retries.get(), 0);
    upstream.answer(Reply::Later);
    post(address, "/v1/logs", proto, &[], body.clone()).await;
    WAIT.until_async("a retry", async || (counts.retries.get() > 0).then_some(())).await;
    upstream.answer(Reply::Taken);

    WAIT.until_async("the message", async || upstream.messages("/v1/logs").first().cloned()).await;
    assert_eq!((counts.sent.get() <= 1, counts.lost(UpstreamLoss::Refused).get()), (true, 1));
}

#[tokio::test]
async fn at_the_end_what_waits_is_sent_and_what_cannot_be_is_counted() {
    let upstream = Upstream::start().await;
    let (running, address) = start(&settings(upstream.address, Protocol::Grpc)).await;
    let edge = std::sync::Arc::clone(running.edge());
    for _ in 0..20 {
        let body = logs("cart").encode_to_vec();
        post(address, "/v1/logs", "application/x-protobuf", &[], body).await;
    }
    running.end(Duration::from_secs(10)).await;
    assert_eq!(upstream.messages(Signal::Logs.grpc_path()).len(), 20);
    assert_eq!(edge.counts.of(Signal::Logs).sent.get(), 20);

    upstream.answer(Reply::Later);
    let (running, address) = start(&settings(upstream.address, Protocol::Grpc)).await;
    let edge = std::sync::Arc::clone(running.edge());
    post(address, "/v1/logs", "application/x-protobuf", &[], logs("cart").encode_to_vec()).await;
    running.end(Duration::from_secs(10)).await;
    assert_eq!(edge.counts.of(Signal::Logs).lost(UpstreamLoss::Ended).get(), 1);
    assert_eq!(edge.queued_bytes(Signal::Logs), 0);

    // At the time limit, requests in flight and queued ones are counted as lost, too.
    upstream.answer(Reply::Never);
    let (running, address) = start(&settings(upstream.address, Protocol::Grpc)).await;
    let edge = std::sync::Arc::clone(running.edge());
    for _ in 0..20 {
        post(address, "/v1/logs", "application/x-protobuf", &[], logs("cart").encode_to_vec()).await;
    }
    running.end(Duration::from_millis(100)).await;
    assert_eq!(edge.counts.of(Signal::Logs).lost(UpstreamLoss::Ended).get(), 20);
    assert_eq!(edge.queued_bytes(Signal::Logs), 0);
}
