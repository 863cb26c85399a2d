//! HTTPS: which certificates are trusted.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::path::Path;
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
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

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
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![key.cert.der().clone()], secret)
        .unwrap();

    let port = runtime.block_on(serve(config));
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
