//! The client against receivers with real sockets: well behaved, slow, gone, or closing in the middle.
#![expect(clippy::unwrap_used, reason = "what a test prepares has to work, or the test fails")]
#![expect(dead_code, reason = "each test file uses a part of what they share")]

mod support;

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver as Inbox, Sender};
use std::time::Duration;

use agent_runtime::TlsError;
use bytes::Bytes;
use remote_write::client::{Client, Receiver, ReceiverError, SendReport};
use remote_write::encoding::{Encoder, Version};
use remote_write::reply::Reply;
use support::{decoded, gauge, point};

/// What a receiver does with a request.
#[derive(Clone, Debug)]
enum ReceiverAction {
    /// Reads it and responds.
    Reply(&'static str),
    /// Reads the beginning of it and closes.
    CloseInside,
    /// Reads it and never responds.
    Silence,
    /// Reads it, responds, and closes without notice.
    AnswerAndClose(&'static str),
}

/// A received request: its head in lower case, its body, and the number of the connection.
struct ReceivedRequest {
    head: String,
    body: Vec<u8>,
    connection: usize,
}

fn request(reader: &mut BufReader<TcpStream>) -> Option<(String, Vec<u8>)> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let head = head.to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).map_or(0, |n| n.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((head, body))
}

/// Executes `acts`, one request after the other; ends with them.
fn serve(listener: &TcpListener, mut acts: VecDeque<ReceiverAction>, came: &Sender<ReceivedRequest>) {
    let mut held = Vec::new();
    for connection in 0.. {
        if acts.is_empty() {
            return;
        }
        let (stream, _) = listener.accept().unwrap();
        let mut reader = BufReader::new(stream);
        while let Some(act) = acts.front() {
            if let ReceiverAction::CloseInside = act {
                let mut some = [0; 64];
                if reader.read(&mut some).unwrap_or(0) > 0 {
                    acts.pop_front();
                }
                break;
            }
            // Nothing more on this connection: on to the next one.
            let Some((head, body)) = request(&mut reader) else { break };
            let act = acts.pop_front().unwrap();
            came.send(ReceivedRequest { head, body, connection }).unwrap();
            match act {
                ReceiverAction::Reply(answer) => reader.get_mut().write_all(answer.as_bytes()).unwrap(),
                ReceiverAction::AnswerAndClose(answer) => {
                    reader.get_mut().write_all(answer.as_bytes()).unwrap();
                    break;
                }
                ReceiverAction::Silence | ReceiverAction::CloseInside => {
                    held.push(reader);
                    break;
                }
            }
        }
    }
}

fn start(acts: impl IntoIterator<Item = ReceiverAction>) -> (SocketAddr, Inbox<ReceivedRequest>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, inbox) = mpsc::channel();
    let acts = acts.into_iter().collect();
    std::thread::spawn(move || serve(&listener, acts, &sender));
    (address, inbox)
}

fn receiver(url: String) -> Receiver {
    Receiver { url, headers: vec![("X-Scope-OrgID".into(), "shop".into())], ca: None, timeout: Duration::from_secs(20) }
}

fn client(address: SocketAddr) -> Client {
    Client::new(&receiver(format!("http://{address}/api/v1/write?x=1"))).unwrap()
}

fn body(version: Version) -> Bytes {
    let series = gauge(1, 1);
    Bytes::copy_from_slice(Encoder::new().body(version, &[point(&series, 1000, 2.0)]).unwrap())
}

fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

const FINE: &str = "HTTP/1.1 204 No Content\r\nX-Prometheus-Remote-Write-Samples-Written: 1\r\n\r\n";

fn fine(samples_written: Option<u64>) -> Reply {
    Reply::Http {
        status: 204,
        samples_written,
        exemplars_written: None,
        any_written: samples_written.is_some(),
        retry_after: None,
    }
}

#[test]
fn requests_say_what_they_are_and_share_a_connection() {
    let (address, came) =
        start([ReceiverAction::Reply(FINE), ReceiverAction::Reply("HTTP/1.1 204 No Content\r\n\r\n")]);

    let (two, one) = run(async {
        let mut client = client(address);
        let two = client.send(Version::V2, body(Version::V2), 0).await;
        (two, client.send(Version::V1, body(Version::V1), 3).await)
    });

    assert_eq!((two.reply, one.reply), (fine(Some(1)), fine(None)));
    let (first, second) = (came.recv().unwrap(), came.recv().unwrap());
    for expected in [
        "post /api/v1/write?x=1 http/1.1\r\n",
        "\r\ncontent-encoding: snappy\r\n",
        "\r\ncontent-type: application/x-protobuf;proto=io.prometheus.write.v2.request\r\n",
        "\r\nx-prometheus-remote-write-version: 2.0.0\r\n",
        "\r\nuser-agent: uview/",
        "\r\nx-scope-orgid: shop\r\n",
        &format!("\r\nhost: {address}\r\n"),
    ] {
        assert!(first.head.contains(expected), "{expected:?} in {}", first.head);
    }
    assert!(!first.head.contains("retry-attempt"));
    for expected in ["\r\ncontent-type: application/x-protobuf\r\n", "-version: 0.1.0\r\n", "\r\nretry-attempt: 3\r\n"]
    {
        assert!(second.head.contains(expected), "{expected:?} in {}", second.head);
    }
    assert_eq!(decoded(Version::V2, &first.body), decoded(Version::V1, &second.body));
    assert_eq!((first.connection, second.connection), (0, 0));
}

