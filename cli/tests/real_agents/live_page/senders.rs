//! What the page's test shows: services that stand out, a stream, spans, log records, scraped and exported metrics, and
//! another node. All that somebody else may choose is hostile.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use agent_runtime::clock::unix_now;
use serde_json::{Value, json};
use support::http;
use wire::printable;

use crate::hostile_text::{HOSTILE, ODD};
use crate::incidents::Replica;
use crate::{ANY, Agent, HEARTBEAT_MS, addresses, free_port};

/// A name with nothing but markup in it: printable, so that it is not counted among others.
pub const MARKUP: &str = "<img src=x onerror=alert('1')><script>alert('1')</script>";
/// What a scraped program says that cannot be read, up to its end of the line.
pub const UNREADABLE: &str = "x\u{1b}[2J\u{1b}]0;title\u{7}";
/// The order of eviction, the same on all nodes.
const TAIL: &str = "keep: tail, order_key: 00112233445566778899aabbccddeeff";
/// Where traces of the test are said to be.
pub const TRACES: &str = "https://tracing.example/trace/";

/// `text` as it is shown, without its end, which is escaped within titles of metrics.
pub fn shown(text: &str) -> String {
    printable::line(text).trim_end_matches("&\"y").to_owned()
}

/// `text` in a configuration.
fn yaml(text: &str) -> String {
    let mut units = String::new();
    for unit in text.encode_utf16() {
        _ = write!(units, "\\u{unit:04x}");
    }
    format!("\"{units}\"")
}

/// Two agents, and where they listen.
pub struct Agents {
    pub host: Agent,
    pub ready: Value,
    /// Where spans, metrics and log records are sent.
    pub otlp: String,
    /// Where other nodes are heard.
    pub gossip: String,
    pub nic: Agent,
}

