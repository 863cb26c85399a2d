//! Who is in a stream: packets out of order, heavy hitters, distinct flows and sources.

use std::num::NonZeroU32;

use agent_runtime::ConfigError;
use agent_runtime::config::range;
use packets::FlowsSettings;
use packets::flows::{Key, PrefixLengths, Weight};
use serde::Deserialize;

/// Size of the synopsis of packets out of order, and of its prefixes.
const REORDERING_BYTES: u64 = 40 << 10;
/// Size of the table of heavy hitters.
const HEAVY_BYTES: u64 = 40 << 10;
/// What an ST-HLL in a switch takes here, with the most registers that it may have: as read, with laps, as ranks.
const SWITCH_DISTINCT_BYTES: u64 = (1 << 16) * (8 + 4 + 1);
/// What reordering in a switch takes here, with the most records that are read: these, reports, and sums by prefix.
const SWITCH_REORDERING_BYTES: u64 = 1 << 20;
/// What PRECISION in a switch takes here, with the most rows that are read: an array of each kind, and entries.
const SWITCH_HEAVY_BYTES: u64 = 1 << 20;
/// Size of the counts of distinct items, and of the tables of who has most of them.
const DISTINCT_BYTES: u64 = 72 << 10;

/// The synopses of a stream. `{}` behind a name takes its defaults; what is left out is not measured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SynopsesConfig {
    /// Source prefixes whose TCP packets are out of order.
    pub reordering: Option<ReorderingConfig>,
    /// The heaviest source, destination, flow or port.
    pub heavy_hitters: Option<HeavyHittersConfig>,
    /// Distinct flows, sources and destination ports.
    pub cardinality: Option<CardinalityConfig>,
}

/// Settings of reordering by prefix.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ReorderingConfig {
    /// Leading bits of an IPv4 address that make its prefix, from 1 to 32.
    pub ipv4_bits: u8,
    /// Leading bits of an IPv6 address that make its prefix, from 1 to 56.
    pub ipv6_bits: u8,
}

impl Default for ReorderingConfig {
    fn default() -> Self {
        let PrefixLengths { v4, v6 } = PrefixLengths::default();
        Self { ipv4_bits: v4, ipv6_bits: v6 }
    }
}

impl From<&ReorderingConfig> for PrefixLengths {
    fn from(config: &ReorderingConfig) -> Self {
        Self { v4: config.ipv4_bits, v6: config.ipv6_bits }
    }
}

/// Settings of heavy hitters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HeavyHittersConfig {
    /// What is weighed.
    pub by: KeyName,
    /// By what it is weighed.
    pub weight: WeightName,
}

/// Settings of distinct items.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CardinalityConfig {
    /// The window in milliseconds, from 100 to 3,600,000; `None`: the stream's interval.
    pub window_ms: Option<NonZeroU32>,
}

/// [`Key`], as named in the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyName {
    /// By source addresses.
    #[default]
    Source,
    /// By destination addresses.
    Destination,
    /// Flows: both addresses, both ports, and the protocol.
    Flow,
    /// By destination ports.
    Port,
}

/// [`Weight`], as named in the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WeightName {
    /// Number of packets.
    Packets,
    /// Bytes of TCP and UDP.
    #[default]
    Bytes,
}

impl From<KeyName> for Key {
    fn from(name: KeyName) -> Self {
        match name {
            KeyName::Source => Self::Source,
            KeyName::Destination => Self::Destination,
            KeyName::Flow => Self::Flow,
            KeyName::Port => Self::Port,
        }
    }
}

impl From<WeightName> for Weight {
    fn from(name: WeightName) -> Self {
        match name {
            WeightName::Packets => Self::Packets,
            WeightName::Bytes => Self::Bytes,
        }
    }
}

