//! A host agent whose bytes are broken: below HTTP/2, in gRPC's frames, in the messages.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use prost::Message as _;
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
use crate::{Agent, LIMIT, free_port, lmap, page, service, state_of};

/// What a connection gets in place of a host agent.
#[derive(Debug)]
enum Manner {
    /// These bytes at once, then its end.
    Raw(Vec<u8>),
    /// A good welcome and a good configuration, then these bytes in the same stream, then what is said of its end.
    Stream(Vec<u8>, End),
}

/// How a stream ends.
#[derive(Clone, Copy, Debug)]
enum End {
    Ordinary,
    Reset,
    /// Not by this side.
    Never,
}

/// A message in gRPC's frame.
fn framed(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[0], &length[..], message].concat()
}

fn said(epoch: u64, message: FromHost) -> Vec<u8> {
    framed(&proto::HostMessage { epoch, message: Some(message) }.encode_to_vec())
}

fn welcome() -> proto::HostWelcome {
    proto::HostWelcome { host_incarnation: 1, lowest_share: 0.5, lease_ms: 5000, transport: "shm".into() }
}

/// Everything that can be broken.
fn manners() -> Vec<Manner> {
    // An HTTP/2 server begins with its settings; none is a frame of length 0.
    let settings: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    let with_settings = |more: &[u8]| Manner::Raw([&settings, more].concat());
    let noise: Vec<u8> = (0..2000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let cut = [&framed(&[7; 1000])[..20], &[]].concat();
    vec![
        Manner::Raw(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_vec()),
        Manner::Raw(vec![0xff; 4096]),
        with_settings(&noise),
        // The head of a frame of 80 bytes, of which 3 come.
        with_settings(&[0, 0, 80, 1, 4, 0, 0, 0, 1, 0x88, 0x88, 0x88]),
        // A field of 127 bytes, of which one comes: no protocol buffer.
        Manner::Stream(framed(&[0x12, 0x7f, 0xff]), End::Never),
        Manner::Stream(framed(&noise), End::Never),
        // A message of 2 GiB is announced.
        Manner::Stream(vec![0, 0x7f, 0xff, 0xff, 0xff, 1, 2, 3], End::Never),
        // Compressed, though nobody has agreed on how.
        Manner::Stream(vec![1, 0, 0, 0, 1, 0], End::Never),
        Manner::Stream(vec![9, 0, 0, 0, 1, 0], End::Never),
        Manner::Stream(cut.clone(), End::Ordinary),
        Manner::Stream(cut, End::Reset),
    ]
}

/// Listens: the next connections get `manners`, one each, all others the host agent that it returns.
async fn start() -> (Host, mpsc::UnboundedSender<Manner>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (good, connections) = mpsc::channel(8);
    let (manners, mut next) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            match next.try_recv() {
                Ok(Manner::Raw(bytes)) => {
                    socket.write_all(&bytes).await.unwrap();
                    let _ = socket.shutdown().await;
                }
                Ok(Manner::Stream(bytes, end)) => {
                    let only = tokio_stream::once(Ok::<_, io::Error>(socket)).chain(tokio_stream::pending());
                    tokio::spawn(Server::builder().add_service(Broken(bytes, end)).serve_with_incoming(only));
                }
                Err(_) => good.send(Ok(socket)).await.unwrap(),
            }
        }
    });
    (Host::over(address, ReceiverStream::new(connections)), manners)
}

/// The control service, with a stream of bytes in place of messages.
#[derive(Clone)]
struct Broken(Vec<u8>, End);

impl tonic::server::NamedService for Broken {
    const NAME: &'static str = "uview.control.v1.Control";
}

impl tonic::codegen::Service<Request<tonic::body::Body>> for Broken {
    type Response = Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<tonic::body::Body>) -> Self::Future {
        let good = [said(0, FromHost::Welcome(welcome())), said(1, FromHost::SetLmap(lmap(&[1])))].concat();
        let bytes = [Ok(Bytes::from(good)), Ok(Bytes::from(self.0.clone()))];
        let end: Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>> = match self.1 {
            End::Ordinary => Box::pin(tokio_stream::empty()),
            End::Reset => Box::pin(tokio_stream::once(Err(io::Error::other("the end")))),
            // What the worker says is not heard, but may be said.
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

/// What `/metrics` at `address` says of this counter.
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
    link.tell(0, FromHost::Welcome(welcome())).await;
    link.tell(1, FromHost::SetLmap(lmap(&[1]))).await;
    link.wait(|said| state_of(said) == Some(proto::State::Armed)).await;
    let said = link.wait(|said| matches!(said, ToHost::Summary(_))).await;
    let ToHost::Summary(before) = said else { panic!("{said:?}") };

    let is_stream = |manner: &&Manner| matches!(manner, Manner::Stream(..));
    let (all, streams) = (manners().len() as u64, manners().iter().filter(is_stream).count() as u64);
    for manner in manners() {
        broken.send(manner).unwrap();
    }
    drop(link);
    let mut link = host.accept().await;
    link.tell(0, FromHost::Welcome(welcome())).await;
    link.tell(1, FromHost::SetLmap(lmap(&[1]))).await;
    let after = link.wait(|said| matches!(said, ToHost::Summary(summary) if !summary.lmaps.is_empty())).await;

    let ToHost::Summary(after) = after else { panic!("{after:?}") };
    assert_eq!(link.hello.incarnation, run, "it is the same run of the worker");
    assert_eq!(after.lmaps[0].state(), proto::State::Armed, "what was learnt is kept: {after:?}");
    assert!(after.lmaps[0].samples > before.lmaps[0].samples + 50, "{before:?} {after:?}");
    // Before a connection has carried anything it is made anew without a word, once: what is broken below HTTP/2 counts for two at most.
    let counted = counter(metrics, "broken_connections").await;
    assert!((streams + (all - streams) / 2..=all).contains(&counted), "{counted} of {all}");
    // A reset may overtake the welcome before it. The page is a little behind the worker.
    let welcomes = [streams + 1, streams + 2];
    let counted = async { while !welcomes.contains(&counter(metrics, "host_sessions").await) {} };
    tokio::time::timeout(LIMIT, counted).await.expect("every welcome is counted");
    assert_eq!(after.counters.unwrap().foreign_messages, 0, "nothing of it came as far as the worker");
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_agent_that_takes_connections_and_ends_them_is_tried_again() {
    let regions = Regions::serve([1]);
    let (mut host, broken) = start().await;
    for bytes in [0, 1, 3] {
        broken.send(Manner::Raw(vec![0; bytes])).unwrap();
    }
    let agent = Agent::start(worker_config(&host, &regions));

    let mut link = host.accept().await;
    link.welcome(1).await;
    link.wait(|said| matches!(said, ToHost::Summary(_))).await;

    agent.stop().await;
}
