//! An upstream that is down for long, or closes connections: in virtual time.

use std::time::Duration;

use otlp::counts::UpstreamLoss;
use otlp::{Protocol, Settings, Signal};
use prost::Message as _;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;

use crate::client::{WAIT, logs, post};
use crate::upstream::Upstream;
use crate::{settings, start};

const PROTO: &str = "application/x-protobuf";
const QUEUE_BYTES: usize = 100_000;

/// Numbered log requests of about four kilobytes.
fn numbered(number: u32) -> Vec<u8> {
    let mut request = logs("cart");
    request.resource_logs[0].schema_url = format!("number-{number:04}/{}", "x".repeat(4_000));
    request.encode_to_vec()
}

#[tokio::test]
async fn an_upstream_that_is_down_for_ten_minutes_gets_what_is_not_too_old_and_no_queue_grows() {
    let upstream = Upstream::start().await;
    let place = upstream.address;
    drop(upstream);
    let small = Settings { queue_bytes: QUEUE_BYTES, ..settings(place, Protocol::Http) };
    let (running, address) = start(&small).await;
    let edge = running.edge();
    let mut taken = 0;

    for second in 0..600 {
        if second % 10 == 0 {
            let status = post(address, "/v1/logs", PROTO, &[], numbered(second)).await.status.as_u16();
            assert!(status == 200 || status == 503, "{status}");
            taken += u64::from(status == 200);
        }
        assert!(edge.queued_bytes(Signal::Logs) <= QUEUE_BYTES, "{}", edge.queued_bytes(Signal::Logs));
        // Virtual time only advances between messages.
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(1)).await;
        tokio::time::resume();
        tokio::task::yield_now().await;
    }
    let counts = edge.counts.of(Signal::Logs);
    let expired = counts.lost(UpstreamLoss::Expired).get();
    assert!(expired > 0 && taken < 60, "{expired} were too old, {taken} of 60 taken");
    let upstream = Upstream::at(place).await;

    let rest = WAIT.until_async("all that is left", async || {
        // Pauses between attempts have grown to half a minute.
        let left = edge.queued_bytes(Signal::Logs);
        (left == 0).then(|| upstream.messages("/v1/logs"))
    });
    let skipping = async {
        loop {
            tokio::time::sleep(Duration::from_millis(50)).await;
            tokio::time::pause();
            tokio::time::advance(Duration::from_secs(1)).await;
            tokio::time::resume();
        }
    };
    let came = tokio::select! { rest = rest => rest, () = skipping => Vec::new() };

    let lost = counts.lost(UpstreamLoss::Expired).get();
    assert_eq!(came.len() as u64 + lost, taken, "each was sent or counted as lost");
    assert!(!came.is_empty());
    assert_eq!(counts.sent.get(), came.len() as u64);
}

#[tokio::test]
async fn an_upstream_that_hangs_up_amid_requests_gets_each_once_when_it_stops_doing_so() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let place = listener.local_addr().unwrap();
    let hanging_up = tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut some = [0; 100];
            _ = stream.read(&mut some).await;
        }
    });
    let small = Settings { queue_bytes: QUEUE_BYTES, ..settings(place, Protocol::Http) };
    let (running, address) = start(&small).await;
    let counts = running.edge().counts.of(Signal::Logs);

    let mut sent: Vec<_> = (0..5).map(|number| bytes::Bytes::from(numbered(number))).collect();
    for body in &sent {
        assert_eq!(post(address, "/v1/logs", PROTO, &[], body.to_vec()).await.status.as_u16(), 200);
    }
    WAIT.until_async("attempts", async || (counts.retries.get() >= 3).then_some(())).await;
    assert!(running.edge().queued_bytes(Signal::Logs) <= QUEUE_BYTES);
    assert_eq!(counts.sent.get(), 0);
    hanging_up.abort();
    assert!(hanging_up.await.unwrap_err().is_cancelled());
    let upstream = Upstream::at(place).await;

    let mut came =
        WAIT.until_async("all five", async || Some(upstream.messages("/v1/logs")).filter(|came| came.len() == 5)).await;
    came.sort();
    sent.sort();
    assert_eq!(came, sent);
    WAIT.until_async("the count", async || (counts.sent.get() == 5).then_some(())).await;
    assert_eq!(running.edge().queued_bytes(Signal::Logs), 0);
}
