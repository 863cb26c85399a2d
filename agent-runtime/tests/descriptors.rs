//! The agents' server in a process that has run out of descriptors.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use agent_runtime::server::{Counts, Limits, Listener, Server, Traffic};
use axum::Router;
use axum::routing::get;
use support::descriptors::{lower_limit, take_all};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// Processor time of this process.
fn cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[tokio::test]
async fn without_descriptors_it_waits_and_goes_on_afterwards() {
    lower_limit();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let counts = Arc::new(Counts::default());
    let router = Router::new().route("/", get(|| async { "here" }));
    let limits = Limits { connections: 8, connections_per_peer: 8, traffic: Traffic::Pages };
    let server = Server { name: "test", router, limits, counts: Arc::clone(&counts) };
    // Before the server accepts, all descriptors of this process are taken, while a peer is in the listener's queue.
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await.unwrap();
    let taken = take_all();

    tokio::spawn(server.serve(vec![Listener::Tcp(listener)], None, core::future::pending()));
    let before = cpu();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (spent, failed) = (cpu().saturating_sub(before), counts.accept_errors.get());
    drop(taken);

    assert!((1..=12).contains(&failed), "{failed} attempts in a second");
    assert!(spent < Duration::from_millis(500), "{spent:?} of CPU");
    let mut page = String::new();
    let read = tokio::time::timeout(Duration::from_secs(30), stream.read_to_string(&mut page)).await;
    assert!(read.is_ok_and(|read: io::Result<usize>| read.is_ok()) && page.ends_with("here"), "{page}");
}
