//! Packet measurement: interfaces, streams, and the NIC agents at the other end.

use std::collections::BTreeMap;
use std::path::PathBuf;

use agent_runtime::ConfigError;
use agent_runtime::config::range;
use serde::Deserialize;

use super::fragment::FragmentConfig;
use super::peers::{PeersConfig, is_address};
use super::stream::{MIN_BYTES, StreamConfig};

/// Most streams of one agent.
const MAX_STREAMS: usize = 256;
/// Most interfaces for streams of policies.
const MAX_POLICY_INTERFACES: u32 = 64;

/// Settings of packet measurement.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NetworkConfig {
    /// Socket on which the host agent registers services. The metrics of each stream are a service.
    pub services_socket: PathBuf,
    /// Memory budget of all synopses, in bytes.
    pub memory_bytes: u64,
    /// NIC agents with which one-way delay and loss are measured.
    pub peers: PeersConfig,
    /// How interfaces are read. Others have one ring and kernel timestamps.
    pub interfaces: Vec<InterfaceConfig>,
    /// The streams to measure.
    pub streams: Vec<StreamConfig>,
    /// This node's fragment of the network's sketch of flow sizes; `None`: it has none.
    pub fragment: Option<FragmentConfig>,
    /// Most interfaces that are read for streams of `SynopsisPolicy`s, besides those of `streams`; 0: no stream of a
    /// policy is measured.
    pub policy_interfaces: u32,
}

/// How an interface is read.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InterfaceConfig {
    /// Name of the interface, as `ip link` lists it.
    pub name: String,
    /// Rings that share its packets by flow, each with a thread, 1 to 64: for more packets than one core can read.
    #[serde(default = "one")]
    pub rings: u32,
    /// Source of the packets' timestamps.
    #[serde(default)]
    pub timestamps: Timestamps,
}

const fn one() -> u32 {
    1
}

/// Source of the packets' timestamps, as named in the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Timestamps {
    /// Timestamps of the kernel.
    #[default]
    Kernel,
    /// Timestamps of the card for received packets; sent packets have none and are ignored. Timestamps of the kernel if
    /// the card cannot.
    Hardware,
}

impl NetworkConfig {
    /// What is open to anybody, in words.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let peers = &self.peers;
        let open = peers.listen.filter(|_| peers.insecure).map(|address| {
            let text = "takes whoever connects for the other end of a measurement (network.peers.insecure)";
            format!("network.peers.listen {address} {text}")
        });
        let asks_openly = peers.peers_tls.is_none() && peers.peers_insecure && self.asks_others();
        let text = "network.peers.peers_tls is missing (network.peers.peers_insecure): whoever is at the peers' \
                    addresses takes part in measurements";
        open.into_iter().chain(asks_openly.then(|| text.to_owned())).collect()
    }

    /// Whether other agents are called.
    fn asks_others(&self) -> bool {
        let asks = |stream: &StreamConfig| stream.one_way.as_ref().is_some_and(|one_way| one_way.peer.is_some());
        let has_ends = self.fragment.as_ref().is_some_and(|fragment| !fragment.peers.is_empty());
        has_ends || self.streams.iter().any(asks)
    }
}

impl Default for NetworkConfig {
    fn default() -> Self {
        Self {
            services_socket: PathBuf::from("/run/uview/services.sock"),
            memory_bytes: 16 << 20,
            peers: PeersConfig::default(),
            interfaces: Vec::new(),
            streams: Vec::new(),
            fragment: None,
            policy_interfaces: 0,
        }
    }
}

impl NetworkConfig {
    /// Bytes of the synopses of the configuration's streams, and of the fragment.
    pub(crate) fn configured_bytes(&self) -> u64 {
        let fragment = self.fragment.as_ref().map_or(0, FragmentConfig::bytes);
        self.streams.iter().fold(fragment, |sum, stream| sum.saturating_add(stream.all_bytes()))
    }

    /// How an interface is read.
    pub(crate) fn interface(&self, name: &str) -> InterfaceConfig {
        let found = self.interfaces.iter().find(|interface| interface.name == name);
        let default = || InterfaceConfig { name: name.to_owned(), rings: 1, timestamps: Timestamps::Kernel };
        found.cloned().unwrap_or_else(default)
    }

