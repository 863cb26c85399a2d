//! Log records over real sockets: they wait, and are kept with their trace, in an alarm, because of an error, or by
//! what another node decides; the receipt says how many bytes that saves.

use std::io::{BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

use agent_runtime::clock::unix_now;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::logs::v1::logs_service_client::LogsServiceClient;
use opentelemetry_proto::tonic::common::v1::AnyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use opentelemetry_proto::tonic::trace::v1::{Span, Status};
use prost::Message as _;
use support::http::{self, HttpMessage};
use support::otlp::{logs, string};
use wire::proto::control::Episode;
use wire::proto::operators::{IncidentRequest, ReceiptLogs, ReceiptRequest};

use crate::agent::{Agent, WAIT};
use crate::coherence::{free, request};
use crate::otlp::{send, span};
use crate::service::Service;
use crate::worker::Worker;

pub const INFO: i32 = 9;
pub const ERROR: i32 = 17;

pub type Received = Arc<Mutex<Vec<ExportLogsServiceRequest>>>;

/// An OTLP/HTTP upstream that keeps logs, and takes everything else.
pub fn upstream() -> (SocketAddr, Received) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, received) = (listener.local_addr().unwrap(), Received::default());
    let into = Arc::clone(&received);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, into) = (stream.unwrap(), Arc::clone(&into));
            std::thread::spawn(move || serve(BufReader::new(stream), &into));
        }
    });
    (address, received)
}

fn serve(mut reader: BufReader<TcpStream>, into: &Received) -> Option<()> {
    loop {
        let request = HttpMessage::read(&mut reader)?;
        if request.path() == "/v1/logs" {
            let request = ExportLogsServiceRequest::decode(&request.body[..]).unwrap();
            into.lock().unwrap_or_else(PoisonError::into_inner).push(request);
        }
        reader.get_mut().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").ok()?;
    }
}

pub fn log(trace: u128, severity_number: i32, text: &str) -> LogRecord {
    LogRecord {
        time_unix_nano: unix_now().0,
        severity_number,
        body: Some(string(text)),
        attributes: vec![support::otlp::text("user.email", "ann@example.com")],
        trace_id: if trace == 0 { Vec::new() } else { trace.to_be_bytes().to_vec() },
        ..LogRecord::default()
    }
}

/// Sends `body` to the endpoint's path for logs. Returns status line and body.
pub fn post(address: SocketAddr, kind: &str, body: &[u8]) -> (String, String) {
    post_to(address, "/v1/logs", kind, body)
}

/// As [`post`], to any path.
pub fn post_to(address: SocketAddr, path: &str, kind: &str, body: &[u8]) -> (String, String) {
    let response = http::post(address, path, kind, body).unwrap();
    // It may say what came, which need not be a text.
    (response.status().to_owned(), String::from_utf8_lossy(&response.body).into_owned())
}

pub const PROTOBUF: &str = "application/x-protobuf";

/// Texts of the records that arrived, each with the values that were added to it.
fn arrived(received: &Received) -> Vec<(String, Vec<String>)> {
    let text = |value: &Option<AnyValue>| match value.as_ref().and_then(|value| value.value.as_ref()) {
        Some(Value::StringValue(text)) => text.clone(),
        other => panic!("{other:?}"),
    };
    let received = received.lock().unwrap_or_else(PoisonError::into_inner);
    let resources = received.iter().flat_map(|request| &request.resource_logs);
    let records = resources.flat_map(|resource| &resource.scope_logs).flat_map(|scope| &scope.log_records);
    let added = |record: &LogRecord| record.attributes.iter().skip(1).map(|pair| text(&pair.value)).collect();
    records.map(|record| (text(&record.body), added(record))).collect()
}

fn texts(received: &Received) -> Vec<String> {
    let mut texts: Vec<_> = arrived(received).into_iter().map(|(text, _)| text).collect();
    texts.sort();
    texts
}

