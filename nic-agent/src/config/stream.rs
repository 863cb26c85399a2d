//! A stream: its packets, its source, and what is measured of it.

use std::num::NonZeroU32;

use agent_runtime::ConfigError;
use agent_runtime::config::range;
use one_way::Synopsis;
use packets::switch::readout::BucketReadout;
use serde::Deserialize;

use super::pair::PairName;
use super::switch::{SWITCH_BYTES, SwitchConfig, SwitchFileError};
use super::synopses::SynopsesConfig;

/// Size of the histogram of a stream with a fridge.
const HISTOGRAM_BYTES: u64 = 4096;
/// Smallest synopsis of a ring: two fridges of 64 slots of 12 bytes, and their histogram.
pub(super) const MIN_BYTES: u64 = 2 * 64 * 12 + HISTOGRAM_BYTES;
/// Default synopsis size of a stream with a fridge.
const FRIDGE_BYTES: u64 = 128 << 10;
/// Default synopsis size of a one-way stream.
const ONE_WAY_BYTES: u64 = 8 << 20;
/// RDA: bytes for each packet of an interval, in the six intervals in memory and in the cells of the one in comparison.
const PACKET_BYTES: u64 = 256;
/// FineComb, LDA: bytes for each bucket, likewise, with a sixteenth of a packet near the interval's ends.
const BUCKET_BYTES: u64 = 320;
/// Most buckets. More make messages longer and add little precision.
const MAX_BUCKETS: u64 = 1 << 16;

/// A stream: its packets, and what is measured of them.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamConfig {
    /// The stream's name: its service is `network.NAME`.
    pub name: String,
    /// The interface on which its packets are captured; empty with `switch`.
    #[serde(default)]
    pub interface: String,
    /// The switch that measures it, instead of this machine.
    pub switch: Option<SwitchConfig>,
    /// The kind of request and response whose delay is measured. A stream has this, `one_way` or `synopses`.
    pub pair: Option<PairName>,
    /// One-way delay and loss are measured together with another agent on the stream's path.
    pub one_way: Option<OneWayConfig>,
    /// Who is in the stream: packets out of order, heavy hitters, distinct flows and sources. Alone, or beside `pair`
    /// or `one_way`.
    pub synopses: Option<SynopsesConfig>,
    /// Filter for its packets; empty for all packets.
    #[serde(default)]
    pub filter: String,
    /// Whether the filter applies to packets inside VXLAN tunnels.
    #[serde(default)]
    pub inner: bool,
    /// Size of the synopsis of `pair` (128 KiB by default) or `one_way` (8 MiB) in bytes. Half of a fridge's memory is
    /// reserved for its successor with another probability.
    pub memory_bytes: Option<u64>,
    /// Period of its metrics in milliseconds, 100 to 60,000.
    #[serde(default = "interval_ms")]
    pub interval_ms: NonZeroU32,
}

/// One-way measurement of a stream with another agent. The stream has the same name at both ends.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OneWayConfig {
    /// The synopsis, which has to be the same at both ends.
    pub synopsis: SynopsisName,
    /// Host and port of the agent at the receiving end (its `network.peers.listen`). `None`: this is the receiving end.
    pub peer: Option<String>,
    /// Largest difference of the two clocks in microseconds. Delays are not trusted if they differ by more.
    #[serde(default = "max_clock_error_us")]
    pub max_clock_error_us: u32,
}

const fn max_clock_error_us() -> u32 {
    1000
}

/// The synopsis of a one-way measurement, as named in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SynopsisName {
    /// RDA: stores each packet, and identifies those that only one end has.
    Rda,
    /// FineComb: adds packets up in buckets.
    Finecomb,
    /// LDA: as FineComb, without digests.
    Lda,
}

const fn interval_ms() -> NonZeroU32 {
    NonZeroU32::new(1000).expect("1000 is not 0")
}

impl StreamConfig {
    /// Size of its synopsis of delays, in bytes.
    pub(crate) const fn bytes(&self) -> u64 {
        match (self.memory_bytes, self.pair, &self.one_way) {
            (Some(bytes), ..) => bytes,
            (None, _, Some(_)) => ONE_WAY_BYTES,
            (None, Some(_), None) => FRIDGE_BYTES,
            (None, None, None) => 0,
        }
    }

