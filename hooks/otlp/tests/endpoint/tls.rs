//! TLS towards clients and the upstream, and forwarded headers.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use agent_runtime::reload::Reloadable;
use agent_runtime::{ClientConfigs, ClientTls, OutwardTls};
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_client::MetricsServiceClient;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use otlp::{Protocol, Settings, Signal};
use prost::Message as _;
use support::certificates::{Authority, Certificate, Subject};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};
use tonic::transport::{Certificate as Trusted, ClientTlsConfig, Endpoint, Identity};

use super::client::{WAIT, logs, metrics, post, span, traces};
use super::upstream::Upstream;
use super::{settings, spans, start, tail};

/// A certificate authority, and what it signed: certificate and key of a server called `collector`, and of a client.
struct Certificates {
    authority: Authority,
    server: Certificate,
    client: Certificate,
}

impl Certificates {
    fn new() -> Self {
        let authority = Authority::new("authority");
        let [server, client] = ["collector", "client"].map(|name| Subject::new(&[name]).signed_by(&authority));
        Self { authority, server, client }
    }

    fn roots(&self) -> Arc<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.authority.pem().as_bytes()).unwrap()).unwrap();
        Arc::new(roots)
    }

    /// TLS of a server; `asks`: it requires client certificates.
    fn server(&self, asks: bool) -> ServerConfig {
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
        let verifier = WebPkiClientVerifier::builder_with_provider(self.roots(), provider).build().unwrap();
        let builder = builder.unwrap();
        let builder = if asks { builder.with_client_cert_verifier(verifier) } else { builder.with_no_client_auth() };
        let (chain, key) = pair(&self.server);
        builder.with_single_cert(chain, key).unwrap()
    }

    /// TLS of a client; `shows`: with its own certificate.
    fn client(&self, shows: bool) -> ClientConfig {
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().unwrap().with_root_certificates(self.roots());
        let (chain, key) = pair(&self.client);
        if shows { builder.with_client_auth_cert(chain, key).unwrap() } else { builder.with_no_client_auth() }
    }

    /// The certificates of a client of `domain`, as it reads them from files; `shows`: with its own certificate.
    fn files(&self, domain: &str, shows: bool) -> ClientConfigs {
        let folder = tempfile::tempdir().unwrap();
        self.client.write(folder.path(), "client");
        let [certificate, key] = ["client.pem", "client.key"].map(|file| shows.then(|| folder.path().join(file)));
        let (ca, domain) = (self.authority.write(folder.path(), "ca"), Some(domain.to_owned()));
        ClientTls { ca, domain, certificate, key }.load().unwrap()
    }

    /// The configuration of a channel that asks the endpoint by gRPC.
    fn channel(&self, shows: bool) -> ClientTlsConfig {
        let tls =
            ClientTlsConfig::new().ca_certificate(Trusted::from_pem(self.authority.pem())).domain_name("collector");
        if shows { tls.identity(Identity::from_pem(self.client.pem(), self.client.key_pem())) } else { tls }
    }
}

fn pair(of: &Certificate) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
    (vec![of.der().into()], PrivateKeyDer::Pkcs8(of.key_der().into()))
}

