//! The live page over real sockets: who gets in, what it answers, and how much of it anybody can take.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Status;
use prost::Message as _;
use tonic::Code;
use wire::proto::operators::OpenPageRequest;

use crate::agent::{Agent, Operators, PATIENCE, WAIT};
use crate::otlp::{send, span, upstream};
use crate::service::Service;
use support::otlp::spans_of;

const QUIET: &str = "process_metrics: {enabled: false}\n";
/// Markup, controls of a terminal and of direction, and the end of an event.
const HOSTILE: &str = "<img src=x onerror=alert(1)>\u{1b}[2J\u{202e}\n\ndata: x";

/// An address that opens the page once.
fn address(agent: &Agent) -> String {
    let Operators { runtime, mut client } = agent.operators();
    runtime.block_on(client.open_page(OpenPageRequest {})).unwrap().into_inner().url
}

/// Host and path of an address.
fn parts(url: &str) -> (SocketAddr, String) {
    let (host, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    (host.parse().unwrap(), format!("/{path}"))
}

/// Sends a request with these lines of its head, which the connection closes after.
fn connect(to: SocketAddr, lines: &[&str]) -> TcpStream {
    let mut stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "{}\r\nConnection: close\r\n\r\n", lines.join("\r\n")).unwrap();
    stream
}

/// Head and body of the response.
fn ask(to: SocketAddr, lines: &[&str]) -> (String, String) {
    let mut response = String::new();
    connect(to, lines).read_to_string(&mut response).unwrap();
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    (head.to_ascii_lowercase(), body.to_owned())
}

/// A browser with a session.
pub struct Browser {
    to: SocketAddr,
    /// What it asked for first.
    opened: String,
    cookie: String,
}

impl Browser {
    pub fn open(agent: &Agent) -> Self {
        let (to, path) = parts(&address(agent));
        let (head, _) = ask(to, &[&format!("GET {path} HTTP/1.1"), "Host: 127.0.0.1"]);
        let cookie = head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).expect("a cookie");
        Self { to, opened: path, cookie: format!("Cookie: {}", cookie.split(';').next().unwrap()) }
    }

    /// The token that it had, and its session.
    pub fn secrets(&self) -> [String; 2] {
        [&self.opened, &self.cookie].map(|text| text.rsplit_once('=').unwrap().1.to_owned())
    }

    /// Head and body of what is at `path`.
    pub fn get(&self, path: &str) -> (String, String) {
        ask(self.to, &[&format!("GET {path} HTTP/1.1"), "Host: localhost", &self.cookie])
    }

    /// A viewer that has sent its request.
    pub fn viewer(&self) -> TcpStream {
        connect(self.to, &["GET /api/events HTTP/1.1", "Host: localhost", &self.cookie])
    }
}

#[test]
fn a_token_opens_the_page_once_and_every_response_has_the_policy() {
    let agent = Agent::with(QUIET);
    let (to, path) = parts(&address(&agent));
    let open = format!("GET {path} HTTP/1.1");

    let (head, body) = ask(to, &[&open, "Host: 127.0.0.1"]);

    assert!(to.ip().is_loopback() && head.starts_with("http/1.1 200"), "{head}");
    assert!(head.contains("; path=/; max-age=43200; httponly; samesite=strict"), "{head}");
    assert!(body.contains("url=/"), "{body}");
    let (again, _) = ask(to, &[&open, "Host: 127.0.0.1"]);
    assert!(again.starts_with("http/1.1 403") && !again.contains("set-cookie"), "{again}");
    let browser = Browser::open(&agent);
    for path in
        ["/", "/app.js", "/arrival.js", "/api/traces", "/api/receipt", "/api/service/9", "/nothing", "/open?token=1"]
    {
        let (head, _) = browser.get(path);
        for header in [
            "content-security-policy: default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; ",
            "x-content-type-options: nosniff",
            "referrer-policy: no-referrer",
            "cache-control: no-store",
        ] {
            assert!(head.contains(header), "{path}: {head}");
        }
    }
}

