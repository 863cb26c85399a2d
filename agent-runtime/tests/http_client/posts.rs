//! Bodies that the client sends: to servers that are well behaved, slow, gone, or closing in the middle.

use std::collections::VecDeque;
use std::io::{BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver as Inbox, Sender};
use std::time::Duration;

use agent_runtime::TlsError;
use agent_runtime::http_client::{Client, Endpoint, EndpointError, Response, SendError};
use bytes::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use support::http::HttpMessage;

use super::run;

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
    let HttpMessage { head, body } = HttpMessage::read(reader)?;
    Some((head.to_lowercase(), body))
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

fn endpoint(url: String) -> Endpoint {
    Endpoint { url, headers: vec![("X-Scope-OrgID".into(), "shop".into())], ca: None, timeout: Duration::from_secs(20) }
}

fn client(address: SocketAddr) -> Client {
    Client::new(&endpoint(format!("http://{address}/api/v1/write?x=1")), "/").unwrap()
}

/// Sends a few bytes.
async fn post(client: &mut Client) -> Result<Response, SendError> {
    client.post(HeaderMap::new(), Bytes::from_static(b"samples")).await
}

const FINE: &str = "HTTP/1.1 204 No Content\r\nX-Written: 1\r\n\r\n";

#[test]
fn requests_have_the_headers_of_their_kind_and_the_configured_ones_and_share_a_connection() {
    let (address, came) = start([ReceiverAction::Reply(FINE), ReceiverAction::Reply(FINE)]);

    let (first, second) = run(async {
        let mut client = client(address);
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        // What is configured does not come before what the protocol needs.
        headers.insert("x-scope-orgid", HeaderValue::from_static("of-the-protocol"));
        let first = client.post(headers, Bytes::from_static(b"samples")).await;
        (first, client.post_json(b"{}".to_vec()).await)
    });

    for response in [first.unwrap(), second.unwrap()] {
        assert_eq!((response.status, response.text("x-written"), response.text("x-other")), (204, Some("1"), None));
        assert_eq!((response.body.len(), response.refusal()), (0, String::new()));
    }
    let (first, second) = (came.recv().unwrap(), came.recv().unwrap());
    for expected in [
        "post /api/v1/write?x=1 http/1.1\r\n",
        "\r\ncontent-type: application/x-protobuf\r\n",
        "\r\nuser-agent: uview/",
        "\r\nx-scope-orgid: of-the-protocol\r\n",
        &format!("\r\nhost: {address}\r\n"),
    ] {
        assert!(first.head.contains(expected), "{expected:?} in {}", first.head);
    }
    for expected in ["\r\ncontent-type: application/json\r\n", "\r\nx-scope-orgid: shop\r\n"] {
        assert!(second.head.contains(expected), "{expected:?} in {}", second.head);
    }
    assert_eq!((first.body, second.body), (b"samples".to_vec(), b"{}".to_vec()));
    assert_eq!((first.connection, second.connection), (0, 0));
}

#[test]
fn headers_that_are_replaced_go_with_the_next_request_over_the_same_connection() {
    let (address, came) = start([ReceiverAction::Reply(FINE), ReceiverAction::Reply(FINE)]);
    let renewed = |value: &str| [("x-scope-orgid".to_owned(), value.to_owned())];

    let refused = run(async {
        let mut client = client(address);
        post(&mut client).await.unwrap();
        let headers = client.headers().clone();
        assert!(headers.renewal(&renewed("bank")).unwrap().take());
        let refused = headers.renewal(&[("Host".to_owned(), "a".to_owned())]).unwrap_err();
        post(&mut client).await.unwrap();
        refused
    });

    assert_eq!(refused.to_string(), "invalid header `Host`: it belongs to the protocol");
    let (first, second) = (came.recv().unwrap(), came.recv().unwrap());
    assert!(first.head.contains("\r\nx-scope-orgid: shop\r\n"), "{}", first.head);
    assert!(second.head.contains("\r\nx-scope-orgid: bank\r\n") && !second.head.contains("shop"), "{}", second.head);
    assert_eq!((first.connection, second.connection), (0, 0));
}

