//! The server in a process that has run out of descriptors.

use std::sync::Arc;

use agent_runtime::listen::ACCEPT_PAUSE;
use head_sampling::{Counts, StrategyProvider, StrategyResponse};
use support::descriptors::{Exchange, lower_limit, run_out};
use tokio::net::{TcpListener, TcpStream};

const EXCHANGE: Exchange =
    Exchange { request: b"GET /sampling?service=a HTTP/1.1\r\nhost: a\r\n\r\n", answer: b"HTTP/1.1 200" };

/// Samples all traces.
struct Everything;

impl StrategyProvider for Everything {
    fn strategy(&self, _: &str) -> StrategyResponse {
        StrategyResponse::all()
    }
}

#[tokio::test]
async fn without_descriptors_it_waits_between_attempts_serves_who_is_connected_and_goes_on_afterwards() {
    lower_limit();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, counts) = (listener.local_addr().unwrap(), Arc::new(Counts::default()));
    let admits = |_: &TcpStream| Some(());
    tokio::spawn(head_sampling::serve(listener, Arc::new(Everything), Arc::clone(&counts), admits));

    run_out(address, EXCHANGE, ACCEPT_PAUSE, || counts.accept_errors()).await;

    assert_eq!((counts.answered(), counts.refused()), (3, 0));
}
