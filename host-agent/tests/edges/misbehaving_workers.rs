//! Workers that misbehave.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use axum::body::{Body, Bytes};
use prost::Message as _;
use tokio_stream::StreamExt as _;
use tonic::client::GrpcService;
use tonic::codegen::http::Request;
use tonic::transport::Endpoint;
use wire::proto::control::{WorkerHello, WorkerMessage, worker_message};

use crate::agent::{Agent, PATIENCE, WAIT};
use crate::service::Service;
use crate::worker::{Worker, hello};

#[test]
fn a_worker_that_acknowledges_an_unknown_epoch_is_refused_and_another_one_takes_over() {
    let agent = Agent::start();
    let mut liar = Worker::connect(&agent, 0);
    let (mut service, _region) = Service::register(&agent, "cart", &["a", "b"]);
    let (epoch, lmap) = liar.set();
    let mut honest = Worker::connect(&agent, 1);
    service.retire(1);
    service.wait_accepted(4);

    liar.acknowledge(epoch + 100);

    while liar.receive().is_some() {}
    let (_, moved) = honest.set();
    assert_eq!(moved.lmap, lmap.lmap);
    assert_eq!(service.wait_released().len(), 1, "a fenced worker is not waited for");
    assert_eq!(agent.counter("unknown_epochs"), 1);
}

#[test]
fn a_worker_that_dies_with_slots_unacknowledged_does_not_keep_them() {
    let agent = Agent::with("control: {lease_ms: 6000}\nprocess_metrics: {enabled: false}\n");
    let mut dying = Worker::connect(&agent, 0);
    let (mut service, _region) = Service::register(&agent, "cart", &["a", "b"]);
    dying.set();
    service.retire(1);
    service.wait_accepted(4);
    drop(dying);

    assert_eq!(service.wait_released().len(), 1);
    assert_eq!(agent.counter("expired_leases"), 1);
}

/// What the control port replies to `bytes` until it closes the connection; `None` if it does not close it.
fn answered(agent: &Agent, bytes: &[u8]) -> Option<Vec<u8>> {
    let mut stream = UnixStream::connect(agent.at.control.trim_start_matches("unix:")).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // It may close the connection before everything is written.
    _ = stream.write_all(bytes).and_then(|()| stream.shutdown(Shutdown::Write));
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Err(error) if error.kind() != ErrorKind::ConnectionReset => None,
        _ => Some(answer),
    }
}

/// The error of the last GOAWAY in a stream of HTTP/2 frames.
fn goaway_error(mut frames: &[u8]) -> Option<u32> {
    let mut error = None;
    while let Some((&[a, b, c, kind, ..], rest)) = frames.split_first_chunk::<9>() {
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        let (payload, after) = rest.split_at_checked(length)?;
        if kind == 7 {
            error = Some(u32::from_be_bytes(*payload.get(4..)?.first_chunk()?));
        }
        frames = after;
    }
    error
}

#[test]
fn garbage_on_the_control_port_ends_its_own_connection_and_harms_no_worker() {
    /// HTTP/2 error codes (RFC 9113, 7).
    const PROTOCOL: u32 = 1;
    const FRAME_SIZE: u32 = 6;
    let agent = Agent::start();
    let mut worker = Worker::connect(&agent, 0);
    let preface: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let settings: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];

    for (garbage, error) in [
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), None),
        (vec![0xff; 4096], None),
        // A truncated frame header.
        ([preface, settings, &[0, 0, 50, 1]].concat(), None),
        // A frame of 16 MiB of an unknown type.
        ([preface, settings, &[0xff; 64]].concat(), Some(FRAME_SIZE)),
        // Data without a request.
        ([preface, settings, &[0, 0, 1, 0, 0, 0, 0, 0, 1, 7]].concat(), Some(PROTOCOL)),
    ] {
        let answer = answered(&agent, &garbage).expect("the connection ends");
        if let Some(error) = error {
            assert_eq!(goaway_error(&answer), Some(error), "{garbage:?} is answered by {answer:?}");
        }
    }

    let (_service, _region) = Service::register(&agent, "cart", &["a"]);
    assert_eq!(worker.set().1.metrics.len(), 1);
    assert_eq!(agent.counter("broken_workers"), 0, "none of them got as far as a stream");
}

