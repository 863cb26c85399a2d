//! The endpoint in a process that has run out of descriptors.

use std::time::Duration;

use agent_runtime::listen::ACCEPT_PAUSE;
use otlp::{Protocol, Settings, UpstreamSettings};
use support::descriptors::{Exchange, lower_limit, run_out};
use tokio::net::TcpListener;

/// A request of which the endpoint knows nothing.
const EXCHANGE: Exchange = Exchange { request: b"GET / HTTP/1.1\r\nhost: a\r\n\r\n", answer: b"HTTP/1.1 404" };

#[tokio::test]
async fn without_descriptors_it_waits_between_attempts_serves_who_is_connected_and_goes_on_afterwards() {
    lower_limit();
    let upstream = UpstreamSettings {
        endpoint: "http://127.0.0.1:1".to_owned(),
        protocol: Protocol::Http,
        headers: Vec::new(),
        tls: None,
        gzip: false,
        timeout: Duration::from_secs(5),
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let running = otlp::start(&Settings::new(upstream), [listener]).unwrap();

    run_out(address, EXCHANGE, ACCEPT_PAUSE, || running.edge().counts.accept_errors.get()).await;

    assert_eq!(running.edge().counts.refused_connections.get(), 0);
}
