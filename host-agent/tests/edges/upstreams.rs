//! Upstreams whose certificates are renewed while the agent runs.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use prost::Message as _;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use wire::proto::control::worker_message::Message as FromWorker;
use wire::proto::control::{LmapSummary, Row, Rows, Summary};

use crate::agent::{Agent, wait_for};
use crate::otlp::{now, send, span};
use crate::reload::{Authority, authority, rejected, replace, signed};
use crate::service::Service;
use crate::worker::Worker;
use support::otlp::spans_of;

/// An OTLP/HTTP upstream that wants clients' certificates, and ends each connection after one request.
struct SecureUpstream {
    address: SocketAddr,
    /// How often it was renewed, and its certificate since.
    config: Arc<Mutex<(u32, Arc<ServerConfig>)>>,
    /// Paths of all requests, and how often it had been renewed when they connected.
    paths: Arc<Mutex<Vec<(u32, String)>>>,
}

/// A server with a certificate of `authority`, for clients with one.
fn config(authority: &Authority) -> Arc<ServerConfig> {
    let (certificate, key) = signed(authority, "collector.example");
    let provider = Arc::new(ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.pem().as_bytes()).unwrap()).unwrap();
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let builder = builder.with_client_cert_verifier(verifier.build().unwrap());
    let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
    Arc::new(builder.with_single_cert(chain, PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap()).unwrap())
}

/// Reads one request. Its path; `None` if the handshake fails.
fn serve(stream: TcpStream, config: Arc<ServerConfig>) -> Option<String> {
    let mut reader = BufReader::new(StreamOwned::new(ServerConnection::new(config).unwrap(), stream));
    let (mut head, mut line) = (String::new(), String::new());
    while line != "\r\n" {
        line.clear();
        reader.read_line(&mut line).ok().filter(|length| *length > 0)?;
        head.push_str(&line);
    }
    let length = head.to_lowercase().lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    reader.read_exact(&mut vec![0; length.unwrap_or(0)]).ok()?;
    let answer = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    let stream = reader.get_mut();
    stream.write_all(answer).ok()?;
    stream.conn.send_close_notify();
    stream.flush().ok()?;
    head.split(' ').nth(1).map(str::to_owned)
}

impl SecureUpstream {
    fn start(authority: &Authority) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let upstream = Self { address, config: Arc::new(Mutex::new((0, config(authority)))), paths: Arc::default() };
        let (current, paths) = (Arc::clone(&upstream.config), Arc::clone(&upstream.paths));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (renewals, config) = current.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let paths = Arc::clone(&paths);
                std::thread::spawn(move || {
                    if let Some(path) = serve(stream.unwrap(), config) {
                        paths.lock().unwrap_or_else(PoisonError::into_inner).push((renewals, path));
                    }
                });
            }
        });
        upstream
    }

    /// Renews its certificate, for connections to come.
    fn renew(&self, authority: &Authority) {
        let mut current = self.config.lock().unwrap_or_else(PoisonError::into_inner);
        *current = (current.0 + 1, config(authority));
    }

    /// Whether a request for `path` came since it was renewed.
    fn has(&self, path: &str) -> bool {
        let renewals = self.config.lock().unwrap_or_else(PoisonError::into_inner).0;
        let paths = self.paths.lock().unwrap_or_else(PoisonError::into_inner);
        paths.iter().any(|(since, known)| *since == renewals && known == path)
    }
}

/// Writes what a client of `authority` shows and trusts.
fn write(folder: &Path, authority: &Authority) {
    let (certificate, key) = signed(authority, "client.example");
    for (name, text) in [("ca.pem", authority.pem()), ("client.pem", certificate), ("client.key", key)] {
        replace(&folder.join(name), &text);
    }
}

/// The value of a counter of `/metrics`, all labels together.
fn total(page: &str, name: &str) -> u64 {
    let lines = page.lines().filter(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with([' ', '{'])));
    lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

#[test]
fn upstreams_with_renewed_certificates_go_on_and_a_broken_file_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (authority(), authority());
    write(folder.path(), &first);
    let upstream = SecureUpstream::start(&first);
    let to = format!(
        "{{endpoint: 'https://{}', protocol: http, tls: {{ca: '{1}/ca.pem', domain: collector.example, \
         certificate: '{1}/client.pem', key: '{1}/client.key'}}}}",
        upstream.address,
        folder.path().display()
    );
    let agent = Agent::with(&format!(
        "process_metrics: {{enabled: false}}\n\
         otlp: {{upstream: {to}, listen_grpc: 127.0.0.1:0, listen_http: 127.0.0.1:0}}\n\
         otlp_metrics: {{upstream: {to}, baseline_ms: 100, dense: {{policy: every, budget: null}}}}\n"
    ));
    let mut worker = Worker::connect(&agent, 0);
    let (_cart, _region) = Service::register(&agent, "cart", &["requests"]);
    let (epoch, lmap) = worker.set_where(|lmap| lmap.service == "cart");
    let lmap = lmap.lmap;
    let summary = LmapSummary { lmap, epoch, gamma: 10.0, ..LmapSummary::default() };
    worker.send(FromWorker::Summary(Summary { at_unix_ns: now(), lmaps: vec![summary], ..Summary::default() }));
    let mut trace = 0;
    let mut give = || {
        let row = Row { at_unix_ns: now(), score: 1.0, values: vec![3.0] };
        worker.send(FromWorker::Rows(Rows { lmap, epoch, rows: vec![row] }));
        trace += 1;
        let resource_spans = vec![spans_of("payment", vec![span(trace, 1, &[], "POST /pay")])];
        let body = ExportTraceServiceRequest { resource_spans }.encode_to_vec();
        assert_eq!(send(agent.at.otlp[1], &body), "HTTP/1.1 200 OK");
    };
    let mut arrive = |what: &str| {
        wait_for(what, || {
            give();
            (upstream.has("/v1/traces") && upstream.has("/v1/metrics")).then_some(())
        });
    };
    arrive("spans and samples");

    upstream.renew(&second);
    let retries = || total(&agent.get("/metrics").1, "uview_host_retried_otlp_requests_total");
    let before = retries();
    let resource_spans = vec![spans_of("payment", vec![span(1 << 100, 1, &[], "POST /pay")])];
    send(agent.at.otlp[1], &ExportTraceServiceRequest { resource_spans }.encode_to_vec());
    wait_for("a failure with the certificates of before", || (retries() > before).then_some(()));
    assert!(!upstream.has("/v1/traces"));
    write(folder.path(), &second);
    arrive("spans and samples with the renewed certificates");
    assert!(total(&agent.get("/metrics").1, "uview_host_reloads_total") > 0);

    replace(&folder.path().join("ca.pem"), "no certificate\n");
    wait_for("the problem", || rejected(&agent).then_some(()));
    let problems = agent.status().problems;
    let named = |line: &String| line.contains("not in use: otlp.upstream.tls") && line.contains("ca.pem");
    assert!(problems.iter().any(named), "{problems:?}");
    upstream.renew(&second);
    arrive("spans and samples in spite of a broken file");
    write(folder.path(), &second);
    wait_for("the end of the problem", || (!rejected(&agent)).then_some(()));
}
