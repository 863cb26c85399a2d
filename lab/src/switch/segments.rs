//! A server that sends segment after segment, each a write of its own, on connections that last.
//!
//! There are as many connections as one prefix has rows of heavy flows, in a host's own synopsis and in the program. So
//! each has a row for itself, and all of its packets but the first one are checked by both. More of them would be
//! sampled: by each side others, until a record is given up by a rule of its own.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use support::clock::Stopwatch;
use support::network::{HERE, Network};

use super::server::{PATIENCE, address, listen};

/// Connections: one for each of the two stages of heavy flows.
const CONNECTIONS: usize = 2;
/// Pause between two segments of a connection. Of uniform delays from 1 to 4 ms, the earlier one is longer by more than
/// that in one of eighteen pairs: 1² / (2 · 3²).
const BEAT: Duration = Duration::from_millis(2);
/// Segments of all connections that are sent alone, in about a second. Each 64 s a host begins anew, and then compares
/// the next segment of each connection with none: one that is out of order, just then, is missing in its count.
const ALONE: u64 = 1_000;
/// Between two looks whether they have been sent.
const LOOK: Duration = Duration::from_millis(10);
const SEGMENT: [u8; 300] = [7; 300];

/// How much is sent.
#[derive(Debug)]
struct Allowance {
    stop: AtomicBool,
    /// Segments that may still be sent, on any connection.
    segments: AtomicU64,
}

impl Allowance {
    /// Whether one more segment may be sent, which it then is.
    fn take(&self) -> bool {
        let less = |segments: u64| segments.checked_sub(1);
        self.segments.fetch_update(Ordering::AcqRel, Ordering::Acquire, less).is_ok()
    }
}

/// Connections on which a server sends until it is stopped.
#[derive(Debug)]
pub struct Segments {
    allowance: Arc<Allowance>,
    senders: Vec<JoinHandle<io::Result<()>>>,
}

/// Sends on one connection, whose end it is.
fn send(mut stream: TcpStream, allowance: &Allowance) -> io::Result<()> {
    // Otherwise small writes wait for each other, and become one segment.
    stream.set_nodelay(true)?;
    while !allowance.stop.load(Ordering::Acquire) {
        thread::sleep(BEAT);
        if allowance.take() {
            stream.write_all(&SEGMENT)?;
        }
    }
    Ok(())
}

/// Takes what comes, until the connection ends.
fn receive(mut stream: TcpStream) {
    let mut bytes = [0; 4096];
    while stream.read(&mut bytes).is_ok_and(|read| read > 0) {}
}

impl Segments {
    /// Connects, then sends on all connections.
    ///
    /// # Errors
    ///
    /// The port is taken, or a connection does not come about.
    pub fn start(network: &Network) -> Result<Self> {
        let listener = listen(network)?;
        let allowance = Arc::new(Allowance { stop: AtomicBool::new(false), segments: AtomicU64::new(u64::MAX) });
        let mut senders = Vec::new();
        for _ in 0..CONNECTIONS {
            let connected = network.run(HERE, || TcpStream::connect_timeout(&address(), PATIENCE));
            let client = connected.context("there is no connection")?;
            let (stream, _) = listener.accept().context("there is no connection")?;
            // A thread that only reads ends with its connection.
            thread::spawn(move || receive(client));
            let allowance = Arc::clone(&allowance);
            senders.push(thread::spawn(move || send(stream, &allowance)));
        }
        Ok(Self { allowance, senders })
    }

    /// Sends nothing from now on. Connections stay.
    pub fn pause(&self) {
        self.allowance.segments.store(0, Ordering::Release);
    }

    /// Sends so many segments, alone, and waits until they have been sent.
    ///
    /// # Errors
    ///
    /// That takes too long: a connection broke.
    pub fn burst(&self) -> Result<()> {
        self.allowance.segments.store(ALONE, Ordering::Release);
        let clock = Stopwatch::start();
        while self.allowance.segments.load(Ordering::Acquire) > 0 {
            ensure!(clock.elapsed() < 4 * PATIENCE, "{ALONE} segments were not sent");
            thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Ends all connections.
    ///
    /// # Errors
    ///
    /// One broke before.
    pub fn end(self) -> Result<()> {
        self.allowance.stop.store(true, Ordering::Release);
        self.senders.into_iter().try_for_each(|sender| {
            let sent = sender.join().map_err(|_| anyhow!("a thread that sends panicked"))?;
            sent.context("a connection broke")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_segments_are_sent_than_are_allowed() {
        let allowance = Allowance { stop: AtomicBool::new(false), segments: AtomicU64::new(2) };

        assert_eq!([(); 3].map(|()| allowance.take()), [true, true, false]);
        allowance.segments.store(1, Ordering::Release);
        assert_eq!([(); 2].map(|()| allowance.take()), [true, false]);
    }
}