pub fn agent(to: SocketAddr, more: &str) -> Agent {
    Agent::with(&format!(
        "process_metrics: {{enabled: false}}\n\
         otlp:\n  upstream: {{endpoint: 'http://{to}', protocol: http}}\n  listen_grpc: 127.0.0.1:0\n  listen_http: 127.0.0.1:0\n{more}"
    ))
}

pub const TAIL: &str = "  traces: {keep: tail, decision_wait_ms: 10000, floor: 0, latency: false, frontends: [frontend]}\n  \
                    logs: {keep: tail, floor: 0}\n";

fn receipt(agent: &Agent) -> (Option<ReceiptLogs>, u64) {
    let mut operators = agent.operators();
    let reply = operators.runtime.block_on(operators.client.receipt(ReceiptRequest {})).unwrap().into_inner();
    let mut lines = reply.days.iter().flat_map(|day| &day.services);
    let logs = lines.find(|line| line.service == "payment").and_then(|line| line.logs.clone());
    (logs, reply.waiting_logs.values().sum())
}

pub fn failed(trace: u128) -> Span {
    Span { status: Some(Status { code: 2, ..Status::default() }), ..span(trace, 1, &[], "POST /pay") }
}

#[test]
fn records_of_a_kept_trace_and_errors_arrive_over_both_protocols_and_the_receipt_says_what_that_saves() {
    let (to, received) = upstream();
    let agent = agent(to, &format!("{TAIL}  redact: [user.email]\n"));
    let whole = logs("payment", vec![log(7, INFO, "of the trace"), log(8, INFO, "of another"), log(0, ERROR, "error")]);
    assert_eq!(post(agent.at.otlp[1], PROTOBUF, &whole.encode_to_vec()).0, "HTTP/1.1 200 OK");
    let operators = agent.operators();
    let grpc = logs("payment", vec![log(7, INFO, "by gRPC"), log(0, INFO, "outside of a trace")]);
    let endpoint = format!("http://{}", agent.at.otlp[0]);
    operators.runtime.block_on(async {
        LogsServiceClient::connect(endpoint).await.unwrap().export(grpc.clone()).await.unwrap();
    });
    let json = r#"{"resourceLogs": [{"resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "payment"}}]},
        "scopeLogs": [{"logRecords": [{"severityNumber": 17, "body": {"stringValue": "by JSON"},
        "attributes": [{"key": "user.email", "value": {"stringValue": "ann@example.com"}}]}]}]}]}"#;
    assert_eq!(post(agent.at.otlp[1], "application/json", json.as_bytes()).0, "HTTP/1.1 200 OK");
    assert_eq!(receipt(&agent).1, 4, "all but the errors wait");

    assert_eq!(send(agent.at.otlp[1], &request("frontend", vec![failed(7)])), "HTTP/1.1 200 OK");

    let expected = ["by JSON", "by gRPC", "error", "of the trace"];
    WAIT.until("what matters", || (texts(&received) == expected).then_some(()));
    let all = arrived(&received);
    let why = |text: &str| all.iter().find(|(of, _)| of == text).unwrap().1.clone();
    assert_eq!(why("error"), ["error", "severity ERROR"]);
    assert_eq!(why("by gRPC"), ["trace", "its trace is kept: frontend: POST /pay ended in an error"]);
    let text = format!("{:?}", received.lock().unwrap_or_else(PoisonError::into_inner));
    assert!(text.contains("****") && !text.contains("ann@example.com"), "{text}");

    let (line, _) = WAIT.until("the end of waiting", || Some(receipt(&agent)).filter(|(_, waiting)| *waiting == 0));
    let line = line.unwrap();
    assert_eq!((line.seen, line.kept, line.dropped["aged"]), (6, 4, 2));
    assert_eq!(line.kept_bytes_by_policy.values().sum::<u64>(), line.kept_bytes);
    assert!(line.kept_bytes < line.seen_bytes && line.lost.is_empty(), "{line:?}");
    let (_, page) = agent.get("/metrics");
    for metric in ["logs_total 6", "kept_logs_total 4", "dropped_logs_total{reason=\"aged\"} 2", "buffered_logs 0"] {
        assert!(page.contains(&format!("uview_host_{metric}\n")), "{metric}:\n{page}");
    }
}

