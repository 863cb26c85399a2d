//! Which of the streams that the host agent asks for are measured, and what has to be done for that. Pure.
//!
//! What is admitted depends on the list alone: in its order, as far as memory and interfaces last. So the same list
//! ends in the same streams, whatever was measured before. A stream whose place in memory is still taken by one that
//! ends waits for it.

use std::collections::{BTreeMap, BTreeSet};

use wire::proto::control::StreamState;

use super::wanted::WantedStream;
use crate::config::{NetworkConfig, StreamConfig};

/// What has to be done, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The stream of this name is to end with its interval.
    End(String),
    /// The stream of this name is of other packets from its next interval on; the rest of it stays.
    Filter(String, String),
    /// This one is measured from now on.
    Start(StreamConfig),
}

/// A stream that has memory.
#[derive(Clone, Debug)]
struct Running {
    config: StreamConfig,
    is_ending: bool,
}

/// Streams of policies.
#[derive(Debug)]
pub(super) struct PolicyStreams {
    network: NetworkConfig,
    running: BTreeMap<String, Running>,
}

/// A stream that there is room for, or why it is not measured.
type Admission<'a> = Result<&'a StreamConfig, String>;

impl PolicyStreams {
    /// None yet, beside those of `network`.
    pub(super) const fn new(network: NetworkConfig) -> Self {
        Self { network, running: BTreeMap::new() }
    }

    /// What has to be done so that the streams of `wanted` are measured and no others. It counts as done.
    pub(super) fn plan(&mut self, wanted: &[WantedStream]) -> Vec<Step> {
        let admitted = self.admitted(wanted);
        let mut steps = Vec::new();
        for (name, running) in self.running.iter_mut().filter(|(_, running)| !running.is_ending) {
            match admitted.get(&**name) {
                Some(Ok(config)) if is_same_but_filter(config, &running.config) => {
                    if config.filter != running.config.filter {
                        running.config.filter.clone_from(&config.filter);
                        steps.push(Step::Filter(name.clone(), config.filter.clone()));
                    }
                }
                _ => {
                    running.is_ending = true;
                    steps.push(Step::End(name.clone()));
                }
            }
        }
        for stream in wanted {
            let Some(Ok(config)) = admitted.get(&*stream.name) else { continue };
            if !self.running.contains_key(&stream.name) && self.has_room_for(config) {
                let running = Running { config: (*config).clone(), is_ending: false };
                self.running.insert(stream.name.clone(), running);
                steps.push(Step::Start((*config).clone()));
            }
        }
        steps
    }

    /// The stream `name` has ended, or could not be started.
    pub(super) fn ended(&mut self, name: &str) {
        self.running.remove(name);
    }

    /// What came of the streams of `wanted`. `problem` says why an interface cannot be read; empty: it can.
    pub(super) fn states(&self, wanted: &[WantedStream], problem: impl Fn(&str) -> String) -> Vec<StreamState> {
        let admitted = self.admitted(wanted);
        let state = |stream: &WantedStream| {
            let running = self.running.get(&stream.name);
            let (interface, problem, waits) = match (admitted.get(&*stream.name), running) {
                (Some(Err(why)), _) => (String::new(), why.clone(), false),
                (_, Some(running)) if !running.is_ending => {
                    let interface = running.config.interface.clone();
                    let why = Some(problem(&interface)).filter(|why| !why.is_empty());
                    let problem = why.map(|why| format!("{interface} cannot be read: {why}"));
                    (interface, problem.unwrap_or_default(), true)
                }
                (_, Some(_)) => {
                    (String::new(), "what was measured in its place ends with its interval".to_owned(), true)
                }
                (_, None) => {
                    let problem = "memory or an interface is free when an earlier stream has ended with its interval";
                    (String::new(), problem.to_owned(), true)
                }
            };
            StreamState { name: stream.name.clone(), interface, waits: waits && !problem.is_empty(), problem }
        };
        wanted.iter().map(state).collect()
    }

    /// Interfaces that are read for these streams, those of streams that end among them.
    pub(super) fn interfaces(&self) -> BTreeSet<&str> {
        self.running.values().map(|running| &*running.config.interface).collect()
    }

