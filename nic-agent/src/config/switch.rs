//! A switch as the source of a stream.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::PathBuf;

use packets::switch::readout::{FridgeError, FridgeReadout};
use packets::switch::{Constants, WrittenError};
use serde::Deserialize;
use thiserror::Error;

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

    #[test]
    fn a_switch_is_the_source_of_a_stream_instead_of_an_interface() {
        let switch = "switch: {control: '127.0.0.1:9090', constants: /nowhere/constants.p4}";
        let text = format!("network: {{streams: [{{name: a, {switch}, pair: handshake}}]}}\n");
        let config = Config::parse(&text).unwrap();

        let stream = &config.network.streams[0];
        let switch = stream.switch.as_ref().unwrap();
        assert_eq!((&*stream.interface, &*switch.control), ("", "127.0.0.1:9090"));
        let error = switch.readout(1_000_000_000).unwrap_err().to_string();
        assert_eq!(error, "/nowhere/constants.p4 cannot be read");
    }
}
