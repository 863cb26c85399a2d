//! Each program does what the library does, bit for bit, and was compiled from the sources that are here.

use std::fs;

use equality::comparison::Arrival;
use equality::frames::Captured;
use equality::programs::{SUBJECTS, Subject, Unequal, locked};
use equality::traffic::{Streams, Traffic};
use equality::vectors::Vector;
use serde_json::Value;
use synopses::digest::DigestKind;

/// Frames between two comparisons of all registers.
const EVERY: usize = 500;

/// Frames of random traffic for each program: of requests, of requests of which some are damaged, and of streams.
const FRAMES: usize = 100_000;

/// Compares library and interpreter on random traffic.
fn compare(subject: &Subject, seed: u64) {
    let traffic: [(&str, Box<dyn Iterator<Item = Captured>>); 3] = [
        ("requests", Box::new(Traffic::new(seed, 0.0))),
        ("requests, damaged", Box::new(Traffic::new(seed + 1, 0.2))),
        ("streams", Box::new(Streams::new(seed + 2))),
    ];
    for (kind, frames) in traffic {
        let outcome = subject.compare(frames.take(FRAMES / 3), EVERY).map_err(|error| chain(&error));

        assert!(outcome.is_ok(), "{}, seed {seed}, {kind}: {outcome:?}", subject.name);
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    error.source().map_or(error.to_string(), |source| format!("{error}: {}", chain(source)))
}

/// Half of the programs, so that two cores are busy: those with digests of one kind.
fn compare_every_other(first: usize) {
    SUBJECTS.iter().skip(first).step_by(2).for_each(|subject| compare(subject, 10));
}

#[test]
fn each_program_has_the_registers_of_the_library_after_a_hundred_thousand_frames() {
    compare_every_other(0);
}

#[test]
fn each_other_program_has_the_registers_of_the_library_after_a_hundred_thousand_frames() {
    compare_every_other(1);
}

#[test]
fn each_program_has_the_registers_of_each_golden_vector() {
    for subject in &SUBJECTS {
        let vectors = Vector::read_all(subject).expect("vectors of each program");
        assert!(vectors.len() >= 6, "{} has {} vectors", subject.name, vectors.len());
        for vector in vectors {
            let found = subject.compare(vector.frames.iter().cloned(), EVERY).map_err(|error| chain(&error));
            assert_eq!(found, Ok(vector.registers), "{}, {}", subject.name, vector.name);
        }
    }
}

#[test]
fn golden_vectors_are_what_the_library_makes_of_them_today() {
    for subject in &SUBJECTS {
        let mut golden = Vector::golden(subject).expect("settings of the tested program");
        golden.sort_by(|one, other| one.name.cmp(&other.name));
        let kept = Vector::read_all(subject).expect("vectors of each program");

        assert!(kept == golden, "{}: `cargo run -p equality -- vectors` writes other ones", subject.name);
    }
}

#[test]
fn constants_are_those_of_the_settings() {
    for subject in &SUBJECTS {
        let kept = fs::read_to_string(subject.constants_file()).expect("constants of each program");

        assert_eq!(kept, subject.constants_text().expect("settings of the tested program"), "{}", subject.name);
    }
}

#[test]
fn each_program_was_compiled_from_the_sources_that_are_here() {
    for subject in &SUBJECTS {
        let lock = fs::read_to_string(subject.file("lock")).expect("a lock beside each compiled program");
        let digest = subject.sources_digest().expect("sources of each program");

        assert_eq!(locked(&lock, "sources"), digest, "{}: cargo xtask p4 --write", subject.name);
    }
}

#[test]
fn programs_for_hardware_multiply_nothing_behind_the_parser() {
    fn products(json: &Value) -> usize {
        match json {
            Value::Object(fields) => {
                let is_product = fields.get("op").and_then(Value::as_str) == Some("*");
                usize::from(is_product) + fields.values().map(products).sum::<usize>()
            }
            Value::Array(values) => values.iter().map(products).sum(),
            _ => 0,
        }
    }
    for subject in &SUBJECTS {
        let json = fs::read_to_string(subject.file("json")).expect("a compiled program");
        let json: Value = serde_json::from_str(&json).expect("JSON");
        // The parser makes nanoseconds of the reference switch's microseconds.
        let found = products(&json["actions"]) + products(&json["pipelines"]);

        assert_eq!(found == 0, subject.kind == DigestKind::Hardware, "{}: {found} products", subject.name);
    }
}

#[test]
fn a_program_that_does_something_else_is_found_out() {
    let of = |name| *Subject::of_name(name).expect("a program");
    let subject = Subject { reference: of("fridge").reference, ..of("finecomb-sender") };

    let found = subject.compare(Traffic::new(1, 0.0).take(10), EVERY);

    assert!(matches!(found, Err(Unequal::Registers { frames: 10, .. })), "{found:?}");
}

#[test]
fn frames_from_the_wire_leave_by_its_other_end_and_have_the_time_since_the_switch_started() {
    for subject in &SUBJECTS {
        let traffic: [(&str, Box<dyn Iterator<Item = Captured>>); 2] = [
            ("requests", Box::new(Traffic::new(5, 0.1).beginning_at(0).take(3_000))),
            ("streams", Box::new(Streams::new(6).beginning_at(0).take(3_000))),
        ];
        for (kind, frames) in traffic {
            let mut comparison = subject.comparison().expect("a compiled program").arriving(Arrival::Wire);
            let found = comparison.run(frames, 100).map_err(|error| chain(&error)).expect(kind);

            let dropped = found.get("dropped").map_or(0, |dropped| dropped[0]);
            assert!(dropped < 100, "{}, {kind}: {dropped} packets are too late", subject.name);
        }
    }
}

#[test]
fn no_program_accesses_an_array_more_often_than_a_pipeline_can_whichever_path_a_frame_takes() {
    for subject in &SUBJECTS {
        let surplus = subject.load().expect("a compiled program").surplus_accesses();

        assert!(surplus.is_empty(), "{}: {surplus:#?}", subject.name);
    }
}
