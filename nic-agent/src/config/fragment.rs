//! This node's fragment of the network's sketch, and the nodes at the other ends of its paths.

use std::num::NonZeroU32;

use agent_runtime::ConfigError;
use agent_runtime::config::range;
use packets::Filter;
use serde::Deserialize;

/// Most other nodes. Each packet is compared with the addresses of all.
const MAX_PEERS: usize = 64;
/// Most networks of one other node.
const MAX_NETWORKS: usize = 16;
/// Fragments in memory: the one that counts, and two epochs that have ended.
const FRAGMENTS: u64 = 3;

/// The fragment of this agent: rows of counters for the flows that pass one interface.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FragmentConfig {
    /// Its number, different on each node.
    pub id: u32,
    /// The interface whose packets are counted.
    pub interface: String,
    /// Its metrics are those of the service `network.NAME`.
    #[serde(default = "name")]
    pub name: String,
    /// Filter for the packets; empty for all packets. The same at all nodes.
    #[serde(default)]
    pub filter: String,
    /// Whether packets inside VXLAN tunnels are counted.
    #[serde(default)]
    pub inner: bool,
    /// w, counters of a row.
    #[serde(default = "counters")]
    pub counters: NonZeroU32,
    /// d, number of rows.
    #[serde(default = "rows")]
    pub rows: NonZeroU32,
    /// Length of an epoch in milliseconds, 1,000 to 60,000, the same at all nodes.
    #[serde(default = "epoch_ms")]
    pub epoch_ms: NonZeroU32,
    /// y, the error in packets that is to be unlikely: from it follows at how many ends a flow is counted.
    #[serde(default = "error_packets")]
    pub error_packets: NonZeroU32,
    /// The other nodes with a fragment.
    #[serde(default)]
    pub peers: Vec<FragmentPeer>,
}

/// Another node with a fragment.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FragmentPeer {
    /// Number of its fragment.
    pub id: u32,
    /// Host and port of its NIC agent (its `network.peers.listen`). With TLS, its certificate names the host.
    pub at: String,
    /// Addresses, or networks such as `10.1.2.0/24`, of what runs there.
    pub addresses: Vec<String>,
}

fn name() -> String {
    "fragment".to_owned()
}

const fn counters() -> NonZeroU32 {
    NonZeroU32::new(16_384).expect("it is not 0")
}

const fn rows() -> NonZeroU32 {
    NonZeroU32::MIN
}

const fn epoch_ms() -> NonZeroU32 {
    NonZeroU32::new(10_000).expect("it is not 0")
}

const fn error_packets() -> NonZeroU32 {
    NonZeroU32::new(10).expect("it is not 0")
}

impl FragmentConfig {
    /// Size of its counters in memory, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        let counters = u64::from(self.counters.get()).saturating_mul(self.rows.get().into());
        counters.saturating_mul(4 * FRAGMENTS)
    }

    /// Name of the service of its metrics.
    pub(crate) fn service(&self) -> String {
        format!("network.{}", self.name)
    }

    /// Checks all values. `is_taken` says whether a stream has a name; `rings` are those of the interface.
    pub(super) fn check(&self, is_taken: impl Fn(&str) -> bool, rings: u32, listens: bool) -> Result<(), ConfigError> {
        let name = &format!("{:?}", self.name);
        let is_name = wire::name::ServiceName::new(&self.service()).is_ok() && !is_taken(&self.name);
        let wanted = "letters, digits and _.-/: are allowed, up to 120 of them, and no stream has this name";
        range(is_name, "network.fragment.name", name, wanted)?;
        let wanted = "an interface name is needed, as `ip link` lists it";
        range(!self.interface.is_empty(), "network.fragment.interface", &"\"\"", wanted)?;
        let wanted = "a fragment needs an interface with one ring: shares of several are not merged";
        range(rings == 1, "network.interfaces.rings", &rings, wanted)?;
        let filter = &format!("{:?}", self.filter);
        let conditions = "tcp, udp, port N, host A, net A/N, vlan N, vni N, joined by `and`, are possible";
        range(self.filter.parse::<Filter>().is_ok(), "network.fragment.filter", filter, conditions)?;
        let size = u64::from(self.counters.get()) * u64::from(self.rows.get());
        let is_possible = size <= synopses::disaggregated::MAX_COUNTERS as u64;
        range(is_possible, "network.fragment.counters", &size, "2^26 counters are possible, in all rows together")?;
        let is_possible = (1_000..=60_000).contains(&self.epoch_ms.get());
        range(is_possible, "network.fragment.epoch_ms", &self.epoch_ms, "1000 to 60000 are possible")?;
        let is_possible = self.peers.len() <= MAX_PEERS;
        range(is_possible, "network.fragment.peers", &self.peers.len(), "at most 64 are possible")?;
        let wanted = "the other nodes ask this one, and need an address";
        range(self.peers.is_empty() || listens, "network.peers.listen", &"null (network.fragment.peers)", wanted)?;
        self.peers.iter().enumerate().try_for_each(|(index, peer)| self.check_peer(index, peer))
    }

    fn check_peer(&self, index: usize, peer: &FragmentPeer) -> Result<(), ConfigError> {
        let is_first = self.peers.iter().take(index).all(|other| other.id != peer.id) && peer.id != self.id;
        range(is_first, "network.fragment.peers.id", &peer.id, "each node has a number of its own")?;
        let of = |found: &str| format!("{found:?} (peer {})", peer.id);
        let wanted = "a host and a port are needed, such as node-2:9705";
        range(super::peers::is_address(&peer.at), "network.fragment.peers.at", &of(&peer.at), wanted)?;
        let wanted = "1 to 16 addresses or networks are needed";
        let number = &format!("{} of them (peer {})", peer.addresses.len(), peer.id);
        range((1..=MAX_NETWORKS).contains(&peer.addresses.len()), "network.fragment.peers.addresses", number, wanted)?;
        let bad = peer.addresses.iter().find(|address| network(address).is_none());
        let found = of(bad.map_or("", String::as_str));
        range(bad.is_none(), "network.fragment.peers.addresses", &found, "an address, or a network such as 10.1.2.0/24")
    }
}

