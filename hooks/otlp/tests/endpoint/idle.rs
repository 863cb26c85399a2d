//! Connections on which no request comes: they are closed in time, their places are free again, and others are served.

use std::net::SocketAddr;
use std::time::Duration;

use opentelemetry_proto::tonic::collector::logs::v1::logs_service_client::LogsServiceClient;
use otlp::{Protocol, Settings};
use support::virtual_time::{AT_ONCE, ended, pass};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::client::logs;
use crate::upstream::Upstream;
use crate::{settings, start};

/// Half of the limit for the first request of a connection.
const HALF: Duration = Duration::from_secs(10);
/// What the connections say: nothing, parts of HTTP/2's preface, all of it, and half the head of a request.
const BEGINNINGS: [&[u8]; 5] =
    [b"", b"P", b"PRI * HTTP/2.0\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"POST /v1/logs HTTP/1.1\r\nho"];

/// A connection for which there is no place.
pub async fn refused(address: SocketAddr) {
    ended(&mut TcpStream::connect(address).await.unwrap()).await;
}

/// A connection that has a place: it is answered.
pub async fn answered(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    let mut answer = [0; 12];
    timeout(AT_ONCE, stream.read_exact(&mut answer)).await.expect("an answer").unwrap();
    assert_eq!(&answer, b"HTTP/1.1 404");
    stream
}

#[tokio::test]
async fn connections_without_a_request_are_closed_and_their_places_are_free_again() {
    let upstream = Upstream::start().await;
    // Of eight places one user may have six: three times what is free.
    let few = Settings { connections: BEGINNINGS.len() + 3, ..settings(upstream.address, Protocol::Grpc) };
    let (running, address) = start(&few).await;
    let counts = &running.edge().counts;
    let mut idle = Vec::new();
    for beginning in BEGINNINGS {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(beginning).await.unwrap();
        idle.push(stream);
    }
    let mut good = LogsServiceClient::connect(format!("http://{address}")).await.unwrap();
    good.export(logs("cart")).await.unwrap();
    refused(address).await;
    assert_eq!(counts.refused_connections.get(), 1, "all six are taken");

    pass(HALF).await;
    good.export(logs("cart")).await.unwrap();
    refused(address).await;
    assert_eq!(counts.refused_connections.get(), 2, "they are within the limit");

    pass(HALF).await;
    for stream in &mut idle {
        ended(stream).await;
    }
    let mut others = Vec::new();
    for _ in BEGINNINGS {
        others.push(answered(address).await);
    }
    refused(address).await;
    assert_eq!(counts.refused_connections.get(), 3, "that of the good client stands");
    good.export(logs("cart")).await.unwrap();
}
