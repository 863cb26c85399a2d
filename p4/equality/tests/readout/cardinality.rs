//! ST-HLL: alone in a switch, and beside other synopses.

use equality::control::Local;
use equality::frames::{AGENT_PORT, Captured, Frames};
use equality::interpreter::Machine;
use equality::model::key;
use equality::sthll::settings_of;
use equality::traffic::Traffic;
use equality::vectors::Vector;
use packets::identity;
use packets::switch::readout::{CardinalityInterval, CardinalityReadout, ReadoutError};
use packets::switch::registers::SwitchRegisters as _;
use synopses::cardinality::{Cardinality as _, StHll};
use synopses::digest::DigestKey;

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

/// A switch, and the library with the same packets.
struct Counted {
    program: &'static str,
    machine: Machine,
    counts: Frames,
    library: StHll,
    key: DigestKey,
    latest_ns: u64,
}

impl Counted {
    fn new(program: &'static str) -> Self {
        let (constants, program) = (constants(program), subject(program).name);
        let library = StHll::new(settings_of(constants.kind())).expect("settings of the tested program");
        let (machine, key, counts) = (machine(program), key(constants.kind()), Frames::new(&constants));
        Self { program, machine, counts, library, key, latest_ns: 0 }
    }

    /// Passes these frames at their times since `began_ns`. Returns how many are packets.
    fn pass(&mut self, frames: &[Captured], began_ns: u64) -> u64 {
        let mut packets = 0;
        for captured in frames {
            let time_ns = captured.time_ns.saturating_sub(began_ns);
            self.machine.process(AGENT_PORT, 0, &captured.replayed_since(began_ns)).expect("a frame");
            if let Some(packet) = self.counts.count(captured) {
                self.library.insert(identity::flow(&packet, &self.key), time_ns);
                packets += 1;
            }
            self.latest_ns = self.latest_ns.max(time_ns);
        }
        packets
    }

    /// Polls it in this second of the agent, at this time of the switch.
    fn poll_at(
        &self,
        agent: &mut CardinalityReadout,
        second: u64,
        switch_ns: u64,
    ) -> Result<Option<CardinalityInterval>, ReadoutError> {
        let mut switch = Local(&self.machine, self.program);
        let block = switch.cardinality(agent.registers()).expect("ST-HLL");
        agent.read(&switch.frames().expect("frames"), &block, second * SECOND, switch_ns)
    }

    /// Likewise, at the time of the latest frame.
    fn poll(&self, agent: &mut CardinalityReadout, second: u64) -> Option<CardinalityInterval> {
        self.poll_at(agent, second, self.latest_ns).expect("its own constants and time")
    }

    /// What the library estimates at the time of the latest frame.
    fn flows(&self) -> Option<f64> {
        let estimate = self.library.estimate(self.latest_ns, self.library.effective_window_ns()).expect("its window");
        estimate.warm.then_some(estimate.count)
    }
}

fn agent(program: &str) -> CardinalityReadout {
    CardinalityReadout::new(&constants(program), SECOND).expect("constants of ST-HLL")
}

#[test]
fn an_agent_that_starts_again_has_all_flows_of_the_window_and_the_packets_that_come_from_then_on() {
    for program in PROGRAMS {
        let frames: Vec<_> = Traffic::new(63, 0.0).take(3_000).collect();
        let (mut switch, mut first) = (Counted::new(program), agent(program));
        assert_eq!(switch.poll(&mut first, 1), None);
        switch.pass(&frames[..1_700], 0);
        assert_eq!(switch.poll(&mut first, 2).and_then(|interval| interval.flows), switch.flows());

        let mut again = agent(program);
        assert_eq!(switch.poll(&mut again, 2), None);
        let packets = switch.pass(&frames[1_700..2_000], 0);
        let interval = switch.poll(&mut again, 3).expect("an interval");
        assert_eq!((interval.flows, interval.frames.packets), (switch.flows(), packets), "{program}");
        assert!(interval.flows.is_some_and(|flows| flows > 0.0), "{program}: {interval:?}");
    }
}

#[test]
fn flows_of_a_switch_that_starts_again_are_those_of_its_own_time_and_by_the_one_before_it_is_refused() {
    for program in PROGRAMS {
        let frames: Vec<_> = Traffic::new(64, 0.0).take(3_000).collect();
        let (mut switch, mut asked, mut told) = (Counted::new(program), agent(program), agent(program));
        assert_eq!((switch.poll(&mut asked, 1), switch.poll(&mut told, 1)), (None, None));
        switch.pass(&frames[..1_000], 0);
        let flows = switch.flows();
        let both = [&mut asked, &mut told].map(|agent| switch.poll(agent, 2).and_then(|interval| interval.flows));
        assert_eq!(both, [flows; 2], "{program}");

        // Registers are 0, and its time begins anew.
        let (before_ns, began_ns) = (switch.latest_ns, frames[1_000].time_ns - SECOND / 100);
        let mut switch = Counted::new(program);
        switch.pass(&frames[1_000..1_100], began_ns);
        assert_eq!(switch.poll(&mut asked, 3), None);
        assert_eq!(switch.poll_at(&mut told, 3, before_ns + SECOND), Ok(None));
        assert!(asked.has_started_again() && told.has_started_again(), "{program}");

        switch.pass(&frames[1_100..], began_ns);
        let interval = switch.poll(&mut asked, 4).expect("an interval");
        assert_eq!(interval.flows, switch.flows(), "{program}");
        assert!(interval.flows.is_some_and(|flows| flows > 0.0), "{program}: {interval:?}");
        // By the time before, no packet is of the window: nothing is said, and not that there are no flows.
        let refused = switch.poll_at(&mut told, 4, before_ns + 2 * SECOND);
        assert!(matches!(refused, Err(ReadoutError::Time { .. })), "{program}: {refused:?}");
    }
}