#[test]
fn by_default_all_records_pass_through_as_they_are() {
    let (to, received) = upstream();
    let agent = agent(to, "  traces: {keep: tail}\n  redact: [user.email]\n");
    let sent = logs("payment", vec![log(7, INFO, "one"), log(0, ERROR, "two")]);

    assert_eq!(post(agent.at.otlp[1], PROTOBUF, &sent.encode_to_vec()).0, "HTTP/1.1 200 OK");

    WAIT.until("the request", || {
        (*received.lock().unwrap_or_else(PoisonError::into_inner) == [sent.clone()]).then_some(())
    });
    assert_eq!(receipt(&agent), (None, 0));
    assert!(!agent.get("/metrics").1.contains("uview_host_kept_logs"));
}

#[test]
fn a_verdict_has_records_of_its_service_kept_with_the_incident() {
    let (to, received) = upstream();
    let agent = agent(to, TAIL);
    let mut worker = Worker::connect(&agent, 0);
    let (_service, _region) = Service::register(&agent, "payment", &["requests"]);
    let (epoch, lmap) = worker.set();
    for service in ["payment", "cart"] {
        let sent = logs(service, vec![log(0, INFO, service)]);
        assert_eq!(post(agent.at.otlp[1], PROTOBUF, &sent.encode_to_vec()).0, "HTTP/1.1 200 OK");
    }
    let worst = logs("payment", vec![log(0, ERROR, "<b>card</b>\n\u{202e}refused")]);
    assert_eq!(post(agent.at.otlp[1], PROTOBUF, &worst.encode_to_vec()).0, "HTTP/1.1 200 OK");

    worker.verdict_in(Episode::Began, &lmap, epoch, unix_now().0);

    let why = WAIT.until("the record", || arrived(&received).into_iter().find(|(text, _)| text == "payment")).1;
    assert_eq!(why[..2], ["lmap", "payment: score 20.0, threshold 4.0"]);
    assert!(why[2].contains('/'), "the address of the incident: {why:?}");
    assert!(!texts(&received).contains(&"cart".to_owned()), "it is not in alarm");

    let mut operators = agent.operators();
    let incident = WAIT.until("the incident with both", || {
        let asked = operators.client.incident(IncidentRequest::default());
        let incident = operators.runtime.block_on(asked).ok()?.into_inner().incident?;
        (incident.kept_logs == 2).then_some(incident)
    });
    let shown: Vec<_> = incident.logs.iter().map(|log| (log.level.as_str(), log.text.as_str())).collect();
    assert_eq!(shown, [("ERROR", "<b>card</b>\\u{a}\\u{202e}refused"), ("INFO", "payment")]);
    assert_eq!((incident.logs[0].policy.as_str(), incident.logs[1].policy.as_str()), ("error", "lmap"));
    assert!(format!("{}/{}", incident.node, incident.id) == why[2]);
}

