//! Pages that the client reads: from servers that are well behaved, slow, gone, or send too much.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc::{Receiver as Inbox, channel};
use std::time::Duration;

use agent_runtime::http_client::{Client, Endpoint, GetError, Page};

use super::run;

/// Sends `replies`, one for each request, and closes the connection after the ones that say so. Returns the heads of
/// requests with the number of their connection.
fn serve(replies: Vec<String>) -> (SocketAddr, Inbox<(usize, String)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, heads) = channel();
    std::thread::spawn(move || {
        let mut replies = replies.into_iter().peekable();
        for connection in 0.. {
            if replies.peek().is_none() {
                return;
            }
            let (mut stream, _) = listener.accept().unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            'requests: loop {
                let mut head = String::new();
                while !head.ends_with("\r\n\r\n") {
                    if reader.read_line(&mut head).unwrap_or(0) == 0 {
                        break 'requests;
                    }
                }
                let Some(reply) = replies.next() else { return };
                sender.send((connection, head.to_lowercase())).unwrap();
                let written = stream.write_all(reply.as_bytes());
                if written.is_err() || reply.contains("connection: close") {
                    break;
                }
            }
        }
    });
    (address, heads)
}

fn reply(headers: &str, body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\n{headers}content-length: {}\r\n\r\n{body}", body.len())
}

fn client(address: SocketAddr, millis: u64) -> Client {
    let url = format!("http://{address}");
    let headers = vec![("authorization".to_owned(), "Bearer x".to_owned())];
    Client::new(&Endpoint { url, headers, ca: None, timeout: Duration::from_millis(millis) }, "/metrics").unwrap()
}

/// Asks once for each of `limits`. Returns what came, with the body.
fn get(client: &mut Client, limits: &[usize]) -> Vec<Result<(Page, String), GetError>> {
    run(async {
        let mut all = Vec::new();
        for limit in limits {
            let mut body = b"of before".to_vec();
            let page = client.get("text/plain", &mut body, *limit).await;
            all.push(page.map(|page| (page, String::from_utf8(body).unwrap())));
        }
        all
    })
}

#[test]
fn pages_come_over_one_connection_and_over_another_when_it_closes() {
    let kind = "content-type: text/plain; version=0.0.4\r\n";
    let replies =
        [reply(kind, "a 1\n"), reply("connection: close\r\n", "a 2\n"), reply("content-encoding: gzip\r\n", "x")];
    let (address, heads) = serve(replies.to_vec());

    let came = get(&mut client(address, 20_000), &[100; 3]);

    let came: Vec<_> = came.into_iter().map(Result::unwrap).collect();
    assert_eq!(came.iter().map(|(_, body)| body.as_str()).collect::<Vec<_>>(), ["a 1\n", "a 2\n", "x"]);
    assert_eq!(came[0].0.content_type.as_deref(), Some("text/plain; version=0.0.4"));
    assert_eq!((came[1].0.encoding.as_deref(), came[2].0.encoding.as_deref()), (None, Some("gzip")));
    let heads: Vec<_> = heads.try_iter().collect();
    assert_eq!(heads.iter().map(|(connection, _)| *connection).collect::<Vec<_>>(), [0, 0, 1]);
    for wanted in ["get /metrics http/1.1", "accept: text/plain", "accept-encoding: gzip", "authorization: bearer x"] {
        assert!(heads[0].1.contains(wanted), "{wanted}: {}", heads[0].1);
    }
}

#[test]
fn a_page_that_is_too_long_is_refused_and_the_next_one_is_read() {
    let (address, _heads) = serve(vec![reply("", &"x".repeat(1_000)), reply("", "a 1\n")]);

    let came = get(&mut client(address, 20_000), &[999, 1_000]);

    assert!(matches!(came[0], Err(GetError::TooLong(999))), "{came:?}");
    assert_eq!(came[1].as_ref().unwrap().1, "a 1\n");
}

#[test]
fn each_failure_has_its_kind() {
    let (address, _heads) =
        serve(vec!["HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_owned(), String::new()]);
    let mut asked = client(address, 3_000);
    let came = get(&mut asked, &[10, 10]);
    let (broken, _other) = serve(vec!["connection: close, and no HTTP\r\n\r\n".to_owned()]);
    let broken = get(&mut client(broken, 20_000), &[10]);
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let gone = get(&mut client(nobody, 20_000), &[10]);

    let reasons: Vec<_> = came.into_iter().chain(broken).chain(gone).map(|came| came.unwrap_err().reason()).collect();
    assert_eq!(reasons, ["status", "deadline", "http", "connect"]);
}
