//! The client against receivers with real sockets: what requests say, and what replies mean. How the client deals with
//! receivers that are slow or gone is tested where it is (`agent_runtime::http_client`).
#![expect(clippy::unwrap_used, reason = "what a test prepares has to work, or the test fails")]
#![expect(dead_code, reason = "each test file uses a part of what they share")]

mod fixtures;

use std::io::{BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver as Inbox};
use std::time::Duration;

use agent_runtime::http_client::{Endpoint, EndpointError};
use agent_runtime::live_headers::InvalidHeader;
use bytes::Bytes;
use fixtures::{decoded, gauge, point};
use remote_write::client::{Client, SendReport};
use remote_write::encoding::{Encoder, Version};
use remote_write::reply::Reply;
use support::http::HttpMessage;

/// The head of a request in lower case, and its body; `None` if the connection ends.
fn request(reader: &mut BufReader<TcpStream>) -> Option<(String, Vec<u8>)> {
    let HttpMessage { head, body } = HttpMessage::read(reader)?;
    Some((head.to_lowercase(), body))
}

/// Sends `replies` over the only connection, one for each request; closes it after the last one.
fn start(replies: &'static [&'static str]) -> (SocketAddr, Inbox<(String, Vec<u8>)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, inbox) = mpsc::channel();
    std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        // Nobody else gets in.
        drop(listener);
        let mut reader = BufReader::new(stream);
        for reply in replies {
            let Some(request) = request(&mut reader) else { return };
            sender.send(request).unwrap();
            reader.get_mut().write_all(reply.as_bytes()).unwrap();
        }
    });
    (address, inbox)
}

fn receiver(url: String) -> Endpoint {
    Endpoint { url, headers: vec![("X-Scope-OrgID".into(), "shop".into())], ca: None, timeout: Duration::from_secs(20) }
}

fn body(version: Version) -> Bytes {
    let series = gauge(1, 1);
    Bytes::copy_from_slice(Encoder::new().body(version, &[point(&series, 1000, 2.0)]).unwrap())
}

/// Sends a request of each version to `url`.
fn send(url: String, versions: &[(Version, u32)]) -> Vec<SendReport> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let mut client = Client::new(&receiver(url)).unwrap();
        let mut reports = Vec::new();
        for (version, failures) in versions {
            reports.push(client.send(*version, body(*version), *failures).await);
        }
        reports
    })
}

fn http(status: u16, samples_written: Option<u64>) -> Reply {
    Reply::Http {
        status,
        samples_written,
        exemplars_written: None,
        any_written: samples_written.is_some(),
        retry_after: None,
    }
}

#[test]
fn requests_say_what_they_are_and_share_a_connection() {
    let (address, came) = start(&[
        "HTTP/1.1 204 No Content\r\nX-Prometheus-Remote-Write-Samples-Written: 1\r\n\r\n",
        "HTTP/1.1 204 No Content\r\n\r\n",
    ]);

    let reports = send(format!("http://{address}/api/v1/write?x=1"), &[(Version::V2, 0), (Version::V1, 3)]);

    let replies: Vec<_> = reports.into_iter().map(|report| (report.reply, report.text)).collect();
    assert_eq!(replies, [(http(204, Some(1)), String::new()), (http(204, None), String::new())]);
    let ((first, of_two), (second, of_one)) = (came.recv().unwrap(), came.recv().unwrap());
    for expected in [
        "post /api/v1/write?x=1 http/1.1\r\n",
        "\r\ncontent-encoding: snappy\r\n",
        "\r\ncontent-type: application/x-protobuf;proto=io.prometheus.write.v2.request\r\n",
        "\r\nx-prometheus-remote-write-version: 2.0.0\r\n",
        "\r\nuser-agent: uview/",
        "\r\nx-scope-orgid: shop\r\n",
        &format!("\r\nhost: {address}\r\n"),
    ] {
        assert!(first.contains(expected), "{expected:?} in {first}");
    }
    assert!(!first.contains("retry-attempt"));
    for expected in ["\r\ncontent-type: application/x-protobuf\r\n", "-version: 0.1.0\r\n", "\r\nretry-attempt: 3\r\n"]
    {
        assert!(second.contains(expected), "{expected:?} in {second}");
    }
    assert_eq!(decoded(Version::V2, &of_two), decoded(Version::V1, &of_one));
}

#[test]
fn replies_have_what_was_written_and_when_to_come_again_and_none_is_a_reply_too() {
    let (address, came) = start(&[
        "HTTP/1.1 429 Too Many\r\nRetry-After: 7\r\nContent-Length: 11\r\n\r\nslow\n  down",
        "HTTP/1.1 400 Bad\r\nX-Prometheus-Remote-Write-Samples-Written: 3\r\n\
         X-Prometheus-Remote-Write-Exemplars-Written: 2\r\nContent-Length: 3\r\n\r\nold",
        "HTTP/1.1 204 No Content\r\nX-Prometheus-Remote-Write-Histograms-Written: 0\r\nConnection: close\r\n\r\n",
    ]);

    let reports = send(format!("http://{address}"), &[(Version::V2, 0); 4]);

    let reply = |status, samples_written, exemplars_written, any_written, retry_after: Option<&str>| Reply::Http {
        status,
        samples_written,
        exemplars_written,
        any_written,
        retry_after: retry_after.map(str::to_owned),
    };
    let said = |reply: Reply, text: &str| SendReport { reply, text: text.to_owned() };
    assert_eq!(
        reports[..3],
        [
            said(reply(429, None, None, false, Some("7")), "status 429: slow down"),
            said(reply(400, Some(3), Some(2), true, None), "status 400: old"),
            said(reply(204, None, None, true, None), ""),
        ]
    );
    assert_eq!(reports[3].reply, Reply::None);
    let nobody = format!("no connection to {}:{}: ", address.ip(), address.port());
    assert!(reports[3].text.starts_with(&nobody), "{}", reports[3].text);
    assert!(came.recv().unwrap().0.starts_with("post /api/v1/write http/1.1"), "the path that is meant by none");
}

#[test]
fn headers_of_the_protocol_cannot_be_configured() {
    for name in ["Retry-Attempt", "x-prometheus-remote-write-version", "Content-Encoding"] {
        let headers = vec![(name.to_owned(), "1".to_owned())];
        let error = Client::new(&Endpoint { headers, ..receiver("http://x".into()) }).unwrap_err();
        let is_of_protocol = |header: &InvalidHeader| header.why == "it belongs to the protocol";
        assert!(matches!(&error, EndpointError::Header(header) if is_of_protocol(header)), "{error}");
    }
    let error = Client::new(&receiver("prometheus:9090".into())).unwrap_err().to_string();
    assert!(error.contains("http://host:9090/api/v1/write"), "{error}");
}
