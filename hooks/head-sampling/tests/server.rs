//! The server over sockets, as SDKs poll it: HTTP by hand, gRPC by tonic's client.
#![expect(clippy::unwrap_used, reason = "what a test prepares has to work")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use head_sampling::{Counts, StrategyProvider, StrategyResponse};
use support::virtual_time::{AT_ONCE, ended, pass};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

/// Half of the limit for the first request of a connection.
const HALF: Duration = Duration::from_secs(5);
/// HTTP/2's keep-alive interval, and the limit for the reply to a ping.
const KEEP_ALIVE: Duration = Duration::from_secs(20);
/// What connections without a request say: nothing, parts of HTTP/2's preface, all of it, and half a head.
const BEGINNINGS: [&[u8]; 5] =
    [b"", b"P", b"PRI * HTTP/2.0\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET /sampling HTTP/1.1\r\nho"];
/// Places for connections: two more than those.
const PLACES: u32 = BEGINNINGS.len() as u32 + 2;
/// HTTP/2's preface, and the frame of settings that follows it.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00";
/// A frame that is a whole request, the first stream: `GET http://a/`.
const REQUEST: &[u8] = b"\x00\x00\x06\x01\x05\x00\x00\x00\x01\x82\x84\x86\x01\x01a";
/// The head of a ping: eight bytes follow.
const PING: &[u8] = b"\x00\x00\x08\x06\x00\x00\x00\x00\x00";

/// A provider that knows one service.
struct OneService;

impl StrategyProvider for OneService {
    fn strategy(&self, service: &str) -> StrategyResponse {
        if service == "shop front" {
            StrategyResponse::per_operation(0.125, 0.5, [("POST /pay".into(), 1.0)])
        } else {
            StrategyResponse::all()
        }
    }
}

/// The message `SamplingStrategyParameters`: the request.
#[derive(Clone, PartialEq, prost::Message)]
struct Parameters {
    #[prost(string, tag = "1")]
    service_name: String,
}

async fn served() -> (SocketAddr, Arc<Counts>) {
    served_with(&Arc::new(Semaphore::new(64))).await
}

/// A server whose connections have these places.
async fn served_with(places: &Arc<Semaphore>) -> (SocketAddr, Arc<Counts>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, counts) = (listener.local_addr().unwrap(), Arc::new(Counts::default()));
    let places = Arc::clone(places);
    let admits = move |_: &TcpStream| Arc::clone(&places).try_acquire_owned().ok();
    tokio::spawn(head_sampling::serve(listener, Arc::new(OneService), Arc::clone(&counts), admits));
    (address, counts)
}

async fn get(address: SocketAddr, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.lines().next().unwrap().to_owned(), body.to_owned())
}

async fn connect(address: SocketAddr) -> Channel {
    Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap()
}

async fn ask(address: SocketAddr, path: &'static str, service: &str) -> Result<StrategyResponse, tonic::Status> {
    ask_by(connect(address).await, path, service).await
}

/// Asks on a connection that stands.
async fn ask_by(channel: Channel, path: &'static str, service: &str) -> Result<StrategyResponse, tonic::Status> {
    let mut client = Grpc::new(channel);
    client.ready().await.unwrap();
    let parameters = tonic::Request::new(Parameters { service_name: service.to_owned() });
    let codec = ProstCodec::<Parameters, StrategyResponse>::default();
    client.unary(parameters, path.parse().unwrap(), codec).await.map(tonic::Response::into_inner)
}

#[tokio::test]
async fn a_service_is_told_by_http_as_by_grpc() {
    let (address, counts) = served().await;

    let (status, body) = get(address, "/sampling?service=shop%20front").await;
    let answer = ask(address, "/jaeger.api_v2.SamplingManager/GetSamplingStrategy", "shop front").await.unwrap();

    assert_eq!(status, "HTTP/1.1 200 OK");
    assert_eq!(body.as_bytes(), answer.json());
    assert_eq!(answer.operations().collect::<Vec<_>>(), [("POST /pay", 1.0)]);
    assert_eq!((counts.answered(), counts.refused()), (2, 0));
}

