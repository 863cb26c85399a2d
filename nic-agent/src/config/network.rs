//! What is measured of the packets that pass.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;

use daemon::config::range;
use daemon::{ClientTls, ConfigError, ServerTls};
use exchange::Synopsis;
use packets::Pair;
use serde::Deserialize;

/// More streams than this are a mistake.
const MOST_STREAMS: usize = 256;
/// The histogram beside a fridge's slots.
const HISTOGRAM_BYTES: u64 = 4096;
/// Two fridges of fewer slots are none: 64 of 12 bytes each, and their histogram.
const LEAST_BYTES: u64 = 2 * 64 * 12 + HISTOGRAM_BYTES;
/// Of a stream with a fridge.
const FRIDGE_BYTES: u64 = 128 << 10;
/// Of one that is compared with another agent's.
const COMPARED_BYTES: u64 = 8 << 20;
/// RDA: of a packet, in six intervals that are remembered at a time and in the cells of one that is compared.
const PACKET_BYTES: u64 = 256;
/// FineComb, LDA: of a bucket, likewise, with a sixteenth of a packet near the ends.
const BUCKET_BYTES: u64 = 320;
/// More buckets make messages longer and little more precise.
const MOST_BUCKETS: u64 = 1 << 16;

/// What is measured of the packets that pass.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NetworkConfig {
    /// Where the host agent takes services: what is measured of a stream is a service like any other.
    pub services_socket: PathBuf,
    /// Bytes of all synopses.
    pub memory_bytes: u64,
    /// Other NIC agents, with whom streams are compared.
    pub peers: PeersConfig,
    /// How interfaces are read; those that are not here by one ring, with the kernel's times.
    pub interfaces: Vec<InterfaceConfig>,
    /// What is measured.
    pub streams: Vec<StreamConfig>,
}

/// How an interface is read.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InterfaceConfig {
    /// Its name.
    pub name: String,
    /// Rings that share its packets by flow, each with a thread of its own, 1 to 64: for more packets than one core takes.
    #[serde(default = "one")]
    pub rings: u32,
    /// Whose times packets have.
    #[serde(default)]
    pub timestamps: Timestamps,
}

const fn one() -> u32 {
    1
}

/// Whose times packets have, as the file has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Timestamps {
    /// The kernel's.
    #[default]
    Kernel,
    /// The card's, of what comes in; what goes out has none and is left out. The kernel's where the card cannot.
    Hardware,
}

/// Other NIC agents, with whom streams are compared.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PeersConfig {
    /// Where agents of senders ask; nowhere if left out.
    pub listen: Option<SocketAddr>,
    /// Certificates of this end where it is asked.
    pub tls: Option<ServerTls>,
    /// Certificates where it asks.
    pub peers_tls: Option<ClientTls>,
}

impl Default for NetworkConfig {
    fn default() -> Self {
        Self {
            services_socket: PathBuf::from("/run/uview/services.sock"),
            memory_bytes: 16 << 20,
            peers: PeersConfig::default(),
            interfaces: Vec::new(),
            streams: Vec::new(),
        }
    }
}

/// One stream: which packets, and what is measured of them.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamConfig {
    /// The stream's name: its service is `network.NAME`.
    pub name: String,
    /// The interface that its packets pass.
    pub interface: String,
    /// What is a request, and what its response: the time between them is measured. Either this or `compared`.
    pub pair: Option<PairName>,
    /// The stream passes another agent, too: one-way delay and loss between the two are measured.
    pub compared: Option<ComparedConfig>,
    /// Which packets belong to it.
    #[serde(default)]
    pub filter: String,
    /// Whether the packets within VXLAN tunnels are meant.
    #[serde(default)]
    pub inner: bool,
    /// Bytes of its synopsis: 128 KiB, of one that is compared 8 MiB. Half of a fridge's wait for one of another probability to take over.
    pub memory_bytes: Option<u64>,
    /// Milliseconds of an interval, 100 to 60,000: so often its metrics change.
    #[serde(default = "interval_ms")]
    pub interval_ms: NonZeroU32,
}

