//! Names by OTLP that are no UTF-8: they pass on as they are, are counted, and are text on the page.

use agent_runtime::clock::unix_now;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Number;
use opentelemetry_proto::tonic::metrics::v1::{Gauge, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics};
use opentelemetry_proto::tonic::trace::v1::{Span, Status};
use prost::Message as _;
use serde_json::Value;
use support::otlp::{resource, spans_of, text};

use crate::agent::{Agent, WAIT};
use crate::live_page::Browser;
use crate::logs::{self, PROTOBUF, post_to};
use crate::otlp::span;

/// Stands in messages where bytes that are no UTF-8 are to be.
const MARK: &str = "@@@@";
/// A byte that is nowhere in UTF-8, one that is too long, one that continues nothing, and a surrogate's begin.
const BROKEN: [u8; 4] = [0xff, 0xc0, 0x80, 0xed];

/// `message` with broken texts. Lengths stay.
fn broken(mut message: Vec<u8>) -> Vec<u8> {
    while let Some(at) = message.windows(MARK.len()).position(|bytes| bytes == MARK.as_bytes()) {
        message[at..at + MARK.len()].copy_from_slice(&BROKEN);
    }
    message
}

fn failed(trace: u128, name: &str) -> Span {
    let status = Some(Status { code: 2, message: MARK.to_owned() });
    Span { status, attributes: vec![text(MARK, MARK)], ..span(trace, 1, &[], name) }
}

/// An export with a gauge of this name and one that is fine.
fn gauges(service: &str, name: &str, second: u64) -> Vec<u8> {
    let gauge = |name: &str, value: u64| {
        let value = Some(Number::AsInt((value * value % 7).cast_signed()));
        let at = unix_now().0 + second * 1_000_000_000;
        let point = NumberDataPoint {
            time_unix_nano: at,
            value,
            attributes: vec![text(MARK, MARK)],
            ..NumberDataPoint::default()
        };
        Metric {
            name: name.to_owned(),
            data: Some(Data::Gauge(Gauge { data_points: vec![point] })),
            ..Metric::default()
        }
    };
    let metrics = vec![gauge(name, second), gauge("queue.depth", second + 3)];
    let scope_metrics = vec![ScopeMetrics { metrics, ..ScopeMetrics::default() }];
    let of = ResourceMetrics { resource: Some(resource(service)), scope_metrics, ..ResourceMetrics::default() };
    ExportMetricsServiceRequest { resource_metrics: vec![of] }.encode_to_vec()
}

#[test]
fn names_that_are_no_utf_8_are_text_on_every_view_of_the_page_and_harm_nobody() {
    let (upstream, _logs) = logs::upstream();
    let agent = Agent::with(&format!(
        "process_metrics: {{enabled: false}}\n\
         otlp:\n  upstream: {{endpoint: 'http://{upstream}', protocol: http}}\n  listen_grpc: 127.0.0.1:0\n  listen_http: 127.0.0.1:0\n  \
         derived: {{delay_ms: 0}}\n  \
         traces: {{keep: tail, decision_wait_ms: 1000, floor: 0, latency: false}}\n"
    ));
    let to = agent.at.otlp[1];
    let resource_spans = vec![
        spans_of(&format!("shop-{MARK}"), vec![failed(1, "POST /pay")]),
        spans_of("payment", vec![failed(2, &format!("POST /{MARK}"))]),
        spans_of("payment", vec![failed(3, "POST /pay")]),
    ];
    let spans = broken(ExportTraceServiceRequest { resource_spans }.encode_to_vec());
    assert_eq!(post_to(to, "/v1/traces", PROTOBUF, &spans).0, "HTTP/1.1 200 OK");
    for second in 0..5 {
        for (service, name) in [("payment", MARK), (MARK, "threads")] {
            let sent = broken(gauges(service, name, second));
            assert_eq!(post_to(to, "/v1/metrics", PROTOBUF, &sent).0, "HTTP/1.1 200 OK");
        }
    }

    let browser = Browser::open(&agent);
    // Reading fails where a byte is no UTF-8.
    let document = |path: &str| {
        let (head, body) = browser.get(path);
        assert!(head.starts_with("http/1.1 200") && body.len() < 64 << 10, "{path}: {head}");
        serde_json::from_str::<Value>(&body).unwrap()
    };
    let listed = WAIT.until("kept traces", || {
        let traces = document("/api/traces")["traces"].clone();
        (traces.as_array()?.len() == 3).then_some(traces)
    });
    let mut names: Vec<_> = listed.as_array().unwrap().iter().map(|of| [&of["service"], &of["name"]]).collect();
    names.sort_by_key(|[service, name]| (service.to_string(), name.to_string()));
    let expected = [["payment", ""], ["payment", "POST /pay"], ["unknown", "POST /pay"]];
    assert_eq!(names, expected, "{listed}");
    for trace in 1..=3_u128 {
        assert_eq!(document(&format!("/api/trace/{trace:032x}"))["spans"].as_array().unwrap().len(), 1);
    }
    for path in ["/api/map", "/api/receipt", "/api/sources", "/api/node", "/api/incidents"] {
        assert!(document(path).is_object(), "{path}");
    }
    let metrics = agent.get("/metrics").1;
    assert!(metrics.contains("span_name=\"POST /pay\"") && metrics.ends_with("# EOF\n"), "{metrics}");
    assert!(metrics.contains(r#"uview_host_refused_otlp_requests_total{signal="metrics",reason="malformed"} 0"#));
}
