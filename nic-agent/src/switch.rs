//! What a program for a switch (`p4/`) has to know to measure a stream of the configuration, several streams, or to
//! count for the fragment.

mod fragment;
mod together;

pub use fragment::{FragmentPath, fragment_constants};
pub use together::together_constants;

use packets::flows::{HEAVY_ENTRIES, POSITIONS, REGISTERS, SLOTS, reordering_settings};
use packets::switch::{Constants, ConstantsError, programs};
use synopses::cardinality::{Hash, Rounding, Settings as Common, StHllSettings, TsPcsaSettings};
use synopses::digest::{DigestKey, DigestKind};
use synopses::disaggregated::PathError;
use synopses::finecomb::Settings as Buckets;
use synopses::fridge::{FridgeSpec, FridgesSettings, Settings as FridgeSettings};
use synopses::rap::{Admission, EpochSettings, WaySettings};
use synopses::reordering::{Settings as ReorderingSettings, Split};
use thiserror::Error;

use crate::config::{
    Config, KeyName, OneWayConfig, PairName, ReorderingConfig, StreamConfig, SynopsisName, WeightName,
};

/// The probability with which a request enters the second one of two fridges: its requests stay fifteen times as long.
const SELDOM: f64 = 1.0 / 16.0;

/// A program for a switch that measures one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchProgram {
    /// Delays of TCP handshakes.
    Fridge,
    /// The same over a wider range, by two fridges.
    Fridges,
    /// The end of a one-way measurement that this agent is: FineComb's sender or receiver, or LDA's.
    OneWay,
    /// Distinct flows, by ST-HLL.
    StHll,
    /// Distinct flows, by TS-PCSA.
    TsPcsa,
    /// Prefixes with packets out of order, sampled.
    ReorderingSamples,
    /// Prefixes with packets out of order, heavy flows apart.
    Reordering,
    /// Flows with most packets.
    Precision,
}