impl FragmentPeer {
    /// The host of its agent.
    pub(crate) fn host(&self) -> &str {
        let host = self.at.rsplit_once(':').map_or(&*self.at, |(host, _)| host);
        host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
    }

    /// Filters of the packets from and to its addresses.
    pub(crate) fn filters(&self) -> Vec<Filter> {
        self.addresses.iter().filter_map(|address| network(address)).collect()
    }
}

/// The packets from and to a network.
fn network(address: &str) -> Option<Filter> {
    // One word only: a filter could go on behind it.
    let is_word = !address.is_empty() && !address.contains(char::is_whitespace);
    is_word.then(|| format!("net {address}").parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::super::Config;

    fn parse(fragment: &str, listen: &str) -> Result<Config, String> {
        let text = format!(
            "network:\n  peers: {{listen: {listen}, insecure: true, peers_insecure: true}}\n  fragment: {{{fragment}}}\n"
        );
        Config::parse(&text).map_err(|error| error.to_string())
    }

    #[test]
    fn a_fragment_is_a_number_an_interface_and_the_other_nodes() {
        let peer = "{id: 2, at: 'node-2:9705', addresses: ['10.1.2.0/24', 'fd00::2']}";
        let config = parse(&format!("id: 1, interface: eth0, peers: [{peer}]"), "'0.0.0.0:9705'").unwrap();
        let fragment = config.network.fragment.unwrap();

        assert_eq!((&*fragment.service(), fragment.bytes()), ("network.fragment", 3 * 65_536));
        assert_eq!((fragment.peers[0].host(), fragment.peers[0].filters().len()), ("node-2", 2));
        assert!(parse("id: 1, interface: eth0", "null").is_ok(), "alone, it counts what passes");
    }

    #[test]
    fn what_is_not_possible_is_refused_with_its_key() {
        let with = |with: &str| format!("id: 1, interface: eth0{with}");
        let peer = |peer: &str| with(&format!(", peers: [{{{peer}}}]"));
        for (fragment, listen, key) in [
            (with(", name: 'a b'"), "null", "network.fragment.name is \"a b\""),
            (with(", filter: upd"), "null", "network.fragment.filter is \"upd\""),
            (with(", counters: 67108865"), "null", "network.fragment.counters is 67108865"),
            (with(", counters: 16777216"), "null", "network.memory_bytes is 16777216, but"),
            (with(", epoch_ms: 999"), "null", "network.fragment.epoch_ms is 999"),
            (peer("id: 2, at: 'b:1', addresses: ['::1']"), "null", "network.peers.listen is null"),
            (peer("id: 1, at: 'b:1', addresses: ['::1']"), "'[::]:1'", "network.fragment.peers.id is 1"),
            (peer("id: 2, at: 'b', addresses: ['::1']"), "'[::]:1'", "network.fragment.peers.at is \"b\" (peer 2)"),
            (peer("id: 2, at: 'b:1', addresses: []"), "'[::]:1'", "network.fragment.peers.addresses is 0 of them"),
            (peer("id: 2, at: 'b:1', addresses: ['::1 and tcp']"), "'[::]:1'", "network.fragment.peers.addresses is"),
        ] {
            let error = parse(&fragment, listen).unwrap_err();
            assert!(error.contains(key), "{fragment}: {error}");
        }
    }
}