    fn check_interfaces(&self) -> Result<(), ConfigError> {
        for (index, interface) in self.interfaces.iter().enumerate() {
            let name = &format!("{:?}", interface.name);
            let is_first = self.interfaces.iter().take(index).all(|other| other.name != interface.name);
            range(is_first, "network.interfaces.name", name, "an interface may be listed once only")?;
            let is_used = self.policy_interfaces > 0
                || self.streams.iter().any(|stream| stream.interface == interface.name)
                || self.fragment.iter().any(|fragment| fragment.interface == interface.name);
            range(
                is_used,
                "network.interfaces.name",
                name,
                "no stream uses this interface; remove it, or fix the name",
            )?;
            let is_possible = (1..=packets::ring::MAX_RINGS as u32).contains(&interface.rings);
            let found = format!("{} (interface {name})", interface.rings);
            range(is_possible, "network.interfaces.rings", &found, "1 to 64 are possible")?;
        }
        Ok(())
    }

    /// Checks that the stream can be measured on an interface with `rings` rings, each of which sees a share of the
    /// flows.
    fn check_shared(stream: &StreamConfig, rings: u32) -> Result<(), ConfigError> {
        let found = format!("{rings} with stream {:?} on {:?}", stream.name, stream.interface);
        let is_possible = rings == 1 || stream.one_way.is_none();
        let wanted = "a stream with `one_way` needs an interface with one ring";
        range(is_possible, "network.interfaces.rings", &found, wanted)?;
        let is_possible = rings == 1 || stream.synopses.is_none();
        let wanted = "a stream with `synopses` needs an interface with one ring: shares of several are not merged";
        range(is_possible, "network.interfaces.rings", &found, wanted)?;
        let is_possible = rings == 1 || !stream.inner;
        let wanted = "a stream with `inner` needs an interface with one ring: both directions of a tunnelled flow may be in different rings";
        range(is_possible, "network.interfaces.rings", &found, wanted)
    }

