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

    assert_eq!(manifest.matches("[[bin]]").count(), TARGETS.len(), "the fuzzer has other targets");
    for (name, _) in TARGETS {
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{name} is missing in fuzz/Cargo.toml");
        let program = fs::read_to_string(fuzz.join(format!("fuzz_targets/{name}.rs"))).expect("a target is a program");
        assert!(program.contains(&format!("e2e::targets::{name}(")), "{name}.rs drives another target");
    }
}
