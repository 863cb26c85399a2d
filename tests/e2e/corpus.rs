//! Replays the corpus of each fuzz target (`fuzz/corpus`): hand-written valid and invalid inputs, from which the fuzzer
//! starts, and every input that once broke something.

use std::fs;
use std::path::Path;

use e2e::targets::TARGETS;

#[test]
fn every_input_of_the_corpus_is_harmless() {
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
