//! What the library estimates of the frames of golden vectors follows from the registers that each program has after
//! them, and each program names the first ones as the library does.

use equality::estimates::of_registers;
use equality::frames::AGENT_PORT;
use equality::interpreter::Machine;
use equality::names;
use equality::programs::{SUBJECTS, Subject};
use equality::registers;
use equality::vectors::Vector;

/// Arrays without which figures are other ones.
const USED: [(&str, &str); 20] = [
    ("fridge", "report_ticks"),
    ("fridge", "report_insertions"),
    ("fridges", "report_insertions"),
    ("finecomb-sender", "sums_low"),
    ("finecomb-sender", "values_high"),
    ("finecomb-receiver", "counts"),
    ("finecomb-receiver", "before_count"),
    ("st-hll", "laps_and_ranks"),
    ("ts-pcsa", "stamps"),
    ("fragment", "row1"),
    ("reordering-samples", "report_events"),
    ("reordering", "report_packets"),
    ("reordering", "sample_packets"),
    ("reordering", "heavy1_events"),
    ("precision", "stage1_counts"),
    ("precision", "stage0_epochs"),
    ("precision", "stage0_since"),
    ("lda", "sums_high"),
    ("together", "report_ticks"),
    ("together", "laps_and_ranks"),
];

fn vectors(subject: &Subject) -> Vec<Vector> {
    Vector::read_all(subject).expect("vectors of each program")
}

#[test]
fn figures_follow_from_the_registers_of_each_program_for_each_golden_vector() {
    for subject in &SUBJECTS {
        let machine = Machine::new(subject.load().expect("a compiled program").into());
        for vector in vectors(subject) {
            let mut machine = machine.clone();
            for captured in &vector.frames {
                machine.process(AGENT_PORT, 0, &captured.replayed()).expect("a frame");
            }

            let found = of_registers(subject, &registers::of(&machine), &vector.frames);
            let found = found.expect("registers of the program");
            assert_eq!(found, vector.estimates, "{}, {}", subject.name, vector.name);
            assert!(!found.is_empty(), "{}, {}", subject.name, vector.name);
        }
    }
}

#[test]
fn each_program_has_the_digests_of_each_golden_vector() {
    for subject in &SUBJECTS {
        for vector in vectors(subject) {
            let found = names::of_program(subject, &vector.frames).expect("a program that names something");

            assert_eq!(found, vector.digests, "{}, {}", subject.name, vector.name);
            assert!(!found.is_empty(), "{}, {}", subject.name, vector.name);
        }
    }
}

#[test]
fn figures_of_other_registers_are_other_ones() {
    for (program, array) in USED {
        let subject = Subject::of_name(program).expect("a program");
        let differs = vectors(subject).into_iter().any(|Vector { mut registers, frames, estimates, .. }| {
            registers.get_mut(array).expect("an array of the program").fill(0);
            let found = of_registers(subject, &registers, &frames);
            found.unwrap_or_else(|error| panic!("{program} without {array}: {error}")) != estimates
        });

        assert!(differs, "{program} without {array}");
    }
}
