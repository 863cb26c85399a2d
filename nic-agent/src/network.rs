//! Packets that pass: one thread for each ring of an interface reads it, and has the synopses of the streams on it. Threads share nothing on the way of a
//! packet; where an interface has several rings, each sees a share of its flows, and what they know of a stream is put together once an interval.
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
mod interface;
mod shards;
mod standing;
mod stream;

use std::collections::BTreeMap;
use std::io;
use std::net::TcpListener;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use crate::config::NetworkConfig;
use agents::{Follow, Spoken};
use compared::{Compared, Queues};
use daemon::listen::BindError;
use figures::Figures;
use interface::{Place, Watched};
use standing::Standing;
pub(crate) use standing::{Interfaces, Stands};
use tokio::sync::{mpsc, oneshot};

/// Intervals that wait for the thread that speaks.
const WAITING: usize = 8;

/// The threads. They end when this is dropped.
#[derive(Debug)]
pub(crate) struct Network {
    stop: Arc<AtomicBool>,
    interfaces: Interfaces,
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

impl Network {
    /// How each interface is read.
    pub(crate) fn interfaces(&self) -> Interfaces {
        Arc::clone(&self.interfaces)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
    }
}

/// Starts a thread for each interface that a stream is on, which starts those of its other rings, and one that speaks with other agents; none if there is no stream.
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
        let figures = Arc::new(Figures::new(&stream.service(), &config.services_socket, stream.interval_ms));
        let (commands, for_packets) = std::sync::mpsc::channel();
        let (packets, gathered) = mpsc::channel(WAITING);
        let queues = Queues { gathered: packets, commands: for_packets };
        watched.push(Watched::Compared(Box::new(Compared::new(stream, queues, Arc::clone(&figures)))));
        let follow = Follow::new(stream.name.clone(), commands, figures);
        spoken.push(Spoken { config: stream.clone(), compared: compared.clone(), gathered, follow });
    }
    let mut standings = Vec::new();
    for (name, streams) in interfaces {
        let standing = Arc::new(Standing::new(name));
        standings.push(Arc::clone(&standing));
        let place = Place { config: config.interface(name), socket: config.services_socket.clone(), standing };
        let stop = Arc::clone(&stop);
        thread::Builder::new().name("packets".to_owned()).spawn(move || place.watch(streams, &stop))?;
    }
    let (end, ended) = oneshot::channel();
    agents::start(config.peers.clone(), listener, spoken, ended)?;
    Ok(Network { stop, interfaces: standings.into(), _spoken: end })
}

/// The service that a stream is: what it tells is not of this process, and changes once in an interval.
fn service(name: &str, socket: &Path, interval_ms: NonZeroU32) -> client::Service {
    let every = Duration::from_millis(interval_ms.get().into());
    client::Service::new(name).socket(socket).without_process_metrics().changes_every(every)
}

/// For how long something has not happened: 0 s while it does, and more with each interval in which it does not. A share that has gone to 1 and stays there looks to an
/// LMAP like a state that has changed once; this goes on.
#[derive(Debug)]
struct Silence {
    gauge: client::Gauge,
    interval_s: f64,
    intervals: AtomicU32,
}

impl Silence {
    fn new(gauge: client::Gauge, interval_ms: NonZeroU32) -> Self {
        Self { gauge, interval_s: f64::from(interval_ms.get()) / 1e3, intervals: AtomicU32::new(0) }
    }

    /// One more interval.
    fn write(&self, is_silent: bool) {
        let before = self.intervals.load(Ordering::Relaxed);
        let intervals = if is_silent { before.saturating_add(1) } else { 0 };
        self.intervals.store(intervals, Ordering::Relaxed);
        self.gauge.set(f64::from(intervals) * self.interval_s);
    }
}
