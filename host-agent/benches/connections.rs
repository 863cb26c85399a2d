//! What the connections of a watched program cost with a sample, against the sample alone: `cargo bench -p host-agent`.
#![expect(clippy::unwrap_used, reason = "what a benchmark prepares has to work, or it fails")]

use std::collections::BTreeSet;
use std::net::{TcpListener, TcpStream};

use divan::Bencher;
use host_agent::process_metrics::Family;
use wire::time::Nanos;

fn main() {
    divan::main();
}

/// Both ends of connections within this process.
fn connections(many: usize) -> Vec<TcpStream> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let connect = |_| {
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        [client, listener.accept().unwrap().0]
    };
    (0..many).flat_map(connect).collect()
}

/// Connections are read with each sample: each comes long after the one before.
#[divan::bench(args = [0, 100, 1000, 5000])]
fn with_connections(bencher: Bencher<'_, '_>, many: usize) {
    let (_open, own) = (connections(many), BTreeSet::from([std::process::id()]));
    let (mut family, mut now) = (Family::new(Nanos::from_secs(1)), Nanos::ZERO);
    family.sample(&own, now);
    eprintln!("{many} connections: {} bytes", family.connection_bytes());
    bencher.bench_local(|| {
        now = now.plus(Nanos::from_secs(3600));
        family.sample(&own, now)
    });
}

/// The peer: the sample alone.
#[divan::bench(args = [0, 100, 1000, 5000])]
fn without(bencher: Bencher<'_, '_>, many: usize) {
    let (_open, own) = (connections(many), BTreeSet::from([std::process::id()]));
    let mut family = Family::new(Nanos::from_secs(1));
    family.sample(&own, Nanos::ZERO);
    bencher.bench_local(|| family.sample(&own, Nanos(1)));
}
