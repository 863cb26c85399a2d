//! Headers whose values are in files that are renewed while the agent runs.

use std::collections::BTreeSet;
use std::io::{BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use agent_runtime::clock::unix_now;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use prost::Message as _;
use support::http::HttpMessage;
use support::otlp::spans_of;
use wire::proto::control::worker_message::Message as FromWorker;
use wire::proto::control::{LmapSummary, Row, Rows, Summary};

use crate::agent::{Agent, WAIT};
use crate::otlp::{send, span};
use crate::reload::{rejected, replace};
use crate::service::Service;
use crate::worker::Worker;

/// Requests of this agent that have come: path, and value of `authorization`.
#[derive(Clone, Default)]
pub struct ShownHeaders(Arc<Mutex<Vec<(String, String)>>>);

impl ShownHeaders {
    /// A receiver of everything, which has one metric for whoever asks.
    pub fn receiver() -> (SocketAddr, Self) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, shown) = (listener.local_addr().unwrap(), Self::default());
        let into = shown.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, into) = (stream.unwrap(), into.clone());
                std::thread::spawn(move || into.take(&stream));
            }
        });
        (address, shown)
    }

    fn take(&self, mut stream: &TcpStream) {
        let mut reader = BufReader::new(stream);
        while let Some(message) = HttpMessage::read(&mut reader) {
            let head = message.head.to_lowercase();
            let value = head.lines().find_map(|line| line.strip_prefix("authorization:")).unwrap_or_default();
            let value = value.trim().to_owned();
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push((message.path().to_owned(), value));
            let answer = if message.head.starts_with("GET ") {
                "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 10\r\n\r\na_total 1\n"
            } else {
                "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
            };
            if stream.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    }

    /// Paths of requests with this value.
    pub fn paths(&self, value: &str) -> BTreeSet<String> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().filter(|(_, shown)| shown == value).map(|(path, _)| path.clone()).collect()
    }

    /// Forgets what has come.
    pub fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// An agent that sends spans and samples to `to`, with the values of two files in `folder`.
fn agent(to: SocketAddr, folder: &Path) -> Agent {
    let shown = |file: &str| format!("header_files: {{authorization: '{}/{file}'}}", folder.display());
    let upstream = format!("{{endpoint: 'http://{to}', protocol: http, {}}}", shown("key"));
    let samples = "baseline_ms: 100, dense: {policy: every, budget: null}";
    Agent::with(&format!(
        "process_metrics: {{enabled: false}}\n\
         otlp: {{upstream: {upstream}, listen_grpc: 127.0.0.1:0, listen_http: 127.0.0.1:0}}\n\
         otlp_metrics: {{upstream: {upstream}, {samples}}}\n\
         remote_write: {{url: 'http://{to}/write', {}, {samples}}}\n",
        shown("write-key")
    ))
}

#[test]
fn outputs_show_renewed_keys_without_a_restart_and_all_keep_theirs_while_one_file_is_broken() {
    let folder = tempfile::tempdir().unwrap();
    let write = |file: &str, key: &str| replace(&folder.path().join(file), key);
    write("key", "one\n");
    write("write-key", "one\n");
    let (to, shown) = ShownHeaders::receiver();
    let agent = agent(to, folder.path());
    let mut worker = Worker::connect(&agent, 0);
    let (_cart, _region) = Service::register(&agent, "cart", &["requests"]);
    let (epoch, lmap) = worker.set_where(|lmap| lmap.service == "cart");
    let lmap = lmap.lmap;
    let summary = LmapSummary { lmap, epoch, gamma: 10.0, ..LmapSummary::default() };
    worker.send(FromWorker::Summary(Summary { at_unix_ns: unix_now().0, lmaps: vec![summary], ..Summary::default() }));
    let paths: BTreeSet<String> = ["/v1/metrics", "/v1/traces", "/write"].map(str::to_owned).into();
    let mut trace = 0;
    let mut arrive = |key: &str| {
        WAIT.until(key, || {
            let row = Row { at_unix_ns: unix_now().0, score: 1.0, values: vec![3.0] };
            worker.send(FromWorker::Rows(Rows { lmap, epoch, rows: vec![row] }));
            trace += 1;
            let resource_spans = vec![spans_of("payment", vec![span(trace, 1, &[], "POST /pay")])];
            let body = ExportTraceServiceRequest { resource_spans }.encode_to_vec();
            assert_eq!(send(agent.at.otlp[1], &body), "HTTP/1.1 200 OK");
            shown.paths(key).is_superset(&paths)
        });
    };
    arrive("one");

    write("key", "two\n");
    write("write-key", "two\n");
    arrive("two");
    assert!(agent.get("/metrics").1.contains("uview_host_configuration_rejected 0\n"));

    // Two lines are no value. The other file is fine, and waits with it.
    write("write-key", "three\nlines\n");
    WAIT.until("the problem", || rejected(&agent));
    write("key", "three\n");
    let twice = || agent.get("/metrics").1.contains("uview_host_failed_reloads_total 2\n");
    WAIT.until("the other file was looked at, too", twice);
    let problems = agent.status().problems;
    let said = |line: &String| line.contains("not in use: remote_write.header_files") && line.contains("write-key");
    assert!(problems.iter().any(said), "{problems:?}");
    shown.clear();
    arrive("two");
    assert_eq!(shown.paths("three"), BTreeSet::new());

    write("write-key", "three\n");
    arrive("three");
    WAIT.until("the end of the problem", || !rejected(&agent));
}
