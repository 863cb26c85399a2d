//! Throughput of the endpoint over real sockets, with decoding, index, eviction and 5 % of the traces released; time to
//! release 10,000 traces; memory of buffered spans. `cargo bench -p otlp`, on an idle machine. No peer is compared: a
//! Collector with tail sampling is not available as a package here.
#![expect(clippy::print_stdout, reason = "figures are for people")]
#![expect(clippy::unwrap_used, reason = "what cannot be prepared cannot be measured")]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use agent_runtime::clock::unix_now;
use hooks::tracing::{BudgetRule, Limits, Metric, OrderKey, Switches};
use opentelemetry_proto::tonic::trace::v1::{Span, Status};
use otlp::{
    Edge, Finding, Protocol, Settings, SpanMetricsSettings, TailSampler, TailSettings, Timestamp, UpstreamSettings,
};
use prost::Message as _;
use support::clock::Stopwatch;
use support::otlp::{text, traces};
use wire::time::{Nanos, UnixNanos};

const PER_TRACE: u64 = 8;
/// Spans per request, as SDKs send.
const BATCH: u64 = 512;
const REQUESTS: u64 = 2_000;
/// One trace in this many failed. Of those that fit into memory it is released: 5 % of all.
const FAILED: u64 = 12;
/// Less than what arrives: most of it is evicted.
const MEMORY: usize = 96 << 20;
const RELEASED: u64 = 10_000;

/// Span `number` of `trace`, about 300 bytes with attributes.
fn span(trace: u64, number: u64, start: u64, attributes: bool) -> Span {
    let id = u128::from(trace).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    let pairs = [
        ("http.request.method", "POST"),
        ("http.route", "/cart/{id}/items"),
        ("server.address", "cart.shop.svc"),
        ("user_agent.original", "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36"),
        ("network.peer.address", "10.12.7.31"),
    ];
    let own = |number: u64| (trace * PER_TRACE + number + 1).to_be_bytes().to_vec();
    Span {
        trace_id: id.to_be_bytes().to_vec(),
        span_id: own(number),
        parent_span_id: if number == 0 { Vec::new() } else { own(number - 1) },
        name: format!("POST /cart/{}", trace % 50),
        kind: 2,
        start_time_unix_nano: start,
        end_time_unix_nano: start + 20_000_000,
        attributes: if attributes { pairs.iter().map(|(key, value)| text(key, value)).collect() } else { Vec::new() },
        ..Span::default()
    }
}

fn request(service: &str, spans: Vec<Span>) -> Vec<u8> {
    traces(service, spans).encode_to_vec()
}

fn settings(bytes: usize) -> TailSettings {
    TailSettings {
        limits: Limits { bytes, ..Limits::default() },
        key: OrderKey::new(7),
        switches: Switches { floor: None, latency: false, ..Switches::default() },
        budget: BudgetRule { bytes_per_s: 1 << 30, ..BudgetRule::default() },
        frontends: vec!["frontend".to_owned()],
        node: "node-7".to_owned(),
    }
}

/// An upstream that accepts everything over HTTP and discards it.
fn upstream() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || while take(&stream).is_some() {});
        }
    });
    address
}

/// Reads one HTTP message, and replies if it is a request. `None` at the end of the connection.
fn take(mut stream: &TcpStream) -> Option<()> {
    let (mut seen, mut buffer) = (Vec::new(), vec![0; 256 << 10]);
    let head = loop {
        let some = stream.read(&mut buffer).ok().filter(|some| *some > 0)?;
        seen.extend_from_slice(&buffer[..some]);
        if let Some(end) = seen.windows(4).position(|window| window == b"\r\n\r\n") {
            break end + 4;
        }
    };
    let text = String::from_utf8_lossy(&seen[..head]).to_lowercase();
    let length: usize =
        text.lines().find_map(|line| line.strip_prefix("content-length: ")?.trim().parse().ok()).unwrap_or(0);
    let mut left = (head + length).saturating_sub(seen.len());
    while left > 0 {
        left -= stream.read(&mut buffer).ok().filter(|some| *some > 0)?.min(left);
    }
    if text.starts_with("post") {
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").ok()
    } else {
        assert!(text.starts_with("http/1.1 200"), "{text}");
        Some(())
    }
}

/// CPU time of this process's thread `name`, in steps of 10 ms.
fn used(name: &str) -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let mut stats = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("stat")).ok());
    let stat = stats.find(|stat| stat.contains(&format!("({name})"))).unwrap();
    let fields: Vec<u64> =
        stat.rsplit_once(')').unwrap().1.split_whitespace().map(|field| field.parse().unwrap_or(0)).collect();
    // utime and stime, the 14th and 15th of all.
    Duration::from_millis(10 * (fields[11] + fields[12]))
}

/// An endpoint that does everything on one thread, called `edge`.
fn edge() -> (SocketAddr, Arc<Edge>) {
    let mut all = Settings::new(UpstreamSettings {
        endpoint: format!("http://{}", upstream()),
        protocol: Protocol::Http,
        headers: Vec::new(),
        tls: None,
        gzip: false,
        timeout: Duration::from_secs(10),
    });
    (all.tail, all.span_metrics) = (Some(settings(MEMORY)), Some(SpanMetricsSettings::default()));
    let (tell, told) = std::sync::mpsc::channel();
    let run = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let running = otlp::start(&all, [listener]).unwrap();
            tell.send((address, Arc::clone(running.edge()))).unwrap();
            core::future::pending::<()>().await;
        });
    };
    std::thread::Builder::new().name("edge".to_owned()).spawn(run).unwrap();
    told.recv().unwrap()
}

