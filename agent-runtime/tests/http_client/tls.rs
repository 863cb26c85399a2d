//! HTTPS: which certificates are trusted.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use agent_runtime::http_client::{Client, Endpoint, Response, SendError};
use support::certificates::Subject;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

#[test]
fn an_endpoint_is_believed_if_it_is_the_one_that_the_authority_says() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let [own, other] = [(); 2].map(|()| Subject::new(&["localhost"]).self_signed());
    let (trusted, stranger) = (folder.path().join("ca.pem"), folder.path().join("other.pem"));
    std::fs::write(&trusted, own.pem()).unwrap();
    std::fs::write(&stranger, other.pem()).unwrap();

    let port = runtime.block_on(serve(server(own.der(), own.key_der())));
    let send = |client: &mut Client| runtime.block_on(client.post_json(b"x".to_vec()));
    let client = |ca: &Path| {
        let url = format!("https://localhost:{port}/");
        let endpoint = Endpoint { url, headers: Vec::new(), ca: Some(ca.to_owned()), timeout: Duration::from_secs(20) };
        Client::new(&endpoint, "/").unwrap()
    };

    let believed = send(&mut client(&trusted));
    assert!(matches!(believed, Ok(Response { status: 204, .. })), "{believed:?}");
    let mut doubting = client(&stranger);
    let error = send(&mut doubting).unwrap_err();
    assert!(matches!(error, SendError::Tls(_)), "{error:?}");
    assert!(error.to_string().starts_with("TLS handshake failed: "), "{error}");

    // A renewed authority counts for the next connection, and a file that is none changes nothing.
    for text in [own.pem().as_str(), "no certificate\n"] {
        std::fs::write(&stranger, text).unwrap();
        let sent = send(&mut doubting);
        assert!(matches!(sent, Ok(Response { status: 204, .. })), "{sent:?}");
    }
}

/// Certificate and key, in the folder of a process and its child.
fn store(of: u32) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("store-{of}"))
}

#[test]
fn ssl_cert_file_names_whom_an_endpoint_without_authority_needs_a_certificate_of() {
    let folder = store(std::process::id());
    std::fs::create_dir_all(&folder).unwrap();
    for name in ["own", "other"] {
        let made = Subject::new(&["localhost"]).self_signed();
        std::fs::write(folder.join(format!("{name}.pem")), made.pem()).unwrap();
        std::fs::write(folder.join(format!("{name}.der")), made.der()).unwrap();
        std::fs::write(folder.join(format!("{name}.key")), made.key_der()).unwrap();
    }

    let run = |store: &str| {
        // Another process, since the environment is one for all tests.
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--ignored", "--exact", "tls::child_sends_to_whom_its_system_trusts"]);
        child.env("SSL_CERT_FILE", folder.join(store)).env_remove("SSL_CERT_DIR").output().unwrap()
    };
    let (trusted, untrusted) = (run("own.pem"), run("other.pem"));
    std::fs::remove_dir_all(&folder).unwrap();

    let text = String::from_utf8_lossy(&trusted.stdout).into_owned();
    assert!(trusted.status.success() && text.contains("1 passed"), "{text}");
    let text = String::from_utf8_lossy(&untrusted.stdout).into_owned();
    assert!(!untrusted.status.success() && text.contains("TLS handshake failed"), "{text}");
}

#[test]
#[ignore = "a child of the test before"]
fn child_sends_to_whom_its_system_trusts() {
    let folder = store(std::os::unix::process::parent_id());
    let read = |name| std::fs::read(folder.join(name)).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let port = runtime.block_on(serve(server(read("own.der"), read("own.key"))));
    let url = format!("https://localhost:{port}/");
    let endpoint = Endpoint { url, headers: Vec::new(), ca: None, timeout: Duration::from_secs(20) };

    let sent = runtime.block_on(Client::new(&endpoint, "/").unwrap().post_json(b"x".to_vec()));

    assert!(matches!(sent, Ok(Response { status: 204, .. })), "{}", sent.unwrap_err());
}

/// TLS with this certificate and key, in DER.
fn server(certificate: Vec<u8>, key: Vec<u8>) -> ServerConfig {
    ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.into()], PrivateKeyDer::Pkcs8(key.into()))
        .unwrap()
}

/// Answers one request on each connection. Returns the port.
async fn serve(config: ServerConfig) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let mut some = [0; 4096];
            if stream.read(&mut some).await.unwrap_or(0) > 0 {
                stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
                stream.flush().await.unwrap();
            }
        }
    });
    port
}