/// Why there are no constants for a program.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum SwitchError {
    /// The configuration has no such stream.
    #[error("there is no stream {found:?}; the configuration has {}", list(.all))]
    Stream {
        /// The name asked for.
        found: String,
        /// Names of all streams.
        all: Vec<String>,
    },
    /// The stream does not measure what the program does.
    #[error("stream {stream:?} {why}")]
    Measured {
        /// The stream's name.
        stream: String,
        /// What it lacks.
        why: &'static str,
    },
    /// A program of several measures one stream of each kind.
    #[error(
        "p4/together measures one stream with {what}, and {found} of {} have it: name each of them, or give them one \
         switch", list(.streams)
    )]
    Several {
        /// What the stream measures.
        what: &'static str,
        /// How many of the streams do.
        found: usize,
        /// Names of the streams that were looked at.
        streams: Vec<String>,
    },
    /// A program of several measures streams of one switch.
    #[error("p4/together is the program of one switch, and the streams have {}: name streams of one", list(.0))]
    Switches(Vec<String>),
    /// The configuration has no fragment.
    #[error("the configuration has no network.fragment")]
    NoFragment,
    /// The fragment counts something else than the program.
    #[error("network.fragment {0}")]
    Fragment(&'static str),
    /// The fragment is not on the path.
    #[error("network.fragment.id is {id}, the path has the fragments {path:?}")]
    Elsewhere {
        /// Number of the fragment.
        id: u32,
        /// Those of the path.
        path: Vec<u32>,
    },
    /// More fragments are to count a flow than the path has.
    #[error("{found} fragments are to count each flow, the path has {most}")]
    Updates {
        /// As many as were asked for.
        found: usize,
        /// As many as there are.
        most: usize,
    },
    /// A path that is not possible.
    #[error(transparent)]
    Path(#[from] PathError),
    /// A setting is not possible in a switch.
    #[error(transparent)]
    Constants(#[from] ConstantsError),
}

fn list(all: &[String]) -> String {
    if all.is_empty() { "none".to_owned() } else { all.join(", ") }
}

/// The constants with which `program` measures a stream, with digests of this kind. Sizes that have to be powers of two
/// in a switch, or for such digests, are rounded down, slots of a window up. Whoever has the secret can craft packets
/// that collide.
///
/// # Errors
///
/// [`SwitchError`] if there is no such stream, it does not measure that, or something does not fit.
pub fn switch_constants(
    config: &Config,
    name: &str,
    program: SwitchProgram,
    secret: u128,
    kind: DigestKind,
) -> Result<Constants, SwitchError> {
    let stream = stream(config, name)?;
    let lacks = |why| SwitchError::Measured { stream: name.to_owned(), why };
    let (key, seed) = (DigestKey::of_kind(kind, secret), seed(secret, kind));
    let synopses = stream.synopses.clone().unwrap_or_default();
    Ok(match program {
        SwitchProgram::Fridge | SwitchProgram::Fridges if stream.pair != Some(PairName::Handshake) => {
            return Err(lacks("has no `pair: handshake`"));
        }
        SwitchProgram::Fridge => programs::fridge(fridge(stream, seed), &key)?,
        SwitchProgram::Fridges => programs::fridges(&fridges(stream, seed), &key)?,
        SwitchProgram::OneWay => match &stream.one_way {
            Some(one_way) => one_way_constants(stream, one_way, seed, &key)?,
            None => return Err(lacks("has no `one_way`")),
        },
        SwitchProgram::StHll | SwitchProgram::TsPcsa => {
            let window_ns = window_ns(stream).ok_or_else(|| lacks("has no `synopses.cardinality`"))?;
            if program == SwitchProgram::StHll {
                programs::st_hll(staggered(window_ns, seed), &key)?
            } else {
                programs::ts_pcsa(stamped(window_ns, seed), &key)?
            }
        }
        SwitchProgram::ReorderingSamples | SwitchProgram::Reordering => {
            let reordering = synopses.reordering.ok_or_else(|| lacks("has no `synopses.reordering`"))?;
            if reordering != ReorderingConfig::default() {
                return Err(lacks("has prefixes of other lengths than /24 and /48, which programs for switches have"));
            }
            let settings = ReorderingSettings { admission: Admission::PowerOfTwo, ..reordering_settings(seed) };
            if program == SwitchProgram::Reordering {
                programs::heavy_flows(settings, &key)?
            } else {
                programs::samples(ReorderingSettings { split: Split::SamplingOnly, ..settings }, &key)?
            }
        }
        SwitchProgram::Precision => {
            let heavy = synopses.heavy_hitters.ok_or_else(|| lacks("has no `synopses.heavy_hitters`"))?;
            if (heavy.by, heavy.weight) != (KeyName::Flow, WeightName::Packets) {
                return Err(lacks("has other heavy hitters than `by: flow, weight: packets`"));
            }
            programs::precision(heavy_flows(stream, seed), &key)?
        }
    })
}

/// The stream of this name, of which packets are parsed as programs do.
fn stream<'a>(config: &'a Config, name: &str) -> Result<&'a StreamConfig, SwitchError> {
    let streams = &config.network.streams;
    let Some(stream) = streams.iter().find(|stream| stream.name == name) else {
        let all = streams.iter().map(|stream| stream.name.clone()).collect();
        return Err(SwitchError::Stream { found: name.to_owned(), all });
    };
    let why = "is about packets inside tunnels, which programs for switches do not parse";
    if stream.inner { Err(SwitchError::Measured { stream: name.to_owned(), why }) } else { Ok(stream) }
}

/// The seed of settings, which is the same for whoever has the secret.
const fn seed(secret: u128, kind: DigestKind) -> u64 {
    kind.seed((secret >> 64) as u64 ^ secret as u64)
}

/// The window of a stream's distinct flows; `None` if it has none.
fn window_ns(stream: &StreamConfig) -> Option<u64> {
    let cardinality = stream.synopses.as_ref()?.cardinality.as_ref()?;
    Some(u64::from(cardinality.window_ms.unwrap_or(stream.interval_ms).get()) * 1_000_000)
}

/// The power of two that is not above a number; 1 for 0.
fn below(number: usize) -> usize {
    number.checked_ilog2().map_or(1, |bits| 1 << bits)
}

fn fridge(stream: &StreamConfig, seed: u64) -> FridgeSettings {
    FridgeSettings { slots: below(stream.slots(1)), seed, ..FridgeSettings::default() }
}

/// Two fridges that share the slots of one. Each request enters one of them, so that what is counted is what entered.
fn fridges(stream: &StreamConfig, seed: u64) -> FridgesSettings {
    let part = |probability| FridgeSpec { slots: below(stream.slots(1)) / 2, probability };
    FridgesSettings { fridges: vec![part(1.0 - SELDOM), part(SELDOM)], seed, ..FridgesSettings::default() }
}