/// Starts them in `folder`. Rows are taken every 20 ms, so that an LMAP is armed after a few seconds.
pub fn agents(folder: &Path) -> Agents {
    let run = folder.join("run");
    let file = |name: &str, text: String| {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let (otlp, gossip) = (free_port().to_string(), free_port().to_string());
    let scraped = |service: &str, address: SocketAddr| {
        format!("{{service: {service}, url: 'http://{address}/metrics', interval_ms: 100, learn_scrapes: 20}}")
    };
    let targets =
        [scraped("scraped", exposing()), scraped("unreadable", answering("text/plain", || HOSTILE.to_owned()))];
    let host = format!(
        "runtime_dir: {}\nmetrics: {ANY}\nprocess_metrics: {{enabled: false}}\nlmap: {{interval_ms: 20}}\n\
         services: {{heartbeat_ms: {HEARTBEAT_MS}}}\n\
         page: {{prometheus: {{url: 'http://{}'}}, trace_link: '{TRACES}{{trace}}'}}\n\
         sources: {{prometheus: {{targets: [{}]}}}}\n\
         otlp: {{upstream: {{endpoint: 'http://127.0.0.1:1'}}, listen_grpc: 127.0.0.1:0, listen_http: '{otlp}', \
         logs: {{keep: tail}}, traces: {{{TAIL}, decision_wait_ms: 1000, floor: 0, latency: false}}}}\n\
         coherence: {{peers: ['127.0.0.1:1'], listen: '{gossip}', insecure: true}}\n",
        run.display(),
        prometheus(),
        targets.join(", "),
    );
    let host = Agent::start("host-agent", &file("host.yaml", host));
    let ready = addresses(&run);
    let (control, regions) = (ready["control"].as_str().unwrap(), ready["regions"].as_str().unwrap());
    let nic = format!(
        "control: {{address: '{control}'}}\nregions_socket: {regions}\ntransport: shm\nmetrics: {ANY}\n\
         detector: {{alarms_per_day: 3}}\n"
    );
    let nic = Agent::start("nic-agent", &file("nic.yaml", nic));
    Agents { host, ready, otlp, gossip, nic }
}

/// Starts the host agent of another node in `folder`, whose name is hostile. It calls the first one at `gossip`.
pub fn neighbour(folder: &Path, gossip: &str) -> Agent {
    let config = format!(
        "runtime_dir: {}\nmetrics: {ANY}\npage: {{enabled: false}}\n\
         otlp: {{upstream: {{endpoint: 'http://127.0.0.1:1'}}, listen_grpc: 127.0.0.1:0, listen_http: 127.0.0.1:0, \
         traces: {{{TAIL}, node: {}}}}}\n\
         coherence: {{peers: ['{gossip}'], listen: 127.0.0.1:0, insecure: true}}\n",
        folder.join("neighbour").display(),
        yaml(ODD),
    );
    let path = folder.join("neighbour.yaml");
    std::fs::write(&path, config).unwrap();
    Agent::start("host-agent", &path)
}

/// A service whose calls of payment wait once it is `broken`.
pub fn checkout(socket: PathBuf, broken: &Arc<AtomicBool>) -> Replica {
    let service = client::Service::new("checkout").instance("checkout-1").label("zone", ODD).socket(socket);
    let waiting =
        |uview: &client::Client| uview.gauge("calls.waiting").label("peer", "payment").label("route", ODD).register();
    Replica::of(service, waiting, broken)
}

/// A service that looks like a stream of packets from the shop to its depot, 1 % of which are lost; a quarter of its
/// delays is below a millisecond, and one of its two clients sends more.
pub fn stream(socket: PathBuf) {
    std::thread::spawn(move || {
        let service = client::Service::new("network.shop-depot").instance("shop-depot").label("zone", ODD);
        let uview = client::connect(service.socket(socket).without_process_metrics());
        let gauge = |name: &str, unit: &str, value: f64| (uview.gauge(name).unit(unit).register(), value);
        let labelled =
            |name: &str, key: &str, label: &str, value: f64| (uview.gauge(name).label(key, label).register(), value);
        let gauges = [
            gauge("network.delay.p50", "s", 0.004),
            gauge("network.delay.p95", "s", 0.009),
            gauge("network.delay.p99", "s", 0.012),
            // As of too few packets.
            gauge("network.owd.mean", "s", 0.0),
            gauge("network.loss", "1", 0.01),
            gauge("network.requests.unanswered", "1", 0.023),
            gauge("network.top_talker.share", "1", 0.53),
            gauge("network.sources.distinct", "{source}", 1_234.4),
            gauge("network.flows.distinct", "{flow}", 56_789.0),
            labelled("network.delay.share", "le", "0.001", 0.25),
            labelled("network.delay.share", "le", "+Inf", 0.75),
            labelled("network.delay.share", "le", ODD, 0.5),
            labelled("network.sent", "client", ODD, 3.0),
            labelled("network.sent", "client", "10.0.0.8", 5.0),
        ];
        uview.set_subject("network.top_talker.share", &format!("10.0.0.8 (53 of 100 packets) {ODD}"));
        loop {
            for (gauge, value) in &gauges {
                gauge.set(*value);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    });
}

/// Spans of one service: its name, and trace, id, parent and status code of each.
fn resource(service: &str, name: &str, spans: impl Iterator<Item = (u32, u32, u32, u32)>) -> Value {
    let now = unix_now().0;
    let id = |number| if number == 0 { String::new() } else { format!("{number:016x}") };
    let span = |(trace, span, parent, code): (u32, u32, u32, u32)| {
        let start = now - 9_000_000 + 4_000_000 * u64::from(parent > 0);
        json!({
            "traceId": format!("{trace:032x}"), "spanId": id(span), "parentSpanId": id(parent), "name": name, "kind": 2,
            "startTimeUnixNano": start.to_string(), "endTimeUnixNano": now.to_string(), "status": { "code": code },
        })
    };
    let spans: Vec<_> = spans.map(span).collect();
    json!({ "resource": resource_of(service), "scopeSpans": [{ "spans": spans }] })
}

fn resource_of(service: &str) -> Value {
    json!({ "attributes": [{ "key": "service.name", "value": { "stringValue": service } }] })
}

/// Sends telemetry of one kind, such as `traces`; `None` if it is not accepted.
fn post(otlp: &str, kind: &str, body: &Value) -> Option<()> {
    let response = http::post(otlp, &format!("/v1/{kind}"), "application/json", body.to_string().as_bytes());
    response.ok()?.is_ok().then_some(())
}

/// Sends a failed request of two spans.
pub fn send(otlp: &str) -> Option<()> {
    let spans = resource(HOSTILE, HOSTILE, [(0xabc, 1, 0, 2), (0xabc, 2, 1, 2)].into_iter());
    post(otlp, "traces", &json!({ "resourceSpans": [spans] }))
}

/// Sends a failed request of payment: its trace has this number.
pub fn fail(otlp: &str, trace: u32) -> Option<()> {
    let spans = resource("payment", HOSTILE, [(trace, 1, 0, 2)].into_iter());
    post(otlp, "traces", &json!({ "resourceSpans": [spans] }))
}

/// Sends 50 requests that nothing selects.
pub fn succeed(otlp: &str) -> Option<()> {
    let spans = resource("quiet", MARKUP, (0x2000..0x2032).map(|trace| (trace, 1, 0, 1)));
    post(otlp, "traces", &json!({ "resourceSpans": [spans] }))
}

/// Sends 200 requests of a shop, each of which calls its depot, payment and another service: paths are learnt from one
/// in sixteen.
pub fn shop(otlp: &str) -> Option<()> {
    let requests = 0x1000..0x10c8_u32;
    let called = |service: &str, name: &str, span: u32| {
        resource(service, name, requests.clone().map(move |trace| (trace, span, 1, 0)))
    };
    // Each other call of the depot fails.
    let failing = requests.clone().map(|trace| (trace, 2, 1, if trace % 2 == 0 { 2 } else { 1 }));
    let spans = [
        resource("shop", MARKUP, requests.clone().map(|trace| (trace, 1, 0, 0))),
        resource("depot", MARKUP, failing),
        called("payment", HOSTILE, 3),
        called(MARKUP, MARKUP, 4),
    ];
    post(otlp, "traces", &json!({ "resourceSpans": spans }))
}

/// Sends an error that payment logs.
pub fn log(otlp: &str) -> Option<()> {
    let record = json!({
        "timeUnixNano": unix_now().0.to_string(), "severityNumber": 17, "severityText": HOSTILE,
        "body": { "stringValue": HOSTILE },
    });
    let scope = json!({ "name": HOSTILE, "version": HOSTILE });
    let logs = json!([{ "scope": scope, "logRecords": [record] }]);
    post(otlp, "logs", &json!({ "resourceLogs": [{ "resource": resource_of("payment"), "scopeLogs": logs }] }))
}

/// Exports metrics of a service: one is as it should be, the others have hostile names.
pub fn export(otlp: &str) -> Option<()> {
    let metric = |name: &str| {
        let label = json!({ "key": "route", "value": { "stringValue": HOSTILE } });
        let point = json!({ "asDouble": 7.0, "timeUnixNano": unix_now().0.to_string(), "attributes": [label] });
        json!({ "name": name, "unit": HOSTILE, "description": HOSTILE, "gauge": { "dataPoints": [point] } })
    };
    let metrics = json!([{ "metrics": [metric("exported.depth"), metric(HOSTILE), metric(MARKUP)] }]);
    let of = json!({ "resource": resource_of("exporter"), "scopeMetrics": metrics });
    post(otlp, "metrics", &json!({ "resourceMetrics": [of] }))
}

/// A Prometheus that has scores of two days, one each quarter of an hour, 20 times γ, and an alarm of half an hour.
fn prometheus() -> SocketAddr {
    let now = unix_now().second();
    let values: Vec<_> = (0..192).map(|ago| json!([now - 172_800 + 900 * ago, "20"])).collect();
    let alarm: Vec<_> = (10..12).map(|ago| json!([now - 172_800 + 900 * ago, "1"])).collect();
    let result =
        json!([{ "metric": { "of": "score" }, "values": values }, { "metric": { "of": "alarm" }, "values": alarm }]);
    let body = json!({ "status": "success", "data": { "resultType": "matrix", "result": result } }).to_string();
    answering("application/json", move || body.clone())
}

/// A program with metrics whose labels and help are hostile.
pub fn exposing() -> SocketAddr {
    let quoted = |text: &str| text.replace('\\', "\\\\").replace('\n', "\\n").replace('"', "\\\"");
    let help = quoted(HOSTILE).replace('\r', "");
    let mut scrapes = 0_u32;
    answering("text/plain; version=0.0.4", move || {
        scrapes += 1;
        // Each has its own, or one would do for all.
        let depth =
            |(label, step): (&str, u32)| format!("depth{{queue=\"{}\"}} {}\n", quoted(label), 20 + scrapes * step % 11);
        let depths = [(ODD, 3), ("calm", 5), (HOSTILE, 7)].map(depth).concat();
        format!(
            "# HELP depth {help}\n# TYPE depth gauge\n{depths}# TYPE served_total counter\nserved_total {scrapes}\n"
        )
    })
}

/// A server that says what `body` gives to each request.
fn answering(content_type: &'static str, mut body: impl FnMut() -> String + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let lines = BufReader::new(&stream).lines().map_while(Result::ok);
            lines.take_while(|line| !line.is_empty()).for_each(drop);
            let (body, head) = (body(), "HTTP/1.1 200 OK\r\nconnection: close");
            _ = write!(
                stream,
                "{head}\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
        }
    });
    address
}
