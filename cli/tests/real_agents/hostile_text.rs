//! Services, workers and senders of telemetry that say whatever could change a terminal, a log or a page: of real
//! agents, all that people look at is searched, byte by byte.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use agent_runtime::clock::unix_now;
use serde_json::{Value, json};
use support::frames::framed;
use support::http::exchange;
use tokio::runtime::Runtime;
use wire::printable::is_printable;
use wire::proto::control::control_client::ControlClient;
use wire::proto::control::worker_message::Message as FromWorker;
use wire::proto::control::{RegionProblem, WorkerHello, WorkerMessage};
use wire::proto::registration::service_message::Message;
use wire::proto::registration::{AddSeries, Hello, Kind, Label, Series, ServiceMessage};

use crate::incidents::Replica;
use crate::live_page::exposing;
use crate::{ANY, Agent, WAIT, addresses, free_port, lmap};

/// What a terminal obeys, what ends a line, what turns or hides text, and what a page runs.
pub const HOSTILE: &str = "x\u{1b}[2J\u{1b}]0;title\u{7}\r\nFORGED all is well\n\0\u{9b}31m\u{7f}\u{202e}\u{2066}\u{200f}\u{61c}\u{200b}\u{2028}<script>alert('1')</script><img src=x onerror=alert('1')>&\"y";
/// The same without control characters: names may hold it.
pub const ODD: &str =
    "x\u{202e}\u{2066}\u{200f}\u{61c}\u{200b}<script>alert('1')</script><img src=x onerror=alert('1')>&\"y";

/// Two agents whose logs are kept.
struct Agents {
    folder: tempfile::TempDir,
    _running: [Agent; 2],
    otlp: String,
    pages: [String; 2],
    control: String,
}

impl Agents {
    fn start(format: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (otlp, metrics) = (free_port().to_string(), free_port().to_string());
        let run = folder.path().join("run");
        let log = format!("log: {{level: trace, format: {format}}}");
        let start = |name: &str, text: String| {
            let config = folder.path().join(format!("{name}.yaml"));
            std::fs::write(&config, text).unwrap();
            let mut command = Command::new(env!("CARGO_BIN_EXE_uview"));
            let log = File::create(folder.path().join(format!("{name}.log"))).unwrap();
            Agent(command.arg(name).arg("--config").arg(config).stderr(log).spawn().unwrap())
        };
        let traces = "{keep: tail, decision_wait_ms: 2000}";
        let targets = format!("[{{service: scraped, url: 'http://{}/metrics', interval_ms: 1000}}]", exposing());
        let host = start(
            "host-agent",
            format!(
                "runtime_dir: {}\nmetrics: {ANY}\n{log}\nlmap: {{interval_ms: 20}}\nsources: {{prometheus: {{targets: {targets}}}}}\nremote_write: {{url: 'http://{}/w', baseline_ms: 1000}}\notlp: {{upstream: {{endpoint: 'http://127.0.0.1:1'}}, \
                 listen_grpc: 127.0.0.1:0, listen_http: '{otlp}', derived: {{delay_ms: 500}}, traces: {traces}}}\n",
                run.display(),
                receiver()
            ),
        );
        let ready = addresses(&run);
        let said = |key: &str| ready[key].as_str().unwrap().to_owned();
        let (control, regions) = (said("control"), said("regions"));
        let nic = start(
            "nic-agent",
            format!(
                "control: {{address: '{control}'}}\nregions_socket: {regions}\n{log}\nmetrics: {{listen: '{metrics}'}}\n"
            ),
        );
        Self { folder, _running: [host, nic], otlp, pages: [said("metrics"), metrics], control }
    }

    fn run(&self) -> PathBuf {
        self.folder.path().join("run")
    }

    /// What a command prints, to both outputs.
    fn uview(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_uview"));
        let output =
            command.args(arguments).env("UVIEW_RUNTIME_DIR", self.run()).env("NO_COLOR", "1").output().unwrap();
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    }

    fn logs(&self) -> [String; 2] {
        ["host-agent", "nic-agent"]
            .map(|name| std::fs::read_to_string(self.folder.path().join(format!("{name}.log"))).unwrap())
    }
}

/// A receiver that refuses whatever it is sent, in hostile words. Its address.
fn receiver() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut request = [0; 4096];
            // What the request says does not matter, and it may be longer.
            _ = stream.read(&mut request);
            let head = format!("HTTP/1.1 400 No\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", HOSTILE.len());
            _ = stream.write_all((head + HOSTILE).as_bytes());
        }
    });
    address
}