    /// Size of all its synopses, in bytes.
    pub(crate) fn all_bytes(&self) -> u64 {
        match (&self.switch, &self.one_way, &self.synopses) {
            (Some(_), None, Some(synopses)) => synopses.switch_bytes(),
            (Some(_), None, None) => SWITCH_BYTES,
            (_, _, synopses) => self.bytes().saturating_add(synopses.as_ref().map_or(0, SynopsesConfig::bytes)),
        }
    }

    /// Most packets of an interval that a one-way stream stores.
    pub(crate) fn packets(&self) -> usize {
        usize::try_from(self.bytes() / PACKET_BYTES).unwrap_or(usize::MAX)
    }

    /// Most buckets that a one-way stream has room for.
    fn most_buckets(&self) -> usize {
        usize::try_from((self.bytes() / BUCKET_BYTES).min(MAX_BUCKETS)).unwrap_or(usize::MAX)
    }

    /// The synopsis of a one-way stream.
    pub(crate) fn synopsis(&self, name: SynopsisName) -> Synopsis {
        let buckets = self.most_buckets();
        match name {
            SynopsisName::Rda => Synopsis::RDA,
            SynopsisName::Finecomb => Synopsis::finecomb(buckets, buckets / 16),
            SynopsisName::Lda => Synopsis::lda(buckets),
        }
    }

    /// What makes intervals of the registers of its switch, which is this end of `one_way`.
    ///
    /// # Errors
    ///
    /// [`SwitchFileError`] if the file of constants is not that of such a program.
    pub(crate) fn switch_end(
        &self,
        switch: &SwitchConfig,
        one_way: &OneWayConfig,
    ) -> Result<BucketReadout, SwitchFileError> {
        match (one_way.synopsis, &one_way.peer) {
            (SynopsisName::Lda, _) => switch.buckets(&["lda"], self.most_buckets()),
            (_, Some(_)) => switch.buckets(&["finecomb-sender", "together"], self.most_buckets()),
            (_, None) => switch.buckets(&["finecomb-receiver"], self.most_buckets()),
        }
    }

