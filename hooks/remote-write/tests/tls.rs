//! HTTPS: which certificates are trusted.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use remote_write::client::{Client, Receiver};
use remote_write::encoding::Version;
use remote_write::reply::Reply;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

#[test]
fn a_receiver_is_believed_if_it_is_the_one_that_the_authority_says() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let key = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let other = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let (trusted, stranger) = (folder.path().join("ca.pem"), folder.path().join("other.pem"));
    std::fs::write(&trusted, key.cert.pem()).unwrap();
    std::fs::write(&stranger, other.cert.pem()).unwrap();
    let secret = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.signing_key.serialize_der()));

    let port = runtime.block_on(serve(server(key.cert.der().clone(), secret)));
    let send = |client: &mut Client| runtime.block_on(client.send(Version::V1, Bytes::from_static(b"x"), 0));
    let client = |ca: &Path| {
        let url = format!("https://localhost:{port}/");
        let receiver = Receiver { url, headers: Vec::new(), ca: Some(ca.to_owned()), timeout: Duration::from_secs(20) };
        Client::new(&receiver).unwrap()
    };

    let believed = send(&mut client(&trusted));
    assert!(matches!(believed.reply, Reply::Http { status: 204, .. }), "{believed:?}");
    let mut doubting = client(&stranger);
    let report = send(&mut doubting);
    assert_eq!(report.reply, Reply::None);
    assert!(report.text.starts_with("TLS handshake failed: "), "{}", report.text);

    // A renewed authority counts for the next connection, and a file that is none changes nothing.
    for text in [key.cert.pem().as_str(), "no certificate\n"] {
        std::fs::write(&stranger, text).unwrap();
        let report = send(&mut doubting);
        assert!(matches!(report.reply, Reply::Http { status: 204, .. }), "{report:?}");
    }
}

/// Certificate and key, in the folder of a process and its child.
fn store(of: u32) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("store-{of}"))
}

#[test]
fn ssl_cert_file_names_whom_a_receiver_without_authority_needs_a_certificate_of() {
    let folder = store(std::process::id());
    std::fs::create_dir_all(&folder).unwrap();
    let own = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    std::fs::write(folder.join("own.pem"), own.cert.pem()).unwrap();
    std::fs::write(folder.join("own.der"), own.cert.der()).unwrap();
    std::fs::write(folder.join("own.key"), own.signing_key.serialize_der()).unwrap();
    let other = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    std::fs::write(folder.join("other.pem"), other.cert.pem()).unwrap();

    let run = |store: &str| {
        // Another process, since the environment is one for all tests.
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--ignored", "--exact", "child_sends_to_whom_its_system_trusts"]);
        child.env("SSL_CERT_FILE", folder.join(store)).env_remove("SSL_CERT_DIR").output().unwrap()
    };
    let (trusted, untrusted) = (run("own.pem"), run("other.pem"));
    std::fs::remove_dir_all(&folder).unwrap();

    assert!(trusted.status.success(), "{}", String::from_utf8_lossy(&trusted.stdout));
    let text = String::from_utf8_lossy(&untrusted.stdout).into_owned();
    assert!(!untrusted.status.success() && text.contains("TLS handshake failed"), "{text}");
}

#[test]
#[ignore = "a child of the test before"]
fn child_sends_to_whom_its_system_trusts() {
    let folder = store(std::os::unix::process::parent_id());
    let read = |name| std::fs::read(folder.join(name)).unwrap();
    let secret = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(read("own.key")));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let port = runtime.block_on(serve(server(read("own.der").into(), secret)));
    let url = format!("https://localhost:{port}/");
    let receiver = Receiver { url, headers: Vec::new(), ca: None, timeout: Duration::from_secs(20) };

    let report = runtime.block_on(Client::new(&receiver).unwrap().send(Version::V1, Bytes::from_static(b"x"), 0));

    assert!(matches!(report.reply, Reply::Http { status: 204, .. }), "{report:?}");
}

/// TLS with this certificate and key.
fn server(certificate: CertificateDer<'static>, secret: PrivateKeyDer<'static>) -> ServerConfig {
    ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], secret)
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