impl SynopsesConfig {
    /// Size of all of them, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        let of = |is_on: bool, bytes: u64| if is_on { bytes } else { 0 };
        of(self.reordering.is_some(), REORDERING_BYTES)
            + of(self.heavy_hitters.is_some(), HEAVY_BYTES)
            + of(self.cardinality.is_some(), DISTINCT_BYTES)
    }

    /// What is taken here if a switch has them, in bytes.
    pub(super) const fn switch_bytes(&self) -> u64 {
        match (&self.reordering, &self.heavy_hitters, &self.cardinality) {
            (Some(_), ..) => SWITCH_REORDERING_BYTES,
            (None, Some(_), _) => SWITCH_HEAVY_BYTES,
            (None, None, Some(_)) => SWITCH_DISTINCT_BYTES,
            (None, None, None) => 0,
        }
    }

    /// The window of distinct items, if the file names it.
    pub(crate) fn window_ms(&self) -> Option<NonZeroU32> {
        self.cardinality.as_ref().and_then(|cardinality| cardinality.window_ms)
    }

    /// The settings for a stream with this filter and interval. The filter was checked with the configuration.
    pub(crate) fn settings(&self, filter: &str, interval_ms: NonZeroU32, secret: u128) -> FlowsSettings {
        let window = |of: &CardinalityConfig| u64::from(of.window_ms.unwrap_or(interval_ms).get()) * 1_000_000;
        FlowsSettings {
            filter: filter.parse().unwrap_or_default(),
            reordering: self.reordering.as_ref().map(PrefixLengths::from),
            heavy: self.heavy_hitters.as_ref().map(|of| (of.by.into(), of.weight.into())),
            window_ns: self.cardinality.as_ref().map(window),
            secret,
        }
    }

    /// Checks that a switch can measure them. `of` adds the stream to what was found.
    pub(super) fn check_switch(&self, of: impl Fn(&dyn ToString) -> String) -> Result<(), ConfigError> {
        if let Some(HeavyHittersConfig { by, weight }) = self.heavy_hitters {
            let is_possible = (by, weight) == (KeyName::Flow, WeightName::Packets);
            let found = format!("{{by: {by:?}, weight: {weight:?}}}").to_lowercase();
            let wanted = "a switch weighs flows by packets: {by: flow, weight: packets}";
            range(is_possible, "network.streams.synopses.heavy_hitters", &of(&found), wanted)?;
        }
        let there = [self.reordering.is_some(), self.heavy_hitters.is_some(), self.cardinality.is_some()];
        let count = there.into_iter().filter(|is_there| *is_there).count();
        let wanted = "a program for a switch has one of them: another stream may have the other";
        range(count <= 1, "network.streams.synopses", &of(&format!("{count} of them")), wanted)?;
        let lengths = self.reordering.as_ref().map(PrefixLengths::from).unwrap_or_default();
        let found = format!("{} and {}", lengths.v4, lengths.v6);
        let wanted = "programs for switches have prefixes of 24 bits of IPv4 and 48 of IPv6";
        let is_usual = lengths == PrefixLengths::default();
        range(is_usual, "network.streams.synopses.reordering", &of(&found), wanted)
    }

    /// Checks all values. `of` adds the stream to what was found.
    pub(super) fn check(&self, of: impl Fn(&dyn ToString) -> String) -> Result<(), ConfigError> {
        let wanted = "at least one of reordering, heavy_hitters and cardinality is needed, such as {cardinality: {}}";
        range(self.bytes() > 0, "network.streams.synopses", &of(&"empty"), wanted)?;
        if let Some(lengths) = self.reordering.as_ref().map(PrefixLengths::from) {
            let found = format!("{} and {}", lengths.v4, lengths.v6);
            let wanted = "1 to 32 bits of IPv4 and 1 to 56 of IPv6 are possible";
            range(lengths.are_possible(), "network.streams.synopses.reordering", &of(&found), wanted)?;
        }
        let Some(window_ms) = self.window_ms() else { return Ok(()) };
        let is_possible = (100..=3_600_000).contains(&window_ms.get());
        let key = "network.streams.synopses.cardinality.window_ms";
        range(is_possible, key, &of(&window_ms), "100 to 3600000 are possible")
    }
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;

    fn config(stream: &str) -> Result<Config, String> {
        let text = format!(
            "network:\n  peers: {{peers_insecure: true}}\n  streams: [{{name: a, interface: eth0, {stream}}}]\n"
        );
        Config::parse(&text).map_err(|error| error.to_string())
    }

    #[test]
    fn a_name_and_two_braces_are_enough_and_each_synopsis_fits_into_what_the_budget_counts() {
        for (stream, bytes) in [
            ("synopses: {reordering: {}}", REORDERING_BYTES),
            ("synopses: {heavy_hitters: {}}", HEAVY_BYTES),
            ("synopses: {cardinality: {}}", DISTINCT_BYTES),
            (
                "synopses: {reordering: {}, heavy_hitters: {by: flow, weight: packets}, cardinality: {window_ms: 60000}}",
                152 << 10,
            ),
        ] {
            let stream = &config(stream).unwrap().network.streams[0];
            let synopses = stream.synopses.as_ref().unwrap();
            let flows = packets::Flows::new(&synopses.settings("", stream.interval_ms, 1)).unwrap();
            let taken = flows.memory_bytes() as u64;
            assert!(
                synopses.bytes() == bytes && taken <= bytes && taken > bytes / 2,
                "{taken} of {bytes}: {synopses:?}"
            );
        }
    }

    #[test]
    fn prefixes_have_the_lengths_of_the_file_or_the_usual_ones() {
        let lengths = |reordering: &str| {
            let config = config(&format!("synopses: {{reordering: {reordering}}}")).unwrap();
            let stream = &config.network.streams[0];
            stream.synopses.as_ref().unwrap().settings("", stream.interval_ms, 1).reordering
        };

        assert_eq!(lengths("{}"), Some(PrefixLengths { v4: 24, v6: 48 }));
        assert_eq!(lengths("{ipv4_bits: 16}"), Some(PrefixLengths { v4: 16, v6: 48 }));
        assert_eq!(lengths("{ipv6_bits: 56, ipv4_bits: 32}"), Some(PrefixLengths { v4: 32, v6: 56 }));
    }

    #[test]
    fn synopses_are_alone_or_beside_delay_and_loss() {
        let bytes = |stream: &str| config(stream).unwrap().network.streams[0].bytes();
        assert_eq!(
            (bytes("synopses: {cardinality: {}}"), bytes("pair: dns, synopses: {cardinality: {}}")),
            (0, 128 << 10)
        );
        assert!(config("one_way: {synopsis: rda, peer: 'b:1'}, synopses: {reordering: {}}").is_ok());

        for (stream, key) in [
            ("synopses: {}", "network.streams.synopses is empty (stream \"a\")"),
            ("synopses: {cardinality: {window_ms: 99}}", "network.streams.synopses.cardinality.window_ms is 99"),
            ("synopses: {reordering: {ipv4_bits: 0}}", "network.streams.synopses.reordering is 0 and 48"),
            ("synopses: {reordering: {ipv6_bits: 57}}", "network.streams.synopses.reordering is 24 and 57"),
            ("synopses: {reordering: {}}, memory_bytes: 9000", "network.streams.memory_bytes is 9000"),
            ("filter: tcp", "network.streams.pair is missing"),
        ] {
            let error = config(stream).unwrap_err();
            assert!(error.contains(key), "{stream}: {error}");
        }
        assert!(config("synopses: {heavy_hitters: {by: client}}").is_err());
        let text = "network:\n  interfaces: [{name: eth0, rings: 2}]\n  streams: [{name: a, interface: eth0, synopses: {reordering: {}}}]\n";
        assert!(Config::parse(text).unwrap_err().to_string().contains("`synopses` needs an interface with one ring"));
        let text = "network:\n  memory_bytes: 100000\n  streams: [{name: a, interface: eth0, synopses: {reordering: {}, cardinality: {}}}]\n";
        assert!(Config::parse(text).unwrap_err().to_string().contains("the streams need 114688"));
    }
}