/// How a stream is compared with what another agent sees of it. Both have to call it by the same name.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ComparedConfig {
    /// How: the same at both ends.
    pub synopsis: SynopsisName,
    /// Where the agent listens that sees the packets arrive (its `network.peers.listen`): host and port. Without, they arrive here.
    pub peer: Option<String>,
    /// Microseconds by which the two clocks differ at the most; if they turn out to differ by more, delays are not trusted.
    #[serde(default = "clock_within_us")]
    pub clock_within_us: u32,
}

const fn clock_within_us() -> u32 {
    1000
}

/// How streams are compared, as the file has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SynopsisName {
    /// Packets are remembered, and what one end only has is named.
    Rda,
    /// Packets are added up.
    Finecomb,
    /// The same, without digests.
    Lda,
}

const fn interval_ms() -> NonZeroU32 {
    NonZeroU32::new(1000).expect("1000 is not 0")
}

/// [`Pair`], as the file has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PairName {
    /// TCP handshakes.
    Handshake,
    /// TCP data and its acknowledgement.
    Data,
    /// TCP connections.
    Flow,
    /// DNS queries.
    Dns,
    /// NTP queries.
    Ntp,
}

impl From<PairName> for Pair {
    fn from(name: PairName) -> Self {
        match name {
            PairName::Handshake => Self::Handshake,
            PairName::Data => Self::Data,
            PairName::Flow => Self::Flow,
            PairName::Dns => Self::Dns,
            PairName::Ntp => Self::Ntp,
        }
    }
}

impl StreamConfig {
    /// Bytes of its synopsis.
    pub(crate) const fn bytes(&self) -> u64 {
        match (self.memory_bytes, &self.compared) {
            (Some(bytes), _) => bytes,
            (None, None) => FRIDGE_BYTES,
            (None, Some(_)) => COMPARED_BYTES,
        }
    }

    /// Packets of an interval that are remembered where it is compared.
    pub(crate) fn packets(&self) -> usize {
        usize::try_from(self.bytes() / PACKET_BYTES).unwrap_or(usize::MAX)
    }

    /// Its synopsis where it is compared.
    pub(crate) fn synopsis(&self, name: SynopsisName) -> Synopsis {
        let buckets = usize::try_from((self.bytes() / BUCKET_BYTES).min(MOST_BUCKETS)).unwrap_or(usize::MAX);
        match name {
            SynopsisName::Rda => Synopsis::RDA,
            SynopsisName::Finecomb => Synopsis::finecomb(buckets, buckets / 16),
            SynopsisName::Lda => Synopsis::lda(buckets),
        }
    }

    /// Slots of the fridge of each of its shards, one for each ring: what is left of its memory, for two of them.
    pub(crate) fn slots(&self, shards: usize) -> usize {
        let each = self.bytes() / shards.max(1) as u64;
        let bytes = each.saturating_sub(HISTOGRAM_BYTES) / 2;
        synopses::fridge::Settings::slots_within(usize::try_from(bytes).unwrap_or(usize::MAX))
    }

    /// The service that its metrics are of.
    pub(crate) fn service(&self) -> String {
        format!("network.{}", self.name)
    }
}

impl NetworkConfig {
    /// How an interface is read.
    pub(crate) fn interface(&self, name: &str) -> InterfaceConfig {
        let found = self.interfaces.iter().find(|interface| interface.name == name);
        let default = || InterfaceConfig { name: name.to_owned(), rings: 1, timestamps: Timestamps::Kernel };
        found.cloned().unwrap_or_else(default)
    }

    fn check_interfaces(&self) -> Result<(), ConfigError> {
        for (place, interface) in self.interfaces.iter().enumerate() {
            let name = &format!("{:?}", interface.name);
            let is_first = self.interfaces.iter().take(place).all(|other| other.name != interface.name);
            range(is_first, "network.interfaces.name", name, "each interface is there once")?;
            let is_used = self.streams.iter().any(|stream| stream.interface == interface.name);
            range(is_used, "network.interfaces.name", name, "an interface that a stream is on is needed")?;
            let is_possible = (1..=packets::ring::MOST_RINGS as u32).contains(&interface.rings);
            let found = format!("{} (interface {name})", interface.rings);
            range(is_possible, "network.interfaces.rings", &found, "1 to 64 are possible")?;
        }
        Ok(())
    }

