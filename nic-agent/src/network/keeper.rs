//! Carries out what the host agent asks for: opens and closes interfaces, hands new parts of streams to their rings,
//! and frees what has ended. A thread of its own, since all of that takes time and allocates.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use wire::proto::control as proto;

use super::interface::{InterfaceReader, MonitoredStream, Stop};
use super::interface_stats::{InterfaceStats, Interfaces};
use super::part::StreamPart;
use super::policy_streams::{PolicyStreams, Step};
use super::ring_link::{Command, Event, RingLink};
use super::routes::Routes;
use super::wanted::WantedStream;
use crate::config::{NetworkConfig, StreamConfig};
use crate::error::chain;

/// How often routes and interfaces are looked at, while there are streams.
const LOOK: Duration = Duration::from_secs(2);

/// Where the states of streams go.
pub(crate) type Report = Box<dyn Fn(proto::StreamStates) + Send>;

/// An interface that is read.
#[derive(Debug)]
struct OpenInterface {
    rings: Vec<Sender<Command>>,
    stop: Stop,
    stats: Arc<InterfaceStats>,
    /// It has streams of the configuration, which stay.
    is_configured: bool,
}

/// The state of the keeper's thread.
pub(super) struct Keeper {
    network: NetworkConfig,
    agent: Stop,
    stats: Interfaces,
    interfaces: BTreeMap<String, OpenInterface>,
    streams: PolicyStreams,
    /// Parts that have not ended, by stream.
    parts: BTreeMap<String, usize>,
    set: proto::SetStreams,
    reported: Option<proto::StreamStates>,
    events: Sender<Event>,
    inbox: Receiver<Event>,
}

impl Keeper {
    /// Nothing is read yet, and nothing after `agent` is set.
    pub(super) fn new(network: &NetworkConfig, agent: Stop) -> Self {
        let (events, inbox) = channel();
        Self {
            network: network.clone(),
            agent,
            stats: Interfaces::default(),
            interfaces: BTreeMap::new(),
            streams: PolicyStreams::new(network.clone()),
            parts: BTreeMap::new(),
            set: proto::SetStreams::default(),
            reported: None,
            events,
            inbox,
        }
    }

    /// The counters of all interfaces that are read.
    pub(super) fn stats(&self) -> Interfaces {
        self.stats.clone()
    }

    /// Takes events for the keeper's thread.
    pub(super) fn events(&self) -> Sender<Event> {
        self.events.clone()
    }

    /// Reads the interface `name` with these streams.
    ///
    /// # Errors
    ///
    /// The system cannot start a thread.
    pub(super) fn open(&mut self, name: &str, streams: Vec<MonitoredStream>) -> io::Result<()> {
        let config = self.network.interface(name);
        let stats = Arc::new(InterfaceStats::new(name));
        let stop = Stop { agent: Arc::clone(&self.agent.agent), ..Stop::default() };
        let (mut rings, mut links) = (Vec::new(), Vec::new());
        for _ in 0..config.rings {
            let (sender, commands) = channel();
            rings.push(sender);
            links.push(RingLink { commands, events: self.events.clone() });
        }
        let reader =
            InterfaceReader { config, socket: self.network.services_socket.clone(), stats: Arc::clone(&stats) };
        let (is_configured, stops) = (!streams.is_empty(), stop.clone());
        let thread = thread::Builder::new().name("packets".to_owned());
        drop(thread.spawn(move || reader.run(streams, links, &stops))?);
        self.stats.add(Arc::clone(&stats));
        self.interfaces.insert(name.to_owned(), OpenInterface { rings, stop, stats, is_configured });
        Ok(())
    }

    /// Starts the thread. States of streams go to `report`, which may wait.
    ///
    /// # Errors
    ///
    /// The system cannot start a thread.
    pub(super) fn start(self, report: Report) -> io::Result<()> {
        thread::Builder::new().name("streams".to_owned()).spawn(move || self.run(&report)).map(drop)
    }

