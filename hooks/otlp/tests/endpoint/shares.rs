//! Shares of the endpoint: what one sender fills leaves room for others. The flood comes from a pod, by its address.

use std::net::SocketAddr;
use std::sync::Arc;

use agent_runtime::reload::Reloadable;
use opentelemetry_proto::tonic::trace::v1::Span;
use otlp::counts::{RefusalReason, UpstreamLoss};
use otlp::{PodSender, PodSenders, Protocol, Settings, Signal};
use prost::Message as _;
use support::otlp::text;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpSocket, TcpStream};

use crate::client::{WAIT, logs, span, traces};
use crate::tenants::send;
use crate::upstream::{Reply, Upstream};
use crate::{settings, start, tail};

const FLOOD: &str = "127.0.0.2";
const OTHER: &str = "127.0.0.1";
const FLOODS_NAME: &str = "pod flood-1 of shop/flood";

/// The one pod of this node.
fn pods() -> Reloadable<PodSenders> {
    let flood = PodSender::new("shop/flood", "flood-1", core::iter::empty());
    Reloadable::new(PodSenders::new([(FLOOD.parse().unwrap(), Arc::new(flood))]))
}

/// A connection of the flood on which a request of `whole` bytes has begun, of which `sent` have come.
async fn begun(address: SocketAddr, whole: usize, sent: usize) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::new(FLOOD.parse().unwrap(), 0)).unwrap();
    let mut stream = socket.connect(address).await.unwrap();
    let head = format!(
        "POST /v1/logs HTTP/1.1\r\nhost: a\r\ncontent-type: application/x-protobuf\r\ncontent-length: {whole}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&vec![0; sent]).await.unwrap();
    stream
}

/// A request of about 20,000 bytes.
fn long_logs() -> Vec<u8> {
    let mut request = logs("cart");
    request.resource_logs[0].schema_url = "x".repeat(20_000);
    request.encode_to_vec()
}

#[tokio::test]
async fn slow_requests_of_one_sender_leave_memory_for_those_of_others() {
    let upstream = Upstream::start().await;
    let small = Settings {
        request_bytes: 100_000,
        receive_memory_bytes: 400_000,
        pods: Some(pods()),
        ..settings(upstream.address, Protocol::Http)
    };
    let (running, address) = start(&small).await;
    let edge = running.edge();
    let mut slow = Vec::new();
    for _ in 0..3 {
        slow.push(begun(address, 100_000, 99_000).await);
    }
    WAIT.until_async("what has come", async || (edge.receiving_bytes() == 3 * 99_000).then_some(())).await;

    assert_eq!(send(FLOOD, address, "/v1/logs", long_logs()).await, 503, "three quarters are its share");
    assert_eq!(send(OTHER, address, "/v1/logs", long_logs()).await, 200);

    assert_eq!(edge.counts.of(Signal::Logs).refused(RefusalReason::Busy).get(), 1);
    let lines = edge.full_bounds();
    let [line] = &lines[..] else { panic!("one line: {lines:?}") };
    assert!(line.contains(&format!("{FLOODS_NAME} has most, 29")), "{line}");
    assert!(line.ends_with("release some, or raise otlp.receive_memory_bytes"), "{line}");
    drop(slow);
    WAIT.until_async("all memory", async || (edge.receiving_bytes() == 0).then_some(())).await;
    assert_eq!(send(FLOOD, address, "/v1/logs", long_logs()).await, 200);
}

#[tokio::test]
async fn a_flood_fills_its_share_of_the_queue_and_requests_of_others_wait_beside_it() {
    let upstream = Upstream::start().await;
    upstream.answer(Reply::Never);
    let small = Settings { queue_bytes: 200_000, pods: Some(pods()), ..settings(upstream.address, Protocol::Http) };
    let (running, address) = start(&small).await;
    let mut statuses = Vec::new();
    for _ in 0..10 {
        statuses.push(send(FLOOD, address, "/v1/logs", long_logs()).await.as_u16());
    }

    assert_eq!(send(OTHER, address, "/v1/logs", long_logs()).await, 200);

    assert_eq!(statuses, [200, 200, 200, 200, 200, 200, 200, 503, 503, 503]);
    let lines = running.edge().full_bounds();
    assert!(matches!(&lines[..], [line] if line.contains(&format!("{FLOODS_NAME} has most"))), "{lines:?}");
}

/// A failed trace of some 5,000 bytes, which is kept.
fn failed(trace: u8) -> Span {
    let mut span = span(trace, true);
    span.attributes.push(text("note", &"x".repeat(5_000)));
    span
}

#[tokio::test]
async fn kept_traces_of_one_sender_do_not_push_those_of_others_out_of_the_queue() {
    let upstream = Upstream::start().await;
    upstream.answer(Reply::Never);
    let base = settings(upstream.address, Protocol::Http);
    let small = Settings { tail: Some(tail()), queue_bytes: 100_000, pods: Some(pods()), ..base };
    let (running, address) = start(&small).await;
    let edge = running.edge();
    let lost = || edge.counts.of(Signal::Traces).lost(UpstreamLoss::QueueFull).get();
    for trace in 1..=30 {
        let request = traces("flood", vec![failed(trace)]).encode_to_vec();
        assert_eq!(send(FLOOD, address, "/v1/traces", request).await, 200);
    }
    let (of_flood, queued) = (lost(), edge.queued_bytes(Signal::Traces));
    assert!(of_flood > 10 && queued > 60_000 && queued <= 75_000, "{of_flood} {queued}");

    let request = traces("payment", vec![failed(31)]).encode_to_vec();
    assert_eq!(send(OTHER, address, "/v1/traces", request).await, 200);

    assert_eq!(lost(), of_flood);
    assert!(edge.queued_bytes(Signal::Traces) > queued + 5_000);
    let lines = edge.full_bounds();
    assert!(lines.iter().any(|line| line.contains(&format!("{FLOODS_NAME} has most"))), "{lines:?}");
}
