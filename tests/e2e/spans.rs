//! Both agents, and services that send only spans: one becomes slow, and traces with that reason are kept.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::io::{BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agent_runtime::clock::unix_now;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};
use support::clock::Stopwatch;
use support::http::{self, HttpMessage, HttpResponse};
use support::wait::Wait;
use tokio::sync::oneshot;

/// How tests wait for a condition. An LMAP is armed after 14 s at this interval, on an idle machine.
const WAIT: Wait = Wait::up_to(Duration::from_mins(2));
/// Interval between two batches of the shop.
const BEAT: Duration = Duration::from_millis(50);

/// All requests that the upstream received, as text.
type ReceivedText = Arc<Mutex<String>>;

/// An upstream for OTLP/HTTP.
fn upstream() -> (SocketAddr, ReceivedText) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, received) = (listener.local_addr().unwrap(), ReceivedText::default());
    let into = Arc::clone(&received);
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let into = Arc::clone(&into);
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stream);
                while let Some(HttpMessage { body, .. }) = HttpMessage::read(&mut reader) {
                    let text = String::from_utf8_lossy(&body).into_owned();
                    into.lock().unwrap_or_else(PoisonError::into_inner).push_str(&text);
                    reader.get_mut().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
                }
            });
        }
    });
    (address, received)
}

/// The body of a response, which has to be fine.
fn body_of(response: std::io::Result<HttpResponse>) -> String {
    let response = response.unwrap();
    assert!(response.is_ok(), "{response:?}");
    response.text().unwrap()
}

/// A port that was free a moment ago.
fn free() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// Waits until a process listens at `address`.
fn wait_until_listening(address: SocketAddr) {
    WAIT.until("an agent starts", || TcpStream::connect(address));
}

/// Both agents. Dropping this ends them.
struct Agents {
    _ends: [oneshot::Sender<()>; 2],
    otlp: SocketAddr,
    worker: SocketAddr,
}

fn agents(folder: &Path, upstream: SocketAddr) -> Agents {
    let (worker, otlp, any) = (free(), free(), "127.0.0.1:0");
    let folder = folder.display();
    let host = format!(
        "runtime_dir: {folder}\nlmap: {{interval_ms: 100}}\ntransport: shm\nmetrics: {{listen: '{any}'}}\notlp:\n  upstream: {{endpoint: 'http://{upstream}', protocol: http}}\n  \
         listen_grpc: '{any}'\n  listen_http: '{otlp}'\n  derived: {{delay_ms: 500}}\n  \
         traces: {{keep: tail, decision_wait_ms: 20000, floor: 0, latency: false}}\n"
    );
    let nic = format!(
        "control: {{address: 'unix:{folder}/control.sock'}}\ntransport: shm\nregions_socket: {folder}/regions.sock\nmetrics: {{listen: '{worker}'}}\n"
    );
    let (host, nic) =
        (host_agent::config::Config::parse(&host).unwrap(), nic_agent::config::Config::parse(&nic).unwrap());
    let runtime = || tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (end_host, host_ends) = oneshot::channel::<()>();
    std::thread::spawn(move || runtime().block_on(host_agent::run(host, async { _ = host_ends.await })).unwrap());
    wait_until_listening(otlp);
    let (end_nic, nic_ends) = oneshot::channel::<()>();
    std::thread::spawn(move || runtime().block_on(nic_agent::run(nic, async { _ = nic_ends.await })).unwrap());
    wait_until_listening(worker);
    Agents { _ends: [end_host, end_nic], otlp, worker }
}

/// Spans of a frontend that calls payment or catalog. There are no services, only their spans.
struct Shop {
    otlp: SocketAddr,
    random: ChaCha8Rng,
    clock: Stopwatch,
    next: Duration,
}

impl Shop {
    /// Sends spans of a few requests that end now; those through payment take about `payment`.
    fn beat(&mut self, payment: Duration) {
        let now = Duration::from_nanos(unix_now().0);
        let mut spans: [Vec<Value>; 3] = Default::default();
        for number in 0..self.random.random_range(4..=6) {
            let pays = number % 2 == 1;
            let usual = if pays { payment } else { Duration::from_millis(20) };
            let took = usual.mul_f64(self.random.random_range(0.8..1.2));
            let trace = format!("{:032x}", self.random.random::<u128>());
            let span = |id: &str, parent: &str, name: &str, start: Duration| {
                let (start, end) = (start.as_nanos().to_string(), now.as_nanos().to_string());
                json!({"traceId": trace, "spanId": id, "parentSpanId": parent, "name": name, "kind": 2,
                       "startTimeUnixNano": start, "endTimeUnixNano": end})
            };
            let (inner, name) = if pays { (1, "POST /pay") } else { (2, "GET /list") };
            spans[inner].push(span("0000000000000002", "0000000000000001", "handle", now.saturating_sub(took)));
            let entered = now.saturating_sub(took + Duration::from_millis(2));
            spans[0].push(span("0000000000000001", "", name, entered));
        }
        let resources = ["frontend", "payment", "catalog"].iter().zip(spans).map(|(service, spans)| {
            let name = json!({"key": "service.name", "value": {"stringValue": service}});
            json!({"resource": {"attributes": [name]}, "scopeSpans": [{"spans": spans}]})
        });
        let request = json!({"resourceSpans": resources.collect::<Vec<_>>()}).to_string();
        body_of(http::post(self.otlp, "/v1/traces", "application/json", request.as_bytes()));
        self.next += BEAT;
        std::thread::sleep(self.next.saturating_sub(self.clock.elapsed()));
    }
}

#[test]
fn when_a_service_that_only_sends_spans_becomes_slow_traces_with_that_reason_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let (address, received) = upstream();
    let agents = agents(folder.path(), address);
    let random = ChaCha8Rng::seed_from_u64(1);
    let mut shop = Shop { otlp: agents.otlp, random, clock: Stopwatch::start(), next: Duration::ZERO };
    let (usual, slow) = (Duration::from_millis(20), Duration::from_millis(180));

    WAIT.until("three LMAPs are armed", || {
        (0..10).for_each(|_| shop.beat(usual));
        let page = body_of(http::get(agents.worker, "/metrics"));
        if page.contains(r#"uview_nic_lmaps{state="armed"} 3"#) { Ok(()) } else { Err(page) }
    });
    let find_reason = |text: &str| {
        let (_, reason) = text.split_once("payment: score ")?;
        let (_, metrics) = reason.split_once("traces.span.metrics.duration.")?;
        Some(metrics.chars().take_while(|c| !c.is_control()).collect::<String>())
    };
    let reason = WAIT.until("a trace is kept for payment", || {
        shop.beat(slow);
        let text = received.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let reasons = || text.split(char::is_control).filter(|text| text.contains(": score ")).map(str::to_owned);
        find_reason(&text).ok_or_else(|| reasons().collect::<Vec<_>>())
    });

    // Such as: mean{span.name="handle"} 181 ms, expected 20 ms
    assert!(reason.contains(r#"{span.name="handle"}"#) && reason.contains(" ms, expected "), "{reason}");
    let kept = received.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(kept.contains("POST /pay"), "the entry span is kept, too");
}