#[test]
fn one_that_closes_in_the_middle_or_after_an_answer_is_asked_again_over_a_new_connection() {
    let (address, came) =
        start([ReceiverAction::CloseInside, ReceiverAction::AnswerAndClose(FINE), ReceiverAction::Reply(FINE)]);

    let report: Vec<SendReport> = run(async {
        let mut client = client(address);
        let mut report = Vec::new();
        while report.iter().filter(|report: &&SendReport| report.reply != Reply::None).count() < 2 && report.len() < 10
        {
            // Larger than the buffers of both sides: it cannot have been sent completely.
            let large = Bytes::from(vec![0; 8 << 20]);
            let body = if report.is_empty() { large } else { body(Version::V1) };
            report.push(client.send(Version::V1, body, 0).await);
        }
        report
    });

    assert_eq!(report[0].reply, Reply::None);
    assert!(report[0].text.starts_with("no response"), "{}", report[0].text);
    assert_eq!(report.last().unwrap().reply, fine(Some(1)));
    let connections: Vec<_> = came.iter().map(|came| came.connection).collect();
    assert_eq!(connections.len(), 2);
    assert!(connections[0] < connections[1]);
}

#[test]
fn one_that_says_nothing_is_waited_for_no_longer_than_allowed_and_then_left() {
    let (address, came) = start([ReceiverAction::Silence, ReceiverAction::Reply(FINE)]);
    let short = Receiver { timeout: Duration::from_secs(3), ..receiver(format!("http://{address}")) };

    let (first, second) = run(async {
        let mut client = Client::new(&short).unwrap();
        let first = client.send(Version::V1, body(Version::V1), 0).await;
        (first, client.send(Version::V1, body(Version::V1), 1).await)
    });

    assert_eq!(first, SendReport { reply: Reply::None, text: "no response within 3s".into() });
    assert_eq!(second.reply, fine(Some(1)));
    assert!(came.recv().unwrap().head.starts_with("post /api/v1/write http/1.1"), "the path that is meant by none");
}

#[test]
fn nobody_there_is_no_answer() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();

    let report = run(async { client(address).send(Version::V1, body(Version::V1), 0).await });

    assert_eq!(report.reply, Reply::None);
    assert!(
        report.text.starts_with(&format!("no connection to {}:{}", address.ip(), address.port())),
        "{}",
        report.text
    );
}

#[test]
fn what_a_receiver_says_is_read_and_shown_but_not_without_end() {
    const SLOW_DOWN: &str = "HTTP/1.1 429 Too Many\r\nRetry-After: 7\r\nContent-Length: 11\r\n\r\nslow\n  down";
    let endless: &'static str = Box::leak(
        format!("HTTP/1.1 400 Bad\r\nContent-Length: 500000\r\n\r\n{}", "x".repeat(500_000)).into_boxed_str(),
    );
    let (address, came) =
        start([ReceiverAction::Reply(SLOW_DOWN), ReceiverAction::AnswerAndClose(endless), ReceiverAction::Reply(FINE)]);

    let (slow, long, after) = run(async {
        let mut client = client(address);
        let slow = client.send(Version::V1, body(Version::V1), 0).await;
        let long = client.send(Version::V1, body(Version::V1), 0).await;
        (slow, long, client.send(Version::V1, body(Version::V1), 0).await)
    });

    let asked = Reply::Http {
        status: 429,
        samples_written: None,
        exemplars_written: None,
        any_written: false,
        retry_after: Some("7".into()),
    };
    assert_eq!(slow, SendReport { reply: asked, text: "status 429: slow down".into() });
    assert!(matches!(long.reply, Reply::Http { status: 400, .. }));
    assert!(long.text.len() < 500);
    assert_eq!(after.reply, fine(Some(1)));
    let connections: Vec<_> = came.iter().map(|came| came.connection).collect();
    assert_eq!(connections, [0, 0, 1]);
}

#[test]
fn what_nothing_can_be_sent_to_is_refused_with_what_is_wrong() {
    for (url, why) in [
        ("prometheus", "does not begin with http"),
        ("ftp://prometheus/", "does not begin with http"),
        ("http://", "cannot be read"),
        ("http://a:b@prometheus/", "Authorization"),
    ] {
        let error = Client::new(&receiver(url.into())).unwrap_err().to_string();
        assert!(error.contains(why), "{url}: {error}");
    }
    for (name, value, why) in
        [("Content-Type", "x", "belongs to the protocol"), ("a b", "x", "not legal"), ("a", "x\ny", "value")]
    {
        let headers = vec![(name.to_owned(), value.to_owned())];
        let error = Client::new(&Receiver { headers, ..receiver("http://x".into()) }).unwrap_err().to_string();
        assert!(error.contains(why), "{name}: {error}");
    }
    let nowhere = Receiver { ca: Some("/nowhere.pem".into()), ..receiver("https://x".into()) };
    assert!(matches!(Client::new(&nowhere), Err(ReceiverError::Tls(TlsError::Read { .. }))));
    let secret = Receiver { headers: vec![("a".into(), "secret".into())], ..receiver("http://x".into()) };
    assert!(!format!("{secret:?}").contains("secret"));
}