    /// Of an interface with several rings each sees a share of its flows: whether the stream bears that.
    fn check_shared(stream: &StreamConfig, rings: u32) -> Result<(), ConfigError> {
        let found = format!("{rings} where the stream {:?} is on {:?}", stream.name, stream.interface);
        let whole = rings == 1 || stream.compared.is_none();
        let wanted = "a stream that is compared has to be seen by one ring: 1 is possible";
        range(whole, "network.interfaces.rings", &found, wanted)?;
        let together = rings == 1 || !stream.inner;
        let wanted = "the two directions of a flow within a tunnel come to different rings: with `inner` 1 is possible";
        range(together, "network.interfaces.rings", &found, wanted)
    }

    /// Whether all of it is possible, together.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let streams = self.streams.len();
        range(streams <= MOST_STREAMS, "network.streams", &streams, "at most 256 are possible")?;
        self.check_interfaces()?;
        for (place, stream) in self.streams.iter().enumerate() {
            let of = |found: &dyn ToString| format!("{} (stream {:?})", found.to_string(), stream.name);
            let is_name = wire::name::ServiceName::new(&stream.service()).is_ok();
            let name = &format!("{:?}", stream.name);
            range(is_name, "network.streams.name", name, "letters, digits and _.-/: are possible")?;
            let is_first = self.streams.iter().take(place).all(|other| other.name != stream.name);
            range(is_first, "network.streams.name", name, "each stream has a name of its own")?;
            let has_interface = !stream.interface.is_empty();
            range(has_interface, "network.streams.interface", &of(&"\"\""), "a name is needed, as `ip link` lists it")?;
            let filter = stream.filter.parse::<packets::Filter>();
            let conditions = "tcp, udp, port N, host A, net A/N, vlan N, vni N, joined by `and`, are possible";
            range(filter.is_ok(), "network.streams.filter", &of(&format!("{:?}", stream.filter)), conditions)?;
            self.check_measured(stream)?;
            let is_possible = (100..=60_000).contains(&stream.interval_ms.get());
            range(is_possible, "network.streams.interval_ms", &of(&stream.interval_ms), "100 to 60000 are possible")?;
        }
        let sum = self.streams.iter().fold(0_u64, |sum, stream| sum.saturating_add(stream.bytes()));
        let found = format!("{} where the streams take {sum}", self.memory_bytes);
        range(sum <= self.memory_bytes, "network.memory_bytes", &found, "as much as the streams take is needed")?;
        if let Some(tls) = &self.peers.tls {
            drop(tls.server().map_err(|cause| ConfigError::value("network.peers.tls", cause))?);
        }
        if let Some(tls) = &self.peers.peers_tls {
            drop(tls.client().map_err(|cause| ConfigError::value("network.peers.peers_tls", cause))?);
        }
        Ok(())
    }

    /// What is measured of a stream, and with how much memory.
    fn check_measured(&self, stream: &StreamConfig) -> Result<(), ConfigError> {
        let of = |found: &dyn ToString| format!("{} (stream {:?})", found.to_string(), stream.name);
        let rings = self.interface(&stream.interface).rings;
        Self::check_shared(stream, rings)?;
        let Some(compared) = &stream.compared else {
            let wanted = "either it is needed, or `compared`";
            range(stream.pair.is_some(), "network.streams.pair", &of(&"missing"), wanted)?;
            let least = LEAST_BYTES * u64::from(rings.max(1));
            let is_possible = stream.bytes() >= least && stream.slots(1) <= synopses::fridge::MOST_SLOTS;
            let wanted = "5632 bytes for each ring to 384 MiB are possible";
            return range(is_possible, "network.streams.memory_bytes", &of(&stream.bytes()), wanted);
        };
        let wanted = "a stream with `compared` has none";
        range(stream.pair.is_none(), "network.streams.pair", &of(&"there"), wanted)?;
        let is_possible = (1 << 16..=1 << 34).contains(&stream.bytes());
        range(is_possible, "network.streams.memory_bytes", &of(&stream.bytes()), "64 KiB to 16 GiB are possible")?;
        if let Some(peer) = &compared.peer {
            let is_address = peer
                .rsplit_once(':')
                .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0));
            let wanted = "a host and a port are needed, such as node-2:9705";
            range(is_address, "network.streams.compared.peer", &of(&format!("{peer:?}")), wanted)
        } else {
            let wanted = "it is needed where packets arrive; where they are sent, `peer` is";
            range(self.peers.listen.is_some(), "network.peers.listen", &of(&"null"), wanted)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::Timestamps;

    fn stream(with: &str) -> String {
        format!("network:\n  memory_bytes: 200000\n  streams:\n    - {{name: a, interface: eth0, pair: dns{with}}}\n")
    }

    fn compared(how: &str) -> String {
        format!("network:\n  streams:\n    - {{name: a, interface: eth0, compared: {how}}}\n")
    }

    #[test]
    fn a_stream_is_compared_where_its_packets_go_or_where_they_come_from() {
        let here = Config::parse(&compared("{synopsis: rda, peer: 'node-2:9705'}")).unwrap();
        let there = compared("{synopsis: finecomb}").replace("network:", "network:\n  peers: {listen: '0.0.0.0:9705'}");
        let there = Config::parse(&there).unwrap();

        let stream = &here.network.streams[0];
        assert_eq!((stream.bytes(), stream.packets()), (8 << 20, 32_768));
        assert!(there.network.streams[0].compared.as_ref().is_some_and(|compared| compared.peer.is_none()));
        let name = there.network.streams[0].synopsis(super::SynopsisName::Finecomb);
        assert_eq!(name, exchange::Synopsis::finecomb(26_214, 1_638));
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
            (stream(", memory_bytes: 200001"), "network.memory_bytes is 200000 where the streams take 200001"),
            (stream(", interval_ms: 99"), "network.streams.interval_ms is 99"),
            (stream("").replace("name: a", "name: a b"), "network.streams.name is \"a b\""),
            (stream("").replace("eth0", "''"), "network.streams.interface"),
            (stream("") + "    - {name: a, interface: eth1, pair: ntp}\n", "network.streams.name is \"a\""),
            (stream("").replace(", pair: dns", ""), "network.streams.pair is missing (stream \"a\")"),
            (stream(", compared: {synopsis: rda, peer: 'b:1'}"), "network.streams.pair is there"),
            (compared("{synopsis: rda, peer: b}"), "network.streams.compared.peer is \"b\""),
            (compared("{synopsis: rda}"), "network.peers.listen is null (stream \"a\")"),
            (compared("{synopsis: lda, peer: 'b:1'}, memory_bytes: 65535"), "network.streams.memory_bytes is 65535"),
        ] {
            let error = Config::parse(&text).unwrap_err().to_string();
            assert!(error.contains(key), "{text}: {error}");
        }
        assert!(Config::parse(&stream("").replace("dns", "dsn")).is_err());
    }

    #[test]
    fn an_interface_is_read_by_several_rings_where_every_stream_on_it_bears_that() {
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
            (four, "compared: {synopsis: rda, peer: 'b:1'}", "has to be seen by one ring"),
            (four, "pair: dns, inner: true", "with `inner` 1 is possible"),
            (four, "pair: dns, memory_bytes: 22527", "network.streams.memory_bytes is 22527"),
        ] {
            let error = read(how, stream).unwrap_err().to_string();
            assert!(error.contains(key), "{how} {stream}: {error}");
        }
        assert!(read(four, "pair: dns, memory_bytes: 22528").is_ok());
        assert!(read("{name: eth0, timestamps: card}", "pair: dns").is_err());
    }
}
