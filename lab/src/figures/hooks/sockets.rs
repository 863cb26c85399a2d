//! The endpoint over real sockets.

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use hooks::tracing::{Account, LossReason};
use otlp::{Protocol, Settings, SpanMetricsSettings, UpstreamSettings};
use support::sink::{self, Message};
use tokio::sync::oneshot;

use super::super::figure::{Figure, Goal};
use super::super::pair::{Pair, per_second};
use super::traffic::{BATCH, SERVICES, block, decode, settings};
use crate::clock;

/// Memory budget in bytes: a third of the traffic.
const MEMORY: usize = 64 << 20;
/// Blocks of requests per turn: 524,288 spans.
const BLOCKS: u64 = 128;
const TURNS: u64 = 3;
/// Required spans per second on one core.
const MIN: f64 = 1_000_000.0;

/// Settings of an edge that forwards by HTTP to `upstream`.
pub fn edge_settings(upstream: SocketAddr) -> Settings {
    Settings::new(UpstreamSettings {
        endpoint: format!("http://{upstream}"),
        protocol: Protocol::Http,
        headers: Vec::new(),
        tls: None,
        gzip: false,
        timeout: Duration::from_secs(10),
    })
}

/// Processor time per span over real sockets: HTTP, decoding, counting, index, eviction, and forwarding 5 % of the
/// buffered spans.
pub fn over_sockets(name: &str) -> Result<Figure> {
    let (mut pairs, mut noted) = (Vec::new(), String::new());
    for turn in 0..TURNS {
        let start = agent_runtime::clock::unix_now();
        let bodies: Vec<_> = (0..BLOCKS).flat_map(|number| block((turn * BLOCKS + number) * BATCH, start)).collect();
        let (ours, account) = edge(&bodies)?;
        let share = |spans: u64| spans as f64 * 100.0 / account.seen.spans as f64;
        let gone = account.lost(LossReason::Evicted).spans
            + account.lost(LossReason::Late).spans
            + account.lost(LossReason::Refused).spans;
        noted = format!("{:.1} % given out, {:.1} % gave way or were refused", share(account.kept.spans), share(gone));
        let each = |time: Duration| time.as_nanos() as f64 / account.seen.spans as f64;
        pairs.push((each(ours), each(reader(&bodies)?)));
    }
    let pair = Pair::of(&pairs).context("there are turns")?;
    let peer = "a thread that reads the same requests from a socket, and decodes them with opentelemetry-proto";
    let rate = per_second(pair.ours);
    let figure = Figure::new(name, "ns per span", peer, pair, Goal::Stated);
    let (goal, note) = (format!("≥ {MIN} spans/s per core"), format!("{rate:.0} spans/s per core; {noted}"));
    Ok(figure.judged(&goal, rate >= MIN, note))
}

/// Sends all `bodies` to `address`, one after the other.
fn send(address: SocketAddr, bodies: &[Vec<u8>]) -> Result<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let mut answer = Message::default();
    for body in bodies {
        let head = "POST /v1/traces HTTP/1.1\r\nhost: x\r\ncontent-type: application/x-protobuf\r\ncontent-length";
        stream.write_all(&[format!("{head}: {}\r\n\r\n", body.len()).as_bytes(), body].concat())?;
        answer.read(&stream).context("no answer")?;
    }
    Ok(())
}

/// The processor time of an edge of which everything is done by one thread, and its books.
fn edge(bodies: &[Vec<u8>]) -> Result<(Duration, Account)> {
    let mut all = edge_settings(sink::serve(|| |_: &[u8]| ())?);
    (all.tail, all.span_metrics) = (Some(settings(MEMORY)), Some(SpanMetricsSettings::default()));
    let ((sender, receiver), (end, ended)) = (mpsc::channel(), oneshot::channel::<()>());
    let run = move || -> Result<(Duration, Account)> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
            let address = listener.local_addr()?;
            let running = otlp::start(&all, [listener])?;
            let before = clock::thread_time();
            sender.send(address)?;
            // Either way this is the end.
            _ = ended.await;
            let account = running.edge().with_tail(|tail, _| *tail.account()).context("traces wait here")?;
            Ok((clock::thread_time().saturating_sub(before), account))
        })
    };
    let thread = std::thread::spawn(run);
    send(receiver.recv().context("the edge did not start")?, bodies)?;
    drop(end);
    let (time, account) = thread.join().ok().context("the edge ended")??;
    let sent = bodies.len() as u64 * BATCH;
    ensure!(account.balances() && account.seen.spans == sent, "of {sent} spans: {account:?}");
    ensure!(bodies.len() as u64 == BLOCKS * SERVICES, "there are {} requests", bodies.len());
    Ok((time, account))
}

/// The processor time of the peer.
fn reader(bodies: &[Vec<u8>]) -> Result<Duration> {
    let (sender, receiver) = mpsc::channel();
    let address = sink::serve(move || {
        let sender = sender.clone();
        let mut spans = 0;
        move |body: &[u8]| {
            spans += decode(body);
            // The sink closes after the last one.
            _ = sender.send((spans, clock::thread_time()));
        }
    })?;
    send(address, bodies)?;
    let (spans, time) = receiver.try_iter().last().context("nothing was read")?;
    ensure!(spans as u64 == bodies.len() as u64 * BATCH, "the peer found {spans} spans");
    Ok(time)
}
