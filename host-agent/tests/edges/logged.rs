//! What the log of a process does not say of secrets.

use std::io::{BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, PoisonError};

use agent_runtime::clock::unix_now;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use support::http::HttpMessage;
use wire::proto::control::worker_message::Message as FromWorker;
use wire::proto::control::{Episode, Row, Rows, Verdict, Verdicts};

use crate::agent::{Agent, WAIT, addresses};
use crate::live_page::Browser;
use crate::service::Service;
use crate::worker::Worker;

/// An agent in a process of its own, whose log goes to a file.
pub struct Logged {
    pub agent: Agent,
    process: Child,
}

/// The events in a log. The last line of one that is being written may not be complete.
pub fn events(log: &str) -> Vec<Value> {
    log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

impl Logged {
    /// With this level of the log, and `more` of the configuration.
    pub fn start(level: &str, more: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (config, run) = (folder.path().join("config.yaml"), folder.path().join("run"));
        let text = format!(
            "runtime_dir: {}\nmetrics: {{listen: '127.0.0.1:0'}}\nlog: {{format: json, level: '{level}'}}\n\
             process_metrics: {{enabled: false}}\n{more}",
            run.display()
        );
        std::fs::write(&config, text).unwrap();
        let log = std::fs::File::create(folder.path().join("log")).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_uview-host-agent"));
        let mut process = command.arg("--config").arg(config).stderr(log).spawn().unwrap();
        let at = WAIT.until("host-agent.json", || {
            assert!(process.try_wait().unwrap().is_none(), "it ended");
            addresses(&run)
        });
        Self { agent: Agent::beside(folder, at), process }
    }

    /// Its configuration file.
    pub fn config(&self) -> PathBuf {
        self.agent.folder.path().join("config.yaml")
    }

    /// Its log, so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.agent.folder.path().join("log")).unwrap()
    }

    /// Waits for an event in its log.
    #[track_caller]
    pub fn wait_for(&self, what: &str, wanted: impl Fn(&Value) -> bool) {
        WAIT.until(what, || events(&self.log()).iter().any(&wanted));
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }

    /// Ends it. Returns its log.
    pub fn end(mut self) -> String {
        self.signal(Signal::TERM);
        assert!(self.process.wait().unwrap().success());
        self.log()
    }
}

impl Drop for Logged {
    fn drop(&mut self) {
        // Whatever a test found: nothing of it stays. One that has ended is not there any more.
        _ = self.process.kill();
        _ = self.process.wait();
    }
}

/// Heads of requests that have come.
type Heads = Arc<Mutex<String>>;

/// A receiver of everything, which lets nobody in.
fn receiver() -> (SocketAddr, Heads) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, heads) = (listener.local_addr().unwrap(), Heads::default());
    let into = Arc::clone(&heads);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, into) = (stream.unwrap(), Arc::clone(&into));
            std::thread::spawn(move || refuse_all(&stream, &into));
        }
    });
    (address, heads)
}

fn refuse_all(mut stream: &TcpStream, into: &Heads) {
    let mut reader = BufReader::new(stream);
    while let Some(HttpMessage { head, .. }) = HttpMessage::read(&mut reader) {
        into.lock().unwrap_or_else(PoisonError::into_inner).push_str(&head);
        if stream.write_all(b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n").is_err() {
            return;
        }
    }
}

/// Sends a span of the service `guarded`, with secrets in the head.
fn send_span(address: SocketAddr) {
    let resource = r#"{"attributes":[{"key":"service.name","value":{"stringValue":"guarded"}}]}"#;
    let span = r#"{"traceId":"0102030405060708090a0b0c0d0e0f10","spanId":"0102030405060708","name":"a","startTimeUnixNano":"1","endTimeUnixNano":"2"}"#;
    let body = format!(r#"{{"resourceSpans":[{{"resource":{resource},"scopeSpans":[{{"spans":[{span}]}}]}}]}}"#);
    let mut stream = TcpStream::connect(address).unwrap();
    let secrets = "authorization: s3cret-client\r\nuview-token: s3cret-token";
    let head = format!("host: a\r\ncontent-type: application/json\r\nconnection: close\r\n{secrets}");
    write!(stream, "POST /v1/traces HTTP/1.1\r\n{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    assert!(reply.starts_with("HTTP/1.1 "), "{reply}");
}

#[test]
fn no_secret_is_in_the_log_at_any_level_nor_on_the_metrics_page_nor_in_the_status() {
    let (to, heads) = receiver();
    let tokens = tempfile::tempdir().unwrap();
    let token = tokens.path().join("token");
    std::fs::write(&token, "s3cret-token\n").unwrap();
    let logged = Logged::start(
        "trace",
        &format!(
            "otlp: {{listen_grpc: '127.0.0.1:0', listen_http: '127.0.0.1:0', upstream: {{endpoint: 'http://{to}', \
             protocol: http, headers: {{authorization: s3cret-upstream}}}}}}\n\
             remote_write: {{url: 'http://{to}/write', baseline_ms: 100, headers: {{authorization: s3cret-write}}}}\n\
             webhooks: [{{name: a, url: 'http://{to}/hook', group_wait_ms: 0, headers: {{x-token: s3cret-hook}}}}]\n\
             sources: {{prometheus: {{targets: [{{service: shop, url: 'http://{to}/metrics', \
             headers: {{authorization: s3cret-scrape}}}}]}}}}\n\
             services: {{identities: [{{token_file: '{}', services: [guarded]}}, {{services: [payment]}}]}}\n",
            token.display()
        ),
    );
    let agent = &logged.agent;
    let mut worker = Worker::connect(agent, 0);
    let (service, region) = Service::register(agent, "payment", &["requests"]);
    let (epoch, lmap) = worker.set_where(|lmap| lmap.service == "payment");
    let (lmap, episode) = (lmap.lmap, Episode::Began as i32);
    let verdict = Verdict { lmap, epoch, score: 20.0, gamma: 4.0, state: 2, episode, ..Verdict::default() };
    worker.send(FromWorker::Verdicts(Verdicts { at_unix_ns: 1, verdicts: vec![verdict] }));
    send_span(agent.at.otlp[1]);
    WAIT.until("all secrets are on their way", || {
        let at_unix_ns = unix_now().0;
        let row = Row { at_unix_ns, score: 1.0, values: vec![3.0] };
        worker.send(FromWorker::Rows(Rows { lmap, epoch, rows: vec![row] }));
        let heads = heads.lock().unwrap_or_else(PoisonError::into_inner);
        let sent = ["upstream", "write", "hook", "scrape"].iter().all(|of| heads.contains(&format!("s3cret-{of}")));
        sent.then_some(())
    });
    // Whoever has one of these has the page.
    let browser = Browser::open(agent);
    assert!(browser.get("/").0.starts_with("http/1.1 200"));
    let shown = format!("{:?}{}", agent.status(), agent.get("/metrics").1);
    drop((worker, service, region));

    let log = logged.end();

    assert!(log.contains("\"level\":\"TRACE\""), "it says everything");
    let [token, session] = browser.secrets();
    for (what, text) in [("the status or /metrics", &shown), ("the log", &log)] {
        for secret in ["s3cret", token.as_str(), session.as_str()] {
            let lines: Vec<&str> = text.lines().filter(|line| line.contains(secret)).collect();
            assert!(lines.is_empty(), "{what}: {lines:#?}");
        }
    }
}
