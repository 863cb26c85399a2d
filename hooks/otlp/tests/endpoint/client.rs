//! What services send: OpenTelemetry's own messages, by its own clients or by plain HTTP.

use std::io::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use agent_runtime::clock::unix_now;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use hyper::{HeaderMap, Request, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Number;
use opentelemetry_proto::tonic::metrics::v1::{
    Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, metric::Data,
};
use opentelemetry_proto::tonic::trace::v1::{Span, Status};

use support::frames::in_grpc;
use support::otlp::{attribute, resource, string, text};
use support::wait::Wait;

use crate::upstream::{TestBody, collect};

fn scope() -> InstrumentationScope {
    InstrumentationScope { name: "shop".to_owned(), version: "1.2".to_owned(), ..InstrumentationScope::default() }
}

/// How tests wait for a condition. Where they pause the runtime's clock, the limit is of that clock.
pub const WAIT: Wait = Wait::up_to(Duration::from_secs(30)).pausing(Duration::from_millis(10));

/// A trace of one SERVER span, which began just now.
pub fn span(trace: u8, failed: bool) -> Span {
    Span {
        attributes: vec![text("http.route", "/pay"), attribute("http.response.status_code", Value::IntValue(200))],
        status: failed.then(|| Status { code: 2, message: "no money".to_owned() }),
        ..support::otlp::span(u128::from_be_bytes([trace; 16]), trace, 0, "POST /pay", unix_now().0)
    }
}

pub fn traces(service: &str, spans: Vec<Span>) -> ExportTraceServiceRequest {
    let schema_url = "https://opentelemetry.io/schemas/1.30.0".to_owned();
    let mut request = support::otlp::traces(service, spans);
    let group = &mut request.resource_spans[0];
    (group.schema_url, group.scope_spans[0].scope) = (schema_url, Some(scope()));
    request
}

pub fn metrics(service: &str) -> ExportMetricsServiceRequest {
    let point =
        NumberDataPoint { time_unix_nano: unix_now().0, value: Some(Number::AsInt(-7)), ..NumberDataPoint::default() };
    let queue = Data::Gauge(Gauge { data_points: vec![point] });
    let point = HistogramDataPoint {
        attributes: vec![text("route", "/pay")],
        start_time_unix_nano: unix_now().0,
        time_unix_nano: unix_now().0,
        count: 6,
        sum: Some(1.5),
        bucket_counts: vec![1, 2, 3],
        explicit_bounds: vec![0.1, 1.0],
        min: Some(0.01),
        max: Some(4.0),
        ..HistogramDataPoint::default()
    };
    let duration = Data::Histogram(Histogram { data_points: vec![point], aggregation_temporality: 2 });
    let metric = |name: &str, data| Metric {
        name: name.to_owned(),
        unit: "s".to_owned(),
        data: Some(data),
        ..Metric::default()
    };
    let metrics = vec![metric("queue", queue), metric("duration", duration)];
    let scope_metrics = vec![ScopeMetrics { scope: Some(scope()), metrics, schema_url: String::new() }];
    let resource_metrics =
        vec![ResourceMetrics { resource: Some(resource(service)), scope_metrics, ..ResourceMetrics::default() }];
    ExportMetricsServiceRequest { resource_metrics }
}

pub fn logs(service: &str) -> ExportLogsServiceRequest {
    let record = LogRecord {
        time_unix_nano: unix_now().0,
        severity_number: 17,
        severity_text: "ERROR".to_owned(),
        body: Some(string("no money")),
        attributes: vec![attribute("order", Value::IntValue(-3)), attribute("big", Value::BoolValue(true))],
        trace_id: vec![7; 16],
        span_id: vec![7; 8],
        flags: 1,
        ..LogRecord::default()
    };
    let mut request = support::otlp::logs(service, vec![record]);
    request.resource_logs[0].scope_logs[0].scope = Some(scope());
    request
}

pub fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// An HTTP response.
#[derive(Debug)]
pub struct HttpResponse {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// Sends `body` to `path` as `content`, with further headers.
pub async fn post(
    address: SocketAddr,
    path: &str,
    content: &str,
    headers: &[(&str, &str)],
    body: impl Into<Bytes>,
) -> HttpResponse {
    let client = Client::builder(TokioExecutor::new()).build_http::<TestBody>();
    let mut request = Request::post(format!("http://{address}{path}")).header("content-type", content);
    for (key, value) in headers {
        request = request.header(*key, *value);
    }
    let request = request.body(TestBody { data: Some(body.into()), trailers: None }).unwrap();
    let (head, body) = client.request(request).await.unwrap().into_parts();
    HttpResponse { status: head.status, headers: head.headers, body: collect(body).await.freeze() }
}

/// A raw gRPC call: `message` is framed, with `flag`.
pub async fn call(address: SocketAddr, path: &str, flag: u8, encoding: Option<&str>, message: &[u8]) -> HttpResponse {
    let body = in_grpc(flag, message);
    let client = Client::builder(TokioExecutor::new()).http2_only(true).build_http::<TestBody>();
    let mut request = Request::post(format!("http://{address}{path}")).header("content-type", "application/grpc");
    if let Some(encoding) = encoding {
        request = request.header("grpc-encoding", encoding);
    }
    let request = request.body(TestBody { data: Some(body.into()), trailers: None }).unwrap();
    let (head, body) = client.request(request).await.unwrap().into_parts();
    HttpResponse { status: head.status, headers: head.headers, body: collect(body).await.freeze() }
}