/// Sends a request over HTTPS: the status line, or the error.
async fn post_secure(address: SocketAddr, tls: ClientConfig, body: &[u8]) -> std::io::Result<String> {
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from("collector").unwrap();
    let mut stream = TlsConnector::from(Arc::new(tls)).connect(name, stream).await?;
    let head = "POST /v1/logs HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/x-protobuf";
    stream.write_all(format!("{head}\r\ncontent-length: {}\r\n\r\n", body.len()).as_bytes()).await?;
    stream.write_all(body).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer.lines().next().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn clients_speak_by_http_and_grpc_inside_of_tls_and_have_to_show_a_certificate_where_one_is_asked_for() {
    let (upstream, certificates) = (Upstream::start().await, Certificates::new());
    for asks in [false, true] {
        let tls = Some(certificates.server(asks));
        let (running, address) = start(&Settings { tls, ..settings(upstream.address, Protocol::Grpc) }).await;
        let refused = &running.edge().counts.refused_handshakes;
        let body = logs("cart").encode_to_vec();

        let answer = post_secure(address, certificates.client(true), &body).await.unwrap();
        assert_eq!(answer, "HTTP/1.1 200 OK");
        let endpoint = Endpoint::from_shared(format!("https://{address}")).unwrap();
        let channel = endpoint.tls_config(certificates.channel(true)).unwrap().connect().await.unwrap();
        MetricsServiceClient::new(channel).export(metrics("cart")).await.unwrap();
        assert_eq!(refused.get(), 0);

        // Nothing is shown: no certificate, or no TLS at all.
        let shown_none = post_secure(address, certificates.client(false), &body).await;
        assert_eq!(shown_none.is_err(), asks, "{shown_none:?}");
        let mut open = TcpStream::connect(address).await.unwrap();
        open.write_all(b"POST /v1/logs HTTP/1.1\r\ncontent-length: 0\r\n\r\n").await.unwrap();
        let mut answer = Vec::new();
        // Cut off with a reset, or with an alert.
        _ = open.read_to_end(&mut answer).await;
        assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
        WAIT.until_async("refusals", async || (refused.get() == 1 + u64::from(asks)).then_some(())).await;
    }
    WAIT.until_async("both", async || (upstream.messages(Signal::Logs.grpc_path()).len() == 3).then_some(())).await;
    WAIT.until_async("both", async || (upstream.messages(Signal::Metrics.grpc_path()).len() == 2).then_some(())).await;
}

#[tokio::test]
async fn https_is_spoken_to_the_upstream_and_its_certificate_has_to_be_right() {
    let certificates = Certificates::new();
    let upstream = Upstream::secure(certificates.server(true)).await;
    let with_tls = |domain: &str, shows: bool| {
        let mut settings = settings(upstream.address, Protocol::Http);
        let to = settings.upstream.as_mut().unwrap();
        to.endpoint = format!("https://{}", upstream.address);
        to.tls = Some(Reloadable::new(certificates.files(domain, shows)));
        settings
    };
    let (proto, body) = ("application/x-protobuf", logs("cart").encode_to_vec());

    let (_running, address) = start(&with_tls("collector", true)).await;
    assert_eq!(post(address, "/v1/logs", proto, &[], body.clone()).await.status, 200);
    let came = WAIT.until_async("the logs", async || upstream.messages("/v1/logs").first().cloned()).await;
    assert_eq!(came, body);

    for (domain, shows) in [("somebody", true), ("collector", false)] {
        let (running, address) = start(&with_tls(domain, shows)).await;
        post(address, "/v1/logs", proto, &[], body.clone()).await;
        let retries = &running.edge().counts.of(Signal::Logs).retries;
        WAIT.until_async("a failure", async || (retries.get() > 0).then_some(())).await;
        assert_eq!(upstream.messages("/v1/logs").len(), 1, "{domain} {shows}");
    }
}

/// An upstream at the address of the one before it, which is gone; with HTTP/2 if it has gRPC.
async fn renewed(at: SocketAddr, certificates: &Certificates, protocol: Protocol) -> Upstream {
    let mut tls = certificates.server(true);
    if protocol == Protocol::Grpc {
        tls.alpn_protocols = vec![b"h2".to_vec()];
    }
    Upstream::secure_at(at, tls).await
}

#[tokio::test]
async fn an_upstream_whose_authority_is_renewed_gets_the_renewed_certificate_without_a_restart() {
    for (protocol, path) in [(Protocol::Http, "/v1/logs"), (Protocol::Grpc, Signal::Logs.grpc_path())] {
        let (first, second) = (Certificates::new(), Certificates::new());
        let before = renewed("127.0.0.1:0".parse().unwrap(), &first, protocol).await;
        let (at, live) = (before.address, Reloadable::new(first.files("collector", true)));
        let mut settings = settings(at, protocol);
        let to = settings.upstream.as_mut().unwrap();
        to.endpoint = format!("https://{at}");
        to.tls = Some(live.clone());
        let (running, address) = start(&settings).await;
        let (proto, body) = ("application/x-protobuf", logs("cart").encode_to_vec());
        post(address, "/v1/logs", proto, &[], body.clone()).await;
        WAIT.until_async("the first logs", async || before.messages(path).first().cloned()).await;

        before.end().await;
        let after = renewed(at, &second, protocol).await;
        let retries = running.edge().counts.of(Signal::Logs).retries.get();
        post(address, "/v1/logs", proto, &[], body.clone()).await;
        let failed = || running.edge().counts.of(Signal::Logs).retries.get() > retries;
        WAIT.until_async("a failure with the certificates of before", async || failed().then_some(())).await;
        assert_eq!(after.messages(path).len(), 0, "{protocol:?}");
        live.replace(second.files("collector", true));

        let came = WAIT.until_async("the second logs", async || after.messages(path).first().cloned()).await;
        assert_eq!(came, body, "{protocol:?}");
    }
}

#[tokio::test]
async fn grpc_needs_an_upstream_that_speaks_http2_and_the_error_says_so() {
    let certificates = Certificates::new();
    // No ALPN: HTTP/1 only, for all that is known.
    let upstream = Upstream::secure(certificates.server(true)).await;
    let mut settings = settings(upstream.address, Protocol::Grpc).upstream.unwrap();
    settings.endpoint = format!("https://{}", upstream.address);
    settings.tls = Some(Reloadable::new(certificates.files("collector", true)));

    let error = otlp::MetricsExporter::new(&settings).unwrap().send(bytes::Bytes::new()).await.unwrap_err();

    assert!(error.text.contains("does not speak HTTP/2"), "{error}");
    assert!(error.retryable && upstream.seen().is_empty());
}

/// Certificates, in the folder of a process and its children.
fn store(of: u32) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("store-of-upstream-{of}"))
}

