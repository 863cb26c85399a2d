//! The server over sockets, as SDKs poll it: HTTP by hand, gRPC by tonic's client.
#![expect(clippy::unwrap_used, reason = "what a test prepares has to work")]

use std::net::SocketAddr;
use std::sync::Arc;

use head_sampling::{Counts, StrategyProvider, StrategyResponse};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tonic::client::Grpc;
use tonic::transport::Endpoint;
use tonic_prost::ProstCodec;

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
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, counts) = (listener.local_addr().unwrap(), Arc::new(Counts::default()));
    tokio::spawn(head_sampling::serve(listener, Arc::new(OneService), Arc::clone(&counts), |_| Some(())));
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

async fn ask(address: SocketAddr, path: &'static str, service: &str) -> Result<StrategyResponse, tonic::Status> {
    let channel = Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
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
