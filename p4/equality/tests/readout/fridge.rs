//! Fridges: alone in a switch, and beside other synopses.

use equality::control::Local;
use equality::frames::{AGENT_PORT, Captured, Frames};
use equality::fridge::settings;
use equality::interpreter::Machine;
use equality::traffic::Traffic;
use equality::vectors::Vector;
use packets::delays::Interval;
use packets::switch::readout::{FridgeReadout, Reading};
use packets::switch::registers::SwitchRegisters;
use packets::{Delays, DelaysSettings, Filter, Pair};
use synopses::fridge::HistogramShape;

use crate::{constants, machine, subject};

/// Programs with a fridge.
const PROGRAMS: [&str; 2] = ["fridge", "together"];
/// Time between two polls, of the agent's clock.
const SECOND: u64 = 1_000_000_000;
/// The key of the compiled programs (`model.rs`).
const SECRET: u128 = 0x0123_4567_89ab_cdef_0f1e_2d3c_4b5a_6978;

/// The host's own path, with the fridge that the program has.
fn host() -> Delays {
    Delays::new(DelaysSettings {
        pair: Pair::Handshake,
        filter: Filter::default(),
        fridge: settings(),
        histogram: HistogramShape { tick_shift: 10, fineness: 3 },
        tuned: false,
        secret: SECRET,
    })
    .expect("settings of the tested program")
}

/// What differs between two intervals of the same packets: nothing but their length, which is of the agent's clock with
/// a switch, and of the packets' with the host.
fn without_length(interval: &Interval) -> Interval {
    Interval { length_ns: 0, ..*interval }
}

/// Polls a switch after every `every` frames, and compares each interval with the host's. Returns how many there were,
/// and their samples.
fn compare(program: &'static str, frames: impl Iterator<Item = Captured>, every: usize) -> (u64, u64) {
    let constants = constants(program);
    let mut readout = FridgeReadout::new(&constants, SECOND).expect("constants of a fridge");
    let (mut machine, mut host, mut counts) = (machine(program), host(), Frames::new(&constants));
    let mut poll = |machine: &Machine, host: &mut Delays, number: u64| {
        let mut switch = Local(machine, program);
        let (fridge, frames) = (switch.fridge().expect("a fridge"), switch.frames().expect("frames"));
        let reading = readout.read(&frames, &fridge, number * SECOND).expect("its own constants");
        (reading, host.end_interval(number * SECOND))
    };
    assert_eq!(poll(&machine, &mut host, 1).0, Reading::Begun);
    let (mut number, mut samples) = (1, 0);
    let mut frames = frames.peekable();
    let mut since = 0;
    while let Some(captured) = frames.next() {
        machine.process(AGENT_PORT, 0, &captured.replayed()).expect("a frame");
        if let Some(packet) = counts.count(&captured) {
            let _ = host.insert(&packet);
        }
        since += 1;
        if since == every || frames.peek().is_none() {
            (since, number) = (0, number + 1);
            let (reading, expected) = poll(&machine, &mut host, number);
            assert!(matches!(reading, Reading::Interval(_)), "interval {number} is none");
            let Reading::Interval(interval) = reading else { break };
            assert_eq!((interval.overrun, interval.lost_polls), (0, 0));
            assert_eq!(without_length(&interval.delays), without_length(&expected), "interval {number}");
            samples += interval.delays.tally.matched;
        }
    }
    (number - 1, samples)
}

#[test]
fn intervals_of_each_golden_vector_are_those_of_the_host() {
    for program in PROGRAMS {
        for vector in Vector::read_all(subject(program)).expect("vectors of the program") {
            let (intervals, _) = compare(program, vector.frames.iter().cloned(), 100);

            assert!(intervals > 0, "{program}, {}", vector.name);
        }
    }
}

#[test]
fn intervals_of_random_frames_are_those_of_the_host() {
    for (program, seed, damaged) in [("fridge", 21, 0.0), ("fridge", 22, 0.2), ("together", 23, 0.1)] {
        let (intervals, samples) = compare(program, Traffic::new(seed, damaged).take(10_000), 700);

        assert!(intervals == 15 && samples > 500, "{program}, seed {seed}: {samples} samples");
    }
}
