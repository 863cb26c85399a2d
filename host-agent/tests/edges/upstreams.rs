//! Upstreams whose certificates are renewed while the agent runs.

use std::io::{BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use agent_runtime::clock::unix_now;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use prost::Message as _;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use wire::proto::control::worker_message::Message as FromWorker;
use wire::proto::control::{LmapSummary, Row, Rows, Summary};

use crate::agent::{Agent, WAIT};
use crate::otlp::{send, span};
use crate::reload::{rejected, replace};
use crate::service::Service;
use crate::worker::Worker;
use support::certificates::{Authority, Subject};
use support::http::HttpMessage;
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
    let own = Subject::new(&["collector.example"]).signed_by(authority);
    let provider = Arc::new(ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.pem().as_bytes()).unwrap()).unwrap();
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let builder = builder.with_client_cert_verifier(verifier.build().unwrap());
    let key = PrivateKeyDer::Pkcs8(own.key_der().into());
    Arc::new(builder.with_single_cert(vec![own.der().into()], key).unwrap())
}

/// Reads one request. Its path; `None` if the handshake fails.
fn serve(stream: TcpStream, config: Arc<ServerConfig>) -> Option<String> {
    let mut reader = BufReader::new(StreamOwned::new(ServerConnection::new(config).unwrap(), stream));
    let request = HttpMessage::read(&mut reader)?;
    let answer = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    let stream = reader.get_mut();
    stream.write_all(answer).ok()?;
    stream.conn.send_close_notify();
    stream.flush().ok()?;
    Some(request.path().to_owned())
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
    let own = Subject::new(&["client.example"]).signed_by(authority);
    for (name, text) in [("ca.pem", authority.pem()), ("client.pem", own.pem()), ("client.key", own.key_pem())] {
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
    let [first, second] = [(); 2].map(|()| Authority::new("authority"));
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
    worker.send(FromWorker::Summary(Summary { at_unix_ns: unix_now().0, lmaps: vec![summary], ..Summary::default() }));
    let mut trace = 0;
    let mut give = || {
        let row = Row { at_unix_ns: unix_now().0, score: 1.0, values: vec![3.0] };
        worker.send(FromWorker::Rows(Rows { lmap, epoch, rows: vec![row] }));
        trace += 1;
        let resource_spans = vec![spans_of("payment", vec![span(trace, 1, &[], "POST /pay")])];
        let body = ExportTraceServiceRequest { resource_spans }.encode_to_vec();
        assert_eq!(send(agent.at.otlp[1], &body), "HTTP/1.1 200 OK");
    };
    let mut arrive = |what: &str| {
        WAIT.until(what, || {
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
    WAIT.until("a failure with the certificates of before", || (retries() > before).then_some(()));
    assert!(!upstream.has("/v1/traces"));
    write(folder.path(), &second);
    arrive("spans and samples with the renewed certificates");
    assert!(total(&agent.get("/metrics").1, "uview_host_reloads_total") > 0);

    replace(&folder.path().join("ca.pem"), "no certificate\n");
    WAIT.until("the problem", || rejected(&agent).then_some(()));
    let problems = agent.status().problems;
    let named = |line: &String| line.contains("not in use: otlp.upstream.tls") && line.contains("ca.pem");
    assert!(problems.iter().any(named), "{problems:?}");
    upstream.renew(&second);
    arrive("spans and samples in spite of a broken file");
    write(folder.path(), &second);
    WAIT.until("the end of the problem", || (!rejected(&agent)).then_some(()));
}