#[test]
fn one_that_closes_in_the_middle_or_after_an_answer_is_asked_again_over_a_new_connection() {
    let (address, came) =
        start([ReceiverAction::CloseInside, ReceiverAction::AnswerAndClose(FINE), ReceiverAction::Reply(FINE)]);

    let sent: Vec<Result<Response, SendError>> = run(async {
        let mut client = client(address);
        let mut sent: Vec<Result<Response, SendError>> = Vec::new();
        while sent.iter().filter(|sent| sent.is_ok()).count() < 2 && sent.len() < 10 {
            if sent.is_empty() {
                // Larger than the buffers of both sides: it cannot have been sent completely.
                sent.push(client.post(HeaderMap::new(), Bytes::from(vec![0; 8 << 20])).await);
            } else {
                sent.push(post(&mut client).await);
            }
        }
        sent
    });

    let error = sent[0].as_ref().unwrap_err();
    assert!(matches!(error, SendError::Http(_)) && error.to_string().starts_with("no response: "), "{error:?}");
    assert!(matches!(sent.last().unwrap(), Ok(Response { status: 204, .. })), "{sent:?}");
    let connections: Vec<_> = came.iter().map(|came| came.connection).collect();
    assert_eq!(connections.len(), 2);
    assert!(connections[0] < connections[1]);
}

#[test]
fn one_that_says_nothing_is_waited_for_no_longer_than_allowed_and_then_left() {
    let (address, came) = start([ReceiverAction::Silence, ReceiverAction::Reply(FINE)]);
    let short = Endpoint { timeout: Duration::from_secs(3), ..endpoint(format!("http://{address}")) };

    let (first, second) = run(async {
        let mut client = Client::new(&short, "/api/v1/write").unwrap();
        let first = post(&mut client).await;
        (first, post(&mut client).await)
    });

    assert_eq!(first.unwrap_err().to_string(), "no response within 3s");
    assert_eq!(second.unwrap().status, 204);
    assert!(came.recv().unwrap().head.starts_with("post /api/v1/write http/1.1"), "the path that is meant by none");
}

#[test]
fn nobody_there_is_no_answer() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();

    let error = run(async { post(&mut client(address)).await }).unwrap_err().to_string();

    let expected = format!("no connection to {}:{}", address.ip(), address.port());
    assert!(error.starts_with(&expected), "{error}");
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
        let slow = post(&mut client).await.unwrap();
        let long = post(&mut client).await.unwrap();
        (slow, long, post(&mut client).await.unwrap())
    });

    assert_eq!((slow.status, slow.text("retry-after")), (429, Some("7")));
    assert_eq!(slow.refusal(), "status 429: slow down");
    assert_eq!((long.status, long.body.len()), (400, 64 << 10));
    assert!(long.refusal().len() < 500);
    assert_eq!(after.status, 204);
    let connections: Vec<_> = came.iter().map(|came| came.connection).collect();
    assert_eq!(connections, [0, 0, 1]);
}

#[test]
fn what_nothing_can_be_sent_to_is_refused_with_what_is_wrong() {
    let refused = |endpoint: &Endpoint| Client::new(endpoint, "/api/v1/write").unwrap_err();
    for (url, why) in [
        ("prometheus", "does not begin with http"),
        ("ftp://prometheus/", "does not begin with http"),
        ("http://", "cannot be read"),
        ("http://a:b@prometheus/", "Authorization"),
        ("prometheus:9090", "use one such as http://host:9090/api/v1/write"),
    ] {
        let error = refused(&endpoint(url.into())).to_string();
        assert!(error.contains(why), "{url}: {error}");
    }
    for (name, value, why) in
        [("Content-Type", "x", "belongs to the protocol"), ("a b", "x", "not legal"), ("a", "x\ny", "value")]
    {
        let headers = vec![(name.to_owned(), value.to_owned())];
        let error = refused(&Endpoint { headers, ..endpoint("http://x".into()) }).to_string();
        assert!(error.contains(why), "{name}: {error}");
    }
    let nowhere = Endpoint { ca: Some("/nowhere.pem".into()), ..endpoint("https://x".into()) };
    assert!(matches!(refused(&nowhere), EndpointError::Tls(TlsError::Read { .. })));
    let secret = Endpoint { headers: vec![("a".into(), "secret".into())], ..endpoint("http://x".into()) };
    assert!(!format!("{secret:?}").contains("secret"));
}