/// What a server says to a request, of which `head` is the method and the path.
fn http(address: &str, head: &str, body: &str) -> String {
    let headers = "content-type: application/json\r\n";
    let connected = TcpStream::connect(address);
    let response = connected.and_then(|stream| exchange(stream, head, headers, body.as_bytes()));
    // A request may be refused without one.
    response.map(|response| response.head + "\r\n\r\n" + &String::from_utf8_lossy(&response.body)).unwrap_or_default()
}

fn text(key: &str, value: &str) -> Value {
    json!({"key": key, "value": {"stringValue": value}})
}

/// Sends spans, metrics and logs whose texts are `said`, of a service of that name and of one with a plain name.
fn send_telemetry(agents: &Agents, said: &str, first: u64) {
    let now = unix_now().0;
    for (which, service) in [(0, said), (1, "plain")] {
        let span = |number: u64| {
            json!({"traceId": format!("{:032x}", u128::from(2 * (first + number) + which) + 1), "spanId": "0000000000000001",
                   "name": if number.is_multiple_of(2) { said } else { "GET /plain" }, "kind": 2, "traceState": said,
                   "status": {"code": 2, "message": said}, "attributes": [text(said, said), text("http.route", said)],
                   "events": [{"name": said}], "startTimeUnixNano": (now - 1_000_000).to_string(), "endTimeUnixNano": now.to_string()})
        };
        let resource =
            json!({"attributes": [text("service.name", service), text("service.instance.id", said), text(said, said)]});
        let scope = json!({"name": said, "version": said});
        let spans: Vec<Value> = (0..64).map(span).collect();
        let metric = json!({"name": said, "unit": said, "description": said, "sum": {"aggregationTemporality": 2, "isMonotonic": true,
                            "dataPoints": [{"asInt": "1", "timeUnixNano": now.to_string(), "attributes": [text(said, said)]}]}});
        let record = json!({"body": {"stringValue": said}, "severityText": said, "timeUnixNano": now.to_string()});
        for (path, body) in [
            (
                "traces",
                json!({"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": scope, "spans": spans}]}]}),
            ),
            (
                "metrics",
                json!({"resourceMetrics": [{"resource": resource, "scopeMetrics": [{"scope": scope, "metrics": [metric]}]}]}),
            ),
            (
                "logs",
                json!({"resourceLogs": [{"resource": resource, "scopeLogs": [{"scope": scope, "logRecords": [record]}]}]}),
            ),
        ] {
            http(&agents.otlp, &format!("POST /v1/{path}"), &body.to_string());
        }
    }
    for (head, body) in [("POST /v1/traces", said), ("POST /v1/%1b%5b2J%0aFORGED", "{}"), ("GET /%1b%5b2J", "")] {
        http(&agents.otlp, head, body);
        for page in &agents.pages {
            http(page, head, body);
        }
    }
}

/// Says hello as `service`, then names series by hostile text. The connection is open as long as the result.
fn register(socket: &Path, service: &str) -> UnixStream {
    let mut stream = UnixStream::connect(socket).unwrap();
    let label = |value: &str| Label { key: "zone".to_owned(), value: value.to_owned() };
    let hello = Hello {
        protocol: 1,
        service: service.to_owned(),
        instance: format!("{service}-1"),
        labels: vec![label(ODD)],
        ..Hello::default()
    };
    let series = |name: &str, unit: &str, value: &str| Series {
        name: name.to_owned(),
        unit: unit.to_owned(),
        labels: vec![label(value)],
        kind: Kind::Counter.into(),
        parts_per_unit: 1,
        ..Series::default()
    };
    let series =
        vec![series(HOSTILE, "", ""), series("a", HOSTILE, ""), series("b", "", HOSTILE), series(ODD, ODD, ODD)];
    for message in [Message::Hello(hello), Message::AddSeries(AddSeries { series })] {
        // It may be refused already.
        _ = stream.write_all(&framed(&ServiceMessage { message: Some(message) }));
    }
    stream
}

/// Takes a worker's place and reports problems in hostile text.
fn work(control: &str, worker: u32) {
    let runtime = Runtime::new().unwrap();
    let hello = WorkerHello {
        protocol: wire::control::PROTOCOL,
        worker,
        incarnation: 7,
        version: HOSTILE.to_owned(),
        transports: vec![HOSTILE.to_owned(), "shm".to_owned()],
        ..WorkerHello::default()
    };
    let problem = RegionProblem { region: 1, problem: HOSTILE.to_owned() };
    let messages = [FromWorker::Hello(hello), FromWorker::RegionProblem(problem)];
    let messages = messages.map(|message| WorkerMessage { message: Some(message) });
    let said = async {
        let mut client = ControlClient::connect(control.to_owned()).await?;
        let mut replies = client.work(tokio_stream::iter(messages)).await?.into_inner();
        // Until the host agent ends the stream, with or without an error.
        while let Ok(Some(_)) = replies.message().await {}
        Ok::<_, Box<dyn core::error::Error>>(())
    };
    _ = runtime.block_on(async { tokio::time::timeout(Duration::from_secs(10), said).await });
}

