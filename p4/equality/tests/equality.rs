//! Each program does what the library does, bit for bit, and was compiled from the sources that are here.

use std::fs;

use equality::frames::Captured;
use equality::interpreter::{Machine, Sent};
use equality::programs::{SUBJECTS, Subject, Unequal};
use equality::registers::{differences, of};
use equality::traffic::Traffic;
use equality::vectors::Vector;

/// Frames between two comparisons of all registers.
const EVERY: usize = 500;

/// Compares library and interpreter on random traffic.
fn compare(subject: &Subject, seed: u64, frames: usize) {
    for (seed, damaged) in [(seed, 0.0), (seed + 1, 0.2)] {
        let traffic = Traffic::new(seed, damaged).take(frames / 2);
        let outcome = subject.compare(traffic, EVERY).map_err(|error| chain(&error));

        assert!(outcome.is_ok(), "{}, seed {seed}, {damaged} damaged: {outcome:?}", subject.name);
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    error.source().map_or(error.to_string(), |source| format!("{error}: {}", chain(source)))
}

#[test]
fn each_program_has_the_registers_of_the_library_after_random_traffic() {
    for subject in &SUBJECTS {
        compare(subject, 10, 4_000);
    }
}

/// The same for long; a minute for each program.
#[test]
#[ignore = "takes minutes: cargo test -p equality -- --ignored"]
fn each_program_has_the_registers_of_the_library_after_a_hundred_thousand_frames() {
    for subject in &SUBJECTS {
        compare(subject, 20, 100_000);
    }
}

#[test]
fn each_program_has_the_registers_of_each_golden_vector() {
    for subject in &SUBJECTS {
        let vectors = Vector::read_all(subject).expect("vectors of each program");
        assert!(vectors.len() >= 4, "{} has {} vectors", subject.name, vectors.len());
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

        assert_eq!(
            lock.lines().next(),
            Some(&*format!("sources {digest}")),
            "{}: cargo xtask p4 --write",
            subject.name
        );
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
    let mut reference = (subject.reference)().expect("settings of the tested program");
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
