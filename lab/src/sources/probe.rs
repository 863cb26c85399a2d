//! What clients feel of a fault: one request each 100 ms to each program, over a connection of its own, and how long
//! its answer takes. A fault that no client feels is not there to be noticed; one that they feel and we do not is
//! missed.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::Sender;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use support::clock::Stopwatch;
use wire::time::Nanos;

use super::schedule::Program;

/// Time between two requests.
const PERIOD: Duration = Duration::from_millis(100);
/// A request that has no answer by then has failed.
const LIMIT: Duration = Duration::from_secs(1);
/// What PostgreSQL is asked to change: each request waits for the disk.
pub const TABLE: &str = "CREATE TABLE IF NOT EXISTS probe AS SELECT 0 AS n";

/// A request and its answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Felt {
    pub program: Program,
    /// When it was sent.
    pub at: Nanos,
    /// How long the answer took; `None`: it did not come within a second, or was an error.
    pub took: Option<Nanos>,
}

/// Asks `program` until nobody listens any more.
pub fn start(program: Program, address: SocketAddr, (clock, to): (Stopwatch, Sender<Felt>)) {
    std::thread::spawn(move || {
        let mut connection = None;
        loop {
            let sent = clock.elapsed();
            let answer = ask(program, address, &mut connection);
            if answer.is_err() {
                connection = None;
            }
            let took = clock.elapsed().saturating_sub(sent);
            let took = answer.is_ok().then_some(took).filter(|took| *took < LIMIT).map(Nanos::from);
            if to.send(Felt { program, at: sent.into(), took }).is_err() {
                return;
            }
            std::thread::sleep(PERIOD.saturating_sub(clock.elapsed().saturating_sub(sent)));
        }
    });
}

fn ask(program: Program, address: SocketAddr, connection: &mut Option<TcpStream>) -> Result<()> {
    let stream = match connection {
        Some(stream) => stream,
        None => connection.insert(connect(program, address)?),
    };
    match program {
        Program::Redis => {
            stream.write_all(b"SET probe 1\r\n")?;
            let mut answer = [0; 5];
            stream.read_exact(&mut answer)?;
            ensure!(&answer == b"+OK\r\n", "Redis answers {answer:?}");
        }
        Program::Nginx => {
            stream.write_all(b"GET /page.html HTTP/1.1\r\nHost: probe\r\n\r\n")?;
            page(stream)?;
        }
        Program::Postgres => {
            let query = b"UPDATE probe SET n = n + 1\0";
            stream.write_all(b"Q")?;
            stream.write_all(&(query.len() as u32 + 4).to_be_bytes())?;
            stream.write_all(query)?;
            until_ready(stream)?;
        }
    }
    Ok(())
}

fn connect(program: Program, address: SocketAddr) -> Result<TcpStream> {
    let mut stream = TcpStream::connect_timeout(&address, LIMIT)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_write_timeout(Some(LIMIT))?;
    stream.set_nodelay(true)?;
    if program == Program::Postgres {
        // Protocol 3.0: length, version, parameters.
        let parameters = b"user\0postgres\0database\0postgres\0\0";
        stream.write_all(&(parameters.len() as u32 + 8).to_be_bytes())?;
        stream.write_all(&(3_u32 << 16).to_be_bytes())?;
        stream.write_all(parameters)?;
        until_ready(&mut stream)?;
    }
    Ok(stream)
}

/// Reads an answer of HTTP to its end.
fn page(stream: &mut TcpStream) -> Result<()> {
    let (mut answer, mut buffer) = (Vec::new(), [0; 16 << 10]);
    loop {
        let read = stream.read(&mut buffer)?;
        ensure!(read > 0, "the connection was closed");
        answer.extend_from_slice(buffer.get(..read).unwrap_or_default());
        let Some(head) = answer.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let text = String::from_utf8_lossy(answer.get(..head).unwrap_or_default()).to_lowercase();
        let (_, length) = text.split_once("content-length: ").context("no length")?;
        let length: usize = length.lines().next().unwrap_or_default().trim().parse()?;
        if answer.len() >= head + 4 + length {
            return Ok(());
        }
    }
}

/// Reads PostgreSQL's messages until it is ready for the next query.
fn until_ready(stream: &mut TcpStream) -> Result<()> {
    loop {
        let mut header = [0; 5];
        stream.read_exact(&mut header)?;
        let [kind, length @ ..] = header;
        let mut rest = vec![0; (u32::from_be_bytes(length) as usize).saturating_sub(4).min(1 << 20)];
        stream.read_exact(&mut rest)?;
        match kind {
            b'Z' => return Ok(()),
            b'E' => bail!("PostgreSQL answers {}", String::from_utf8_lossy(&rest)),
            _ => {}
        }
    }
}
