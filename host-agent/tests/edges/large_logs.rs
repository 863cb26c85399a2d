//! A log record of 16 MiB while another service's records arrive: what the limits say becomes of it, and nothing of the
//! other.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::PoisonError;

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::logs::v1::logs_service_client::LogsServiceClient;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use prost::Message as _;
use support::otlp::{logs, text_of};
use wire::proto::operators::{ReceiptLogs, ReceiptRequest};

use crate::agent::{Agent, Operators, WAIT};
use crate::coherence::request;
use crate::logs::{ERROR, INFO, PROTOBUF, Received, TAIL, agent, failed, log, post, upstream};
use crate::otlp::send;

/// The longest request, as it is by default.
const LIMIT: usize = 16 << 20;
/// Records of the other service.
const OTHERS: usize = 40;

/// A request of payment with a record of so many bytes of text.
fn large(severity: i32, bytes: usize) -> ExportLogsServiceRequest {
    logs("payment", vec![log(0, severity, &"x".repeat(bytes))])
}

/// Lengths of the texts that arrived of a service.
fn lengths(received: &Received, service: &str) -> Vec<usize> {
    let received = received.lock().unwrap_or_else(PoisonError::into_inner);
    let resources = received.iter().flat_map(|request| &request.resource_logs);
    let of_service = resources.filter(|of| {
        of.resource.as_ref().and_then(|resource| text_of(&resource.attributes, "service.name")) == Some(service)
    });
    let records = of_service.flat_map(|of| &of.scope_logs).flat_map(|scope| &scope.log_records);
    let length =
        |record: &opentelemetry_proto::tonic::logs::v1::LogRecord| match record.body.as_ref()?.value.as_ref()? {
            Value::StringValue(text) => Some(text.len()),
            _ => None,
        };
    records.filter_map(length).collect()
}

/// Sends a request by gRPC. Returns why it is refused.
fn by_grpc(
    agent: &Agent,
    Operators { runtime, .. }: &Operators,
    sent: ExportLogsServiceRequest,
) -> Option<tonic::Status> {
    let endpoint = format!("http://{}", agent.at.otlp[0]);
    runtime.block_on(async { LogsServiceClient::connect(endpoint).await.unwrap().export(sent).await.err() })
}

/// Sends a request that is too long by HTTP, and waits for its end: one whose sender has gone is no refusal. The
/// connection may end before all of it is written.
fn too_long_by_http(agent: &Agent, sent: &[u8]) {
    let mut stream = TcpStream::connect(agent.at.otlp[1]).unwrap();
    let (head, length) = ("POST /v1/logs HTTP/1.1\r\nhost: localhost\r\nconnection: close", sent.len());
    write!(stream, "{head}\r\ncontent-type: {PROTOBUF}\r\ncontent-length: {length}\r\n\r\n").unwrap();
    _ = stream.write_all(sent);
    _ = stream.read_to_end(&mut Vec::new());
}

#[test]
fn a_record_of_16_mib_is_refused_and_a_little_less_is_taken_and_nothing_of_another_service_is_lost() {
    let (to, received) = upstream();
    let agent = agent(to, "");
    let operators = agent.operators();
    let under = LIMIT - 1_024;

    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..OTHERS {
                let sent = logs("cart", vec![log(0, INFO, &"c".repeat(number + 1))]).encode_to_vec();
                assert_eq!(post(agent.at.otlp[1], PROTOBUF, &sent).0, "HTTP/1.1 200 OK");
            }
        });
        too_long_by_http(&agent, &large(ERROR, LIMIT).encode_to_vec());
        let refused = by_grpc(&agent, &operators, large(ERROR, LIMIT));
        assert!(refused.is_some(), "what is around the text makes it longer than 16 MiB");
        assert_eq!(post(agent.at.otlp[1], PROTOBUF, &large(ERROR, under).encode_to_vec()).0, "HTTP/1.1 200 OK");
        let taken = by_grpc(&agent, &operators, large(ERROR, under));
        assert!(taken.is_none(), "{taken:?}");
    });

    let refused = r#"uview_host_refused_otlp_requests_total{signal="logs",reason="too_large"} 2"#;
    WAIT.until("both refusals", || agent.get("/metrics").1.contains(refused).then_some(()));
    WAIT.until("what was taken", || (lengths(&received, "payment") == [under; 2]).then_some(()));
    let mut others =
        WAIT.until("all of the other", || Some(lengths(&received, "cart")).filter(|lengths| lengths.len() >= OTHERS));
    others.sort_unstable();
    assert_eq!(others, (1..=OTHERS).collect::<Vec<_>>());
}

/// What the receipt says of the records of a service.
fn receipt(operators: &mut Operators, service: &str) -> Option<ReceiptLogs> {
    let reply = operators.runtime.block_on(operators.client.receipt(ReceiptRequest {})).unwrap().into_inner();
    let mut lines = reply.days.into_iter().flat_map(|day| day.services);
    lines.find(|line| line.service == service)?.logs
}

#[test]
fn where_records_wait_those_of_16_mib_make_room_and_those_of_another_service_stay() {
    let (to, received) = upstream();
    let agent = agent(to, TAIL);
    let mut operators = agent.operators();
    let small = logs("cart", (0..OTHERS).map(|number| log(7, INFO, &"c".repeat(number + 1))).collect());
    assert_eq!(post(agent.at.otlp[1], PROTOBUF, &small.encode_to_vec()).0, "HTTP/1.1 200 OK");
    for _ in 0..4 {
        // Each takes 22 of the 64 MiB.
        let sent = large(INFO, LIMIT - 1_024).encode_to_vec();
        assert_eq!(post(agent.at.otlp[1], PROTOBUF, &sent).0, "HTTP/1.1 200 OK");
    }

    assert_eq!(send(agent.at.otlp[1], &request("frontend", vec![failed(7)])), "HTTP/1.1 200 OK");

    let mut others = WAIT.until("the records of the kept trace", || {
        Some(lengths(&received, "cart")).filter(|lengths| lengths.len() >= OTHERS)
    });
    others.sort_unstable();
    assert_eq!(others, (1..=OTHERS).collect::<Vec<_>>());
    let cart = receipt(&mut operators, "cart").unwrap();
    assert_eq!((cart.seen, cart.kept, cart.lost.len()), (OTHERS as u64, OTHERS as u64, 0), "{cart:?}");
    let payment = WAIT.until("the end of waiting", || {
        let of = receipt(&mut operators, "payment")?;
        let gone = of.kept + of.dropped.values().sum::<u64>() + of.lost.values().sum::<u64>();
        (gone == of.seen).then_some(of)
    });
    assert_eq!((payment.seen, payment.kept), (4, 0));
    assert!(payment.lost["evicted"] >= 1, "{payment:?}");
}
