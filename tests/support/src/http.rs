//! HTTP/1.1 of tests: what comes to a server, and a client that sends one request.

use core::fmt;
use std::io::{self, BufRead, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};

/// A request or a response that was read from a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpMessage {
    /// Its first line and its headers, as they came, with the empty line at their end.
    pub head: String,
    /// As many bytes as its `Content-Length` says; none without one.
    pub body: Vec<u8>,
}

impl HttpMessage {
    /// Reads the next one; `None` if the connection ends before its end.
    #[must_use]
    pub fn read(reader: &mut impl BufRead) -> Option<Self> {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).ok()? == 0 {
                return None;
            }
        }
        let mut body = vec![0; content_length(&head).unwrap_or(0)];
        reader.read_exact(&mut body).ok()?;
        Some(Self { head, body })
    }

    /// The path of a request, with its query.
    #[must_use]
    pub fn path(&self) -> &str {
        self.head.split(' ').nth(1).unwrap_or_default()
    }
}

/// The bytes of a body, as its head says.
fn content_length(head: &str) -> Option<usize> {
    head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length:")?.trim().parse().ok())
}

/// What a server answered before it closed the connection.
#[derive(Clone, PartialEq, Eq)]
pub struct HttpResponse {
    /// Status line and headers, without the empty line at their end.
    pub head: String,
    /// What came after them.
    pub body: Vec<u8>,
}

impl fmt::Debug for HttpResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let body = String::from_utf8_lossy(&self.body);
        f.debug_struct("HttpResponse").field("head", &self.head).field("body", &body).finish()
    }
}

impl HttpResponse {
    /// The status line, such as `HTTP/1.1 200 OK`.
    #[must_use]
    pub fn status(&self) -> &str {
        self.head.lines().next().unwrap_or_default()
    }

    /// Whether the status is 200.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.status() == "HTTP/1.1 200 OK"
    }

    /// The body as a text.
    ///
    /// # Errors
    ///
    /// A byte of it is no UTF-8: [`io::ErrorKind::InvalidData`].
    pub fn text(self) -> io::Result<String> {
        text(self.body)
    }
}

fn text(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// What a server answers to a GET of `path`.
///
/// # Errors
///
/// Nobody listens, the connection ends before the response does, or a byte of the head is no UTF-8.
pub fn get(address: impl ToSocketAddrs, path: &str) -> io::Result<HttpResponse> {
    exchange(TcpStream::connect(address)?, &format!("GET {path}"), "", &[])
}

/// What a server answers to a POST of `body` to `path`.
///
/// # Errors
///
/// Those of [`get`].
pub fn post(address: impl ToSocketAddrs, path: &str, content_type: &str, body: &[u8]) -> io::Result<HttpResponse> {
    let headers = format!("content-type: {content_type}\r\n");
    exchange(TcpStream::connect(address)?, &format!("POST {path}"), &headers, body)
}

/// Sends one request over `connection`: its method and path, further headers, each with its line's end, and its body.
///
/// # Errors
///
/// The connection ends before the response does: before the end of the head, or of as many bytes of a body as that
/// says; or a byte of the head is no UTF-8.
pub fn exchange(
    mut connection: impl Read + Write,
    request: &str,
    headers: &str,
    body: &[u8],
) -> io::Result<HttpResponse> {
    let length = body.len();
    let head = format!(
        "{request} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}content-length: {length}\r\n\r\n"
    );
    // A request may be refused before all of it was sent.
    _ = connection.write_all(head.as_bytes()).and_then(|()| connection.write_all(body));
    let mut answer = Vec::new();
    connection.read_to_end(&mut answer)?;
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
    let body = answer.split_off(end + 4);
    answer.truncate(end);
    let head = text(answer)?;
    if content_length(&head).is_some_and(|length| body.len() < length) {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(HttpResponse { head, body })
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_response_is_read_to_its_end_and_half_of_one_is_none() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let answers = [
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nx\ny",
            "HTTP/1.1 404 Not Found\r\n\r\n",
            "HTTP/1.1 200 OK\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nx\ny",
        ];
        let server = std::thread::spawn(move || {
            answers.map(|answer| {
                let (stream, _) = listener.accept().unwrap();
                let request = HttpMessage::read(&mut BufReader::new(&stream)).unwrap();
                (&stream).write_all(answer.as_bytes()).unwrap();
                (request.path().to_owned(), request.body)
            })
        });

        let fine = get(address, "/a").unwrap();
        let missing = post(address, "/b", "text/plain", b"xyz").unwrap();
        let [head, body] = ["/c", "/d"].map(|path| get(address, path).map_err(|error| error.kind()));

        assert_eq!((fine.status(), &fine.body[..], fine.is_ok()), ("HTTP/1.1 200 OK", &b"x\ny"[..], true));
        assert_eq!((missing.status(), missing.is_ok()), ("HTTP/1.1 404 Not Found", false));
        assert_eq!((head, body), (Err(io::ErrorKind::UnexpectedEof), Err(io::ErrorKind::UnexpectedEof)));
        let requests = [("/a", &b""[..]), ("/b", &b"xyz"[..]), ("/c", &b""[..]), ("/d", &b""[..])];
        assert_eq!(server.join().unwrap(), requests.map(|(path, body)| (path.to_owned(), body.to_vec())));
    }

    #[test]
    fn a_body_that_is_no_utf_8_is_no_text() {
        let response = |body: &[u8]| HttpResponse { head: "HTTP/1.1 200 OK".to_owned(), body: body.to_vec() };

        assert_eq!(response("mäx".as_bytes()).text().unwrap(), "mäx");
        assert_eq!(response(b"m\xe4x").text().map_err(|error| error.kind()), Err(io::ErrorKind::InvalidData));
    }

    #[test]
    fn a_request_has_as_many_bytes_as_its_head_says() {
        let mut two = &b"POST /a?b HTTP/1.1\r\nContent-Length: 3\r\n\r\nxyzGET / HTTP/1.1\r\nhost: a\r\n\r\n"[..];

        let first = HttpMessage::read(&mut two).unwrap();
        assert_eq!((first.path(), &first.body[..]), ("/a?b", &b"xyz"[..]));
        let second = HttpMessage::read(&mut two).unwrap();
        assert_eq!((second.head.as_str(), second.body), ("GET / HTTP/1.1\r\nhost: a\r\n\r\n", Vec::new()));
        assert_eq!(HttpMessage::read(&mut two), None);
        assert_eq!(HttpMessage::read(&mut &b"POST / HTTP/1.1\r\ncontent-length: 9\r\n\r\nx"[..]), None);
    }
}