    /// Checks all values, and their combination.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let streams = self.streams.len();
        range(streams <= MAX_STREAMS, "network.streams", &streams, "at most 256 are possible")?;
        self.check_interfaces()?;
        for (index, stream) in self.streams.iter().enumerate() {
            self.check_stream(stream, self.streams.iter().take(index).map(|other| &*other.name))?;
        }
        self.check_markers()?;
        let is_possible = self.policy_interfaces <= MAX_POLICY_INTERFACES;
        range(is_possible, "network.policy_interfaces", &self.policy_interfaces, "0 to 64 are possible")?;
        if let Some(fragment) = &self.fragment {
            let is_taken = |name: &str| self.streams.iter().any(|stream| stream.name == name);
            fragment.check(is_taken, self.interface(&fragment.interface).rings, self.peers.listen.is_some())?;
        }
        let sum = self.configured_bytes();
        let found = format!("{}, but the streams need {sum}", self.memory_bytes);
        range(
            sum <= self.memory_bytes,
            "network.memory_bytes",
            &found,
            "raise it, or lower network.streams.memory_bytes",
        )?;
        self.peers.check_listener()?;
        if let Some(tls) = &self.peers.tls {
            drop(tls.server().map_err(|cause| ConfigError::value("network.peers.tls", cause))?);
        }
        if let Some(tls) = &self.peers.peers_tls {
            drop(tls.client().map_err(|cause| ConfigError::value("network.peers.peers_tls", cause))?);
        }
        if self.asks_others() { self.peers.check_calls() } else { Ok(()) }
    }

    /// Checks that an interface sends the markers of one length of intervals: switches cannot tell them apart.
    fn check_markers(&self) -> Result<(), ConfigError> {
        let mut lengths = BTreeMap::new();
        for stream in &self.streams {
            let interface = stream.switch.as_ref().and_then(|switch| switch.marker_interface.as_deref());
            let Some(interface) = interface else { continue };
            let length = stream.interval_ms;
            let first = *lengths.entry(interface).or_insert(length);
            let found = format!("{length} (stream {:?}), {first} of another one", stream.name);
            let wanted = "streams whose markers are sent from one marker_interface need the same";
            range(length == first, "network.streams.interval_ms", &found, wanted)?;
        }
        Ok(())
    }

    /// Checks a stream. `others` are the names that it must not have.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if it cannot be measured. Whether there is memory for it is not looked at.
    pub(crate) fn check_stream<'a>(
        &self,
        stream: &StreamConfig,
        mut others: impl Iterator<Item = &'a str>,
    ) -> Result<(), ConfigError> {
        let of = |found: &dyn ToString| format!("{} (stream {:?})", found.to_string(), stream.name);
        let is_name = wire::name::ServiceName::new(&stream.service()).is_ok();
        let name = &format!("{:?}", stream.name);
        range(is_name, "network.streams.name", name, "letters, digits and _.-/: are allowed, up to 120 of them")?;
        range(others.all(|other| other != stream.name), "network.streams.name", name, "another stream has this name")?;
        stream.check_source()?;
        let filter = stream.filter.parse::<packets::Filter>();
        let conditions = "tcp, udp, port N, host A, net A/N, vlan N, vni N, joined by `and`, are possible";
        range(filter.is_ok(), "network.streams.filter", &of(&format!("{:?}", stream.filter)), conditions)?;
        self.check_measured(stream)?;
        let is_possible = (100..=60_000).contains(&stream.interval_ms.get());
        range(is_possible, "network.streams.interval_ms", &of(&stream.interval_ms), "100 to 60000 are possible")
    }

    /// Checks what is measured of a stream, and with how much memory.
    fn check_measured(&self, stream: &StreamConfig) -> Result<(), ConfigError> {
        let of = |found: &dyn ToString| format!("{} (stream {:?})", found.to_string(), stream.name);
        let rings = self.interface(&stream.interface).rings;
        Self::check_shared(stream, rings)?;
        if let Some(synopses) = &stream.synopses {
            synopses.check(of)?;
        }
        let Some(one_way) = &stream.one_way else {
            if stream.synopses.is_some() && stream.pair.is_none() {
                let wanted = "synopses have a fixed size: leave it out without `pair` or `one_way`";
                let found = of(&stream.bytes());
                return range(stream.memory_bytes.is_none(), "network.streams.memory_bytes", &found, wanted);
            }
            let wanted = "a stream needs `pair`, `one_way` or `synopses`";
            range(stream.pair.is_some(), "network.streams.pair", &of(&"missing"), wanted)?;
            let least = MIN_BYTES * u64::from(rings.max(1));
            let is_possible = stream.bytes() >= least && stream.slots(1) <= synopses::fridge::MAX_SLOTS;
            let wanted = "5632 bytes for each ring to 384 MiB are possible";
            return range(is_possible, "network.streams.memory_bytes", &of(&stream.bytes()), wanted);
        };
        let wanted = "a stream with `one_way` has no `pair`";
        range(stream.pair.is_none(), "network.streams.pair", &of(&"set"), wanted)?;
        let is_possible = (1 << 16..=1 << 34).contains(&stream.bytes());
        range(is_possible, "network.streams.memory_bytes", &of(&stream.bytes()), "64 KiB to 16 GiB are possible")?;
        if let Some(peer) = &one_way.peer {
            let is_address = is_address(peer);
            let wanted = "a host and a port are needed, such as node-2:9705";
            range(is_address, "network.streams.one_way.peer", &of(&format!("{peer:?}")), wanted)
        } else {
            let wanted = "the receiving end needs an address; the sending end needs `one_way.peer`";
            range(self.peers.listen.is_some(), "network.peers.listen", &of(&"null"), wanted)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Config, SynopsisName};
    use super::Timestamps;

    fn stream(with: &str) -> String {
        format!("network:\n  memory_bytes: 200000\n  streams:\n    - {{name: a, interface: eth0, pair: dns{with}}}\n")
    }

    fn one_way(how: &str) -> String {
        format!("network:\n  streams:\n    - {{name: a, interface: eth0, one_way: {how}}}\n")
    }

    #[test]
    fn a_one_way_stream_has_a_sending_and_a_receiving_end() {
        let sender = one_way("{synopsis: rda, peer: 'node-2:9705'}");
        let error = Config::parse(&sender).unwrap_err().to_string();
        assert!(error.starts_with("network.peers.peers_tls is missing") && error.ends_with("peers_insecure: true"));
        let sender = sender.replace("network:", "network:\n  peers: {peers_insecure: true}");
        let sender = Config::parse(&sender).unwrap();
        let receiver = one_way("{synopsis: finecomb}")
            .replace("network:", "network:\n  peers: {listen: '0.0.0.0:9705', insecure: true}");
        let receiver = Config::parse(&receiver).unwrap();

        let stream = &sender.network.streams[0];
        assert_eq!((stream.bytes(), stream.packets()), (8 << 20, 32_768));
        assert!(receiver.network.streams[0].one_way.as_ref().is_some_and(|one_way| one_way.peer.is_none()));
        let synopsis = receiver.network.streams[0].synopsis(SynopsisName::Finecomb);
        assert_eq!(synopsis, ::one_way::Synopsis::finecomb(26_214, 1_638));
    }

    #[test]
    fn a_stream_is_a_name_an_interface_and_a_pair() {
        let config = Config::parse(&stream(", filter: udp and port 53")).unwrap();

        let stream = &config.network.streams[0];
        assert_eq!((stream.service().as_str(), stream.slots(1)), ("network.a", (128 * 1024 - 4096) / 24));
    }

    #[test]
    fn what_is_not_possible_is_refused_with_its_key() {
        for (text, key) in [
            (stream(", filter: upd"), "network.streams.filter is \"upd\" (stream \"a\")"),
            (stream(", memory_bytes: 5631"), "network.streams.memory_bytes is 5631"),
            (stream(", memory_bytes: 200001"), "network.memory_bytes is 200000, but the streams need 200001"),
            (stream(", interval_ms: 99"), "network.streams.interval_ms is 99"),
            (stream("").replace("name: a", "name: a b"), "network.streams.name is \"a b\""),
            (stream("").replace("eth0", "''"), "network.streams.interface"),
            (stream("") + "    - {name: a, interface: eth1, pair: ntp}\n", "network.streams.name is \"a\""),
            (stream("").replace(", pair: dns", ""), "network.streams.pair is missing (stream \"a\")"),
            (stream(", one_way: {synopsis: rda, peer: 'b:1'}"), "network.streams.pair is set"),
            (one_way("{synopsis: rda, peer: b}"), "network.streams.one_way.peer is \"b\""),
            (one_way("{synopsis: rda}"), "network.peers.listen is null (stream \"a\")"),
            (one_way("{synopsis: lda, peer: 'b:1'}, memory_bytes: 65535"), "network.streams.memory_bytes is 65535"),
        ] {
            let error = Config::parse(&text).unwrap_err().to_string();
            assert!(error.contains(key), "{text}: {error}");
        }
        assert!(Config::parse(&stream("").replace("dns", "dsn")).is_err());
    }

    #[test]
    fn an_interface_is_read_by_several_rings_if_every_stream_on_it_allows_that() {
        let read = |how: &str, stream: &str| {
            Config::parse(&format!(
                "network:\n  interfaces: [{how}]\n  streams: [{{name: a, interface: eth0, {stream}}}]\n"
            ))
        };
        let network = read("{name: eth0, rings: 4, timestamps: hardware}", "pair: dns").unwrap().network;
        let (eth0, eth1) = (network.interface("eth0"), network.interface("eth1"));
        assert_eq!((eth0.rings, eth0.timestamps), (4, Timestamps::Hardware));
        assert_eq!((eth1.rings, eth1.timestamps), (1, Timestamps::Kernel));
        assert_eq!(network.streams[0].slots(4), (32 * 1024 - 4096) / 24);

        let four = "{name: eth0, rings: 4}";
        for (how, stream, key) in [
            ("{name: eth0, rings: 65}", "pair: dns", "network.interfaces.rings is 65 (interface \"eth0\")"),
            ("{name: eth0, rings: 0}", "pair: dns", "network.interfaces.rings is 0"),
            ("{name: eth1}", "pair: dns", "network.interfaces.name is \"eth1\""),
            ("{name: eth0}, {name: eth0}", "pair: dns", "network.interfaces.name is \"eth0\""),
            (four, "one_way: {synopsis: rda, peer: 'b:1'}", "`one_way` needs an interface with one ring"),
            (four, "pair: dns, inner: true", "`inner` needs an interface with one ring"),
            (four, "pair: dns, memory_bytes: 22527", "network.streams.memory_bytes is 22527"),
        ] {
            let error = read(how, stream).unwrap_err().to_string();
            assert!(error.contains(key), "{how} {stream}: {error}");
        }
        assert!(read(four, "pair: dns, memory_bytes: 22528").is_ok());
        assert!(read("{name: eth0, timestamps: card}", "pair: dns").is_err());
    }
}
