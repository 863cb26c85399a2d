//! Overload over sockets, alone in its process: memory stays within the configured limits.
#![expect(clippy::unwrap_used, reason = "what a test prepares has to work, or the test fails")]

#[path = "endpoint/client.rs"]
#[expect(dead_code, reason = "what other tests send")]
mod client;
#[path = "endpoint/upstream.rs"]
#[expect(dead_code, reason = "what other tests look at")]
mod upstream;

use std::time::Duration;

use hooks::tracing::{BudgetRule, Limits, OrderKey, Switches};
use otlp::{Protocol, Settings, SpanMetricsSettings, TailSettings, UpstreamSettings};
use prost::Message as _;
use support::otlp::text;
use tokio::net::TcpListener;

use client::{metrics, post, span, traces};
use upstream::{Reply, Upstream};

const MIB: usize = 1 << 20;
const PROTO: &str = "application/x-protobuf";

/// Peak memory of this process in bytes.
fn peak() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
}

/// About half a MiB of spans, of traces of their own.
fn spans(client: u32, round: u32) -> Vec<u8> {
    let spans = (0..500).map(|number: u32| {
        let mut span = span(1, number.is_multiple_of(8));
        span.trace_id = [client.to_be_bytes(), round.to_be_bytes(), number.to_be_bytes(), [1; 4]].concat();
        span.attributes.push(text("note", &"x".repeat(900)));
        span
    });
    traces("cart", spans.collect()).encode_to_vec()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_stays_within_its_bounds_whatever_comes_while_the_upstream_hangs() {
    let upstream = Upstream::start().await;
    upstream.answer(Reply::Never);
    let (waiting, reading, queue, origins) = (32 * MIB, 8 * MIB, 8 * MIB, 16 * MIB);
    let address = upstream.address;
    let mut settings = Settings::new(UpstreamSettings {
        endpoint: format!("http://{address}"),
        protocol: Protocol::Http,
        headers: Vec::new(),
        tls: None,
        gzip: false,
        timeout: Duration::from_mins(1),
    });
    settings.tail = Some(TailSettings {
        limits: Limits { bytes: waiting, ..Limits::default() },
        key: OrderKey::new(1),
        switches: Switches::default(),
        budget: BudgetRule { bytes_per_s: 50 << 20, ..BudgetRule::default() },
        frontends: Vec::new(),
        node: "node-7".to_owned(),
    });
    (settings.request_bytes, settings.receive_memory_bytes, settings.queue_bytes) = (4 * MIB, reading, queue);
    settings.span_metrics = Some(SpanMetricsSettings::default());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let running = otlp::start(&settings, [listener]).unwrap();
    let before = peak();

    // 400 MiB of spans from eight clients, and metrics until they are refused.
    let clients = (0..8).map(|client| {
        tokio::spawn(async move {
            for round in 0..100 {
                let status = post(address, "/v1/traces", PROTO, &[], spans(client, round)).await.status.as_u16();
                assert!(status == 200 || status == 503, "{status}");
                let mut many = metrics("cart");
                many.resource_metrics[0].scope_metrics[0].metrics[0].description = "x".repeat(100_000);
                let status = post(address, "/v1/metrics", PROTO, &[], many.encode_to_vec()).await.status.as_u16();
                assert!(status == 200 || status == 503, "{status}");
            }
        })
    });
    for client in clients.collect::<Vec<_>>() {
        client.await.unwrap();
    }

    let edge = running.edge();
    let account = edge.with_tail(|tail, _| *tail.account()).unwrap();
    assert!(account.balances() && account.seen.spans > 100_000, "{account:?}");
    assert!(edge.with_tail(|tail, _| tail.memory()).unwrap() <= waiting + origins);
    assert!(edge.queued_bytes(otlp::Signal::Metrics) > queue / 2, "the queue is full");
    let bound = waiting + reading + 3 * queue + origins;
    let grown = peak() - before;
    // A quarter for the allocator's overhead, and for the clients, which are in this process.
    assert!(grown <= bound + bound / 4, "{} MiB of {} MiB", grown / MIB, bound / MIB);
    // Does not wait for the hanging upstream.
    running.end(Duration::from_millis(1)).await;
}
