//! A server, and clients that open a connection for each request.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use support::clock::Stopwatch;
use support::network::{HERE, Network};

use super::server::{PATIENCE, address, listen};

/// Clients, each with one connection at a time.
const CLIENTS: u32 = 16;
/// Time between two requests of a client: 200 requests a second together, so that an interval has samples enough.
const BEAT: Duration = Duration::from_millis(80);
/// Requests that are sent alone.
pub const ALONE: u64 = 500;
const REQUEST: [u8; 100] = [3; 100];
const ANSWER: [u8; 300] = [5; 300];

/// Clients that go on until they are stopped.
#[derive(Debug)]
pub struct Requests {
    stop: Arc<AtomicBool>,
    clients: Vec<JoinHandle<()>>,
}

/// Answers requests until this process ends.
fn serve(listener: TcpListener) {
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            // Whoever breaks off gets no answer.
            thread::spawn(move || answer(stream));
        }
    });
}

fn answer(mut stream: TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.read_exact(&mut [0; REQUEST.len()])?;
    stream.write_all(&ANSWER)
}

/// One request, in a connection of its own.
fn request() -> io::Result<()> {
    let mut stream = TcpStream::connect_timeout(&address(), PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(&REQUEST)?;
    stream.read_exact(&mut [0; ANSWER.len()])
}

impl Requests {
    /// Starts the server, then all clients, one after the other within a beat.
    ///
    /// # Errors
    ///
    /// The port is taken.
    pub fn start(network: &Network) -> Result<Self> {
        serve(listen(network)?);
        let stop = Arc::new(AtomicBool::new(false));
        let client = |number: u32| {
            let stop = Arc::clone(&stop);
            network.thread(HERE, move || {
                let (clock, mut next) = (Stopwatch::start(), BEAT * number / CLIENTS);
                while !stop.load(Ordering::Acquire) {
                    thread::sleep(next.saturating_sub(clock.elapsed()));
                    // What a lost packet breaks is what is measured.
                    drop(request());
                    next = next_beat(next, clock.elapsed());
                }
            })
        };
        let clients = (0..CLIENTS).map(client).collect();
        Ok(Self { stop, clients })
    }

    /// Stops all clients, and waits until they have. The server goes on.
    ///
    /// # Errors
    ///
    /// A client panicked.
    pub fn pause(&mut self) -> Result<()> {
        self.stop.store(true, Ordering::Release);
        self.clients.drain(..).try_for_each(|client| client.join().map_err(|_| anyhow!("a client panicked")))
    }
}

/// When a client sends again that has an answer, or none, at `now`. Beats that were missed are not made up for, and it
/// keeps its own: clients whose requests were lost would go on together, and be asked for an answer at the end of every
/// second interval.
fn next_beat(last: Duration, now: Duration) -> Duration {
    let missed = now.saturating_sub(last).as_nanos() / BEAT.as_nanos();
    last + BEAT * (1 + u32::try_from(missed).unwrap_or(u32::MAX - 1))
}

/// Sends [`ALONE`] requests, one after the other.
///
/// # Errors
///
/// One has no answer.
pub fn burst(network: &Network) -> Result<()> {
    network.run(HERE, || (0..ALONE).try_for_each(|_| request())).context("a request has no answer")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_waited_for_long_keeps_its_beat() {
        let ms = Duration::from_millis;

        assert_eq!(next_beat(ms(5), ms(12)), ms(85));
        assert_eq!(next_beat(ms(5), ms(1_020)), ms(1_045));
        assert_eq!(next_beat(ms(5), ms(85)), ms(165), "it is late, and its beat has begun");
    }
}
