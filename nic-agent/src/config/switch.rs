//! A switch as the source of a stream.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::PathBuf;

use agent_runtime::ConfigError;
use agent_runtime::config::range;
use packets::switch::readout::{FridgeError, FridgeReadout};
use packets::switch::{Constants, WrittenError};
use serde::Deserialize;
use thiserror::Error;

use super::network::StreamConfig;
use super::pair::PairName;

/// What a stream of a switch takes here: a histogram, and the ring of samples twice.
pub(super) const SWITCH_BYTES: u64 = 4096 + 2 * 8192;
/// Most bytes of a file of constants.
const MAX_FILE: u64 = 1 << 16;
/// The program that measures handshakes.
const PROGRAM: &str = "fridge";

/// A switch that measures a stream.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwitchConfig {
    /// Host and port of its control interface: the Thrift port of `simple_switch`.
    pub control: String,
    /// The constants that its program was compiled with, as `uview p4 constants` wrote them.
    pub constants: PathBuf,
}

/// Why a file is not that of a switch's constants.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SwitchFileError {
    /// It cannot be read.
    #[error("{0} cannot be read")]
    Read(PathBuf, #[source] io::Error),
    /// Its content is not what `uview p4 constants` writes for this program.
    #[error("{0} has no constants of a switch")]
    Written(PathBuf, #[source] WrittenError),
    /// They are not those of a fridge.
    #[error("{0} has no constants of a fridge")]
    Fridge(PathBuf, #[source] FridgeError),
}

impl SwitchConfig {
    /// Checks that a stream has an interface, or a switch that can measure it.
    pub(super) fn check_source(stream: &StreamConfig) -> Result<(), ConfigError> {
        let of = |found: &str| format!("{found:?} (stream {:?})", stream.name);
        let has_interface = !stream.interface.is_empty();
        let Some(switch) = &stream.switch else {
            let wanted = "an interface name is needed, as `ip link` lists it; or a `switch`";
            return range(has_interface, "network.streams.interface", &of(""), wanted);
        };
        let wanted = "a stream with `switch` has no interface";
        range(!has_interface, "network.streams.interface", &of(&stream.interface), wanted)?;
        let is_address = switch
            .control
            .rsplit_once(':')
            .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0));
        let wanted = "a host and a port are needed, such as 127.0.0.1:9090";
        range(is_address, "network.streams.switch.control", &of(&switch.control), wanted)?;
        let is_handshake = stream.pair == Some(PairName::Handshake) && stream.synopses.is_none();
        let wanted = "a switch measures `pair: handshake`, and nothing beside";
        range(is_handshake, "network.streams.switch", &of(&switch.control), wanted)?;
        let wanted = "the program of a switch looks at all packets: no filter is possible";
        range(stream.filter.is_empty(), "network.streams.filter", &of(&stream.filter), wanted)?;
        let wanted = "programs for switches do not look into tunnels";
        range(!stream.inner, "network.streams.inner", &of("true"), wanted)
    }

    /// What makes intervals of its registers, by its file of constants.
    ///
    /// # Errors
    ///
    /// [`SwitchFileError`] if the file is not that of such a program.
    pub(crate) fn readout(&self, interval_ns: u64) -> Result<FridgeReadout, SwitchFileError> {
        let at = || self.constants.clone();
        let mut text = String::new();
        let read = File::open(&self.constants).and_then(|file| file.take(MAX_FILE).read_to_string(&mut text));
        read.map_err(|error| SwitchFileError::Read(at(), error))?;
        let constants = Constants::written(PROGRAM, &text).map_err(|error| SwitchFileError::Written(at(), error))?;
        FridgeReadout::new(&constants, interval_ns).map_err(|error| SwitchFileError::Fridge(at(), error))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Config;

    fn stream(with: &str) -> String {
        let switch = "switch: {control: '127.0.0.1:9090', constants: /nowhere/constants.p4}";
        format!("network: {{streams: [{{name: a, {switch}, pair: handshake{with}}}]}}\n")
    }

    #[test]
    fn a_switch_is_the_source_of_a_stream_instead_of_an_interface() {
        let config = Config::parse(&stream("")).unwrap();

        let stream = &config.network.streams[0];
        let switch = stream.switch.as_ref().unwrap();
        assert_eq!((&*stream.interface, &*switch.control), ("", "127.0.0.1:9090"));
        let error = switch.readout(1_000_000_000).unwrap_err().to_string();
        assert_eq!(error, "/nowhere/constants.p4 cannot be read");
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
            (stream(", memory_bytes: 100"), "network.streams.memory_bytes is 100"),
        ] {
            let error = Config::parse(&text).unwrap_err().to_string();
            assert!(error.contains(key), "{text}: {error}");
        }
    }
}
