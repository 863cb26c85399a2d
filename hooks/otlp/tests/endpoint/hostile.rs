//! Hostile input: decompression bombs, floods, fragments. Memory stays within its limits, and every client gets the
//! right status.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use otlp::counts::RefusalReason;
use otlp::{Edge, Protocol, Settings, Signal};
use prost::Message as _;

use crate::client::{WAIT, call, logs, packed, post, span, traces};
use crate::upstream::{Reply, Upstream};
use crate::{settings, start, tail};

const PROTO: &str = "application/x-protobuf";
const GZIP: [(&str, &str); 1] = [("content-encoding", "gzip")];
/// Status codes of gRPC.
const INVALID_ARGUMENT: &str = "3";
const RESOURCE_EXHAUSTED: &str = "8";
const UNIMPLEMENTED: &str = "12";
const UNAVAILABLE: &str = "14";

fn refused(edge: &Edge, signal: Signal, why: RefusalReason) -> u64 {
    edge.counts.of(signal).refused(why).get()
}

#[tokio::test]
async fn a_bomb_is_given_up_at_the_limit_and_told_so() {
    let upstream = Upstream::start().await;
    let small = Settings {
        request_bytes: 100_000,
        receive_memory_bytes: 400_000,
        ..settings(upstream.address, Protocol::Grpc)
    };
    let (running, address) = start(&small).await;
    let bomb = packed(&vec![0; 50 << 20]);
    assert!(bomb.len() < 1 << 20 && bomb.len() > 100_000);
    let shorter = packed(&vec![0; 10 << 20]);
    assert!(shorter.len() < 100_000);

    let by_http = post(address, "/v1/traces", PROTO, &GZIP, shorter.clone()).await;
    let by_grpc = call(address, Signal::Traces.grpc_path(), 1, Some("gzip"), &shorter).await;
    let too_long_packed = post(address, "/v1/traces", PROTO, &GZIP, bomb).await;

    assert_eq!((by_http.status.as_u16(), too_long_packed.status.as_u16()), (413, 413));
    assert_eq!(by_grpc.headers["grpc-status"], RESOURCE_EXHAUSTED);
    // A retry would be as long: the client is not asked to.
    assert!(!by_grpc.headers.contains_key("grpc-status-details-bin") && !by_http.headers.contains_key("retry-after"));
    assert_eq!(refused(running.edge(), Signal::Traces, RefusalReason::TooLarge), 3);
    assert_eq!(running.edge().receiving_bytes(), 0);
}

#[tokio::test]
async fn gzip_that_costs_work_and_yields_nothing_is_refused_with_the_bound_in_words() {
    let upstream = Upstream::start().await;
    let (running, address) = start(&settings(upstream.address, Protocol::Grpc)).await;
    let many = packed(b"").repeat(800_000);
    assert!(many.len() > 15 << 20);
    let mut dense = GzEncoder::new(Vec::new(), Compression::best());
    dense.write_all(&vec![0; 12 << 20]).unwrap();
    let dense = dense.finish().unwrap();

    // As many as one sender may have in memory at a time.
    let three = (0..3).map(|_| post(address, "/v1/traces", PROTO, &GZIP, many.clone()));
    let answers = futures(three).await;
    let by_grpc = call(address, Signal::Traces.grpc_path(), 1, Some("gzip"), &packed(b"").repeat(300)).await;
    let too_dense = post(address, "/v1/traces", PROTO, &GZIP, dense).await;

    for answer in answers {
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        assert_eq!(answer.status.as_u16(), 400);
        assert!(text.contains("gzip with more than 256 members: compress the request as one"), "{text}");
    }
    assert_eq!(by_grpc.headers["grpc-status"], INVALID_ARGUMENT);
    let text = String::from_utf8_lossy(&too_dense.body).into_owned();
    assert_eq!(too_dense.status.as_u16(), 413);
    assert!(text.contains("at most 512 bytes per byte are taken"), "{text}");
    assert_eq!(refused(running.edge(), Signal::Traces, RefusalReason::Malformed), 4);
    assert_eq!(refused(running.edge(), Signal::Traces, RefusalReason::TooLarge), 1);
    assert_eq!(running.edge().receiving_bytes(), 0);
}

/// Runs all at the same time.
async fn futures<F: Future<Output: Send + 'static> + Send + 'static>(all: impl Iterator<Item = F>) -> Vec<F::Output> {
    let all: Vec<_> = all.map(tokio::spawn).collect();
    let mut outputs = Vec::new();
    for one in all {
        outputs.push(one.await.unwrap());
    }
    outputs
}

