//! Requests as they come to a server of a test.

use std::io::BufRead;

/// A request that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpRequest {
    /// Its request line and headers, as they came, with the empty line at their end.
    pub head: String,
    /// As many bytes as its `Content-Length` says; none without one.
    pub body: Vec<u8>,
}

impl HttpRequest {
    /// Reads the next one; `None` if the connection ends before its end.
    #[must_use]
    pub fn read(reader: &mut impl BufRead) -> Option<Self> {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).ok()? == 0 {
                return None;
            }
        }
        let length = |line: &str| line.to_lowercase().strip_prefix("content-length:")?.trim().parse().ok();
        let mut body = vec![0; head.lines().find_map(length).unwrap_or(0)];
        reader.read_exact(&mut body).ok()?;
        Some(Self { head, body })
    }

    /// The path with its query.
    #[must_use]
    pub fn path(&self) -> &str {
        self.head.split(' ').nth(1).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_as_many_bytes_as_its_head_says() {
        let mut two = &b"POST /a?b HTTP/1.1\r\nContent-Length: 3\r\n\r\nxyzGET / HTTP/1.1\r\nhost: a\r\n\r\n"[..];

        let first = HttpRequest::read(&mut two).unwrap();
        assert_eq!((first.path(), &first.body[..]), ("/a?b", &b"xyz"[..]));
        let second = HttpRequest::read(&mut two).unwrap();
        assert_eq!((second.head.as_str(), second.body), ("GET / HTTP/1.1\r\nhost: a\r\n\r\n", Vec::new()));
        assert_eq!(HttpRequest::read(&mut two), None);
        assert_eq!(HttpRequest::read(&mut &b"POST / HTTP/1.1\r\ncontent-length: 9\r\n\r\nx"[..]), None);
    }
}