    fn run(mut self, report: &Report) {
        loop {
            let is_idle = self.set.streams.is_empty() && !self.streams.is_changing();
            let event = if is_idle {
                self.inbox.recv().map_err(|_| RecvTimeoutError::Disconnected)
            } else {
                self.inbox.recv_timeout(LOOK)
            };
            match event {
                Ok(Event::Set(set)) => {
                    // What is measured is told anew, also if nothing changes.
                    (self.set, self.reported) = (set, None);
                }
                Ok(Event::Ended(part)) => self.ended(*part),
                Err(RecvTimeoutError::Timeout) => {}
                Ok(Event::Stop) | Err(RecvTimeoutError::Disconnected) => return,
            }
            let states = self.look(&routes());
            if self.reported.as_ref() != Some(&states) {
                self.reported = Some(states.clone());
                report(states);
            }
        }
    }

    /// Frees a part that has ended.
    fn ended(&mut self, part: StreamPart) {
        let name = part.name().to_owned();
        drop(part);
        let Some(parts) = self.parts.get_mut(&name) else { return };
        *parts -= 1;
        if *parts == 0 {
            self.parts.remove(&name);
            self.streams.ended(&name);
            tracing::info!(stream = name, "no longer measured for a policy");
        }
    }

    /// Does what is to be done, and says what came of the streams.
    fn look(&mut self, routes: &Routes) -> proto::StreamStates {
        let wanted: Vec<_> = self.set.streams.iter().map(|stream| WantedStream::of(stream, routes)).collect();
        for step in self.streams.plan(&wanted) {
            match step {
                Step::End(name) => self.send(&name, |name| Command::End(name.to_owned())),
                Step::Filter(name, filter) => {
                    // It was checked.
                    let filter: packets::Filter = filter.parse().unwrap_or_default();
                    self.send(&name, |name| Command::Filter(name.to_owned(), filter.clone()));
                }
                Step::Start(config) => {
                    if let Err(why) = self.begin(&config) {
                        tracing::error!(stream = config.name, why, "a stream of a policy cannot be measured");
                        self.interfaces.remove(&config.interface);
                        self.parts.remove(&config.name);
                        self.streams.ended(&config.name);
                    }
                }
            }
        }
        self.close_unused();
        let problem = |interface: &str| self.interfaces.get(interface).map(|of| of.stats.problem()).unwrap_or_default();
        proto::StreamStates { revision: self.set.revision, streams: self.streams.states(&wanted, problem) }
    }

    /// Sends each ring that may have the stream `name` a command.
    fn send(&self, name: &str, command: impl Fn(&str) -> Command) {
        for ring in self.interfaces.values().flat_map(|interface| &interface.rings) {
            // A ring whose thread has ended has no streams.
            drop(ring.send(command(name)));
        }
    }

    /// Measures a stream from now on.
    fn begin(&mut self, config: &StreamConfig) -> Result<(), String> {
        if !self.interfaces.contains_key(&config.interface) {
            self.open(&config.interface, Vec::new()).map_err(|error| chain(&error))?;
        }
        let interface = self.interfaces.get(&config.interface).ok_or("its interface is not read")?;
        let parts = StreamPart::of(config, &self.network.services_socket, interface.rings.len());
        let parts = parts.map_err(|error| chain(&error))?;
        self.parts.insert(config.name.clone(), parts.iter().map(Vec::len).sum());
        for (ring, parts) in interface.rings.iter().zip(parts) {
            for part in parts {
                ring.send(Command::Add(Box::new(part))).map_err(|_| "its interface is not read any more")?;
            }
        }
        let (stream, interface) = (&config.name, &config.interface);
        tracing::info!(stream, interface, filter = config.filter, "measured for a policy");
        Ok(())
    }

    /// Closes interfaces without a stream.
    fn close_unused(&mut self) {
        let used = self.streams.interfaces();
        let stats = &self.stats;
        self.interfaces.retain(|name, interface| {
            let stays = interface.is_configured || used.contains(&**name);
            if !stays {
                interface.stop.interface.store(true, std::sync::atomic::Ordering::Release);
                stats.remove(name);
            }
            stays
        });
    }
}

/// The routes of this machine.
fn routes() -> Routes {
    let table = |path: &str| fs::read_to_string(path).unwrap_or_default();
    Routes::of(&table("/proc/net/route"), &table("/proc/net/ipv6_route"))
}

#[cfg(test)]
mod tests;
