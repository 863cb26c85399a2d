//! Packet measurement. One thread for each ring of an interface reads packets and owns the synopses of the streams on
//! it. Threads share nothing while they process packets. If an interface has several rings, each ring sees a share of
//! the flows, and the shards of a stream are merged once an interval.
//!
//! Each stream is a service of its own (`network.NAME`). Once an interval its metrics are written into shared memory
//! with the client library, so the service is fetched and monitored like any other. The host agent has to be on this
//! machine.
//!
//! A figure that cannot be trusted is written as missing, never as a number. An LMAP ignores missing metrics.
//!
//! One-way streams are measured together with another agent: packets are collected here, and one more thread (`peers`)
//! talks to other agents.

mod flow_metrics;
mod flow_stream;
mod frame_info;
mod interface;
mod interface_stats;
mod one_way_metrics;
mod one_way_stream;
pub(crate) mod peers;
mod shards;
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
use agent_runtime::listen::BindError;
use interface::{InterfaceReader, MonitoredStream};
use interface_stats::InterfaceStats;
pub(crate) use interface_stats::{InterfaceSnapshot, Interfaces};
use one_way_metrics::OneWayMetrics;
use one_way_stream::{OneWayStream, Queues};
use peers::{EffectHandler, OneWayTask, Peers};
pub(crate) use peers::{PeerAccess, PeerCertificates};
use tokio::sync::{mpsc, oneshot};

/// Most collected intervals of a stream that are queued for the thread that talks to other agents.
pub(crate) const QUEUED_INTERVALS: usize = 8;

/// The threads of packet measurement. They end when this is dropped.
#[derive(Debug)]
pub(crate) struct Network {
    stop: Arc<AtomicBool>,
    interfaces: Interfaces,
    /// Ends the thread that talks to other agents when dropped.
    _peers: oneshot::Sender<()>,
}

/// Why packet measurement cannot start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    /// The system cannot start a thread.
    #[error("cannot start a thread")]
    Thread(#[from] io::Error),
    /// The listener for other agents cannot be bound.
    #[error(transparent)]
    Bind(#[from] BindError),
}

impl Network {
    /// The counters of each interface with a stream.
    pub(crate) fn interfaces(&self) -> Interfaces {
        Arc::clone(&self.interfaces)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
    }
}

/// Starts a thread for each interface with a stream, which starts those of its other rings, and one that talks to other
/// agents if there are one-way streams.
///
/// # Errors
///
/// [`StartError`] if a thread or the listener cannot be started.
pub(crate) fn start(
    config: &NetworkConfig,
    certificates: PeerCertificates,
    access: PeerAccess,
) -> Result<Network, StartError> {
    let listener = config.peers.listen.map(|address| {
        let listener = TcpListener::bind(address).and_then(|listener| {
            listener.set_nonblocking(true)?;
            Ok(listener)
        });
        listener.map_err(|cause| BindError { key: "network.peers.listen", address, cause })
    });
    let peers = Peers { certificates, listener: listener.transpose()?, access };
    let stop = Arc::new(AtomicBool::new(false));
    let mut interfaces: BTreeMap<&str, Vec<MonitoredStream>> = BTreeMap::new();
    let mut tasks = Vec::new();
    for stream in &config.streams {
        let monitored = interfaces.entry(&stream.interface).or_default();
        if stream.synopses.is_some() {
            monitored.push(MonitoredStream::Flows(stream.clone()));
        }
        let Some(one_way) = &stream.one_way else {
            if stream.pair.is_some() {
                monitored.push(MonitoredStream::RequestResponse(stream.clone()));
            }
            continue;
        };
        let metrics = Arc::new(OneWayMetrics::new(&stream.service(), &config.services_socket, stream.interval_ms));
        let (commands, command_receiver) = std::sync::mpsc::channel();
        let (interval_sender, intervals) = mpsc::channel(QUEUED_INTERVALS);
        let queues = Queues { intervals: interval_sender, commands: command_receiver };
        monitored.push(MonitoredStream::OneWay(Box::new(OneWayStream::new(stream, queues, Arc::clone(&metrics)))));
        let handler = EffectHandler::new(stream.name.clone(), commands, metrics);
        tasks.push(OneWayTask { config: stream.clone(), one_way: one_way.clone(), intervals, handler });
    }
    let mut all_stats = Vec::new();
    for (name, streams) in interfaces {
        let stats = Arc::new(InterfaceStats::new(name));
        all_stats.push(Arc::clone(&stats));
        let reader = InterfaceReader { config: config.interface(name), socket: config.services_socket.clone(), stats };
        let stop = Arc::clone(&stop);
        thread::Builder::new().name("packets".to_owned()).spawn(move || reader.run(streams, &stop))?;
    }
    let (peers_stop, stopped) = oneshot::channel();
    peers::start(peers, tasks, stopped)?;
    Ok(Network { stop, interfaces: all_stats.into(), _peers: peers_stop })
}

/// The service of a stream. Its metrics are not about this process and change once an interval.
fn service(name: &str, socket: &Path, interval_ms: NonZeroU32) -> client::Service {
    let every = Duration::from_millis(interval_ms.get().into());
    client::Service::new(name).socket(socket).without_process_metrics().changes_every(every)
}

/// A gauge of the time for which something has not happened: 0 s while it happens, and more with each interval without
/// it. To an LMAP, a share that stays at 1 looks like a state that has changed once; this gauge keeps growing.
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

    /// Writes one interval.
    fn write(&self, is_silent: bool) {
        let before = self.intervals.load(Ordering::Relaxed);
        let intervals = if is_silent { before.saturating_add(1) } else { 0 };
        self.intervals.store(intervals, Ordering::Relaxed);
        self.gauge.set(f64::from(intervals) * self.interval_s);
    }
}
