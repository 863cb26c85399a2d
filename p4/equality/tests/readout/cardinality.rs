//! ST-HLL: alone in a switch, and beside other synopses.

use equality::control::Local;
use equality::frames::{AGENT_PORT, Captured, Frames};
use equality::model::key;
use equality::sthll::settings_of;
use equality::traffic::Traffic;
use equality::vectors::Vector;
use packets::identity;
use packets::switch::readout::{CardinalityInterval, CardinalityReadout};
use packets::switch::registers::SwitchRegisters as _;
use synopses::cardinality::{Cardinality as _, StHll};

use crate::{constants, machine, subject};

/// Programs with ST-HLL.
const PROGRAMS: [&str; 3] = ["st-hll", "st-hll-hardware", "together"];
/// Time between two polls, of the agent's clock.
const SECOND: u64 = 1_000_000_000;

/// Polls a switch after every `every` frames, `later_ns` after the latest one, and compares each interval with the
/// library's estimate of the same packets. Returns how many there were, and the most flows.
fn compare(program: &str, frames: &[Captured], every: usize, later_ns: u64) -> (usize, f64) {
    let (constants, name) = (constants(program), subject(program).name);
    let mut readout = CardinalityReadout::new(&constants, SECOND).expect("constants of ST-HLL");
    let (mut machine, mut counts) = (machine(program), Frames::new(&constants));
    let mut library = StHll::new(settings_of(constants.kind())).expect("settings of the tested program");
    let (key, window_ns, mut latest_ns) = (key(constants.kind()), library.effective_window_ns(), 0);
    assert_eq!((readout.window_ns(), readout.registers()), (window_ns, library.ranks().len()));
    let (mut intervals, mut most) = (0, 0.0_f64);
    for (number, batch) in (1..).zip(core::iter::once(&frames[..0]).chain(frames.chunks(every))) {
        let mut packets = 0;
        for captured in batch {
            machine.process(AGENT_PORT, 0, &captured.replayed()).expect("a frame");
            if let Some(packet) = counts.count(captured) {
                library.insert(identity::flow(&packet, &key), captured.time_ns);
                packets += 1;
            }
            latest_ns = captured.time_ns.max(latest_ns);
        }
        let mut switch = Local(&machine, name);
        let block = switch.cardinality(readout.registers()).expect("ST-HLL");
        let (frames, switch_ns) = (switch.frames().expect("frames"), latest_ns + later_ns);
        let interval = readout.read(&frames, &block, number * SECOND, switch_ns).expect("its own constants");
        let Some(CardinalityInterval { frames, flows, lasting }) = interval else {
            assert_eq!(number, 1, "it begins once");
            continue;
        };
        let expected = library.estimate(switch_ns, window_ns).expect("its window");
        assert_eq!(flows, expected.warm.then_some(expected.count), "{program}, interval {number}");
        assert!(lasting <= flows, "{program}, interval {number}: {lasting:?} of {flows:?}");
        assert_eq!((frames.packets, frames.lost_polls), (packets, 0), "{program}, interval {number}");
        (intervals, most) = (intervals + 1, most.max(flows.unwrap_or_default()));
    }
    (intervals, most)
}

#[test]
fn distinct_flows_of_each_golden_vector_are_those_of_the_library() {
    for program in PROGRAMS {
        for vector in Vector::read_all(subject(program)).expect("vectors of the program") {
            let (intervals, _) = compare(program, &vector.frames, 100, 0);

            assert!(intervals > 0, "{program}, {}", vector.name);
        }
    }
}

#[test]
fn distinct_flows_of_random_frames_are_those_of_the_library_also_a_while_after_them() {
    for (program, seed, damaged, later_ns) in [
        ("st-hll", 31, 0.0, 0),
        ("st-hll", 32, 0.2, 1 << 22),
        ("st-hll-hardware", 33, 0.1, 0),
        ("together", 34, 0.1, 7),
    ] {
        let frames: Vec<_> = Traffic::new(seed, damaged).take(10_000).collect();
        let (intervals, most) = compare(program, &frames, 700, later_ns);

        assert!(intervals == 15 && most > 50.0, "{program}, seed {seed}: {intervals} intervals, {most} flows");
    }
}

#[test]
fn flows_of_a_switch_without_packets_are_gone_after_two_windows() {
    let frames: Vec<_> = Traffic::new(35, 0.0).take(1_000).collect();
    let two_windows = 2 << 25;

    let (intervals, most) = compare("st-hll", &frames, 1_000, two_windows);

    assert_eq!((intervals, most), (1, 0.0));
}