fn one_way_constants(
    stream: &StreamConfig,
    one_way: &OneWayConfig,
    seed: u64,
    key: &DigestKey,
) -> Result<Constants, SwitchError> {
    let settings = buckets(stream, one_way, seed)?;
    Ok(match one_way.synopsis {
        SynopsisName::Lda => programs::lda(&settings, key)?,
        _ => programs::finecomb(&settings, one_way.peer.is_none(), key)?,
    })
}

/// The settings of a stream's FineComb or LDA.
fn buckets(stream: &StreamConfig, one_way: &OneWayConfig, seed: u64) -> Result<Buckets, SwitchError> {
    let lacks = |why| SwitchError::Measured { stream: stream.name.clone(), why };
    let ::one_way::Synopsis::FineComb { buckets, mut banks, .. } = stream.synopsis(one_way.synopsis) else {
        return Err(lacks("is measured by RDA, which needs memory for every packet of an interval"));
    };
    for bank in &mut banks {
        bank.stash = below(bank.stash);
    }
    let buckets = if DigestKind::of_seed(seed) == DigestKind::Hardware { below(buckets) } else { buckets };
    Ok(Buckets { banks, ..Buckets::one_bank(buckets, 1.0, 0, seed) })
}

/// Epochs of an interval. A power of two of nanoseconds: some are read twice, and none is left out.
fn heavy_flows(stream: &StreamConfig, seed: u64) -> EpochSettings {
    let table = WaySettings { ways: 2, rows: HEAVY_ENTRIES / 2, admission: Admission::PowerOfTwo, seed };
    let epoch_ns = (u64::from(stream.interval_ms.get()) * 1_000_000).next_power_of_two();
    EpochSettings { table, epoch_shift: epoch_ns.trailing_zeros() }
}

fn staggered(window_ns: u64, seed: u64) -> StHllSettings {
    // A slot is 2W/m: the window becomes longer with it.
    let slot_ns = (2 * window_ns / REGISTERS as u64).next_power_of_two();
    let window_ns = slot_ns * REGISTERS as u64 / 2;
    // The switch's clock begins with the switch.
    StHllSettings::plus(Common { registers: REGISTERS, window_ns, start_ns: 0, hash: Hash::Seeded(seed) })
}