#[test]
fn ssl_cert_file_names_whom_an_upstream_without_authority_needs_a_certificate_of() {
    let (folder, own, other) = (store(std::process::id()), Certificates::new(), Certificates::new());
    std::fs::create_dir_all(&folder).unwrap();
    own.authority.write(&folder, "own");
    other.authority.write(&folder, "other");
    own.server.write(&folder, "server");

    let run = |protocol: &str, store: &str| {
        // Another process, since the environment is one for all tests.
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--ignored", "--exact", &format!("tls::child_exports_by_{protocol}_to_whom_its_system_trusts")]);
        child.env("SSL_CERT_FILE", folder.join(store)).env_remove("SSL_CERT_DIR").output().unwrap()
    };
    let ran = ["http", "grpc"].map(|protocol| (run(protocol, "own.pem"), run(protocol, "other.pem")));
    std::fs::remove_dir_all(&folder).unwrap();

    for (trusted, untrusted) in ran {
        let text = String::from_utf8_lossy(&trusted.stdout).into_owned();
        assert!(trusted.status.success() && text.contains("1 passed"), "{text}");
        let text = String::from_utf8_lossy(&untrusted.stdout).into_owned();
        assert!(!untrusted.status.success() && text.contains("invalid peer certificate"), "{text}");
    }
}

/// Exports with the certificates of an upstream that is configured without `ca`, from a child of the test before.
async fn export_to_whom_the_system_trusts(protocol: Protocol) {
    let folder = store(std::os::unix::process::parent_id());
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let chain = vec![CertificateDer::from_pem_file(folder.join("server.pem")).unwrap()];
    let key = PrivateKeyDer::from_pem_file(folder.join("server.key")).unwrap();
    let mut tls = builder.with_single_cert(chain, key).unwrap();
    if protocol == Protocol::Grpc {
        tls.alpn_protocols = vec![b"h2".to_vec()];
    }
    let upstream = Upstream::secure(tls).await;
    let mut settings = settings(upstream.address, protocol).upstream.unwrap();
    settings.endpoint = format!("https://{}", upstream.address);
    let trust = OutwardTls { domain: Some("collector".to_owned()), ..OutwardTls::default() };
    settings.tls = Some(Reloadable::new(trust.load().unwrap()));

    let rejected = otlp::MetricsExporter::new(&settings).unwrap().send(bytes::Bytes::new()).await;

    assert_eq!(rejected, Ok(0));
    assert_eq!(upstream.seen().len(), 1);
}

#[tokio::test]
#[ignore = "a child of the test before"]
async fn child_exports_by_http_to_whom_its_system_trusts() {
    export_to_whom_the_system_trusts(Protocol::Http).await;
}

#[tokio::test]
#[ignore = "a child of the test before"]
async fn child_exports_by_grpc_to_whom_its_system_trusts() {
    export_to_whom_the_system_trusts(Protocol::Grpc).await;
}