    /// Whether a stream is still to end.
    pub(super) fn is_changing(&self) -> bool {
        self.running.values().any(|running| running.is_ending)
    }

    /// Bytes that the configuration's own streams take, and that they leave.
    fn bytes(&self) -> (u64, u64) {
        let taken = self.network.configured_bytes();
        (taken, self.network.memory_bytes.saturating_sub(taken))
    }

    fn is_configured(&self, interface: &str) -> bool {
        self.network.streams.iter().any(|stream| stream.interface == interface)
    }

    fn has_room_for(&self, config: &StreamConfig) -> bool {
        let used: u64 = self.running.values().map(|running| running.config.all_bytes()).sum();
        let mut interfaces = self.interfaces();
        interfaces.insert(&config.interface);
        let interfaces = interfaces.iter().filter(|interface| !self.is_configured(interface)).count();
        used.saturating_add(config.all_bytes()) <= self.bytes().1
            && interfaces <= self.network.policy_interfaces as usize
    }

    /// The streams of `wanted` that there is room for, and why the others are not measured.
    fn admitted<'a>(&self, wanted: &'a [WantedStream]) -> BTreeMap<&'a str, Admission<'a>> {
        let mut admitted: BTreeMap<&str, Admission<'_>> = BTreeMap::new();
        let mut before: Vec<(&WantedStream, &StreamConfig)> = Vec::new();
        for stream in wanted {
            let admission = self.admission(stream, &before);
            if let Ok(config) = admission {
                before.push((stream, config));
            }
            // A name that is there twice: the first one counts.
            admitted.entry(&*stream.name).or_insert(admission);
        }
        admitted
    }

    fn admission<'a>(&self, stream: &'a WantedStream, before: &[(&WantedStream, &StreamConfig)]) -> Admission<'a> {
        if self.network.policy_interfaces == 0 {
            return Err("this NIC agent measures no streams of policies: set network.policy_interfaces \
                        (capture.policyInterfaces of the chart)"
                .to_owned());
        }
        let config = stream.config.as_ref().map_err(Clone::clone)?;
        let names = self.network.streams.iter().map(|other| &*other.name);
        let names = names.chain(before.iter().map(|(other, _)| &*other.name));
        self.network.check_stream(config, names).map_err(|error| error.to_string())?;
        let ((configured, all), needed) = (self.bytes(), config.all_bytes());
        let used: u64 = before.iter().map(|(_, other)| other.all_bytes()).sum();
        if needed > all.saturating_sub(used) {
            let most = before.iter().max_by_key(|(_, other)| other.all_bytes());
            let most =
                most.map(|(other, config)| format!(", {} of them {} ({})", config.all_bytes(), other.name, other.by));
            return Err(format!(
                "{needed} bytes are needed, and {} of network.memory_bytes ({}) are free: configured streams have \
                 {configured}, earlier policies {used}{}",
                all.saturating_sub(used),
                self.network.memory_bytes,
                most.unwrap_or_default()
            ));
        }
        let mut interfaces: BTreeMap<&str, &WantedStream> = BTreeMap::new();
        for (other, config) in before.iter().filter(|(_, config)| !self.is_configured(&config.interface)) {
            interfaces.entry(&config.interface).or_insert(other);
        }
        let is_more = !self.is_configured(&config.interface) && !interfaces.contains_key(&*config.interface);
        if is_more && interfaces.len() >= self.network.policy_interfaces as usize {
            let (interface, other) = interfaces.first_key_value().map_or(("", ""), |(of, other)| (*of, &*other.by));
            return Err(format!(
                "{} cannot be read, too: network.policy_interfaces is {}, and {interface} is read for {other}",
                config.interface, self.network.policy_interfaces
            ));
        }
        Ok(config)
    }
}

fn is_same_but_filter(one: &StreamConfig, other: &StreamConfig) -> bool {
    StreamConfig { filter: String::new(), ..one.clone() } == StreamConfig { filter: String::new(), ..other.clone() }
}

#[cfg(test)]
mod tests;
