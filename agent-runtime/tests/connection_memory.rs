//! What a connection takes that asks for all that it may, and reads nothing.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread;

use agent_runtime::budget::CONNECTION_BYTES;
use agent_runtime::server::{Limits, Listener, Server, Traffic};
use axum::Router;
use axum::body::Bytes;
use axum::extract::Request;
use axum::routing::get;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

const CONNECTIONS: usize = 32;
/// Requests of one connection that are answered at a time.
const REQUESTS: usize = 4;
const LIVE: &[u8] = b"GET /live HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";

/// A server in a thread of its own, so that its memory can be told from that of its clients. `/live` says how many
/// bytes it has.
fn start() -> SocketAddr {
    let (sender, address) = mpsc::channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            sender.send(listener.local_addr().unwrap()).unwrap();
            let live = get(|| async { allocations::live().to_string() });
            let router = Router::new().route("/live", live).route("/", get(|| async { "a page" }));
            let limits = Limits { connections: 128, connections_per_peer: 128, traffic: Traffic::Pages };
            let server = Server { name: "test", router, limits, counts: std::sync::Arc::default() };
            server.serve(vec![Listener::Tcp(listener)], None, core::future::pending()).await;
        });
    });
    address.recv().unwrap()
}

/// Bytes of the server's thread.
async fn live(address: SocketAddr) -> u64 {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(LIVE).await.unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).await.unwrap();
    page.lines().last().unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_connection_takes_no_more_than_the_budget_says() {
    let address = start();
    live(address).await;
    let before = live(address).await;
    let (mut open, mut unread) = (Vec::new(), Vec::new());
    for _ in 0..CONNECTIONS {
        let stream = TcpStream::connect(address).await.unwrap();
        let client = h2::client::Builder::new().initial_window_size(0).handshake::<_, Bytes>(stream).await;
        let (mut send, connection) = client.unwrap();
        tokio::spawn(connection);
        for _ in 0..REQUESTS {
            let request = Request::get("http://node/").body(()).unwrap();
            let (reply, _) = send.send_request(request, true).unwrap();
            unread.push(reply.await.unwrap());
            send = send.ready().await.unwrap();
        }
        open.push(send);
    }

    let each = (live(address).await - before) / CONNECTIONS as u64;

    println!("{each} bytes for each connection");
    assert!((1..=CONNECTION_BYTES).contains(&each), "{each} bytes, {CONNECTION_BYTES} are stated");
    drop((open, unread));
}
