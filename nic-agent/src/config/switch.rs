//! A switch as the source of a stream.

use std::fs::File;
use std::io::{self, Read as _};
use std::num::NonZeroU32;
use std::path::PathBuf;

use packets::switch::readout::{
    BucketReadout, BucketsError, CardinalityError, CardinalityReadout, FridgeError, FridgeReadout, HeavyError,
    HeavyReadout, ReorderingError, ReorderingReadout,
};
use packets::switch::{Constants, WrittenError};
use serde::Deserialize;
use thiserror::Error;

/// What a fridge in a switch takes here: a histogram, and the ring of samples twice.
pub(super) const SWITCH_BYTES: u64 = 4096 + 2 * 8192;
/// Most bytes of a file of constants.
const MAX_FILE: u64 = 1 << 16;
/// The programs that measure handshakes.
const FRIDGES: &[&str] = &["fridge", "fridges", "together"];
/// The programs that count distinct flows by ST-HLL.
const SKETCHES: &[&str] = &["st-hll", "together"];
/// The programs that look for the flows with most packets.
const HEAVY_HITTERS: &[&str] = &["precision"];
/// The programs that look for prefixes with packets out of order.
const REORDERINGS: &[&str] = &["reordering", "reordering-samples"];

/// A switch that measures a stream.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwitchConfig {
    /// Host and port of its control interface: the Thrift port of `simple_switch`.
    pub control: String,
    /// The constants that its program was compiled with, as `uview p4 constants` wrote them.
    pub constants: PathBuf,
    /// What is added to the switch's time so that it is that since 1970, in nanoseconds; `None`: the switch is asked.
    /// It is refused once the switch has started again, until the agent does.
    pub clock_offset_ns: Option<i64>,
    /// The interface from which the agent sends the frames that begin intervals, into the packets' path before both
    /// ends; `None`: somebody else sends them.
    pub marker_interface: Option<String>,
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
    /// They are not those of a fridge, or of several ones.
    #[error("{0} has no constants of a fridge")]
    Fridge(PathBuf, #[source] FridgeError),
    /// They are not those of ST-HLL.
    #[error("{0} has no constants of ST-HLL")]
    Cardinality(PathBuf, #[source] CardinalityError),
    /// The window is another one than that of the configuration. Slots are powers of two, so it may be longer.
    #[error(
        "{file} has a window of {found_ns} ns, synopses.cardinality.window_ms is {window_ms}: as long, or less than \
         twice as long, is possible; `uview p4 constants` writes such a file"
    )]
    Window {
        /// The file of constants.
        file: PathBuf,
        /// The window of the program in nanoseconds.
        found_ns: u64,
        /// That of the configuration in milliseconds.
        window_ms: NonZeroU32,
    },
    /// They are not those of PRECISION, or of one that is too large to be read.
    #[error("{0} has no constants of PRECISION that an agent reads")]
    Heavy(PathBuf, #[source] HeavyError),
    /// Epochs are not those of the stream's intervals. They are powers of two, so they may be longer.
    #[error(
        "{file} has epochs of {found_ns} ns, network.streams.interval_ms is {interval_ms}: as long, or less than twice \
         as long, is possible; `uview p4 constants` writes such a file"
    )]
    Epoch {
        /// The file of constants.
        file: PathBuf,
        /// An epoch of the program in nanoseconds.
        found_ns: u64,
        /// An interval of the stream in milliseconds.
        interval_ms: NonZeroU32,
    },
    /// They are not those of reordering by prefix, or of one that cannot be read.
    #[error("{0} has no constants of reordering by prefix that an agent reads")]
    Reordering(PathBuf, #[source] ReorderingError),
    /// They are not those of an end of FineComb or LDA.
    #[error("{0} has no constants of an end of FineComb or LDA")]
    Buckets(PathBuf, #[source] BucketsError),
    /// LDA with two banks. A plan of two agents has one way of sampling, which theirs is not.
    #[error("{0} has two banks, agents compare those of one; `uview p4 constants` writes such a file")]
    Banks(PathBuf),
    /// More buckets than the stream has memory for.
    #[error("{file} has {found} buckets, network.streams.memory_bytes has room for {most}")]
    Memory {
        /// The file of constants.
        file: PathBuf,
        /// Buckets of the program.
        found: usize,
        /// Buckets that have room.
        most: usize,
    },
}

impl SwitchConfig {
    /// What makes intervals of the registers of a fridge, or of several ones, by its file of constants.
    ///
    /// # Errors
    ///
    /// [`SwitchFileError`] if the file is not that of such a program.
    pub(crate) fn fridge(&self, interval_ns: u64) -> Result<FridgeReadout, SwitchFileError> {
        let constants = self.constants_of(FRIDGES)?;
        FridgeReadout::new(&constants, interval_ns)
            .map_err(|error| SwitchFileError::Fridge(self.constants.clone(), error))
    }

    /// What makes counts of distinct flows of the registers of ST-HLL, by its file of constants. Without `window_ms`,
    /// the window is the program's.
    ///
    /// # Errors
    ///
    /// [`SwitchFileError`] if the file is not that of such a program.
    pub(crate) fn cardinality(
        &self,
        interval_ns: u64,
        window_ms: Option<NonZeroU32>,
    ) -> Result<CardinalityReadout, SwitchFileError> {
        let constants = self.constants_of(SKETCHES)?;
        let readout = CardinalityReadout::new(&constants, interval_ns)
            .map_err(|error| SwitchFileError::Cardinality(self.constants.clone(), error))?;
        let found_ns = readout.window_ns();
        if let Some(window_ms) = window_ms {
            let least_ns = u64::from(window_ms.get()) * 1_000_000;
            if !(least_ns..2 * least_ns).contains(&found_ns) {
                return Err(SwitchFileError::Window { file: self.constants.clone(), found_ns, window_ms });
            }
        }
        Ok(readout)
    }

    /// What makes heavy flows of the registers of PRECISION, by its file of constants. Of shorter epochs than intervals
    /// some would not be read, and the next but one might begin while one is read.
    ///
    /// # Errors
    ///
    /// [`SwitchFileError`] if the file is not that of such a program with epochs for such intervals.
    pub(crate) fn heavy(&self, interval_ms: NonZeroU32) -> Result<HeavyReadout, SwitchFileError> {
        let constants = self.constants_of(HEAVY_HITTERS)?;
        let interval_ns = u64::from(interval_ms.get()) * 1_000_000;
        let readout = HeavyReadout::new(&constants, interval_ns)
            .map_err(|error| SwitchFileError::Heavy(self.constants.clone(), error))?;
        let found_ns = readout.epoch_ns();
        if !(interval_ns..2 * interval_ns).contains(&found_ns) {
            return Err(SwitchFileError::Epoch { file: self.constants.clone(), found_ns, interval_ms });
        }
        Ok(readout)
    }

    /// What makes intervals of the registers of reordering by prefix, by its file of constants.
    ///
    /// # Errors
    ///
    /// [`SwitchFileError`] if the file is not that of such a program.
    pub(crate) fn reordering(&self, interval_ns: u64) -> Result<ReorderingReadout, SwitchFileError> {
        let constants = self.constants_of(REORDERINGS)?;
        ReorderingReadout::new(&constants, interval_ns)
            .map_err(|error| SwitchFileError::Reordering(self.constants.clone(), error))
    }

    /// What makes intervals of the registers of an end of FineComb or LDA with at most so many buckets, by its file of
    /// constants. They are those of one of `programs`.
    ///
    /// # Errors
    ///
    /// [`SwitchFileError`] if the file is not that of such a program.
    pub(crate) fn buckets(&self, programs: &[&'static str], most: usize) -> Result<BucketReadout, SwitchFileError> {
        let file = || self.constants.clone();
        let constants = self.constants_of(programs)?;
        let readout = BucketReadout::new(&constants).map_err(|error| SwitchFileError::Buckets(file(), error))?;
        let settings = readout.settings();
        if settings.banks.len() > 1 {
            return Err(SwitchFileError::Banks(file()));
        }
        if settings.buckets > most {
            return Err(SwitchFileError::Memory { file: file(), found: settings.buckets, most });
        }
        Ok(readout)
    }

    /// The constants of that one of `programs` whose file it is. If it is of none, the first one is told.
    fn constants_of(&self, programs: &[&'static str]) -> Result<Constants, SwitchFileError> {
        let file = || self.constants.clone();
        let mut text = String::new();
        let read = File::open(&self.constants).and_then(|file| file.take(MAX_FILE).read_to_string(&mut text));
        read.map_err(|error| SwitchFileError::Read(file(), error))?;
        let mut refused = None;
        for &program in programs {
            match Constants::written(program, &text) {
                Ok(constants) => return Ok(constants),
                Err(error) => refused = refused.or(Some(error)),
            }
        }
        Err(SwitchFileError::Written(file(), refused.unwrap_or(WrittenError::NoChecksum)))
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use equality::programs::Subject;

    use super::super::Config;
    use super::SwitchConfig;
    use crate::error::chain;

    #[test]
    fn a_switch_is_the_source_of_a_stream_instead_of_an_interface() {
        let switch = "switch: {control: '127.0.0.1:9090', constants: /nowhere/constants.p4}";
        let text = format!("network: {{streams: [{{name: a, {switch}, pair: handshake}}]}}\n");
        let config = Config::parse(&text).unwrap();

        let stream = &config.network.streams[0];
        let switch = stream.switch.as_ref().unwrap();
        assert_eq!((&*stream.interface, &*switch.control), ("", "127.0.0.1:9090"));
        let error = switch.fridge(1_000_000_000).unwrap_err().to_string();
        assert_eq!(error, "/nowhere/constants.p4 cannot be read");
    }

    /// What is read of the constants that are kept of a program, for a stream that measures so in intervals of 2 ms:
    /// epochs of the kept PRECISION are 2.1 ms long.
    fn read(program: &str, measured: &str) -> Result<&'static str, String> {
        let file = Subject::of_name(program).unwrap().folder().join("constants.p4");
        let switch = format!("switch: {{control: 'a:1', constants: {}}}", file.display());
        let peers = "peers: {listen: '127.0.0.1:0', insecure: true, peers_insecure: true}";
        let text = format!("network: {{{peers}, streams: [{{name: a, {switch}, {measured}}}]}}\n");
        let mut stream = Config::parse(&text).unwrap().network.streams.remove(0);
        stream.interval_ms = NonZeroU32::new(2).unwrap();
        stream.switch_program().map_err(|error| chain(&error))
    }

    #[test]
    fn epochs_are_as_long_as_intervals_or_less_than_twice_as_long() {
        let constants = Subject::of_name("precision").unwrap().folder().join("constants.p4");
        let switch = SwitchConfig { control: String::new(), constants, clock_offset_ns: None, marker_interface: None };
        let read = |interval_ms| switch.heavy(NonZeroU32::new(interval_ms).unwrap()).map(|readout| readout.epoch_ns());

        assert_eq!(read(2).unwrap(), 1 << 21);
        for interval_ms in [1, 3, 1_000] {
            let error = read(interval_ms).unwrap_err().to_string();
            let why = format!("has epochs of 2097152 ns, network.streams.interval_ms is {interval_ms}: as long");
            assert!(error.contains(&why), "{error}");
        }
    }

    #[test]
    fn a_file_is_of_a_program_that_measures_what_the_stream_does() {
        let (handshake, sends) = ("pair: handshake", "one_way: {synopsis: finecomb, peer: 'b:1'}");
        let (receives, lda) = ("one_way: {synopsis: finecomb}", "one_way: {synopsis: lda}");
        let reordering = "synopses: {reordering: {}}";
        let heavy = "synopses: {heavy_hitters: {by: flow, weight: packets}}";
        let (flows, window) = ("synopses: {cardinality: {}}", "synopses: {cardinality: {window_ms: 100}}");
        for (program, measured) in [
            ("fridge", handshake),
            ("fridges", handshake),
            ("together", handshake),
            ("finecomb-sender", sends),
            ("together", sends),
            ("finecomb-receiver", receives),
            ("st-hll", flows),
            ("together", flows),
            ("reordering", reordering),
            ("precision", heavy),
        ] {
            assert_eq!(read(program, measured), Ok(program), "{measured}");
        }
        for (program, measured, why) in [
            ("lda", handshake, "as constants of fridge they would have"),
            ("finecomb-receiver", sends, "as constants of finecomb-sender they would have"),
            ("finecomb-sender", receives, "as constants of finecomb-receiver they would have"),
            ("lda", lda, "has two banks"),
            ("ts-pcsa", flows, "as constants of st-hll they would have"),
            ("st-hll", reordering, "as constants of reordering they would have"),
            ("reordering", heavy, "as constants of precision they would have"),
            ("reordering-samples", reordering, "REPORT_ALL is 0"),
            ("st-hll", window, "has a window of 33554432 ns, synopses.cardinality.window_ms is 100"),
        ] {
            let error = read(program, measured).unwrap_err();
            assert!(error.contains(why), "{program}, {measured}: {error}");
        }
        let constants = Subject::of_name("finecomb-sender").unwrap().folder().join("constants.p4");
        let switch = SwitchConfig { control: String::new(), constants, clock_offset_ns: None, marker_interface: None };
        let error = switch.buckets(&["finecomb-sender"], 63).unwrap_err().to_string();
        assert!(error.ends_with("has 64 buckets, network.streams.memory_bytes has room for 63"), "{error}");
    }
}
