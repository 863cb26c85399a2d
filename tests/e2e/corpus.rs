//! Replays the corpus of each fuzz target (`fuzz/corpus`): hand-written valid and invalid inputs, from which the fuzzer
//! starts, and every input that once broke something.

use std::fs;
use std::path::{Path, PathBuf};

use e2e::targets::TARGETS;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

/// Changed inputs of each input, in ordinary tests.
const CHANGES: u32 = 100;

fn corpora() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the workspace").join("fuzz/corpus")
}

/// The inputs of a target, in the order of their names.
fn inputs(name: &str) -> Vec<Vec<u8>> {
    let entries = fs::read_dir(corpora().join(name)).expect("every target has a corpus");
    let mut files: Vec<_> = entries.map(|entry| entry.expect("the corpus is readable").path()).collect();
    files.sort();
    files.iter().map(|file| fs::read(file).expect("the corpus is readable")).collect()
}

/// Changes `input` in a few places: bits, bytes, numbers at their ends, parts that are repeated, moved or missing, and
/// the end of `other`.
fn change(input: &mut Vec<u8>, other: &[u8], random: &mut ChaCha8Rng) {
    const ENDS: [u8; 6] = [0, 1, 0x7f, 0x80, 0xfe, 0xff];
    for _ in 0..random.random_range(1..5) {
        let at = random.random_range(0..=input.len());
        let end = random.random_range(at..=input.len().min(at + 16));
        match random.random_range(0..7) {
            0 if at < input.len() => input[at] ^= 1 << random.random_range(0..8),
            1 if at < input.len() => input[at] = random.random(),
            2 => input[at..end].fill(ENDS[random.random_range(0..ENDS.len())]),
            3 => drop(input.drain(at..end)),
            4 => {
                let part = input[at..end].to_vec();
                let to = random.random_range(0..=input.len());
                drop(input.splice(to..to, part));
            }
            5 => input.insert(at, random.random()),
            _ => {
                input.truncate(at);
                input.extend(&other[random.random_range(0..=other.len())..]);
            }
        }
    }
}

#[test]
fn every_input_of_the_corpus_is_harmless() {
    for (name, target) in TARGETS {
        let inputs = inputs(name);
        assert!(!inputs.is_empty(), "the corpus of {name} is empty");
        for input in &inputs {
            target(input);
        }
    }
}

/// Otherwise a decoder would be tried with inputs that it refuses at the first bytes.
#[test]
fn each_kind_of_synopsis_of_flows_has_inputs_that_are_accepted() {
    use synopses::cardinality::{Hll, LogLog, Pcsa, SlidingHll, StHll, TsPcsa};
    use synopses::disaggregated::{Fragment, PathTable};
    use synopses::encoding::{Kind, seal};
    use synopses::rap::{DWayRap, Precision, Rap, SpaceSaving};
    use synopses::reordering::{PrefixTally, Reordering};

    type IsAccepted = fn(&[u8]) -> bool;
    let kinds: [(Kind, IsAccepted); 14] = [
        (Kind::Rap, |bytes| Rap::decode(bytes, 4_096).is_ok()),
        (Kind::SpaceSaving, |bytes| SpaceSaving::decode(bytes, 4_096).is_ok()),
        (Kind::Precision, |bytes| Precision::decode(bytes, 4_096).is_ok()),
        (Kind::DWayRap, |bytes| DWayRap::decode(bytes, 4_096).is_ok()),
        (Kind::Reordering, |bytes| Reordering::decode(bytes, 4_096).is_ok()),
        (Kind::PrefixTally, |bytes| PrefixTally::decode(bytes, 4_096).is_ok()),
        (Kind::Hll, |bytes| Hll::decode(bytes, 4_096).is_ok()),
        (Kind::LogLog, |bytes| LogLog::decode(bytes, 4_096).is_ok()),
        (Kind::Pcsa, |bytes| Pcsa::decode(bytes, 4_096).is_ok()),
        (Kind::StHll, |bytes| StHll::decode(bytes, 4_096).is_ok()),
        (Kind::SlidingHll, |bytes| SlidingHll::decode(bytes, 4_096).is_ok()),
        (Kind::TsPcsa, |bytes| TsPcsa::decode(bytes, 4_096).is_ok()),
        (Kind::Fragment, |bytes| Fragment::decode(bytes, 4_096).is_ok()),
        (Kind::PathTable, |bytes| PathTable::decode(bytes, 4_096).is_ok()),
    ];
    let inputs = inputs("synopsis");
    for (kind, is_accepted) in kinds {
        assert!(inputs.iter().any(|input| is_accepted(input)), "no input is a {kind:?}");
        // Changed at random, only a payload has a checksum that is right.
        assert!(inputs.iter().any(|input| is_accepted(&seal(kind, input))), "no input is the payload of a {kind:?}");
    }
}

/// A fuzzer without coverage, for machines that have none: the same changes everywhere. `UVIEW_CHANGES` sets their
/// number per input, `UVIEW_TARGET` the only target.
#[test]
fn inputs_that_were_changed_at_random_are_harmless() {
    let changes = setting("UVIEW_CHANGES").map_or(CHANGES, |number| number.parse().expect("a number of changes"));
    let only = setting("UVIEW_TARGET");
    for (name, target) in TARGETS.iter().filter(|(name, _)| only.as_deref().is_none_or(|only| only == *name)) {
        let inputs = inputs(name);
        let mut random = ChaCha8Rng::seed_from_u64(1);
        for input in inputs.iter().filter(|input| input.len() < 1 << 16) {
            for _ in 0..changes {
                let mut changed = input.clone();
                change(&mut changed, &inputs[random.random_range(0..inputs.len())], &mut random);
                let harmless = std::panic::catch_unwind(|| target(&changed)).is_ok();
                assert!(harmless, "{name} panics at \"{}\"", changed.escape_ascii());
            }
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "only the environment can ask a test for more")]
fn setting(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

#[test]
fn every_target_is_one_that_the_fuzzer_runs() {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the workspace").join("fuzz");
    let manifest = fs::read_to_string(fuzz.join("Cargo.toml")).expect("the fuzzer has a manifest");

    // `any` is all of them, and the only one that CI compiles: the others have to be what it knows to compile.
    assert!(
        manifest.contains("name = \"any\"\npath = \"any.rs\"\n"),
        "the fuzzer of all targets is missing in fuzz/Cargo.toml"
    );
    assert_eq!(manifest.matches("[[bin]]").count(), TARGETS.len() + 1, "the fuzzer has other targets");
    for (name, _) in TARGETS {
        assert!(
            manifest.contains(&format!("name = \"{name}\"\npath = \"fuzz_targets/{name}.rs\"\n")),
            "{name} is missing in fuzz/Cargo.toml"
        );
        let program = fs::read_to_string(fuzz.join(format!("fuzz_targets/{name}.rs"))).expect("a target is a program");
        let known =
            format!("#![no_main]\n\nlibfuzzer_sys::fuzz_target!(|bytes: &[u8]| e2e::targets::{name}(bytes));\n");
        assert_eq!(program, known, "{name}.rs is another program");
    }
}
