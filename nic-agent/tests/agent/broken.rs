//! A host agent that sends broken bytes: below HTTP/2, in gRPC frames, and in messages.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use prost::Message as _;
use support::frames::in_grpc;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt as _};
use tonic::codegen::http::{Request, Response, header};
use tonic::transport::Server;
use wire::id::RegionId;
use wire::proto::control as proto;
use wire::proto::control::host_message::Message as FromHost;
use wire::proto::control::worker_message::Message as ToHost;

use crate::host::{Host, worker_config};
use crate::memory::Regions;
use crate::{Agent, WAIT, free_port, lmap, page, service, state_of};

/// What a connection gets instead of a host agent.
#[derive(Debug)]
enum Reply {
    /// These bytes at once, then the end of the connection.
    Raw(Vec<u8>),
    /// A valid welcome and a valid configuration, then these bytes in the same stream, then its end.
    Stream(Vec<u8>, End),
}

/// How a stream ends.
#[derive(Clone, Copy, Debug)]
enum End {
    Ordinary,
    Reset,
    /// The server does not end it.
    Never,
}

fn message_frame(epoch: u64, message: FromHost) -> Vec<u8> {
    in_grpc(0, &proto::HostMessage { epoch, message: Some(message) }.encode_to_vec())
}

fn welcome() -> proto::HostWelcome {
    proto::HostWelcome {
        host_incarnation: 1,
        lowest_share: 0.5,
        lease_ms: 5000,
        transport: "shm".into(),
        ..proto::HostWelcome::default()
    }
}

/// All kinds of broken replies.
fn replies() -> Vec<Reply> {
    // An HTTP/2 server begins with a settings frame, here of length 0.
    let settings: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    let with_settings = |more: &[u8]| Reply::Raw([&settings, more].concat());
    let noise: Vec<u8> = (0..2000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let cut = [&in_grpc(0, &[7; 1000])[..20], &[]].concat();
    vec![
        Reply::Raw(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_vec()),
        Reply::Raw(vec![0xff; 4096]),
        with_settings(&noise),
        // The header of a frame of 80 bytes, of which 3 are sent.
        with_settings(&[0, 0, 80, 1, 4, 0, 0, 0, 1, 0x88, 0x88, 0x88]),
        // A field of 127 bytes, of which one is sent: an invalid protocol buffer.
        Reply::Stream(in_grpc(0, &[0x12, 0x7f, 0xff]), End::Never),
        Reply::Stream(in_grpc(0, &noise), End::Never),
        // The frame header announces a message of 2 GiB.
        Reply::Stream(vec![0, 0x7f, 0xff, 0xff, 0xff, 1, 2, 3], End::Never),
        // A compressed message, although no compression was negotiated.
        Reply::Stream(vec![1, 0, 0, 0, 1, 0], End::Never),
        Reply::Stream(vec![9, 0, 0, 0, 1, 0], End::Never),
        Reply::Stream(cut.clone(), End::Ordinary),
        Reply::Stream(cut, End::Reset),
    ]
}

/// Starts a listener: the next connections get `replies`, one each, and all others the host agent that is returned.
async fn start() -> (Host, mpsc::UnboundedSender<Reply>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (good, connections) = mpsc::channel(8);
    let (replies, mut next) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            match next.try_recv() {
                Ok(Reply::Raw(bytes)) => {
                    socket.write_all(&bytes).await.unwrap();
                    let _ = socket.shutdown().await;
                }
                Ok(Reply::Stream(bytes, end)) => {
                    let only = tokio_stream::once(Ok::<_, io::Error>(socket)).chain(tokio_stream::pending());
                    tokio::spawn(Server::builder().add_service(BrokenControl(bytes, end)).serve_with_incoming(only));
                }
                Err(_) => good.send(Ok(socket)).await.unwrap(),
            }
        }
    });
    (Host::over(address, ReceiverStream::new(connections)), replies)
}

/// The control service, with a stream of bytes instead of messages.
#[derive(Clone)]
struct BrokenControl(Vec<u8>, End);

impl tonic::server::NamedService for BrokenControl {
    const NAME: &'static str = "uview.control.v1.Control";
}

