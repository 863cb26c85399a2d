//! Workers that do what they should not.

use std::io::Write as _;
use std::net::TcpStream;

use prost::Message as _;
use prost::bytes::{Buf as _, BufMut as _};
use tokio_stream::StreamExt as _;
use tonic::transport::Channel;
use wire::proto::control::{WorkerHello, WorkerMessage, worker_message};

use crate::agent::{Agent, wait_for};
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

    liar.acknowledge(epoch + 100);

    while liar.hear().is_some() {}
    let (_, moved) = honest.set();
    assert_eq!(moved.lmap, lmap.lmap);
    assert_eq!(service.wait_released().len(), 1, "a fenced worker is not waited for");
    assert_eq!(agent.counter("unknown_epochs"), 1);
}

#[test]
fn a_worker_that_dies_with_slots_unacknowledged_does_not_keep_them() {
    let agent = Agent::with("control: {lease_ms: 1500}\nprocess_metrics: {enabled: false}\n");
    let mut dying = Worker::connect(&agent, 0);
    let (mut service, _region) = Service::register(&agent, "cart", &["a", "b"]);
    dying.set();
    service.retire(1);
    service.wait_accepted(4);
    drop(dying);

    assert_eq!(service.wait_released().len(), 1);
    assert_eq!(agent.counter("expired_leases"), 1);
}

#[test]
fn garbage_on_the_control_port_harms_no_worker() {
    let agent = Agent::start();
    let mut worker = Worker::connect(&agent, 0);
    for garbage in
        [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 4096], b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff\xff"]
    {
        let mut stream = TcpStream::connect(agent.at.control).unwrap();
        _ = stream.write_all(garbage);
    }

    let (_service, _region) = Service::register(&agent, "cart", &["a"]);

    assert_eq!(worker.set().1.metrics.len(), 1);
}

#[test]
fn an_oversized_message_ends_its_own_stream_only() {
    let agent = Agent::start();
    let mut bystander = Worker::connect(&agent, 0);
    let mut loud = Worker::connect(&agent, 1);
    let problem = "x".repeat(wire::control::MAX_MESSAGE_BYTES + 1);
    let message = wire::proto::control::RegionProblem { region: 1, problem };

    loud.say(worker_message::Message::RegionProblem(message));

    assert!(loud.hear().is_none());
    wait_for("the count", || (agent.counter("broken_workers") == 1).then_some(()));
    let (_service, _region) = Service::register(&agent, "cart", &["a"]);
    assert_eq!(bystander.set().1.metrics.len(), 1);
}

#[test]
fn a_worker_of_another_release_is_told_why_it_is_not_taken() {
    let agent = Agent::start();

    let mut worker = Worker::with(&agent, WorkerHello { protocol: 9, ..hello(0, 1) });

    assert!(worker.refused().contains("speaks protocol 9"));
    assert!(worker.hear().is_none());
}

#[test]
fn a_second_run_of_a_worker_takes_its_place() {
    let agent = Agent::start();
    let mut first = Worker::connect(&agent, 0);
    let (_service, _region) = Service::register(&agent, "cart", &["a"]);
    let (epoch, lmap) = first.set();

    let mut second = Worker::with(&agent, hello(0, 77));
    second.welcomed();

    assert!(first.refused().contains("another run of this worker came"));
    let (new_epoch, again) = second.set();
    assert_eq!(again.lmap, lmap.lmap);
    assert!(new_epoch > epoch);
    second.verdict(&again, epoch, 20.0);
    wait_for("the count", || (agent.counter("stale_verdicts") == 1).then_some(()));
}

/// Bytes as they are, in a good gRPC frame.
#[derive(Clone, Copy, Debug, Default)]
struct Raw;

impl tonic::codec::Codec for Raw {
    type Encode = Vec<u8>;
    type Decode = ();
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl tonic::codec::Encoder for Raw {
    type Item = Vec<u8>;
    type Error = tonic::Status;

    fn encode(&mut self, item: Vec<u8>, to: &mut tonic::codec::EncodeBuf<'_>) -> Result<(), tonic::Status> {
        to.put_slice(&item);
        Ok(())
    }
}

impl tonic::codec::Decoder for Raw {
    type Item = ();
    type Error = tonic::Status;

    fn decode(&mut self, from: &mut tonic::codec::DecodeBuf<'_>) -> Result<Option<()>, tonic::Status> {
        from.advance(from.remaining());
        Ok(Some(()))
    }
}

#[test]
fn a_message_that_cannot_be_decoded_ends_its_own_stream_and_is_counted() {
    let agent = Agent::start();
    let mut bystander = Worker::connect(&agent, 0);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let hello = WorkerMessage { message: Some(worker_message::Message::Hello(hello(1, 7))) };
    // A length that nothing follows, where a message is announced.
    let messages = [hello.encode_to_vec(), vec![0x12, 0x7f, 0xff]];

    runtime.block_on(async {
        let channel = Channel::from_shared(format!("http://{}", agent.at.control)).unwrap().connect().await.unwrap();
        let mut client = tonic::client::Grpc::new(channel);
        client.ready().await.unwrap();
        let path = "/uview.control.v1.Control/Work".parse().unwrap();
        // The stream stays open: it is the host agent that ends it.
        let request = tonic::Request::new(tokio_stream::iter(messages).chain(tokio_stream::pending()));
        let mut hears = client.streaming(request, path, Raw).await.unwrap().into_inner();
        while let Ok(Some(())) = hears.message().await {}
    });

    wait_for("the count", || (agent.counter("broken_workers") == 1).then_some(()));
    let (_service, _region) = Service::register(&agent, "cart", &["a"]);
    assert_eq!(bystander.set().1.metrics.len(), 1);
}
