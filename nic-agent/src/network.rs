//! Packets that pass: one thread for each interface reads its ring, and has the synopses of the streams on it. Threads share nothing.
//!
//! Every interval, what is known of a stream becomes metrics of a service of its own (`network.NAME`), written into shared memory by the same
//! library that services use, so that it is scraped and judged as any other. The host agent has to be on this machine.
//!
//! What cannot be trusted is written as missing, never as a number: an LMAP takes a metric that is missing for nothing.

//!
//! A stream may be compared with what another agent sees of it. Then its packets are gathered here, and one more thread speaks with other agents.

mod agents;
mod compared;
mod figures;
mod stream;

use std::collections::BTreeMap;
use std::io;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use packets::Source as _;
use packets::ring::{Ring, RingSettings};

use crate::clock::unix_now;
use crate::config::{NetworkConfig, StreamConfig};
use crate::error::told;
use agents::{Follow, Spoken};
use compared::{Compared, Queues};
use daemon::listen::BindError;
use figures::Figures;
use stream::Stream;
use tokio::sync::{mpsc, oneshot};

/// How long the ring waits for a frame: how late an interval may end.
const WAIT: Duration = Duration::from_millis(20);
/// Between two tries to open an interface, or to read one that failed.
const PAUSE: Duration = Duration::from_secs(1);
/// Intervals that wait for the thread that speaks.
const WAITING: usize = 8;
/// An interface that cannot be read is told so often.
const TOLD: u32 = 60;

/// The threads. They end when this is dropped.
#[derive(Debug)]
pub(crate) struct Network {
    stop: Arc<AtomicBool>,
    /// Dropped, it ends the thread that speaks.
    _spoken: oneshot::Sender<()>,
}

/// Why packets cannot be watched.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    /// The system gives no thread.
    #[error("cannot start a thread")]
    Thread(#[from] io::Error),
    /// The port at which others ask.
    #[error(transparent)]
    Bind(#[from] BindError),
}

impl Drop for Network {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
    }
}

/// Starts a thread for each interface that a stream is on, and one that speaks with other agents; none if there is no stream.
///
/// # Errors
///
/// [`StartError`].
pub(crate) fn start(config: &NetworkConfig) -> Result<Network, StartError> {
    let listener = config.peers.listen.map(|address| {
        let listener = TcpListener::bind(address).and_then(|listener| {
            listener.set_nonblocking(true)?;
            Ok(listener)
        });
        listener.map_err(|cause| BindError { key: "network.peers.listen", address, cause })
    });
    let listener = listener.transpose()?;
    let stop = Arc::new(AtomicBool::new(false));
    let mut interfaces: BTreeMap<&str, Vec<Watched>> = BTreeMap::new();
    let mut spoken = Vec::new();
    for stream in &config.streams {
        let watched = interfaces.entry(&stream.interface).or_default();
        let Some(compared) = &stream.compared else {
            watched.push(Watched::Alone(stream.clone()));
            continue;
        };
        let figures = Arc::new(Figures::new(&stream.service(), &config.services_socket));
        let (commands, for_packets) = std::sync::mpsc::channel();
        let (packets, gathered) = mpsc::channel(WAITING);
        let queues = Queues { gathered: packets, commands: for_packets };
        watched.push(Watched::Compared(Box::new(Compared::new(stream, queues, Arc::clone(&figures)))));
        let follow = Follow::new(stream.name.clone(), commands, figures);
        spoken.push(Spoken { config: stream.clone(), compared: compared.clone(), gathered, follow });
    }
    for (interface, streams) in interfaces {
        let (stop, socket, interface) = (Arc::clone(&stop), config.services_socket.clone(), interface.to_owned());
        thread::Builder::new().name("packets".to_owned()).spawn(move || watch(&interface, streams, &socket, &stop))?;
    }
    let (end, ended) = oneshot::channel();
    agents::start(config.peers.clone(), listener, spoken, ended)?;
    Ok(Network { stop, _spoken: end })
}

/// A stream of an interface.
enum Watched {
    /// Requests and responses.
    Alone(StreamConfig),
    /// One-way delays, with another agent.
    Compared(Box<Compared>),
}

/// All streams of an interface.
struct Streams {
    alone: Vec<Stream>,
    compared: Vec<Compared>,
}

