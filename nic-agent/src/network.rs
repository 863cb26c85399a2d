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
//! The host agent can ask for streams, too (`keeper`): they come, change and go while their interface is read.
//!
//! A switch may measure a stream instead: its registers are read once per interval (`switch_stream`, `switch_end`).
//!
//! One-way streams are measured together with another agent, and flows counted together with others (`fragment`):
//! packets are collected here or in a switch, and one more thread (`peers`) talks to other agents.

mod delay_metrics;
mod flow_metrics;
mod flow_stream;
mod fragment;
mod frame_info;
mod interface;
mod interface_stats;
mod interval;
mod keeper;
mod marker_sender;
mod one_way_metrics;
mod one_way_stream;
mod part;
pub(crate) mod peers;
mod pending_change;
mod policy_streams;
mod ring_link;
mod ring_streams;
mod routes;
mod shards;
mod silence;
mod stream;
mod stream_service;
mod switch_cardinality;
mod switch_delays;
mod switch_end;
mod switch_heavy;
mod switch_measurement;
mod switch_registers;
mod switch_reordering;
mod switch_stream;
mod wanted;

use core::num::NonZeroU64;
use std::collections::BTreeMap;
use std::io;
use std::net::TcpListener;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::thread;

use crate::config::{FragmentConfig, NetworkConfig, OneWayConfig, StreamConfig, SwitchConfig, SwitchFileError};
use agent_runtime::listen::BindError;
use fragment::{FragmentMetrics, FragmentState, FragmentStream};
use interface::{MonitoredStream, Stop};
pub(crate) use interface_stats::{InterfaceSnapshot, Interfaces};
use keeper::Keeper;
pub(crate) use keeper::Report;
use marker_sender::MarkerSender;
use one_way::Synopsis;
use one_way_metrics::OneWayMetrics;
use one_way_stream::{OneWayStream, Queues};
use peers::fragments::{FragmentTask, epoch_now};
use peers::{EffectHandler, OneWayTask, Peers, StampingClock};
pub(crate) use peers::{PeerAccess, PeerCertificates};
use switch_end::SwitchEnd;
use switch_stream::SwitchStream;
use synopses::digest::DigestKey;
use tokio::sync::{mpsc, oneshot, watch};
use wire::proto::control::SetStreams;
use wire::time::Nanos;

/// Most collected intervals of a stream that are queued for the thread that talks to other agents.
pub(crate) const QUEUED_INTERVALS: usize = 8;

/// The threads of packet measurement. They end when this is dropped.
#[derive(Debug)]
pub(crate) struct Network {
    stop: Stop,
    interfaces: Interfaces,
    events: Sender<ring_link::Event>,
    /// Ends the thread that talks to other agents when dropped.
    _peers: oneshot::Sender<()>,
}