#[test]
fn a_link_of_another_page_leads_to_the_page_and_lets_it_see_nothing() {
    let agent = Agent::with(QUIET);
    let browser = Browser::open(&agent);
    let link = "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document";
    let follow = |path: &str, more: &str| {
        ask(browser.to, &[&format!("GET {path} HTTP/1.1"), "Host: 127.0.0.1", &browser.cookie, link, more])
    };
    let own = |path: &str| ask(browser.to, &[&format!("GET {path} HTTP/1.1"), "Host: 127.0.0.1"]);

    let (head, body) = follow("/", "X: 1");

    assert!(head.starts_with("http/1.1 200") && body.contains("/arrival.js"), "{head}{body}");
    let own_page = browser.get("/").0;
    let policy =
        |head: &str| head.lines().find(|line| line.starts_with("content-security-policy: ")).map(str::to_owned);
    assert_eq!(policy(&head), policy(&own_page));
    let (head, script) = own("/arrival.js");
    assert!(head.starts_with("http/1.1 200") && script.contains("location.replace("), "{head}{script}");
    assert!(own("/app.js").0.starts_with("http/1.1 401"), "no other file is for those who have no session");
    for (path, more) in
        [("/arrival.js", "X: 1"), ("/api/map", "X: 1"), ("/style.css", "X: 1"), ("/", "Sec-Fetch-Dest: document")]
    {
        let (head, _) = follow(path, more);
        assert!(head.starts_with("http/1.1 403"), "{path}: {head}");
    }
}

#[test]
fn without_a_session_with_another_name_or_another_method_there_is_nothing() {
    let agent = Agent::with(QUIET);
    let browser = Browser::open(&agent);
    let cookie = browser.cookie.as_str();
    let wrong = format!("{}0", &cookie[..cookie.len() - 1]);
    let before = agent.counter("refused_page_requests");

    for (lines, status) in [
        (["GET / HTTP/1.1", "Host: localhost", cookie], 200),
        (["HEAD / HTTP/1.1", "Host: localhost", cookie], 200),
        (["GET / HTTP/1.1", "Host: localhost", "X: 1"], 401),
        (["GET /api/events HTTP/1.1", "Host: localhost", "X: 1"], 401),
        (["GET / HTTP/1.1", "Host: localhost", &wrong], if wrong == cookie { 200 } else { 401 }),
        (["GET / HTTP/1.1", "Host: rebound.example", cookie], 421),
        (["GET / HTTP/1.1", "Host: localhost\r\nHost: localhost", cookie], 421),
        (["POST / HTTP/1.1", "Host: localhost", cookie], 405),
        (["DELETE /api/traces HTTP/1.1", "Host: localhost", cookie], 405),
        (["GET / HTTP/1.1", "Host: localhost\r\nSec-Fetch-Site: same-site", cookie], 403),
    ] {
        let (head, _) = ask(browser.to, &lines);
        // A second header of this name is refused by the parser already.
        let refused = status == 421 && head.starts_with("http/1.1 400");
        assert!(refused || head.starts_with(&format!("http/1.1 {status}")), "{lines:?}: {head}");
    }

    assert!(agent.counter("refused_page_requests") >= before + 5);
}

#[test]
fn one_line_of_configuration_turns_it_off() {
    let agent = Agent::with("page: {enabled: false}\nprocess_metrics: {enabled: false}\n");
    let Operators { runtime, mut client } = agent.operators();

    let refused = runtime.block_on(client.open_page(OpenPageRequest {})).unwrap_err();

    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("page.enabled"), "{refused}");
    let text = std::fs::read_to_string(agent.folder.path().join("host-agent.json")).unwrap();
    assert!(text.contains("\"page\":null"), "{text}");
}

/// The next event: its name and its data.
pub fn event(lines: &mut impl Iterator<Item = std::io::Result<String>>) -> (String, String) {
    let mut next = |prefix: &str| loop {
        let line = lines.next().expect("an event").unwrap();
        if let Some((_, rest)) = line.split_once(prefix) {
            return rest.to_owned();
        }
    };
    (next("event: "), next("data: "))
}

#[test]
fn a_viewer_is_sent_everything_and_then_what_changes() {
    let agent = Agent::with(QUIET);
    let browser = Browser::open(&agent);
    let mut lines = BufReader::new(browser.viewer()).lines();

    let (first, data) = event(&mut lines);
    assert_eq!(first, "snapshot");
    assert!(data.contains("\"lmaps\":[]"), "{data}");
    let _service = Service::register(&agent, "payment", &["requests"]);

    let found = (0..20).map(|_| event(&mut lines)).find(|(_, data)| data.contains("\"service\":\"payment\""));
    assert_eq!(found.unwrap().0, "delta");
    // The stream ends with the agent, which does not wait for it.
    agent.stop();
    assert!(lines.map_while(Result::ok).count() < 1_000);
}

