//! The agents' server against peers that take too much: connections that say nothing, heads that trickle, one peer with
//! all the places.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use agent_runtime::access::Identity;
use agent_runtime::server::{Counts, Limits, Listener, Server, Traffic};
use axum::routing::get;
use axum::{Extension, Router};
use support::wait::Wait;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixListener, UnixStream};
use tokio::sync::oneshot;

const LIMITS: Limits = Limits { connections: 6, connections_per_peer: 4, traffic: Traffic::Pages };
/// How tests wait for a condition.
const WAIT: Wait = Wait::up_to(Duration::from_secs(30));
const GET: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";

struct Running {
    counts: Arc<Counts>,
    address: SocketAddr,
    _stop: oneshot::Sender<()>,
}

/// A server on a free port, and on `socket`, whose page says who asked.
async fn start(socket: &Path) -> Running {
    let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = tcp.local_addr().unwrap();
    let unix = UnixListener::bind(socket).unwrap();
    let page = get(|Extension(who): Extension<Identity>| async move { who.to_string() });
    let counts = Arc::new(Counts::default());
    let router = Router::new().route("/", page);
    let server = Server { name: "test", router, limits: LIMITS, counts: Arc::clone(&counts) };
    let (stop, stopped) = oneshot::channel();
    let stopped = async move { drop(stopped.await) };
    tokio::spawn(server.serve(vec![Listener::Tcp(tcp), Listener::Unix(unix)], None, stopped));
    Running { counts, address, _stop: stop }
}

/// What a stream brings until its end, which has to come.
async fn rest(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> String {
    let mut text = String::new();
    let read = tokio::time::timeout(Duration::from_mins(1), stream.read_to_string(&mut text)).await;
    // A connection that is reset has ended, too.
    _ = read.unwrap();
    text
}

async fn page(address: SocketAddr) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(GET).await.unwrap();
    rest(&mut stream).await
}

/// The page, for another user; `None` without the right to be one.
async fn page_of_a_stranger(address: SocketAddr) -> Option<String> {
    if !nix::unistd::geteuid().is_root() {
        support::harness::not_run("only root may open sockets of others");
        return None;
    }
    // The user of a thread's sockets is that of its files. The thread ends as that user.
    let asks = move || {
        nix::unistd::setfsuid(65534.into());
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        stream.write_all(GET).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    };
    let thread = tokio::task::spawn_blocking(move || std::thread::spawn(asks).join().unwrap());
    Some(thread.await.unwrap())
}

#[tokio::test]
async fn a_request_knows_who_sent_it() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("a.sock");
    let running = start(&socket).await;

    let mut stream = UnixStream::connect(&socket).await.unwrap();
    stream.write_all(GET).await.unwrap();
    let own = format!("user {}", nix::unistd::geteuid());
    assert!(rest(&mut stream).await.ends_with(&own));
    assert!(page(running.address).await.ends_with("somebody without a certificate"));
}

#[tokio::test]
async fn one_peer_cannot_take_all_places_and_gets_them_back_when_it_leaves() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("a.sock");
    let running = start(&socket).await;
    let mut held = Vec::new();
    // From two addresses of loopback, and none.
    for from in ["127.0.0.1:0", "127.0.0.2:0"] {
        let client = TcpSocket::new_v4().unwrap();
        client.bind(from.parse().unwrap()).unwrap();
        let mut stream = UnixStream::connect(&socket).await.unwrap();
        // Its place is taken when it is answered.
        stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
        assert!(stream.read(&mut [0; 512]).await.unwrap() > 0);
        held.push((client.connect(running.address).await.unwrap(), stream));
    }
    // Idle connections by TCP are admitted some time later.
    let refused = async || {
        let page = page(running.address).await;
        if page.is_empty() { Ok(()) } else { Err(page) }
    };
    WAIT.until_async("another connection is refused", refused).await;

    assert!(running.counts.refused.get() >= 1);
    if let Some(page) = page_of_a_stranger(running.address).await {
        assert!(page.starts_with("HTTP/1.1 200"), "another user has its own share: {page}");
    }
    drop(held);
    let answered = async || {
        let page = page(running.address).await;
        if page.starts_with("HTTP/1.1 200") { Ok(()) } else { Err(page) }
    };
    WAIT.until_async("it is answered", answered).await;
}

#[tokio::test]
async fn connections_that_say_nothing_or_too_little_are_closed() {
    let folder = tempfile::tempdir().unwrap();
    let running = start(&folder.path().join("a.sock")).await;
    let beginnings: [&[u8]; 4] = [b"", b"GET / HTTP/1.1\r\nho", b"PRI * HT", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"];
    let mut slow = Vec::new();
    for bytes in beginnings {
        let mut stream = TcpStream::connect(running.address).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        slow.push(stream);
    }

    let closed = async {
        for stream in &mut slow {
            // The last one gets the server's settings first, and its pings.
            let mut bytes = Vec::new();
            _ = stream.read_to_end(&mut bytes).await;
        }
    };

    // The limit is 20 s, of a first request.
    tokio::time::timeout(Duration::from_secs(40), closed).await.unwrap_or_else(|_| panic!("one is still open"));
}