/// Why packet measurement cannot start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    /// The system cannot start a thread.
    #[error("cannot start a thread")]
    Thread(#[from] io::Error),
    /// The fragment cannot have this size. Does not occur with a checked configuration.
    #[error("network.fragment")]
    Fragment(#[from] synopses::disaggregated::SettingsError),
    /// The listener for other agents cannot be bound.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// A stream's switch has no program with these constants.
    #[error(transparent)]
    Switch(#[from] SwitchFileError),
}

/// Takes the streams that the host agent asks for.
#[derive(Clone, Debug)]
pub(crate) struct StreamSetter(Sender<ring_link::Event>);

impl StreamSetter {
    /// From now on these streams are measured beside those of the configuration, and no others.
    pub(crate) fn set(&self, streams: SetStreams) {
        // The thread ends with the agent only.
        drop(self.0.send(ring_link::Event::Set(streams)));
    }
}

impl Network {
    /// The counters of each interface with a stream.
    pub(crate) fn interfaces(&self) -> Interfaces {
        self.interfaces.clone()
    }

    /// Takes the streams that the host agent asks for.
    pub(crate) fn setter(&self) -> StreamSetter {
        StreamSetter(self.events.clone())
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.stop.agent.store(true, Ordering::Release);
        drop(self.events.send(ring_link::Event::Stop));
    }
}

/// Starts a thread for each interface with a stream, which starts those of its other rings, one that changes their
/// streams as the host agent asks for, and one that talks to other agents if there are one-way streams. What came of
/// streams that were asked for goes to `report`.
///
/// # Errors
///
/// [`StartError`] if a thread or the listener cannot be started.
pub(crate) fn start(
    config: &NetworkConfig,
    certificates: PeerCertificates,
    access: PeerAccess,
    report: Report,
) -> Result<Network, StartError> {
    let listener = config.peers.listen.map(|address| {
        let listener = TcpListener::bind(address).and_then(|listener| {
            listener.set_nonblocking(true)?;
            Ok(listener)
        });
        listener.map_err(|cause| BindError { key: "network.peers.listen", address, cause })
    });
    let peers = Peers { certificates, listener: listener.transpose()?, access };
    let stop = Stop::default();
    let mut interfaces: BTreeMap<&str, Vec<MonitoredStream>> = BTreeMap::new();
    let mut tasks = Vec::new();
    for stream in &config.streams {
        if let Some(switch) = &stream.switch {
            tasks.extend(start_switch(stream, switch, &config.services_socket, stop.clone())?);
            continue;
        }
        let monitored = interfaces.entry(&stream.interface).or_default();
        if stream.synopses.is_some() || stream.pair.is_some() {
            monitored.push(MonitoredStream::Alone(Box::new(stream.clone())));
        }
        let Some(one_way) = &stream.one_way else { continue };
        let synopsis = stream.synopsis(one_way.synopsis);
        let (queues, metrics, task) = one_way_task((stream, one_way), synopsis, None, &config.services_socket);
        monitored.push(MonitoredStream::OneWay(Box::new(OneWayStream::new(stream, queues, metrics))));
        tasks.push(task);
    }
    let fragment = match &config.fragment {
        Some(fragment) => {
            let (stream, task) = counted(fragment, &config.services_socket)?;
            interfaces.entry(&fragment.interface).or_default().push(MonitoredStream::Fragment(Box::new(stream)));
            Some(task)
        }
        None => None,
    };
    let mut keeper = Keeper::new(config, stop.clone());
    for (name, streams) in interfaces {
        keeper.open(name, streams)?;
    }
    let (interfaces, events) = (keeper.stats(), keeper.events());
    keeper.start(report)?;
    let (peers_stop, stopped) = oneshot::channel();
    peers::start(peers, tasks, fragment, stopped)?;
    Ok(Network { stop, interfaces, events, _peers: peers_stop })
}

/// Starts the thread that reads a switch, and one that sends markers, which a slow switch does not hold up. Returns
/// what the thread that talks to other agents needs, if the switch is an end of a one-way measurement.
fn start_switch(
    stream: &StreamConfig,
    switch: &SwitchConfig,
    socket: &Path,
    stop: Stop,
) -> Result<Option<OneWayTask>, StartError> {
    let thread = thread::Builder::new().name("switch".to_owned());
    let Some(one_way) = &stream.one_way else {
        let measured = SwitchStream::new(stream, switch, socket)?;
        drop(thread.spawn(move || measured.run(&stop))?);
        return Ok(None);
    };
    let readout = stream.switch_end(switch, one_way)?;
    let settings = readout.settings();
    let (digests, buckets, banks) = (readout.has_digests(), settings.buckets, settings.banks.clone());
    let synopsis = Synopsis::FineComb { digests, buckets, banks };
    let fingerprint = Some(readout.fingerprint());
    let (queues, metrics, task) = one_way_task((stream, one_way), synopsis, fingerprint, socket);
    let measured = SwitchEnd::new(stream, (switch, readout), one_way, queues, metrics);
    if let Some(interface) = &switch.marker_interface {
        let markers = MarkerSender::new(interface, Nanos::from_millis(stream.interval_ms.get().into()));
        let stop = stop.clone();
        drop(thread::Builder::new().name("markers".to_owned()).spawn(move || markers.run(&stop))?);
    }
    drop(thread.spawn(move || measured.run(&stop))?);
    Ok(Some(task))
}

/// What an end of a one-way stream needs, and what the thread that talks to the other agent needs of it. With the
/// fingerprint of its constants, the end is a switch.
fn one_way_task(
    (stream, one_way): (&StreamConfig, &OneWayConfig),
    synopsis: Synopsis,
    fingerprint: Option<NonZeroU64>,
    socket: &Path,
) -> (Queues, Arc<OneWayMetrics>, OneWayTask) {
    let metrics = Arc::new(OneWayMetrics::new(&stream.service(), socket, stream.interval_ms));
    let (commands, command_receiver) = std::sync::mpsc::channel();
    let (interval_sender, intervals) = mpsc::channel(QUEUED_INTERVALS);
    let queues = Queues { intervals: interval_sender, commands: command_receiver };
    let stamps = if fingerprint.is_some() { StampingClock::Switch } else { StampingClock::Machine };
    let handler = EffectHandler::new(stream.name.clone(), commands, Arc::clone(&metrics), stamps);
    let (config, one_way) = (stream.clone(), one_way.clone());
    (queues, metrics, OneWayTask { config, one_way, synopsis, fingerprint, intervals, handler })
}

/// The fragment for its ring, and what the other thread needs for it.
fn counted(config: &FragmentConfig, socket: &Path) -> Result<(FragmentStream, FragmentTask), StartError> {
    let key = DigestKey::new(rand::random());
    let now = epoch_now(config.epoch_ms.get());
    let state = Arc::new(Mutex::new(FragmentState::new(config, key.clone(), rand::random(), now)));
    let (sender, ended_epoch) = watch::channel(0);
    let stream = FragmentStream::new(config, key, rand::random(), Arc::clone(&state), sender)?;
    let metrics = FragmentMetrics::new(config, socket);
    Ok((stream, FragmentTask { config: config.clone(), state, ended_epoch, metrics }))
}