#[test]
fn whoever_comes_after_a_while_without_anybody_is_sent_what_there_is_by_then() {
    let agent = Agent::with(QUIET);
    let browser = Browser::open(&agent);
    let mut before = BufReader::new(browser.viewer()).lines();
    assert_eq!(event(&mut before).0, "snapshot");
    drop(before);

    let _service = Service::register(&agent, "payment", &["requests"]);

    let mut lines = BufReader::new(browser.viewer()).lines();
    let (name, mut shown) = event(&mut lines);
    assert_eq!(name, "snapshot");
    // It may be a few events old: these follow.
    while !shown.contains("\"service\":\"payment\"") {
        shown = event(&mut lines).1;
    }
    let (_, lmap) = shown.split_once("\"id\":").unwrap();
    let path = format!("/api/service/{}", lmap.split_once([',', '}']).unwrap().0);
    let (head, _) = browser.get(&path);
    assert!(head.starts_with("http/1.1 200"), "{path}: {head}");
}

#[test]
fn a_hundred_viewers_are_served_and_those_who_read_nothing_hold_up_nobody() {
    let agent = Agent::with(QUIET);
    let browser = Browser::open(&agent);

    let silent: Vec<_> = (0..60).map(|_| browser.viewer()).collect();
    let reading: Vec<_> = (0..40).map(|_| BufReader::new(browser.viewer()).lines()).collect();

    for mut lines in reading {
        assert_eq!(event(&mut lines).0, "snapshot");
    }
    let (head, _) = browser.get("/");
    assert!(head.starts_with("http/1.1 200"), "{head}");
    let more: Vec<_> = (0..80).map(|_| browser.viewer()).collect();
    let refused = WAIT.until("viewers that are too many", || {
        let refused = agent.counter("refused_page_viewers");
        (refused > 0).then_some(refused)
    });
    assert!(refused <= 80, "{refused}");
    drop((silent, more));
    WAIT.until("room for a viewer", || {
        let mut response = [0; 12];
        browser.viewer().read_exact(&mut response).ok()?;
        (&response == b"HTTP/1.1 200").then_some(())
    });
}

#[test]
fn kept_traces_are_shown_with_their_reason_and_hostile_names_are_text() {
    let (upstream, _spans) = upstream();
    let agent = Agent::with(&format!(
        "{QUIET}otlp:\n  upstream: {{endpoint: 'http://{upstream}', protocol: http}}\n  listen_grpc: 127.0.0.1:0\n  \
         listen_http: 127.0.0.1:0\n  traces: {{keep: tail, decision_wait_ms: 1000, floor: 0, latency: false}}\n"
    ));
    let failed = Status { code: 2, ..Status::default() };
    let spans = vec![opentelemetry_proto::tonic::trace::v1::Span { status: Some(failed), ..span(7, 1, &[], HOSTILE) }];
    let request = ExportTraceServiceRequest { resource_spans: vec![spans_of(HOSTILE, spans)] };
    assert_eq!(send(agent.at.otlp[1], &request.encode_to_vec()), "HTTP/1.1 200 OK");
    let browser = Browser::open(&agent);

    let list = WAIT.until("a kept trace", || Some(browser.get("/api/traces").1).filter(|list| list.contains("error")));

    assert!(list.contains("\"policy\":\"error\"") && list.contains("\"keeping\":true"), "{list}");
    let (head, trace) = browser.get(&format!("/api/trace/{:032x}", 7));
    assert!(head.contains("content-type: application/json"), "{head}");
    for body in [&list, &trace] {
        assert!(body.contains("<img src=x onerror=alert(1)>\\\\u{1b}[2J\\\\u{202e}\\\\u{a}"), "{body}");
        assert!(!body.contains(['\u{1b}', '\u{202e}', '\n']), "{body}");
    }
    let (head, _) = browser.get(&format!("/api/trace/{:032x}", 8));
    assert!(head.starts_with("http/1.1 404"), "{head}");
    let (_, receipt) = browser.get("/api/receipt");
    assert!(receipt.contains("\"days\":["), "{receipt}");
}
