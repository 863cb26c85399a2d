//! Private keys of certificates, and secrets in the heads of HTTP/2, are not in the log.

use core::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{TraceService, TraceServiceServer};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use support::certificates::{Authority, Certificate, Subject};
use tokio::runtime::Runtime;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Certificate as Pem, Identity, Server, ServerTlsConfig};
use tonic::{Request, Response, Status};

use crate::agent::WAIT;
use crate::logged::Logged;
use crate::otlp::span;
use crate::reload::{rejected, replace, worker};

/// A collector that lets nobody in, and what those who came showed.
#[derive(Clone, Debug, Default)]
struct RefusingCollector(Arc<Mutex<Vec<String>>>);

#[tonic::async_trait]
impl TraceService for RefusingCollector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let shown = ["authorization", "x-file-key"]
            .map(|header| request.metadata().get(header)?.to_str().ok().map(str::to_owned));
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(shown.into_iter().flatten());
        Err(Status::unauthenticated("nobody may"))
    }
}

impl RefusingCollector {
    /// Listens with TLS, for clients with a certificate of `authority`. It ends with the runtime.
    fn start(&self, runtime: &Runtime, authority: &Authority) -> SocketAddr {
        let own = Subject::new(&["collector.example"]).signed_by(authority);
        let tls = ServerTlsConfig::new()
            .identity(Identity::from_pem(own.pem(), own.key_pem()))
            .client_ca_root(Pem::from_pem(authority.pem()));
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let server = Server::builder().tls_config(tls).unwrap().add_service(TraceServiceServer::new(self.clone()));
        runtime.spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        address
    }

    fn was_shown(&self, secret: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().any(|shown| shown == secret)
    }
}

/// Sends a span over gRPC, with secrets in the head.
async fn send_span(address: SocketAddr, trace: u128) {
    let mut client = TraceServiceClient::connect(format!("http://{address}")).await.unwrap();
    let mut request = Request::new(support::otlp::traces("guarded", vec![span(trace, 1, &[], "a")]));
    request.metadata_mut().insert("authorization", "s3cret-client".parse().unwrap());
    request.metadata_mut().insert("uview-token", "s3cret-token".parse().unwrap());
    // What becomes of it is seen at the collector.
    _ = client.export(request).await;
}

/// What would show a key: its lines in PEM, and a part of it in hexadecimal and decimal numbers.
fn traces_of(key: &Certificate) -> Vec<String> {
    let (pem, der) = (key.key_pem(), key.key_der());
    // Of the number itself: 36 bytes before it say what it is.
    let part = &der[40..56];
    let mut hexadecimal = String::new();
    for byte in part {
        write!(hexadecimal, "{byte:02x}").unwrap();
    }
    let decimal = format!("{part:?}").trim_matches(['[', ']']).to_owned();
    let lines = pem.lines().filter(|line| !line.starts_with('-') && line.len() > 16).map(str::to_owned);
    lines.chain([hexadecimal.to_uppercase(), hexadecimal, decimal]).collect()
}

/// A configuration with certificates everywhere, and secrets where they may be.
fn configuration(folder: &Path, collector: SocketAddr) -> String {
    let (at, token) = (folder.display(), folder.join("token"));
    std::fs::write(&token, "s3cret-token\n").unwrap();
    std::fs::write(folder.join("key"), "s3cret-file\n").unwrap();
    format!(
        "access: {{workers: {{certificates: [nic.example]}}}}\n\
         control: {{lease_ms: 600000, listen: 127.0.0.1:0, \
         tls: {{certificate: {at}/host.pem, key: {at}/host.key, client_ca: {at}/ca.pem}}}}\n\
         services: {{identities: [{{token_file: {token}, services: [guarded]}}]}}\n\
         otlp: {{listen_grpc: 127.0.0.1:0, listen_http: 127.0.0.1:0, upstream: {{endpoint: 'https://{collector}', \
         headers: {{authorization: s3cret-upstream}}, header_files: {{x-file-key: {at}/key}}, \
         tls: {{ca: {at}/ca.pem, domain: collector.example, \
         certificate: {at}/client.pem, key: {at}/client.key}}}}}}\n",
        token = token.display()
    )
}

#[test]
fn no_private_key_and_no_secret_over_http_2_is_in_the_log_at_any_level() {
    let (folder, authority) = (tempfile::tempdir().unwrap(), Authority::new("authority"));
    authority.write(folder.path(), "ca");
    let keys = [("host", "host.example"), ("client", "client.example")].map(|(file, name)| {
        let signed = Subject::new(&[name]).signed_by(&authority);
        signed.write(folder.path(), file);
        signed
    });
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let collector = RefusingCollector::default();
    let to = collector.start(&runtime, &authority);
    let logged = Logged::start("trace", &configuration(folder.path(), to));
    let agent = &logged.agent;

    let mut connected = worker(agent, 0, &authority, &authority).unwrap();
    connected.welcomed();
    let mut trace = 0;
    WAIT.until("the upstream's secrets are shown, from the configuration and from a file", || {
        trace += 1;
        runtime.block_on(send_span(agent.at.otlp[0], trace));
        collector.was_shown("s3cret-upstream") && collector.was_shown("s3cret-file")
    });
    // A key in the place of a certificate is not repeated either.
    replace(&folder.path().join("host.pem"), &keys[0].key_pem());
    WAIT.until("the problem", || rejected(agent));
    let shown = format!("{:?}{}", agent.status(), agent.get("/metrics").1);
    drop(connected);

    let log = logged.end();

    assert!(log.contains("\"level\":\"TRACE\"") && log.contains("host.pem"), "it says everything");
    let secrets = keys.iter().flat_map(traces_of).chain(["s3cret".to_owned()]);
    for secret in secrets {
        for (what, text) in [("the status or /metrics", &shown), ("the log", &log)] {
            let lines: Vec<&str> = text.lines().filter(|line| line.contains(&secret)).collect();
            assert!(lines.is_empty(), "{what} has {secret}: {lines:#?}");
        }
    }
}
