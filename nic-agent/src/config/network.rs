//! What is measured of the packets that pass.

use std::num::NonZeroU32;
use std::path::PathBuf;

use daemon::ConfigError;
use daemon::config::range;
use packets::Pair;
use serde::Deserialize;

/// More streams than this are a mistake.
const MOST_STREAMS: usize = 256;
/// The histogram beside a fridge's slots.
const HISTOGRAM_BYTES: u64 = 4096;
/// Two fridges of fewer slots are none: 64 of 12 bytes each, and their histogram.
const LEAST_BYTES: u64 = 2 * 64 * 12 + HISTOGRAM_BYTES;

/// What is measured of the packets that pass.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NetworkConfig {
    /// Where the host agent takes services: what is measured of a stream is a service like any other.
    pub services_socket: PathBuf,
    /// Bytes of all synopses.
    pub memory_bytes: u64,
    /// What is measured.
    pub streams: Vec<StreamConfig>,
}

impl Default for NetworkConfig {
    fn default() -> Self {
        Self { services_socket: PathBuf::from("/run/uview/services.sock"), memory_bytes: 16 << 20, streams: Vec::new() }
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
    /// What is a request, and what its response.
    pub pair: PairName,
    /// Which packets belong to it.
    #[serde(default)]
    pub filter: String,
    /// Whether the packets within VXLAN tunnels are meant.
    #[serde(default)]
    pub inner: bool,
    /// Bytes of its synopsis. Half of them wait for a fridge of another probability to take over.
    #[serde(default = "memory_bytes")]
    pub memory_bytes: u64,
    /// Milliseconds of an interval, 100 to 60,000: so often its metrics change.
    #[serde(default = "interval_ms")]
    pub interval_ms: NonZeroU32,
}

const fn memory_bytes() -> u64 {
    128 << 10
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
    /// Slots of its fridge: what is left of its memory, for two of them.
    pub(crate) fn slots(&self) -> usize {
        let bytes = self.memory_bytes.saturating_sub(HISTOGRAM_BYTES) / 2;
        synopses::fridge::Settings::slots_within(usize::try_from(bytes).unwrap_or(usize::MAX))
    }

    /// The service that its metrics are of.
    pub(crate) fn service(&self) -> String {
        format!("network.{}", self.name)
    }
}

impl NetworkConfig {
    /// Whether all of it is possible, together.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let streams = self.streams.len();
        range(streams <= MOST_STREAMS, "network.streams", &streams, "at most 256 are possible")?;
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
            let is_possible = stream.memory_bytes >= LEAST_BYTES && stream.slots() <= synopses::fridge::MOST_SLOTS;
            let wanted = "5632 bytes to 384 MiB are possible";
            range(is_possible, "network.streams.memory_bytes", &of(&stream.memory_bytes), wanted)?;
            let is_possible = (100..=60_000).contains(&stream.interval_ms.get());
            range(is_possible, "network.streams.interval_ms", &of(&stream.interval_ms), "100 to 60000 are possible")?;
        }
        let sum = self.streams.iter().fold(0_u64, |sum, stream| sum.saturating_add(stream.memory_bytes));
        let found = format!("{} where the streams take {sum}", self.memory_bytes);
        range(sum <= self.memory_bytes, "network.memory_bytes", &found, "as much as the streams take is needed")
    }
}

#[cfg(test)]
mod tests {
    use super::super::Config;

    fn stream(with: &str) -> String {
        format!("network:\n  memory_bytes: 200000\n  streams:\n    - {{name: a, interface: eth0, pair: dns{with}}}\n")
    }

    #[test]
    fn a_stream_is_a_name_an_interface_and_a_pair() {
        let config = Config::parse(&stream(", filter: udp and port 53")).unwrap();

        let stream = &config.network.streams[0];
        assert_eq!((stream.service().as_str(), stream.slots()), ("network.a", (128 * 1024 - 4096) / 24));
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
        ] {
            let error = Config::parse(&text).unwrap_err().to_string();
            assert!(error.contains(key), "{text}: {error}");
        }
        assert!(Config::parse(&stream("").replace("dns", "dsn")).is_err());
    }
}