/// Fails if `text` holds what people should not see as it is.
fn look_through(what: &str, text: &str) {
    let odd = text.lines().find(|line| !line.chars().all(|c| c == '\t' || is_printable(c)));
    assert_eq!(odd, None, "{what}: a line that is not printable");
    let forged = text.lines().find(|line| line.trim_start().starts_with("FORGED"));
    assert_eq!(forged, None, "{what}: a line that a sender wrote");
}

/// Waits until payment is armed, breaks it, and waits until there is an incident; what is scraped is known, too.
fn make_an_incident(agents: &Agents, broken: &AtomicBool) {
    let payment = || lmap(&agents.run(), "payment");
    WAIT.until("payment is armed", || (payment()?["state"] == "armed").then_some(()));
    broken.store(true, Relaxed);
    WAIT.until("there is an incident, and what is scraped", || {
        let (incidents, sources) = (agents.uview(&["incidents"]), agents.uview(&["sources"]));
        (incidents.contains("queue.depth") && sources.contains("scraped")).then_some(())
    });
}

fn whatever_is_said(format: &str) {
    let agents = Agents::start(format);
    let socket = agents.run().join("services.sock");
    let client = client::connect(client::Service::new("linked").instance("one").label("zone", ODD).socket(&socket));
    let counter = client.counter("odd.requests").label("route", ODD).unit("{request}").register();
    let broken = Arc::new(AtomicBool::new(false));
    let _payment = Replica::start(socket.clone(), "payment-1", ODD, &broken);
    let _connections = ["raw", HOSTILE, ODD, &"long".repeat(1000)].map(|service| register(&socket, service));
    for worker in [0, 900] {
        work(&agents.control, worker);
    }

    let mut first = 0;
    WAIT.until("paths are known, and problems", || {
        counter.add(3);
        for said in [HOSTILE, ODD, &HOSTILE.repeat(9)] {
            send_telemetry(&agents, said, first);
            first += 64;
        }
        std::thread::sleep(Duration::from_millis(200));
        let (paths, status) = (agents.uview(&["paths"]), agents.uview(&["status"]));
        // What is searched below is there: on a terminal, and in the log what a receiver has said.
        let shown = paths.contains("GET /plain") && status.contains("linked") && status.contains("\\u{202e}");
        (shown && agents.logs()[0].contains("FORGED")).then_some(())
    });

    make_an_incident(&agents, &broken);
    let files = ["receipt.html", "paths.svg", "incident.html"].map(|name| agents.folder.path().join(name));
    let [page, drawing, incident] = files.each_ref().map(|file| file.to_str().unwrap());
    for arguments in [
        &["status"][..],
        &["status", "--json"],
        &["top", "--once"],
        &["paths"],
        &["paths", "--json"],
        &["paths", "--svg", drawing],
        &["receipt"],
        &["receipt", "--json"],
        &["receipt", "--html", page],
        &["incidents"],
        &["incidents", "--json"],
        &["incident"],
        &["incident", "--json"],
        &["incident", "--html", incident],
        &["sources"],
        &["sources", "--json"],
        &["check"],
        &["check", "--json"],
    ] {
        look_through(&arguments.join(" "), &agents.uview(arguments));
    }
    for file in &files {
        let text = std::fs::read_to_string(file).unwrap();
        look_through(&file.display().to_string(), &text);
        assert!(!text.contains("<script") && !text.contains("alert('"), "{text}");
    }
    for page in &agents.pages {
        let answer = http(page, "GET /metrics", "");
        assert!(answer.contains("# EOF"), "{answer}");
        look_through("/metrics", &answer.replace("\r\n", "\n"));
    }
    for log in agents.logs() {
        look_through("log", &log);
        // The last line may be half written.
        let whole = log.rsplit_once('\n').map_or("", |(whole, _)| whole);
        assert!(format == "text" || whole.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "{log}");
    }
    let escaped = if format == "text" { "\\u{202e}" } else { "202e" };
    assert!(agents.logs()[0].contains(escaped), "nothing of it was logged");
}

#[test]
fn whatever_is_said_terminals_pages_and_text_logs_show_it_in_printable_lines() {
    whatever_is_said("text");
}

#[test]
fn whatever_is_said_logs_in_json_are_printable_json_line_by_line() {
    whatever_is_said("json");
}
