//! The traffic of the test: UDP datagrams, and small TCP messages that each get a reply.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use support::clock::Stopwatch;
use support::network::{HERE, Network, THERE};

/// Time between two sends.
const BEAT: Duration = Duration::from_millis(4);
/// Datagrams per beat.
const DATAGRAMS: usize = 8;
/// TCP connections, each with one message per beat.
const CONNECTIONS: usize = 4;
/// The ports that streams filter by.
pub const UDP: u16 = 6_000;
pub const TCP: u16 = 7_000;

pub struct Traffic {
    stop: Arc<AtomicBool>,
    sending: Vec<JoinHandle<()>>,
}

impl Traffic {
    pub fn start(network: &Network) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        Self { sending: vec![datagrams(network, &stop), messages(network, &stop)], stop }
    }

    /// Stops sending, and waits for the threads.
    pub fn stop(self) {
        self.stop.store(true, Ordering::Release);
        self.sending.into_iter().for_each(|thread| thread.join().expect("it sends"));
    }
}

/// Calls `send` with each beat until `stop` is set. A slow call delays no later beat.
fn beats(stop: &AtomicBool, mut send: impl FnMut()) {
    let (clock, mut next) = (Stopwatch::start(), Duration::ZERO);
    while !stop.load(Ordering::Acquire) {
        send();
        next += BEAT;
        thread::sleep(next.saturating_sub(clock.elapsed()));
    }
}

/// Sends datagrams with different bytes, since equal ones have the same digest.
fn datagrams(network: &Network, stop: &Arc<AtomicBool>) -> JoinHandle<()> {
    let (from, to) = ((Network::address(HERE), 5_000), (Network::address(THERE), UDP));
    let sink = network.run(THERE, move || UdpSocket::bind(to).expect("the port is free"));
    let stop = Arc::clone(stop);
    network.thread(HERE, move || {
        let _sink = sink;
        let socket = UdpSocket::bind(from).expect("the port is free");
        let mut number = 0_u32;
        beats(&stop, || {
            for _ in 0..DATAGRAMS {
                number += 1;
                // A full queue drops the packet, as on any link.
                _ = socket.send_to(&[number.to_be_bytes().as_slice(), &[7; 60]].concat(), to);
            }
        });
    })
}

/// Sends small messages, each of which gets a reply at once.
fn messages(network: &Network, stop: &Arc<AtomicBool>) -> JoinHandle<()> {
    let to = (Network::address(THERE), TCP);
    let listener = network.run(THERE, move || TcpListener::bind(to).expect("the port is free"));
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok).take(CONNECTIONS) {
            stream.set_nodelay(true).expect("TCP can");
            thread::spawn(move || {
                let mut buffer = [0; 4096];
                while let Ok(1..) = stream.read(&mut buffer) {
                    if stream.write_all(&[1]).is_err() {
                        return;
                    }
                }
            });
        }
    });
    let stop = Arc::clone(stop);
    network.thread(HERE, move || {
        let mut streams: Vec<_> = (0..CONNECTIONS)
            .map(|_| {
                let stream = TcpStream::connect(to).expect("the server listens");
                stream.set_nodelay(true).expect("TCP can");
                // Without replies the send buffer fills up after some time.
                stream.set_write_timeout(Some(BEAT)).expect("the timeout is not 0");
                let mut replies = stream.try_clone().expect("it is open");
                thread::spawn(move || while let Ok(1..) = replies.read(&mut [0; 4096]) {});
                stream
            })
            .collect();
        beats(&stop, || {
            for stream in &mut streams {
                _ = stream.write_all(&[3; 100]);
            }
        });
        for stream in streams {
            _ = stream.shutdown(std::net::Shutdown::Both);
        }
    })
}