#[tokio::test]
async fn what_asks_for_something_else_is_told_what_is_here() {
    let (address, counts) = served().await;

    for (path, status) in [
        ("/sampling", "HTTP/1.1 400 Bad Request"),
        ("/sampling?service=a&service=b", "HTTP/1.1 400 Bad Request"),
        ("/sampling?service=%zz", "HTTP/1.1 400 Bad Request"),
        ("/other?service=a", "HTTP/1.1 404 Not Found"),
    ] {
        assert_eq!(get(address, path).await.0, status, "{path}");
    }
    let long = format!("/sampling?service={}", "x".repeat(600));
    assert_eq!(get(address, &long).await.0, "HTTP/1.1 400 Bad Request");
    let refused = ask(address, "/jaeger.api_v2.SamplingManager/Other", "a").await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::Unimplemented);
    let refused = ask(address, "/jaeger.api_v2.SamplingManager/GetSamplingStrategy", "").await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::InvalidArgument);
    assert_eq!((counts.answered(), counts.refused()), (0, 7));
}

#[tokio::test]
async fn a_head_of_more_than_32_kib_is_no_request() {
    let (address, counts) = served().await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    let long = "x".repeat(40 << 10);
    let request = format!("GET /sampling?service=a HTTP/1.1\r\nhost: a\r\nx: {long}\r\nconnection: close\r\n\r\n");

    // The server may close the connection before all is written.
    _ = stream.write_all(request.as_bytes()).await;
    let mut answer = Vec::new();
    _ = stream.read_to_end(&mut answer).await;

    assert!(!answer.starts_with(b"HTTP/1.1 200"), "{}", answer.escape_ascii());
    assert_eq!((counts.answered(), counts.refused()), (0, 0));
}

#[tokio::test]
async fn connections_without_a_request_are_closed_and_their_places_are_free_again() {
    let places = Arc::new(Semaphore::new(PLACES as usize));
    let (address, counts) = served_with(&places).await;
    let mut idle = Vec::new();
    for beginning in BEGINNINGS {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(beginning).await.unwrap();
        idle.push(stream);
    }
    assert_eq!(get(address, "/sampling?service=a").await.0, "HTTP/1.1 200 OK");

    pass(HALF).await;
    assert_eq!(get(address, "/sampling?service=a").await.0, "HTTP/1.1 200 OK");
    assert!(places.available_permits() <= 2, "they are within the limit");

    pass(HALF).await;
    for stream in &mut idle {
        ended(stream).await;
    }
    drop(timeout(AT_ONCE, places.acquire_many(PLACES)).await.expect("all places are free").unwrap());
    assert_eq!(get(address, "/sampling?service=a").await.0, "HTTP/1.1 200 OK");
    assert_eq!((counts.answered(), counts.refused()), (3, 0));
}

#[tokio::test]
async fn when_all_places_are_taken_a_newcomer_is_closed_and_counted_and_who_is_connected_is_answered() {
    const METHOD: &str = "/jaeger.api_v2.SamplingManager/GetSamplingStrategy";
    let (address, counts) = served_with(&Arc::new(Semaphore::new(1))).await;
    let channel = connect(address).await;
    ask_by(channel.clone(), METHOD, "shop front").await.unwrap();

    ended(&mut TcpStream::connect(address).await.unwrap()).await;
    assert_eq!((counts.answered(), counts.refused()), (1, 1));

    ask_by(channel, METHOD, "shop front").await.unwrap();
    assert_eq!((counts.answered(), counts.refused()), (2, 1));
}

#[tokio::test]
async fn a_client_that_answers_no_pings_any_more_is_closed_and_its_place_is_free_again() {
    let places = Arc::new(Semaphore::new(1));
    let (address, counts) = served_with(&places).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(&[PREFACE, REQUEST].concat()).await.unwrap();
    let mut bytes = Vec::new();
    while counts.refused() == 0 {
        assert!(timeout(AT_ONCE, stream.read_buf(&mut bytes)).await.expect("an answer").unwrap() > 0);
    }

    pass(KEEP_ALIVE).await;
    while !bytes.windows(PING.len()).any(|window| window == PING) {
        assert!(timeout(AT_ONCE, stream.read_buf(&mut bytes)).await.expect("a ping").unwrap() > 0);
    }
    assert_eq!(places.available_permits(), 0, "it has had a request");

    pass(KEEP_ALIVE).await;
    ended(&mut stream).await;
    drop(timeout(AT_ONCE, places.acquire()).await.expect("its place is free").unwrap());
}