#[test]
fn a_trace_that_another_node_keeps_takes_its_records_along() {
    let ((to, received), at) = (upstream(), free(&[14, 15]));
    let agents: Vec<_> = ["a", "b"]
        .iter()
        .zip(&at)
        .map(|(name, listen)| {
            Agent::with(&format!(
                "process_metrics: {{enabled: false}}\ncoherence: {{listen: '{listen}', peers: ['{}', '{}'], insecure: true}}\n\
                 otlp:\n  upstream: {{endpoint: 'http://{to}', protocol: http}}\n  listen_grpc: 127.0.0.1:0\n  listen_http: 127.0.0.1:0\n  \
                 traces: {{keep: tail, floor: 0, latency: false, frontends: [frontend], node: {name}, order_key: 00112233445566778899aabbccddeeff}}\n  \
                 logs: {{keep: tail, floor: 0}}\n",
                at[0], at[1]
            ))
        })
        .collect();
    let peers = |agent: &Agent| agent.get("/metrics").1.contains("uview_host_live_gossip_peers 1");
    WAIT.until("both to know each other", || agents.iter().all(peers).then_some(()));
    let sent = logs("payment", vec![log(7, INFO, "on the other node"), log(8, INFO, "of another trace")]);
    assert_eq!(post(agents[1].at.otlp[1], PROTOBUF, &sent.encode_to_vec()).0, "HTTP/1.1 200 OK");

    assert_eq!(send(agents[0].at.otlp[1], &request("frontend", vec![failed(7)])), "HTTP/1.1 200 OK");

    WAIT.until("the record of the other node", || (texts(&received) == ["on the other node"]).then_some(()));
    let late = logs("cart", vec![log(7, INFO, "late")]);
    assert_eq!(post(agents[1].at.otlp[1], PROTOBUF, &late.encode_to_vec()).0, "HTTP/1.1 200 OK");
    WAIT.until("a late record", || (texts(&received) == ["late", "on the other node"]).then_some(()));
}

#[test]
fn what_cannot_be_read_is_rejected_by_number_and_a_request_by_its_length() {
    let (to, received) = upstream();
    let agent = agent(to, TAIL);
    let mut sent = logs("payment", vec![log(0, ERROR, "good")]).encode_to_vec();
    // A resource with a scope with a record whose body ends beyond it.
    sent.extend([1 << 3 | 2, 7, 2 << 3 | 2, 5, 2 << 3 | 2, 3, 5 << 3 | 2, 100, 1]);
    let (status, answer) = post(agent.at.otlp[1], PROTOBUF, &sent);
    assert_eq!(status, "HTTP/1.1 200 OK");
    assert!(answer.contains("1 log records cannot be read"), "{answer}");
    WAIT.until("the other one", || (texts(&received) == ["good"]).then_some(()));

    let long = logs("payment", vec![log(0, ERROR, &"x".repeat(17 << 20))]).encode_to_vec();
    // The connection may end before all of it is written.
    _ = http::post(agent.at.otlp[1], "/v1/logs", PROTOBUF, &long);
    let refused = r#"uview_host_refused_otlp_requests_total{signal="logs",reason="too_large"} 1"#;
    WAIT.until("the refusal", || agent.get("/metrics").1.contains(refused).then_some(()));
    assert_eq!(texts(&received), ["good"]);
}

#[test]
fn what_waited_when_the_agent_ended_is_in_the_next_ones_receipt() {
    let (to, _received) = upstream();
    let start = |folder: tempfile::TempDir| {
        Agent::again(folder, |folder| {
            let dir = folder.join("ledger").display().to_string();
            let text = format!(
                "process_metrics: {{enabled: false}}\nreceipt: {{dir: '{dir}'}}\n\
                 otlp:\n  upstream: {{endpoint: 'http://{to}', protocol: http}}\n  listen_grpc: 127.0.0.1:0\n  listen_http: 127.0.0.1:0\n  \
                 traces: {{keep: tail, floor: 0}}\n  logs: {{keep: tail, floor: 0}}\n"
            );
            crate::agent::config(folder, &text)
        })
    };
    let first = start(tempfile::tempdir().unwrap());
    let sent = logs("payment", vec![log(7, INFO, "waits"), log(0, ERROR, "is kept")]);
    assert_eq!(post(first.at.otlp[1], PROTOBUF, &sent.encode_to_vec()).0, "HTTP/1.1 200 OK");
    assert_eq!(receipt(&first).1, 1);

    let second = start(first.stop());

    let (line, waiting) = receipt(&second);
    let line = line.unwrap();
    assert_eq!((line.seen, line.kept, line.lost["ended"], waiting), (2, 1, 1, 0));
}
