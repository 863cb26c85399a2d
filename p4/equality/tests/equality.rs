//! Each program does what the library does, bit for bit, and was compiled from the sources that are here.

use std::fs;

use equality::frames::Captured;
use equality::interpreter::{Machine, Sent};
use equality::programs::{SUBJECTS, Subject, Unequal, locked};
use equality::registers::{differences, of};
use equality::traffic::{Streams, Traffic};
use equality::vectors::Vector;

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

/// Half of the programs, so that two cores are busy.
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
        assert!(vectors.len() >= 5, "{} has {} vectors", subject.name, vectors.len());
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
        let kept = fs::read_to_string(subject.folder().join("constants.p4")).expect("constants of each program");

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
fn a_program_that_does_something_else_is_found_out() {
    let subject = Subject { reference: SUBJECTS[0].reference, ..SUBJECTS[1] };

    let found = subject.compare(Traffic::new(1, 0.0).take(10), EVERY);

    assert!(matches!(found, Err(Unequal::Registers { frames: 10, .. })), "{found:?}");
}

#[test]
fn a_frame_from_the_wire_leaves_by_the_other_end_and_has_the_time_of_the_switch() {
    let subject = &SUBJECTS[0];
    let mut machine = Machine::new(subject.load().expect("a compiled program").into());
    let frames: Vec<Captured> = Traffic::new(5, 0.0).take(200).collect();
    let mut reference = subject.library().expect("settings of the tested program");
    for (at, captured) in (1_u64..).zip(frames) {
        // The clock of a switch counts microseconds.
        let (time_us, port) = (at * 700, (at % 2) as u16);
        let sent = machine.process(port, time_us, &captured.bytes).expect("a frame");
        reference.process(&Captured { time_ns: time_us * 1_000, bytes: captured.bytes.clone() });

        assert_eq!(sent, Some(Sent { port: port ^ 1, bytes: captured.bytes }));
    }

    assert_eq!(differences(&reference.registers(), &of(&machine)), "");
    assert!(reference.registers()["matched"][0] > 5);
}