fn stamped(window_ns: u64, seed: u64) -> TsPcsaSettings {
    // Times are rounded up, so that a slot more is in the window: twice as many slots make up for it.
    let slots = 2 * SLOTS;
    let slot_ns = (window_ns / slots).next_power_of_two();
    let common = Common { registers: REGISTERS, window_ns: slot_ns * slots, start_ns: 0, hash: Hash::Seeded(seed) };
    let plain = TsPcsaSettings::plain(common);
    let positions = match DigestKind::of_seed(seed) {
        DigestKind::Products => POSITIONS,
        // More, not fewer: large counts would be cut.
        DigestKind::Hardware => POSITIONS.next_power_of_two(),
    };
    let plain = TsPcsaSettings { slot_ns, positions, rounding: Rounding::Up, ..plain };
    // In a switch there is room for as many bits as are needed.
    TsPcsaSettings { bits: plain.least_bits().unwrap_or(plain.bits), ..plain }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROGRAMS: [(SwitchProgram, &str); 8] = [
        (SwitchProgram::Fridge, "fridge"),
        (SwitchProgram::Fridges, "fridges"),
        (SwitchProgram::OneWay, "finecomb-sender"),
        (SwitchProgram::StHll, "st-hll"),
        (SwitchProgram::TsPcsa, "ts-pcsa"),
        (SwitchProgram::ReorderingSamples, "reordering-samples"),
        (SwitchProgram::Reordering, "reordering"),
        (SwitchProgram::Precision, "precision"),
    ];

    fn config(streams: &str) -> Config {
        let listen = "peers: {listen: '0.0.0.0:9705', insecure: true, peers_insecure: true}, memory_bytes: 1000000000";
        Config::parse(&format!("network: {{{listen}, streams: [{streams}]}}\n")).expect("a configuration")
    }

    const WHO: &str = "synopses: {cardinality: {}, reordering: {}, heavy_hitters: {by: flow, weight: packets}}";

    fn of(config: &Config, stream: &str, program: SwitchProgram) -> Result<Constants, String> {
        switch_constants(config, stream, program, 7, DigestKind::Products).map_err(|error| error.to_string())
    }

    #[test]
    fn each_program_has_constants_for_a_stream_that_measures_the_same() {
        let streams = format!(
            "{{name: a, interface: e, pair: handshake, {WHO}}}, \
             {{name: b, interface: e, one_way: {{synopsis: finecomb, peer: 'c:1'}}}}, \
             {{name: c, interface: e, one_way: {{synopsis: finecomb}}}}, \
             {{name: d, interface: e, one_way: {{synopsis: lda}}}}"
        );
        let config = config(&streams);
        for (program, name) in PROGRAMS {
            let stream = if program == SwitchProgram::OneWay { "b" } else { "a" };
            let constants = of(&config, stream, program).expect(name);
            assert_eq!(constants.program(), name);
            let other = switch_constants(&config, stream, program, 8, DigestKind::Products).expect(name);
            assert_ne!(constants.checksum(), other.checksum(), "{name}: another secret");
            let hardware = switch_constants(&config, stream, program, 7, DigestKind::Hardware).expect(name);
            assert_eq!((hardware.folder(), hardware.kind()), (name, DigestKind::Hardware));
        }
        for (stream, name) in [("c", "finecomb-receiver"), ("d", "lda")] {
            assert_eq!(of(&config, stream, SwitchProgram::OneWay).expect(name).program(), name);
        }
        let text = of(&config, "a", SwitchProgram::Fridge).expect("a fridge").text("");
        assert!(text.contains("const bit<32> SLOTS = 0x1000;"), "5,290 slots, rounded down: {text}");
        let text = of(&config, "a", SwitchProgram::Fridges).expect("two fridges").text("");
        let halves = "const bit<33> BELOW_0 = 0xf0000000;\nconst bit<32> SLOTS_1 = 0x800;";
        assert!(text.contains(halves) && text.contains("const bit<33> BELOW_1 = 0x100000000;"), "{text}");
        let text = of(&config, "a", SwitchProgram::StHll).expect("a sketch").text("");
        assert!(text.contains("#define SLOT_SHIFT 22"), "3.9 ms, rounded up: {text}");
        let text = of(&config, "a", SwitchProgram::Precision).expect("a table").text("");
        assert!(text.contains("#define EPOCH_SHIFT 30\nconst bit<32> ROWS = 0x80;"), "1 s, rounded up: {text}");
    }

    #[test]
    fn what_is_not_measured_or_does_not_fit_is_refused_by_name() {
        let streams = "{name: a, interface: e, pair: dns}, {name: t, interface: e, pair: handshake, inner: true}, \
                       {name: r, interface: e, one_way: {synopsis: rda}}, {name: h, interface: e, \
                       synopses: {heavy_hitters: {}}}, \
                       {name: big, interface: e, pair: handshake, memory_bytes: 8000000}, \
                       {name: wide, interface: e, one_way: {synopsis: finecomb}, memory_bytes: 500000000}, \
                       {name: p, interface: e, synopses: {reordering: {ipv4_bits: 16}}}";
        let config = config(streams);
        let refused = |stream: &str, program| of(&config, stream, program).expect_err("refused");

        let none = refused("x", SwitchProgram::Fridge);
        assert_eq!(none, "there is no stream \"x\"; the configuration has a, t, r, h, big, wide, p");
        assert_eq!(refused("a", SwitchProgram::Fridge), "stream \"a\" has no `pair: handshake`");
        assert_eq!(refused("a", SwitchProgram::Fridges), refused("a", SwitchProgram::Fridge));
        assert!(refused("t", SwitchProgram::Fridge).contains("inside tunnels"));
        assert!(refused("r", SwitchProgram::OneWay).contains("RDA"));
        assert!(refused("h", SwitchProgram::Precision).contains("`by: flow, weight: packets`"));
        assert!(refused("p", SwitchProgram::Reordering).contains("/24 and /48"));
        for program in [SwitchProgram::StHll, SwitchProgram::ReorderingSamples] {
            assert!(refused("a", program).starts_with("stream \"a\" has no `synopses."));
        }
        let slots = "slots of a fridge: 262144 entries, at most 131072 are possible in a switch";
        assert_eq!(refused("big", SwitchProgram::Fridge), slots);
        let wide = of(&config, "wide", SwitchProgram::OneWay).expect("the most buckets that there are");
        assert!(wide.text("").contains("const bit<32> BUCKETS = 0x10000;"));
    }
}
