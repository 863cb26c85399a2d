//! A worker's verdict has traces through its service kept, with spans from the OTLP port.

use std::io::{BufReader, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};

use agent_runtime::clock::unix_now;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use support::http::{self, HttpMessage};
use support::otlp::spans_of;
use wire::proto::control::Episode;

use crate::agent::{Agent, WAIT};
use crate::service::Service;
use crate::worker::Worker;

pub type ReceivedSpans = Arc<Mutex<Vec<ExportTraceServiceRequest>>>;

/// An OTLP/HTTP upstream that keeps spans, and takes everything else.
pub fn upstream() -> (SocketAddr, ReceivedSpans) {
    upstream_at(SocketAddr::from(([127, 0, 0, 1], 0)))
}

/// An OTLP/HTTP upstream at this address.
pub fn upstream_at(address: SocketAddr) -> (SocketAddr, ReceivedSpans) {
    let listener = TcpListener::bind(address).unwrap();
    let address = listener.local_addr().unwrap();
    let received = ReceivedSpans::default();
    let into = Arc::clone(&received);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let into = Arc::clone(&into);
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stream.unwrap());
                // A sender that is killed ends it in the middle.
                while let Some(request) = HttpMessage::read(&mut reader) {
                    if request.path() == "/v1/traces" {
                        let request = ExportTraceServiceRequest::decode(&request.body[..]).unwrap();
                        into.lock().unwrap_or_else(PoisonError::into_inner).push(request);
                    }
                    if reader.get_mut().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").is_err() {
                        return;
                    }
                }
            });
        }
    });
    (address, received)
}

pub fn span(trace: u128, id: u8, parent: &[u8], name: &str) -> Span {
    let span = support::otlp::span(trace, id, 0, name, unix_now().0);
    Span { parent_span_id: parent.to_vec(), end_time_unix_nano: span.start_time_unix_nano + 1_000_000, ..span }
}

/// Sixteen requests of each of two operations; the frontend's spans come last.
fn requests(round: u128) -> Vec<u8> {
    let pays = |n: u128| ((round << 64) | (n + 1)) << 1;
    let inner = |service: &str, odd: u128| {
        let spans = (0..16).map(|n| span(pays(n) | odd, 2, &[1; 8], "handle"));
        spans_of(service, spans.collect())
    };
    let entries = (0..16).flat_map(|n| [span(pays(n), 1, &[], "POST /pay"), span(pays(n) | 1, 1, &[], "GET /list")]);
    let resource_spans = vec![inner("payment", 0), inner("catalog", 1), spans_of("frontend", entries.collect())];
    ExportTraceServiceRequest { resource_spans }.encode_to_vec()
}

/// Sends `body` to the endpoint. Returns the status line.
pub fn send(address: SocketAddr, body: &[u8]) -> String {
    try_send(address, body).unwrap()
}

/// As [`send`], if nothing may listen there.
pub fn try_send(address: SocketAddr, body: &[u8]) -> std::io::Result<String> {
    let response = http::post(address, "/v1/traces", "application/x-protobuf", body)?;
    Ok(response.status().to_owned())
}

#[test]
fn a_verdict_has_traces_kept_that_went_through_its_service() {
    let (address, received) = upstream();
    let agent = Agent::with(&format!(
        "process_metrics: {{enabled: false}}\n\
         otlp:\n  upstream: {{endpoint: 'http://{address}', protocol: http}}\n  listen_grpc: 127.0.0.1:0\n  listen_http: 127.0.0.1:0\n  \
         traces: {{keep: tail, decision_wait_ms: 200, floor: 0, latency: false, frontends: [frontend]}}\n"
    ));
    let mut worker = Worker::connect(&agent, 0);
    let (_service, _region) = Service::register(&agent, "payment", &["requests"]);
    let (epoch, lmap) = worker.set();
    let mut round = 0;

    // The path is learnt from dropped traces, so requests are repeated until a verdict finds it.
    let kept = WAIT.until("a trace that a verdict wanted", || {
        round += 1;
        assert_eq!(send(agent.at.otlp[1], &requests(round)), "HTTP/1.1 200 OK");
        worker.verdict_in(Episode::On, &lmap, epoch, unix_now().0);
        let received = received.lock().unwrap_or_else(PoisonError::into_inner);
        received.first().cloned()
    });

    let text = format!("{kept:?}");
    assert!(text.contains("payment: score 20.0, threshold 4.0") && text.contains("POST /pay"), "{text}");
    assert!(!text.contains("GET /list") && !text.contains("catalog"), "{text}");
    let pays = agent.paths().into_iter().find(|path| path.operation == "POST /pay").unwrap();
    assert_eq!((pays.tenant.as_str(), pays.service.as_str()), ("default", "frontend"));
    let through: Vec<_> = pays.services.iter().map(|passed| passed.service.as_str()).collect();
    assert_eq!(through, ["frontend", "payment"]);
    let (_, page) = agent.get("/metrics");
    assert!(page.contains(r#"uview_host_refused_otlp_requests_total{signal="traces",reason="malformed"} 0"#), "{page}");
    drop(agent);
}
