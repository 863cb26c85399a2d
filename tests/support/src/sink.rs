//! A sink for what agents send: accepts everything by HTTP.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};

/// Serves at a free port of this machine until this process ends; each connection has a thread, which passes every
/// request's body to `body`.
///
/// # Errors
///
/// No socket can be created.
pub fn serve<F: FnMut(&[u8]) + Send + 'static>(body: impl Fn() -> F + Send + 'static) -> io::Result<SocketAddr> {
    serve_at(TcpListener::bind("127.0.0.1:0")?, body)
}

/// The same with a listener that there is.
///
/// # Errors
///
/// It has no address.
pub fn serve_at<F: FnMut(&[u8]) + Send + 'static>(
    listener: TcpListener,
    body: impl Fn() -> F + Send + 'static,
) -> io::Result<SocketAddr> {
    let address = listener.local_addr()?;
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let mut body = body();
            std::thread::spawn(move || {
                let mut message = Message::default();
                while message.read(&stream).is_some_and(|taken| answer(&stream, taken, &mut body)) {}
            });
        }
    });
    Ok(address)
}

fn answer(mut stream: &TcpStream, taken: &[u8], body: &mut impl FnMut(&[u8])) -> bool {
    body(taken);
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").is_ok()
}

/// A reusable buffer for HTTP messages.
#[derive(Debug, Default)]
pub struct Message(Vec<u8>);

impl Message {
    /// Reads the next message with a content length, and returns its body; `None` at the connection's end. There is no
    /// pipelining.
    pub fn read(&mut self, mut stream: &TcpStream) -> Option<&[u8]> {
        self.0.clear();
        let mut buffer = [0; 16 << 10];
        let (head, length) = loop {
            let some = stream.read(&mut buffer).ok().filter(|some| *some > 0)?;
            self.0.extend_from_slice(&buffer[..some]);
            if let Some(end) = self.0.windows(4).position(|window| window == b"\r\n\r\n") {
                let head = String::from_utf8_lossy(&self.0[..end]).to_lowercase();
                let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.trim().parse().ok());
                break (end + 4, length.unwrap_or(0));
            }
        };
        let (here, whole) = (self.0.len(), head + length);
        self.0.resize(whole.max(here), 0);
        stream.read_exact(&mut self.0[here.min(whole)..whole]).ok()?;
        Some(&self.0[head..whole])
    }
}