#[tokio::test]
async fn what_is_too_long_cut_short_or_no_otlp_is_refused_with_its_own_status() {
    let upstream = Upstream::start().await;
    let small = Settings { request_bytes: 10_000, ..settings(upstream.address, Protocol::Grpc) };
    let (running, address) = start(&small).await;
    let path = Signal::Traces.grpc_path();
    let whole = traces("cart", vec![span(1, false)]).encode_to_vec();
    let cut = &whole[..whole.len() - 1];

    assert_eq!(post(address, "/v1/traces", PROTO, &[], vec![0; 10_006]).await.status.as_u16(), 413);
    assert_eq!(post(address, "/v1/traces", PROTO, &[], cut.to_vec()).await.status.as_u16(), 400);
    assert_eq!(
        post(address, "/v1/traces", "application/json", &[], "{\"resourceSpans\":[{").await.status.as_u16(),
        400
    );
    assert_eq!(post(address, "/v1/traces", PROTO, &GZIP, packed(&whole)[..20].to_vec()).await.status.as_u16(), 400);
    assert_eq!(post(address, "/v1/traces", "text/plain", &[], whole.clone()).await.status.as_u16(), 415);
    assert_eq!(post(address, "/v2/traces", PROTO, &[], whole.clone()).await.status.as_u16(), 404);
    assert_eq!(call(address, path, 0, None, cut).await.headers["grpc-status"], INVALID_ARGUMENT);
    assert_eq!(call(address, path, 1, None, &whole).await.headers["grpc-status"], INVALID_ARGUMENT);
    assert_eq!(call(address, path, 0, Some("zstd"), &whole).await.headers["grpc-status"], UNIMPLEMENTED);
    assert_eq!(call(address, "/x.Y/Z", 0, None, &whole).await.headers["grpc-status"], UNIMPLEMENTED);

    let counts = &running.edge().counts;
    assert_eq!(refused(running.edge(), Signal::Traces, RefusalReason::Malformed), 5);
    assert_eq!(refused(running.edge(), Signal::Traces, RefusalReason::TooLarge), 1);
    assert_eq!((refused(running.edge(), Signal::Traces, RefusalReason::Unexpected), counts.unexpected.get()), (2, 2));
    assert_eq!(counts.of(Signal::Traces).accepted.get(), 0);
    // It still serves.
    assert_eq!(post(address, "/v1/traces", PROTO, &[], whole.clone()).await.status.as_u16(), 200);
    WAIT.until_async("the good one", async || upstream.messages(path).first().cloned()).await;
    assert_eq!(upstream.seen().len(), 1);
}

#[tokio::test]
async fn an_upstream_that_hangs_fills_its_queue_and_no_more_and_clients_are_told_when_to_come_again() {
    let upstream = Upstream::start().await;
    upstream.answer(Reply::Never);
    let small = Settings { queue_bytes: 100_000, ..settings(upstream.address, Protocol::Grpc) };
    let (running, address) = start(&small).await;
    let mut request = logs("cart");
    request.resource_logs[0].schema_url = "x".repeat(20_000);
    let body = request.encode_to_vec();

    let mut answers = Vec::new();
    for _ in 0..8 {
        answers.push(post(address, "/v1/logs", PROTO, &[], body.clone()).await);
        assert!(running.edge().queued_bytes(Signal::Logs) <= 100_000);
    }
    let by_grpc = call(address, Signal::Logs.grpc_path(), 0, None, &body).await;

    let codes: Vec<_> = answers.iter().map(|answer| answer.status.as_u16()).collect();
    assert_eq!(codes, [200, 200, 200, 503, 503, 503, 503, 503], "one sender leaves a quarter to others");
    assert_eq!(answers[7].headers["retry-after"], "1");
    assert_eq!(by_grpc.headers["grpc-status"], UNAVAILABLE);
    assert!(by_grpc.headers.contains_key("grpc-status-details-bin"));
    assert_eq!(refused(running.edge(), Signal::Logs, RefusalReason::Busy), 6);
    let text = String::from_utf8_lossy(&answers[7].body).into_owned();
    let why = "release some, or raise otlp.queue_bytes";
    assert!(text.contains("the queue to the upstream is full") && text.contains(why), "{text}");
    let lines = running.edge().full_bounds();
    assert!(
        matches!(&lines[..], [line] if line.contains("6 times since the start") && line.ends_with(why)),
        "{lines:?}"
    );
    // The others have queues of their own.
    let others = post(address, "/v1/traces", PROTO, &[], traces("cart", vec![span(1, false)]).encode_to_vec()).await;
    assert_eq!(others.status.as_u16(), 200);
}

#[tokio::test]
async fn spans_without_ids_are_refused_one_by_one_and_the_others_taken() {
    let upstream = Upstream::start().await;
    let settings = Settings { tail: Some(tail()), ..settings(upstream.address, Protocol::Grpc) };
    let (running, address) = start(&settings).await;
    let mut nameless = span(2, true);
    nameless.trace_id = vec![0; 16];
    let request = traces("cart", vec![span(1, true), nameless]);

    let json = post(address, "/v1/traces", "application/json", &[], serde_json::to_vec(&request).unwrap()).await;
    let proto = post(address, "/v1/traces", PROTO, &[], request.encode_to_vec()).await;

    let said: serde_json::Value = serde_json::from_slice(&json.body).unwrap();
    let text = "1 spans have no valid trace id or span id";
    assert_eq!(said["partialSuccess"], serde_json::json!({ "rejectedSpans": "1", "errorMessage": text }));
    assert!(proto.status.is_success() && proto.body.windows(text.len()).any(|window| window == text.as_bytes()));
    WAIT.until_async("the good ones", async || {
        let kept = running.edge().with_tail(|tail, _| tail.account().kept.spans).unwrap();
        (kept == 2).then_some(())
    })
    .await;
}