impl tonic::codegen::Service<Request<tonic::body::Body>> for BrokenControl {
    type Response = Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<tonic::body::Body>) -> Self::Future {
        let good =
            [message_frame(0, FromHost::Welcome(welcome())), message_frame(1, FromHost::SetLmap(lmap(&[1])))].concat();
        let bytes = [Ok(Bytes::from(good)), Ok(Bytes::from(self.0.clone()))];
        let end: Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>> = match self.1 {
            End::Ordinary => Box::pin(tokio_stream::empty()),
            End::Reset => Box::pin(tokio_stream::once(Err(io::Error::other("the end")))),
            // Messages of the worker are accepted and ignored.
            End::Never => Box::pin(tokio_stream::pending().map(move |()| {
                let _ = &request;
                Ok(Bytes::new())
            })),
        };
        let body = Body::from_stream(tokio_stream::iter(bytes).chain(end));
        let mut response = Response::new(tonic::body::Body::new(body));
        response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/grpc"));
        ready(Ok(response))
    }
}

/// The value of a counter on `/metrics` at `address`.
async fn counter(address: SocketAddr, name: &str) -> u64 {
    let page = page(address, "/metrics").await;
    let line = page.lines().find_map(|line| line.strip_prefix(&format!("uview_nic_{name}_total ")));
    line.expect("the page has the counter").parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_bytes_cost_a_connection_each_are_counted_and_watching_goes_on() {
    let regions = Regions::serve([1]);
    let _alive = service(&regions, RegionId(1));
    let (mut host, broken) = start().await;
    let (held, metrics) = free_port();
    let mut config = worker_config(&host, &regions);
    config.metrics.listen = metrics;
    drop(held);
    let agent = Agent::start(config);
    let mut link = host.accept().await;
    let run = link.hello.incarnation;
    link.send(0, FromHost::Welcome(welcome())).await;
    link.send(1, FromHost::SetLmap(lmap(&[1]))).await;
    link.wait(|message| state_of(message) == Some(proto::State::Armed)).await;
    let message = link.wait(|message| matches!(message, ToHost::Summary(_))).await;
    let ToHost::Summary(before) = message else { panic!("{message:?}") };

    let is_stream = |reply: &&Reply| matches!(reply, Reply::Stream(..));
    let (all, streams) = (replies().len() as u64, replies().iter().filter(is_stream).count() as u64);
    for reply in replies() {
        broken.send(reply).unwrap();
    }
    drop(link);
    let mut link = host.accept().await;
    link.send(0, FromHost::Welcome(welcome())).await;
    link.send(1, FromHost::SetLmap(lmap(&[1]))).await;
    let least = before.lmaps[0].samples + 50;
    let after = link
        .wait(|message| {
            let ToHost::Summary(summary) = message else { return false };
            let Some(lmap) = summary.lmaps.first() else { return false };
            // A busy machine may keep the service's heartbeat for a moment.
            let is_kept = matches!(lmap.state(), proto::State::Armed | proto::State::Silent);
            assert!(is_kept, "what was learnt is kept: {summary:?}");
            lmap.state() == proto::State::Armed && lmap.samples > least
        })
        .await;

    let ToHost::Summary(after) = after else { panic!("{after:?}") };
    assert_eq!(link.hello.incarnation, run, "it is the same run of the worker");
    // A connection that has carried nothing is retried once without being counted. So errors below HTTP/2 may take two
    // replies.
    let counted = counter(metrics, "broken_connections").await;
    assert!((streams + (all - streams) / 2..=all).contains(&counted), "{counted} of {all}");
    // A reset may overtake the welcome before it. The page lags a little behind the worker.
    let welcomes = [streams + 1, streams + 2];
    let counted = async || {
        let sessions = counter(metrics, "host_sessions").await;
        if welcomes.contains(&sessions) { Ok(()) } else { Err(sessions) }
    };
    WAIT.until_async("every welcome is counted", counted).await;
    assert_eq!(after.counters.unwrap().unexpected_messages, 0, "nothing of it came as far as the worker");
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_agent_that_takes_connections_and_ends_them_is_tried_again() {
    let regions = Regions::serve([1]);
    let (mut host, broken) = start().await;
    for bytes in [0, 1, 3] {
        broken.send(Reply::Raw(vec![0; bytes])).unwrap();
    }
    let agent = Agent::start(worker_config(&host, &regions));

    let mut link = host.accept().await;
    link.welcome(1).await;
    link.wait(|message| matches!(message, ToHost::Summary(_))).await;

    agent.stop().await;
}