impl Streams {
    fn new(watched: Vec<Watched>, socket: &Path) -> Result<Self, packets::DelaysError> {
        let (mut alone, mut compared) = (Vec::new(), Vec::new());
        for stream in watched {
            match stream {
                Watched::Alone(config) => alone.push(Stream::new(&config, socket, rand::random())?),
                Watched::Compared(stream) => compared.push(*stream),
            }
        }
        Ok(Self { alone, compared })
    }

    fn insert(&mut self, frame: &packets::Frame<'_>) {
        self.alone.iter_mut().for_each(|stream| stream.insert(frame));
        self.compared.iter_mut().for_each(|stream| stream.insert(frame));
    }
}

/// One interface, until the end. One that is not there, or goes away, is waited for.
fn watch(interface: &str, streams: Vec<Watched>, socket: &Path, stop: &AtomicBool) {
    let mut streams = match Streams::new(streams, socket) {
        Ok(streams) => streams,
        Err(error) => {
            tracing::error!(interface, why = told(&error), "nothing is measured on this interface");
            return;
        }
    };
    let settings = RingSettings { interface: interface.to_owned(), wait: WAIT, ..RingSettings::default() };
    let mut tries = 0_u32;
    while !stop.load(Ordering::Acquire) {
        match Ring::open(&settings) {
            Ok(mut ring) => {
                let number = streams.alone.len() + streams.compared.len();
                tracing::info!(interface, streams = number, "packets are watched");
                tries = 0;
                if let Err(error) = pass(&mut ring, &mut streams, stop) {
                    tracing::warn!(interface, why = told(&error), "the interface cannot be read any more");
                }
            }
            Err(error) => {
                if tries.is_multiple_of(TOLD) {
                    tracing::warn!(interface, why = told(&error), "packets are not watched, trying again");
                }
                tries = tries.wrapping_add(1);
            }
        }
        // What passed meanwhile nobody saw.
        streams.compared.iter_mut().for_each(Compared::blind);
        if !stop.load(Ordering::Acquire) {
            thread::sleep(PAUSE);
        }
    }
}

/// Gives the interface's packets to all streams, and ends their intervals.
fn pass(ring: &mut Ring, streams: &mut Streams, stop: &AtomicBool) -> Result<(), packets::SourceError> {
    let (mut dropped, mut dropped_compared) = (0, 0);
    if let Ok(bytes) = ring.mtu() {
        streams.compared.iter_mut().for_each(|stream| stream.mtu(bytes));
    }
    while !stop.load(Ordering::Acquire) {
        let mut latest_ns = 0;
        let progress = ring.read(&mut |frame| {
            latest_ns = frame.time_ns;
            streams.insert(frame);
        })?;
        let now_ns = unix_now();
        let read_ns = read_until(progress, latest_ns, now_ns);
        if streams.compared.iter().any(|stream| stream.is_due(read_ns)) {
            // Before the interval ends in which they were dropped.
            let in_all = ring.counts().dropped;
            streams.compared.iter_mut().for_each(|stream| stream.lost(in_all - dropped_compared));
            dropped_compared = in_all;
        }
        streams.compared.iter_mut().for_each(|stream| stream.poll(read_ns));
        if streams.alone.iter().any(|stream| stream.is_due(now_ns)) {
            // Frames that the kernel dropped are missing in all streams.
            let in_all = ring.counts().dropped;
            for stream in &mut streams.alone {
                stream.lost(in_all - dropped);
                stream.end_interval(now_ns);
            }
            dropped = in_all;
        }
    }
    Ok(())
}

/// The time up to which the interface was read: a thread that did not get to run for some time finds frames of before, and until it has read them no
/// interval may end that they are of.
fn read_until(progress: packets::Progress, latest_ns: u64, now_ns: u64) -> u64 {
    match progress {
        packets::Progress::Frames(1..) => latest_ns.min(now_ns),
        _ => now_ns,
    }
}

#[cfg(test)]
mod tests {
    use packets::Progress;

    use super::read_until;

    #[test]
    fn no_interval_ends_while_frames_of_it_may_wait() {
        assert_eq!(read_until(Progress::Frames(3), 50, 100), 50);
        assert_eq!(read_until(Progress::Frames(0), 50, 100), 100);
        // A clock that was set back.
        assert_eq!(read_until(Progress::Frames(3), 150, 100), 100);
    }
}