#[tokio::test]
async fn what_clients_say_of_themselves_goes_on_with_what_they_sent() {
    for protocol in [Protocol::Grpc, Protocol::Http] {
        let upstream = Upstream::start().await;
        let mut passing = settings(upstream.address, protocol);
        passing.forwarded_headers.push("x-tenant".to_owned());
        let (_running, address) = start(&passing).await;
        let sent = [("authorization", "Bearer of-cart"), ("x-honeycomb-team", "k"), ("x-tenant", "own"), ("x-b", "no")];

        let body = logs("cart").encode_to_vec();
        post(address, "/v1/logs", "application/x-protobuf", &sent, body).await;
        let came = WAIT.until_async("the logs", async || upstream.seen().first().cloned()).await;
        assert_eq!(came.headers["authorization"], "Bearer of-cart");
        assert_eq!(came.headers["x-honeycomb-team"], "k");
        assert!(!came.headers.contains_key("x-b"));
        // What is configured is not for clients to say.
        assert_eq!(came.headers.get_all("x-tenant").iter().collect::<Vec<_>>(), ["shop"]);
    }
}

#[tokio::test]
async fn configured_headers_that_are_replaced_go_with_later_requests_of_either_protocol() {
    for protocol in [Protocol::Grpc, Protocol::Http] {
        let upstream = Upstream::start().await;
        let settings = settings(upstream.address, protocol);
        let (running, address) = start(&settings).await;
        let exporter = otlp::MetricsExporter::new(settings.upstream.as_ref().unwrap()).unwrap();
        let came = async |path: &'static str, tenant: &'static str| {
            WAIT.until_async(tenant, async || {
                upstream.seen().iter().any(|seen| seen.path == path && seen.tenant.as_deref() == Some(tenant))
            })
            .await;
        };
        let signals = match protocol {
            Protocol::Grpc => [Signal::Logs, Signal::Metrics].map(Signal::grpc_path),
            Protocol::Http => [Signal::Logs, Signal::Metrics].map(Signal::http_path),
        };
        let send = async || {
            post(address, "/v1/logs", "application/x-protobuf", &[], logs("cart").encode_to_vec()).await;
            assert_eq!(exporter.send(bytes::Bytes::new()).await, Ok(0), "{protocol:?}");
        };
        send().await;
        for path in signals {
            came(path, "shop").await;
        }

        for headers in [running.edge().upstream_headers().unwrap(), exporter.headers()] {
            assert!(headers.renewal(&[("x-tenant".to_owned(), "bank".to_owned())]).unwrap().take(), "{protocol:?}");
        }
        send().await;

        for path in signals {
            came(path, "bank").await;
        }
    }
}

#[tokio::test]
async fn kept_spans_go_on_with_their_own_clients_headers_and_with_nobody_elses() {
    let upstream = Upstream::start().await;
    let settings = Settings { tail: Some(tail()), ..settings(upstream.address, Protocol::Grpc) };
    let (_running, address) = start(&settings).await;

    for (service, key) in [("payment", "a"), ("cart", "b"), ("stock", "")] {
        let said = [("authorization", key)];
        let said = if key.is_empty() { &[][..] } else { &said };
        let body = traces(service, vec![span(1, true)]).encode_to_vec();
        assert_eq!(post(address, "/v1/traces", "application/x-protobuf", said, body).await.status, 200);
    }

    let path = Signal::Traces.grpc_path();
    let came = WAIT.until_async("all spans", async || Some(upstream.seen()).filter(|seen| seen.len() == 3)).await;
    let mut said: Vec<_> = came
        .iter()
        .map(|seen| {
            assert_eq!(seen.path, path);
            let request = ExportTraceServiceRequest::decode(seen.message.clone()).unwrap();
            assert_eq!(spans(&request).len(), 1);
            let text = format!("{:?}", request.resource_spans[0].resource);
            let service = ["payment", "cart", "stock"].into_iter().find(|name| text.contains(name)).unwrap();
            (service, seen.headers.get("authorization").map(|value| value.to_str().unwrap().to_owned()))
        })
        .collect();
    said.sort();
    assert_eq!(said, [("cart", Some("b".to_owned())), ("payment", Some("a".to_owned())), ("stock", None)]);
}