/// Spans per second of the one thread that reads sockets, decodes, decides and sends.
fn over_sockets() {
    let (address, edge) = edge();
    let now = unix_now().0;
    let one = |all: u64| {
        let (trace, number) = (all / PER_TRACE, all % PER_TRACE);
        let failed = trace.is_multiple_of(FAILED) && number + 1 == PER_TRACE;
        let status = failed.then(|| Status { code: 2, ..Status::default() });
        Span { status, ..span(trace, number, now, true) }
    };
    let body = |number: u64| request("cart", (number * BATCH..(number + 1) * BATCH).map(one).collect());
    let bodies: Vec<_> = (0..REQUESTS).map(body).collect();
    let bytes: usize = bodies.iter().map(Vec::len).sum();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    let (clock, before) = (Stopwatch::start(), used("edge"));
    for body in &bodies {
        let head = "POST /v1/traces HTTP/1.1\r\nhost: x\r\ncontent-type: application/x-protobuf\r\ncontent-length";
        stream.write_all(&[format!("{head}: {}\r\n\r\n", body.len()).as_bytes(), body].concat()).unwrap();
        take(&stream).unwrap();
    }
    let (took, processor) = (clock.elapsed().as_secs_f64(), used("edge").saturating_sub(before).as_secs_f64());
    let (account, spans) = (edge.with_tail(|tail, _| *tail.account()).unwrap(), (REQUESTS * BATCH) as f64);
    assert!(account.balances() && account.seen.spans == REQUESTS * BATCH, "{account:?}");
    println!(
        "sockets: {:.0} spans/s per core ({:.0} by the wall) of {:.0} bytes; {:.1} % released, {:.1} % buffered at the end",
        spans / processor,
        spans / took,
        bytes as f64 / spans,
        account.kept.spans as f64 * 100.0 / spans,
        account.waiting.spans as f64 * 100.0 / spans,
    );
}

fn at(millis: u64) -> Timestamp {
    let monotonic = Nanos::from_millis(millis);
    Timestamp { monotonic, wall: UnixNanos::from_secs(1_700_000_000).plus(monotonic) }
}

/// From a verdict to the requests with ten thousand traces of eight spans.
fn release() {
    let mut tail = TailSampler::new(&settings(256 << 20), at(0)).unwrap();
    let give = |tail: &mut TailSampler, trace: u64, when: Timestamp| {
        let rest = (1..PER_TRACE).map(|number| span(trace, number, when.wall.0, true)).collect();
        tail.ingest(&request("payment", rest), when).unwrap();
        tail.ingest(&request("frontend", vec![span(trace, 0, when.wall.0, true)]), when).unwrap();
    };
    // Paths are learnt from traces that were buffered to the end.
    (0..2_000).for_each(|trace| give(&mut tail, trace, at(trace / 2)));
    tail.tick(at(62_000));
    (0..RELEASED).for_each(|trace| give(&mut tail, 10_000 + trace, at(70_000 + trace / 11)));
    let metrics = vec![Metric {
        title: "duration.p99".into(),
        unit: "s".into(),
        seen: 0.18,
        expected: 0.02,
        of_distribution: true,
        replica: "".into(),
    }];
    let (from, until) = (at(70_000).wall, at(71_000).wall);
    let finding = Finding {
        service: "payment",
        from,
        at: until,
        breakdown: None,
        score: 40.0,
        gamma: 4.0,
        metrics,
        incident: "".into(),
    };
    let clock = Stopwatch::start();
    tail.verdict(finding, at(77_000));
    tail.tick(at(77_100));
    let (batches, took) = (tail.take_batches(), clock.elapsed());
    let spans: usize = batches.iter().map(|batch| batch.spans).sum();
    assert!(spans as u64 >= RELEASED * PER_TRACE * 9 / 10, "only {spans} spans were released");
    println!("release: {spans} spans in {} requests in {:.1} ms", batches.len(), took.as_secs_f64() * 1e3);
}

/// Memory of buffered spans beside their bytes.
fn memory() {
    for (per_trace, attributes) in [(1, false), (PER_TRACE, false), (1, true), (PER_TRACE, true)] {
        let mut tail = TailSampler::new(&settings(512 << 20), at(0)).unwrap();
        let (empty, mut encoded) = (tail.memory(), 0);
        for number in 0..600 {
            let all = (number * BATCH..(number + 1) * BATCH).map(|all| {
                let span = span(all / per_trace, all % per_trace, at(0).wall.0, attributes);
                encoded += span.encoded_len();
                span
            });
            tail.ingest(&request("cart", all.collect()), at(1)).unwrap();
        }
        let waiting = tail.account().waiting.spans as f64;
        let (each, taken) = (encoded as f64 / waiting, (tail.memory() - empty) as f64 / waiting);
        println!(
            "memory: {per_trace} spans a trace, {each:.0} bytes each: {taken:.0} in memory, which is {:.2} times and 64",
            (taken - 64.0) / each
        );
    }
}

fn main() {
    over_sockets();
    release();
    memory();
}