#[test]
fn an_oversized_message_ends_its_own_stream_only() {
    let agent = Agent::start();
    let mut bystander = Worker::connect(&agent, 0);
    let mut loud = Worker::connect(&agent, 1);
    let problem = "x".repeat(wire::control::MAX_MESSAGE_BYTES + 1);
    let message = wire::proto::control::RegionProblem { region: 1, problem };

    loud.send(worker_message::Message::RegionProblem(message));

    assert!(loud.receive().is_none());
    WAIT.until("the count", || (agent.counter("broken_workers") == 1).then_some(()));
    let (_service, _region) = Service::register(&agent, "cart", &["a"]);
    assert_eq!(bystander.set().1.metrics.len(), 1);
}

#[test]
fn a_worker_of_another_release_learns_why_it_is_refused() {
    let agent = Agent::start();

    let mut worker = Worker::with(&agent, WorkerHello { protocol: 9, ..hello(0, 1) });

    assert!(worker.refused().contains("speaks protocols 9 to 9"));
    assert!(worker.receive().is_none());
}

#[test]
fn a_second_run_of_a_worker_takes_its_place() {
    let agent = Agent::start();
    let mut first = Worker::connect(&agent, 0);
    let (_service, _region) = Service::register(&agent, "cart", &["a"]);
    let (epoch, lmap) = first.set();

    let mut second = Worker::with(&agent, hello(0, 77));
    second.welcomed();

    assert!(first.refused().contains("another run of this worker connected"));
    let (new_epoch, again) = second.set();
    assert_eq!(again.lmap, lmap.lmap);
    assert!(new_epoch > epoch);
    second.verdict(&again, epoch, 20.0);
    WAIT.until("the count", || (agent.counter("stale_verdicts") == 1).then_some(()));
}

/// Opens a worker's stream, sends `bytes` as they are, closes it if `end`, and waits until the host agent has closed
/// it.
async fn stream(agent: &Agent, bytes: Vec<u8>, end: bool) {
    let mut channel = Endpoint::from_shared(agent.at.control.clone()).unwrap().connect().await.unwrap();
    std::future::poll_fn(|context| GrpcService::<tonic::body::Body>::poll_ready(&mut channel, context)).await.unwrap();
    let bytes = tokio_stream::once(Ok::<_, std::io::Error>(Bytes::from(bytes)));
    let body = if end { Body::from_stream(bytes) } else { Body::from_stream(bytes.chain(tokio_stream::pending())) };
    let request = Request::post("/uview.control.v1.Control/Work").header("content-type", "application/grpc");
    let request = request.header("te", "trailers").body(tonic::body::Body::new(body)).unwrap();
    let response = GrpcService::call(&mut channel, request).await.unwrap();
    let heard = axum::body::to_bytes(Body::new(response.into_body()), usize::MAX);
    // How the stream ends does not matter.
    drop(tokio::time::timeout(PATIENCE, heard).await.expect("the host agent ends the stream"));
}

#[test]
fn bytes_that_are_no_message_end_their_own_stream_and_are_counted() {
    let framed = |message: &[u8]| [&[0], &(message.len() as u32).to_be_bytes()[..], message].concat();
    let noise: Vec<u8> = (0..2000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let agent = Agent::start();
    let mut bystander = Worker::connect(&agent, 0);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let cases = [
        // A field of 127 bytes, with only one of them: not a protocol buffer.
        ("undecodable", framed(&[0x12, 0x7f, 0xff]), false),
        ("noise", framed(&noise), false),
        ("a message of 2 GiB, announced", vec![0, 0x7f, 0xff, 0xff, 0xff, 1, 2, 3], false),
        ("compressed, though nobody has agreed on how", vec![1, 0, 0, 0, 1, 0], false),
        ("a frame of a kind that there is not", vec![9, 0, 0, 0, 1, 0], false),
        ("the end in the middle of a message", framed(&noise)[..20].to_vec(), true),
    ];

    for (at, (what, broken, end)) in cases.into_iter().enumerate() {
        let hello = hello(1, 100 + at as u64);
        let hello = WorkerMessage { message: Some(worker_message::Message::Hello(hello)) }.encode_to_vec();
        for good in [framed(&hello), Vec::new()] {
            let before = agent.counter("broken_workers");
            runtime.block_on(stream(&agent, [good, broken.clone()].concat(), end));
            WAIT.until(what, || (agent.counter("broken_workers") == before + 1).then_some(()));
        }
    }

    let (_service, _region) = Service::register(&agent, "cart", &["a"]);
    assert_eq!(bystander.set().1.metrics.len(), 1);
}
