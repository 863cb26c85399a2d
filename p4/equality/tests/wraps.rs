//! Programs do what the library does while numbers begin anew: times, counters, rings of reports, coins.

use std::collections::BTreeSet;

use equality::comparison::Comparison;
use equality::frames::Captured;
use equality::interpreter::Machine;
use equality::model::Reference;
use equality::precision;
use equality::programs::{SUBJECTS, Subject};
use equality::registers::{Registers, short};
use equality::traffic::{Streams, Traffic, WRAP_NS, wraps};

/// Frames between two comparisons of all registers.
const EVERY: usize = 100;
/// What counters have before the first frame: at the third step they begin anew.
const BEFORE: u64 = (1 << 32) - 3;
/// What `begun` has, whose lowest bits choose a set of registers: those of 0.
const BEGUN_BEFORE: u64 = (1 << 32) - 4;
/// Arrays whose entries count, in whichever program. Sums of nanoseconds begin anew with each tenth packet anyway.
const COUNTERS: [&str; 29] = [
    // Of every program, then of fridges.
    "frames",
    "refusals",
    "insertions",
    "arrivals",
    "requests",
    "duplicates",
    "evicted",
    "responses",
    "matched",
    "unmatched",
    "clock_anomaly",
    // FineComb and LDA.
    "number",
    "packets",
    "counts",
    // The fragment.
    "load",
    "passed",
    "row0",
    "row1",
    // Sketches of distinct flows, and what PRECISION drops.
    "inserted",
    "late",
    "dropped",
    "rejected",
    // Reordering.
    "segments",
    "ignored",
    "monitored",
    "admitted",
    "reports",
    "jumps",
    "clock_anomalies",
];

/// What an array of this name has in each entry before the first frame.
fn before(array: &str) -> u64 {
    match array {
        "begun" => BEGUN_BEFORE,
        _ if COUNTERS.contains(&array) => BEFORE,
        _ => 0,
    }
}

fn less(entry: u64, before: u64) -> u64 {
    u64::from((entry as u32).wrapping_sub(before as u32))
}

/// What registers would be if the switch had started with zeros.
fn since_start(found: &Registers) -> Registers {
    let is_there = |array: &str, at: usize| found.get(array).is_some_and(|entries| entries[at] != 0);
    let changed = found.iter().map(|(name, entries)| {
        let mut entries = entries.clone();
        // Numbers of insertions and of packets, where there is one.
        let beside = match name.as_str() {
            "stamps" => Some("prints".to_owned()),
            "before_numbers" | "after_numbers" => Some(name.replace("numbers", "times_high")),
            _ => None,
        };
        if let Some(beside) = beside {
            let there = entries.iter_mut().enumerate().filter(|(at, _)| is_there(&beside, *at));
            there.for_each(|(_, entry)| *entry = less(*entry, BEFORE));
        } else if name.starts_with("report_") {
            let first = BEFORE as usize % entries.len();
            entries.rotate_left(first);
        } else {
            for entry in &mut entries {
                *entry = less(*entry, before(name));
            }
        }
        (name.clone(), entries)
    });
    changed.collect()
}

fn machine(subject: &Subject) -> Machine {
    Machine::new(subject.load().expect("a compiled program").into())
}

fn library(subject: &Subject) -> Box<dyn Reference> {
    subject.library().expect("settings of the tested program")
}

/// Frames of two kinds, some of them damaged, so that each counter counts.
fn traffic() -> [Box<dyn Iterator<Item = Captured>>; 2] {
    [Box::new(Traffic::new(31, 0.2).take(3_000)), Box::new(Streams::new(32).take(3_000))]
}

#[test]
fn counters_and_rings_go_on_when_their_numbers_begin_anew() {
    for subject in &SUBJECTS {
        for frames in traffic() {
            let mut switch = machine(subject);
            for array in machine(subject).program().registers() {
                let entries = vec![before(short(&array.name)); array.size];
                switch.set_registers(&array.name, &entries).expect("an array of the program");
            }
            let mut comparison = Comparison::new(switch, library(subject)).started_with(since_start);

            let outcome = comparison.run(frames, EVERY);

            assert!(outcome.is_ok(), "{}: {outcome:?}", subject.name);
        }
    }
}

#[test]
fn coins_go_on_when_the_lower_half_of_their_number_begins_anew() {
    let drawn: u64 = (4 << 32) - 20;
    let subject = Subject::of_name("precision").expect("a program");
    let constants = (subject.constants)(subject.kind).expect("settings of the tested program");
    let reference = precision::Reference::new(&constants).expect("settings of the tested program");
    let reference = Box::new(reference.after_coins(drawn));
    let mut switch = machine(subject);
    switch.set_registers("drawn_low", &[drawn & 0xffff_ffff]).expect("an array of the program");
    switch.set_registers("drawn_high", &[drawn >> 32]).expect("an array of the program");

    let [requests, _] = traffic();
    let registers = Comparison::new(switch, reference).run(requests, EVERY).expect("equal registers");

    assert!(registers["drawn_high"] == [4] && registers["drawn_low"][0] > 20, "{:?}", registers["drawn_low"]);
}

#[test]
fn a_golden_vector_has_frames_before_and_behind_times_at_which_numbers_begin_anew() {
    let frames = wraps();
    let passed: BTreeSet<u64> = frames.iter().map(|captured| captured.time_ns / WRAP_NS).collect();

    assert_eq!(passed, BTreeSet::from([377, 378, 379]));
    for subject in &SUBJECTS {
        let outcome = subject.compare(frames.iter().cloned(), EVERY);
        assert!(outcome.is_ok(), "{}: {outcome:?}", subject.name);
    }
}