    /// The program of its switch, by the file of constants; empty without a switch.
    ///
    /// # Errors
    ///
    /// [`SwitchFileError`] if the file is not that of a program that measures this.
    pub(crate) fn switch_program(&self) -> Result<&'static str, SwitchFileError> {
        match (&self.switch, &self.one_way, &self.synopses) {
            (Some(switch), Some(one_way), _) => Ok(self.switch_end(switch, one_way)?.program()),
            (Some(switch), None, Some(synopses)) if synopses.reordering.is_some() => {
                Ok(switch.reordering(1)?.program())
            }
            (Some(switch), None, Some(synopses)) if synopses.heavy_hitters.is_some() => {
                Ok(switch.heavy(self.interval_ms)?.program())
            }
            (Some(switch), None, Some(synopses)) => Ok(switch.cardinality(1, synopses.window_ms())?.program()),
            (Some(switch), None, None) => Ok(switch.fridge(1)?.program()),
            (None, ..) => Ok(""),
        }
    }

    /// Slots of the fridge of each shard, of which there is one for each ring. Two fridges share the memory that the
    /// histogram leaves.
    pub(crate) fn slots(&self, shards: usize) -> usize {
        let each = self.bytes() / shards.max(1) as u64;
        let bytes = each.saturating_sub(HISTOGRAM_BYTES) / 2;
        synopses::fridge::Settings::slots_within(usize::try_from(bytes).unwrap_or(usize::MAX))
    }

    /// Name of the service of its metrics.
    pub(crate) fn service(&self) -> String {
        format!("network.{}", self.name)
    }

    /// Checks that it has an interface, or a switch that can measure it.
    pub(super) fn check_source(&self) -> Result<(), ConfigError> {
        if let Some(switch) = &self.switch {
            return self.check_switch(switch);
        }
        let found = format!("\"\" (stream {:?})", self.name);
        let wanted = "an interface name is needed, as `ip link` lists it; or a `switch`";
        range(!self.interface.is_empty(), "network.streams.interface", &found, wanted)
    }

    /// Checks that a switch can measure it.
    fn check_switch(&self, switch: &SwitchConfig) -> Result<(), ConfigError> {
        let of = |found: &str| format!("{found:?} (stream {:?})", self.name);
        let has_interface = !self.interface.is_empty();
        let wanted = "a stream with `switch` has no interface";
        range(!has_interface, "network.streams.interface", &of(&self.interface), wanted)?;
        let is_address = switch
            .control
            .rsplit_once(':')
            .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0));
        let wanted = "a host and a port are needed, such as 127.0.0.1:9090";
        range(is_address, "network.streams.switch.control", &of(&switch.control), wanted)?;
        let is_possible = match (self.pair, &self.one_way, &self.synopses) {
            (Some(pair), None, None) => pair == PairName::Handshake,
            (None, Some(one_way), None) => one_way.synopsis != SynopsisName::Rda,
            (None, None, Some(_)) => true,
            _ => false,
        };
        let wanted = "a switch measures one of `pair: handshake`, `one_way` with finecomb or lda, and `synopses` in a \
                      stream; others may name it, too";
        range(is_possible, "network.streams.switch", &of(&switch.control), wanted)?;
        if let Some(synopses) = &self.synopses {
            synopses.check_switch(|found: &dyn ToString| format!("{} (stream {:?})", found.to_string(), self.name))?;
        }
        self.check_switch_times(switch, of)?;
        let wanted = "the program of a switch looks at all packets: no filter is possible";
        range(self.filter.is_empty(), "network.streams.filter", &of(&self.filter), wanted)?;
        let wanted = "programs for switches do not look into tunnels";
        range(!self.inner, "network.streams.inner", &of("true"), wanted)
    }

    /// Checks where its times and the begins of its intervals come from.
    fn check_switch_times(&self, switch: &SwitchConfig, of: impl Fn(&str) -> String) -> Result<(), ConfigError> {
        let has_window = |synopses: &SynopsesConfig| synopses.cardinality.is_some() || synopses.heavy_hitters.is_some();
        let has_times = self.one_way.is_some() || self.synopses.as_ref().is_some_and(has_window);
        let is_possible = has_times || switch.clock_offset_ns.is_none();
        let found = switch.clock_offset_ns.unwrap_or_default().to_string();
        let wanted =
            "only a stream with `one_way`, `synopses.cardinality` or `heavy_hitters` has it: others need no time";
        range(is_possible, "network.streams.switch.clock_offset_ns", &of(&found), wanted)?;
        let interface = switch.marker_interface.as_deref();
        let is_possible = self.one_way.is_some() || interface.is_none();
        let wanted = "only intervals of a stream with `one_way` begin with markers";
        range(is_possible, "network.streams.switch.marker_interface", &of(interface.unwrap_or_default()), wanted)?;
        let wanted = "an interface name is needed, as `ip link` lists it; or null";
        range(interface != Some(""), "network.streams.switch.marker_interface", &of(""), wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Config;

    fn stream(with: &str) -> String {
        let switch = "switch: {control: '127.0.0.1:9090', constants: /nowhere/constants.p4}";
        format!("network: {{streams: [{{name: a, {switch}, pair: handshake{with}}}]}}\n")
    }

    /// A stream with these synopses of a switch.
    fn flows(synopses: &str) -> String {
        stream("").replace("pair: handshake", &format!("synopses: {synopses}"))
    }

    #[test]
    fn distinct_flows_heavy_ones_and_reordering_may_be_of_a_switch() {
        let text = flows("{cardinality: {window_ms: 100}}").replace("}, s", ", clock_offset_ns: 5}, s");
        let stream = &Config::parse(&text).unwrap().network.streams[0];

        assert_eq!(stream.switch.as_ref().unwrap().clock_offset_ns, Some(5));
        assert_eq!((stream.bytes(), stream.all_bytes()), (0, 65_536 * 13));
        let stream = &Config::parse(&flows("{reordering: {}}")).unwrap().network.streams[0];
        assert_eq!((stream.bytes(), stream.all_bytes()), (0, 1 << 20));
        let text = flows("{heavy_hitters: {by: flow, weight: packets}}").replace("}, s", ", clock_offset_ns: 5}, s");
        let stream = &Config::parse(&text).unwrap().network.streams[0];
        assert_eq!((stream.bytes(), stream.all_bytes()), (0, 1 << 20));
    }

    #[test]
    fn what_a_switch_does_not_measure_is_refused_with_its_key() {
        for (text, key) in [
            (stream(", interface: eth0"), "network.streams.interface is \"eth0\" (stream \"a\")"),
            (stream(", filter: tcp"), "network.streams.filter is \"tcp\""),
            (stream(", inner: true"), "network.streams.inner"),
            (stream(", synopses: {cardinality: {}}"), "network.streams.switch is"),
            (stream("").replace("handshake", "dns"), "network.streams.switch is"),
            (stream("").replace(":9090", ""), "network.streams.switch.control is \"127.0.0.1\""),
            (stream(", one_way: {synopsis: lda, peer: 'b:1'}"), "network.streams.switch is"),
            (
                stream("").replace("pair: handshake", "one_way: {synopsis: rda, peer: 'b:1'}"),
                "network.streams.switch is",
            ),
            (stream("").replace("}, p", ", clock_offset_ns: 5}, p"), "network.streams.switch.clock_offset_ns is \"5\""),
            (
                stream("").replace("}, p", ", marker_interface: eth0}, p"),
                "network.streams.switch.marker_interface is \"eth0\"",
            ),
            (stream(", memory_bytes: 100"), "network.streams.memory_bytes is 100"),
            (flows("{cardinality: {}, reordering: {}}"), "network.streams.synopses is 2 of them (stream \"a\")"),
            (
                flows("{heavy_hitters: {}}"),
                "network.streams.synopses.heavy_hitters is {by: source, weight: bytes} (stream \"a\")",
            ),
            (
                flows("{heavy_hitters: {by: flow, weight: packets}, reordering: {}}"),
                "network.streams.synopses is 2 of them",
            ),
            (flows("{reordering: {ipv4_bits: 16}}"), "network.streams.synopses.reordering is 16 and 48"),
            (
                flows("{reordering: {}}").replace("}, s", ", clock_offset_ns: 5}, s"),
                "network.streams.switch.clock_offset_ns is \"5\"",
            ),
            (flows("{}"), "network.streams.synopses is empty"),
            (flows("{cardinality: {}}, memory_bytes: 100"), "network.streams.memory_bytes is 100"),
            (
                flows("{cardinality: {}}").replace("}, s", ", marker_interface: eth0}, s"),
                "network.streams.switch.marker_interface is \"eth0\"",
            ),
        ] {
            let error = Config::parse(&text).unwrap_err().to_string();
            assert!(error.contains(key), "{text}: {error}");
        }
    }

    #[test]
    fn an_end_of_a_one_way_stream_may_be_a_switch() {
        let one_way = "one_way: {synopsis: finecomb, peer: 'b:1'}";
        let text = stream("")
            .replace("pair: handshake", one_way)
            .replace("{streams", "{peers: {peers_insecure: true}, streams");
        let more = text.replace("}, o", ", clock_offset_ns: -5, marker_interface: eth0}, o");
        for (text, offset, interface) in [(&text, None, None), (&more, Some(-5), Some("eth0"))] {
            let stream = &Config::parse(text).unwrap().network.streams[0];

            let switch = stream.switch.as_ref().unwrap();
            assert_eq!((switch.clock_offset_ns, switch.marker_interface.as_deref()), (offset, interface));
            assert_eq!(stream.all_bytes(), 8 << 20, "as at an interface");
        }
        let source = "switch: {control: 'a:2', constants: /nowhere, marker_interface: eth0}";
        let other = more.replace("}]}", &format!("}}, {{name: b, interval_ms: 500, {source}, {one_way}}}]}}"));
        let error = Config::parse(&other).unwrap_err().to_string();
        assert!(error.contains("network.streams.interval_ms is 500 (stream \"b\"), 1000 of another one"), "{error}");
        for text in [other.replace("500", "1000"), other.replace("/nowhere, marker_interface: eth0", "/nowhere")] {
            assert_eq!(Config::parse(&text).unwrap().network.streams.len(), 2);
        }
        let nameless = text.replace("}, o", ", marker_interface: ''}, o");
        let error = Config::parse(&nameless).unwrap_err().to_string();
        assert!(error.contains("network.streams.switch.marker_interface is \"\""), "{error}");
    }
}
