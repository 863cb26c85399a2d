//! Replays the fuzzer's corpora, so that what it once found stays found without it.

use std::fs;
use std::path::Path;

use e2e::targets::TARGETS;

#[test]
fn every_input_that_the_fuzzer_found_worth_keeping_is_still_harmless() {
    let corpora =
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the workspace").join("fuzz/corpus");

    for (name, target) in TARGETS {
        let inputs: Vec<_> = fs::read_dir(corpora.join(name)).expect("every target has a corpus").collect();
        assert!(!inputs.is_empty(), "the corpus of {name} is empty");
        for input in inputs {
            target(&fs::read(input.expect("the corpus is readable").path()).expect("the corpus is readable"));
        }
    }
}

#[test]
fn every_target_is_one_that_the_fuzzer_knows() {
    let manifest =
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the workspace").join("fuzz/Cargo.toml");
    let manifest = fs::read_to_string(manifest).expect("the fuzzer has a manifest");

    for (name, _) in TARGETS {
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{name} is missing in fuzz/Cargo.toml");
    }
}
